#!/usr/bin/env bash
# Measures the release build against curl, rclone, httpdirfs and the disk, and writes docs/figures.md.
#   --quick   one round of everything, printed only
# Other arguments go to `weft-bench run` (`--only small`: printed only; with `--figures docs/figures.md` that table is
# replaced there).
set -eu
cd "$(dirname "$0")/.."
. scripts/apt.sh
export PATH="$HOME/.cargo/bin:$PATH"
# Where cargo puts what it builds.
built=${CARGO_TARGET_DIR:-target}

# shellcheck disable=SC2046  # no package at all where nginx is there
need_servers fuse3 curl $(nginx_package)
# The bench says which of the rivals it has found.
need_packages rclone httpdirfs || echo "Going on without the rivals that are missing." >&2
need_packages libfuse3-dev pkg-config || echo "Going on without libfuse's example." >&2

echo "Building the release."
cargo build --release --package weft --package weft-bench
cargo build --release --package weft-fusedev --example door
doors=(--door "$built"/release/examples/door)
fuser=crates/weft-bench/counterparts/fuser-door
if cargo build --release --locked --manifest-path "$fuser/Cargo.toml" --target-dir target/fuser-door; then
    doors+=(--fuser-door target/fuser-door/release/fuser-door)
else
    echo "Going on without fuser." >&2
fi
example=/usr/share/doc/libfuse3-dev/examples/passthrough_ll.c
# shellcheck disable=SC2046  # flags of a compiler, one word each
if cc -O2 "$example" -o target/passthrough_ll $(pkg-config fuse3 --cflags --libs); then
    doors+=(--passthrough_ll target/passthrough_ll)
else
    echo "Going on without libfuse's example." >&2
fi

# On the disk of this folder: /tmp may be memory.
mkdir -p target
dir=$(mktemp -d "$PWD/target/bench.XXXXXX")
clean_up() {
    # What an interrupted run has left mounted; otherwise nothing is.
    awk -v below="$dir/" 'index($2, below) == 1 { print $2 }' /proc/self/mounts | while read -r place; do
        fusermount3 -uz "$place" || true
    done
    rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

figures=(--figures docs/figures.md)
for argument in "$@"; do
    case $argument in
        --quick | --only) figures=() ;;
    esac
done
"$built"/release/weft-bench run --weft "$built"/release/weft --dir "$dir" "${doors[@]}" ${figures[@]+"${figures[@]}"} "$@"
