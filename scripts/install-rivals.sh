#!/usr/bin/env bash
# Installs the programs that weft is compared with. Whoever compares leaves out what is missing.
set -eu
cd "$(dirname "$0")/.."
. scripts/apt.sh

need_packages fuse3 rclone httpdirfs || echo "Going on without what is missing." >&2
