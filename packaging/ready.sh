#!/usr/bin/env bash
# Says what a build needs and this machine lacks; installs a package only when it is missing, as root or
# with sudo, and else prints the line to type.
set -eu
want=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
if ! command -v cargo >/dev/null; then
    echo "cargo is missing: install Rust $want or later (https://rustup.rs)" >&2
    exit 1
fi
have=$(cargo --version | sed 's/cargo \([0-9.]*\).*/\1/')
if [ "$(printf '%s\n%s\n' "$want" "$have" | sort -V | head -n 1)" != "$want" ]; then
    echo "cargo $have is too old: jobmeter needs Rust $want or later; run: rustup update stable" >&2
    exit 1
fi
command -v cc >/dev/null && exit 0
line='apt-get install -y --no-install-recommends gcc libc6-dev'
if [ "$(id -u)" = 0 ]; then
    apt-get update -q && $line
elif command -v sudo >/dev/null; then
    echo "a C compiler is missing; asking sudo for: $line" >&2
    sudo sh -c "apt-get update -q && $line"
else
    echo "a C compiler is missing; as root, type: apt-get update && $line" >&2
    exit 1
fi
