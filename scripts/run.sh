#!/usr/bin/env bash
# Builds, mounts everything at ~/weft (or the folder given), and says what to try.
set -eu
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"
dir=${1:-$HOME/weft}

echo "Building weft (a few minutes the first time)."
cargo build --release --bin weft
weft=$(realpath "${CARGO_TARGET_DIR:-target}")/release/weft

if "$weft" status "$dir" >/dev/null 2>&1; then
    echo "$dir is mounted already."
else
    mkdir -p "$dir"
    "$weft" mount "$dir"
    echo "Mounted everything on $dir."
fi
cat <<TEXT

Try:
  cat $dir/web/weft.example/index.html        a site inside weft itself, no network needed
  ls -l $dir/web/weft.example/pub
  grep -r file $dir/web/weft.example/docs
  ls $dir/web/example.org                     a site of the real web
  $weft why $dir/web/weft.example/index.html
  $weft ls -w --all $dir/web/weft.example
  $weft status
  $weft demo                                  a tour of one minute

To stop: $weft umount $dir
To install: make install (as root), then the command is just \`weft\`.
TEXT
