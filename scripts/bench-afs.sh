#!/usr/bin/env bash
# Measures weft on a real AFS cell of this machine (scripts/afs-cell.sh) beside afsd.fuse and ext4, and writes
# docs/figures-afs.md. Takes root, for network namespaces; what was brought up is taken down in any case.
#   --quick   one round with a shorter large file, printed only
# Other arguments go to `weft-bench afs` (`--only large`: printed only; with `--figures docs/figures-afs.md` that table is
# replaced there).
set -eu
cd "$(dirname "$0")/.."
. scripts/apt.sh
export PATH="$HOME/.cargo/bin:$PATH:/usr/sbin:/sbin"
# Where cargo puts what it builds.
built=${CARGO_TARGET_DIR:-target}

if [ "$(id -u)" -ne 0 ]; then
    echo "An AFS cell needs network namespaces: run this as root." >&2
    exit 1
fi
scripts/install-afs-server.sh
# shellcheck disable=SC2046  # no package at all where nginx is there
need_servers fuse3 make gcc diffutils findutils $(nginx_package)

echo "Building the release."
cargo build --release --package weft --package weft-bench
cargo test --release --package weft-afs --lib --no-run
promises=$(cargo test --release --package weft-afs --lib --no-run --message-format=json 2>/dev/null |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)

# On the disk of this folder: /tmp may be memory.
mkdir -p target
dir=$(mktemp -d "$PWD/target/bench-afs.XXXXXX")
clean_up() {
    # What an interrupted run has left; otherwise nothing is.
    awk -v below="$dir/" 'index($2, below) == 1 { print $2 }' /proc/self/mounts | while read -r place; do
        fusermount3 -uz "$place" || true
    done
    if [ -f "$dir/cell/id" ]; then
        end_strangers "weft-$(cat "$dir/cell/id")"
        scripts/afs-cell.sh down "$dir/cell" || true
    fi
    rm -rf "$dir"
}
# end_strangers NETWORKS : ends who is left on the nodes of clients, which the cell has not started, and removes a node that
# it has not made.
end_strangers() {
    local network pid
    for network in "$1-c1" "$1-c2" "$1-far" "$1-switch"; do
        [ -e "/run/netns/$network" ] || continue
        for pid in $(ip netns pids "$network"); do
            # The process that keeps a node is the cell's.
            grep -qx "$pid" "$dir"/cell/pids/* 2>/dev/null || kill -KILL "$pid" 2>/dev/null || true
        done
    done
    [ ! -e "/run/netns/$1-far" ] || ip netns delete "$1-far"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

figures=(--figures docs/figures-afs.md)
for argument in "$@"; do
    case $argument in
        --quick | --only) figures=() ;;
    esac
done
"$built"/release/weft-bench afs --weft "$built"/release/weft --dir "$dir" --scripts scripts --promises "$promises" \
    ${figures[@]+"${figures[@]}"} "$@"
