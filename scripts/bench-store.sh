#!/usr/bin/env bash
# Measures the segments of the store beside ext4, and writes docs/figures-store.md. Takes root.
#   --quick   one round with few objects, printed only
# Other arguments go to `weft-bench store` (`--only cold`).
set -eu
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

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
target/release/weft-bench store --dir "$dir" ${figures[@]+"${figures[@]}"} "$@"
