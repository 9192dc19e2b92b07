#!/usr/bin/env bash
# Measures the segments of the store beside ext4, xfs, btrfs and foyer, and nginx on weft's mount beside nginx on
# ext4, and writes docs/figures-store.md. Takes root.
#   --quick     one round with few objects, printed only
#   --log PATH  replays a web server's log as well (`--log-format worldcup` for the records of 1998)
# Other arguments go to `weft-bench store` (`--only cold`: printed only; with `--figures docs/figures-store.md` that table
# is replaced there).
set -eu
cd "$(dirname "$0")/.."
. scripts/apt.sh
export PATH="$HOME/.cargo/bin:$PATH"
# Where cargo puts what it builds.
built=${CARGO_TARGET_DIR:-target}

# shellcheck disable=SC2046  # no package at all where nginx is there
need_servers fuse3 e2fsprogs $(nginx_package) || echo "Going on without nginx." >&2
# The bench says which of the rivals it has found.
need_packages xfsprogs btrfs-progs || echo "Going on without the file systems that are missing." >&2

echo "Building the release."
cargo build --release --package weft --package weft-bench
rivals=()
foyer=crates/weft-bench/counterparts/foyer-store
if cargo build --release --locked --manifest-path "$foyer/Cargo.toml" --target-dir target/foyer-store; then
    rivals+=(--foyer-store target/foyer-store/release/foyer-store)
else
    echo "Going on without foyer." >&2
fi

# On the disk of this folder: /tmp may be memory.
mkdir -p target
dir=$(mktemp -d "$PWD/target/bench-store.XXXXXX")
clean_up() {
    # Who is left of an interrupted run: the daemon of a mount outlives whoever made it.
    [ ! -f "$dir/accelerator/groups" ] || while read -r group; do
        [ -d "$group" ] || continue
        while read -r pid; do kill -KILL "$pid" || true; done <"$group/cgroup.procs"
        # It is empty when they have ended.
        for _ in 1 2 3 4 5 6 7 8 9 10; do
            rmdir "$group" 2>/dev/null && break
            sleep 0.5
        done
    done <"$dir/accelerator/groups"
    rm -rf "$dir"
}
trap clean_up EXIT
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
${own[@]+"${own[@]}"} "$built"/release/weft-bench store --dir "$dir" --weft "$built"/release/weft \
    ${rivals[@]+"${rivals[@]}"} ${figures[@]+"${figures[@]}"} "$@"
