#!/usr/bin/env bash
# Builds the two suites that try a mount as a POSIX file system, into target/posix: pjdfstest and fsx. Nothing else of
# this machine is changed, and the tests that need them say so where they are missing.
set -eu
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

root=target/posix

# suite NAME VERSION : builds a program from crates.io unless this version is there.
suite() {
    local name=$1 version=$2
    if [ -x "$root/bin/$name" ] && grep -q "^\"$name $version " "$root/.crates.toml" 2>/dev/null; then
        return 0
    fi
    echo "Building $name $version from crates.io into $root (about half a minute)."
    if ! cargo install "$name@$version" --quiet --locked --debug --force --root "$root" --target-dir "$root-build"; then
        echo "$name $version could not be built. Is crates.io reached from here (cargo search $name)? Then try again:" >&2
        echo "    scripts/install-posix-tests.sh" >&2
        return 1
    fi
}

suite pjdfstest 0.2.2
suite fsx 0.3.2
