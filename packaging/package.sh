#!/usr/bin/env bash
# Makes a Debian package: packaging/package.sh. Needs `cargo install cargo-deb`.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
cargo build --release --locked --package quorate
rm -rf "$target/package"
mkdir -p "$target/package"
"$target/release/quorate" man "$target/package/man"
for shell in bash zsh fish; do
    "$target/release/quorate" completions "$shell" > "$target/package/quorate.$shell"
done
cargo deb --package quorate --no-build
