#!/usr/bin/env bash
# Installs what building and mounting need, after saying so: a C compiler (for one dependency's assembler), fuse3,
# and Rust where there is none or it is too old.
set -eu
cd "$(dirname "$0")/.."
. scripts/apt.sh
export PATH="$HOME/.cargo/bin:$PATH"

rust_needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

rust_is_new_enough() {
    command -v cargo >/dev/null && command -v rustc >/dev/null || return 1
    local present
    present=$(rustc --version | sed 's/^rustc \([0-9.]*\).*/\1/')
    [ "$(printf '%s\n%s\n' "$rust_needed" "$present" | sort -V | head -n 1)" = "$rust_needed" ]
}

need_packages build-essential fuse3

if rust_is_new_enough; then
    exit 0
fi
echo "Rust $rust_needed or newer is needed; found: $(rustc --version 2>/dev/null || echo none)."
if ! command -v rustup >/dev/null; then
    if apt-cache show rustup >/dev/null 2>&1; then
        need_packages rustup
    else
        need_packages curl ca-certificates
        echo "Installing rustup into $HOME/.cargo, as https://rustup.rs tells."
        curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal --no-modify-path
    fi
fi
echo "Installing the stable Rust toolchain with rustup, for this user."
rustup toolchain install stable --profile minimal --component rustfmt --component clippy
rustup default stable
if ! rust_is_new_enough; then
    echo "Still no Rust $rust_needed on the PATH: is another rustc before it ($(command -v rustc || echo none))?" >&2
    exit 1
fi
