#!/usr/bin/env bash
# Makes a Debian package: packaging/package.sh [FLAGS OF CARGO DEB]. Needs `cargo install cargo-deb`.
#
# QUORATE_BINARY: pack this program, and do not build one. The package's path is printed.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
target=$CARGO_TARGET_DIR
if [ -n "${QUORATE_BINARY:-}" ]; then
    install -D -m 755 "$QUORATE_BINARY" "$target/release/quorate"
else
    cargo build --release --locked --package quorate >&2
fi
rm -rf "$target/release/package"
mkdir -p "$target/release/package"
"$target/release/quorate" man "$target/release/package/man"
for shell in bash zsh fish; do
    "$target/release/quorate" completions "$shell" > "$target/release/package/quorate.$shell"
done
cargo deb --package quorate --no-build --strip "$@"
