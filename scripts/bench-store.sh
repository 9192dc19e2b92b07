#!/usr/bin/env bash
# Measures the segments of the store beside ext4, xfs and btrfs, and writes docs/figures-store.md. Takes root.
#   --quick     one round with few objects, printed only
#   --log PATH  replays a web server's log as well (`--log-format worldcup` for the records of 1998)
# Other arguments go to `weft-bench store` (`--only cold`).
set -eu
cd "$(dirname "$0")/.."
. scripts/apt.sh
export PATH="$HOME/.cargo/bin:$PATH"

# The bench says which of the rivals it has found.
need_packages xfsprogs btrfs-progs || echo "Going on without the file systems that are missing." >&2

echo "Building the release."
cargo build --release --package weft-bench

# On the disk of this folder: /tmp may be memory.
mkdir -p target
dir=$(mktemp -d "$PWD/target/bench-store.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM

figures=(--figures docs/figures-store.md)
for argument in "$@"; do
    case $argument in
        --quick | --only) figures=() ;;
    esac
done
# The mounts of the bench are its own: they go with it, and nobody else sees them.
own=()
[ "$(id -u)" -eq 0 ] && own=(unshare --mount --propagation private)
${own[@]+"${own[@]}"} target/release/weft-bench store --dir "$dir" ${figures[@]+"${figures[@]}"} "$@"
