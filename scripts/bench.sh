#!/usr/bin/env bash
# Measures the release build against curl, rclone, httpdirfs and the disk, and writes docs/figures.md.
#   --quick   one round of everything, printed only
# Other arguments go to `weft-bench run` (`--only small`).
set -eu
cd "$(dirname "$0")/.."
. scripts/apt.sh
export PATH="$HOME/.cargo/bin:$PATH"

# shellcheck disable=SC2046  # no package at all where nginx is there
need_servers fuse3 curl $(nginx_package)
# The bench says which of the rivals it has found.
need_packages rclone httpdirfs || echo "Going on without the rivals that are missing." >&2

echo "Building the release."
cargo build --release --package weft --package weft-bench

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
target/release/weft-bench run --weft target/release/weft --dir "$dir" ${figures[@]+"${figures[@]}"} "$@"
