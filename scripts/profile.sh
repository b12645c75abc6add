#!/usr/bin/env bash
# Makes a profile of the program, with which `make dist PGO=target/profile/postern.profdata` builds a faster one (root, about 15 minutes).
#   build with counters -> benchmarks of the data path -> target/profile/postern.profdata
# The profile is for one version of the compiler and one state of the sources: functions that have changed are built without it.
set -euo pipefail
cd "$(dirname "$0")/.."
directory=target/profile
say() { printf '\033[1m[profile]\033[0m %s\n' "$*"; }
fail() { printf '%s\n' "$@" >&2; exit 1; }

# The tool that joins counters must be of the compiler's LLVM: of rustup, of Debian, or of the Debian in which programs for ARM are built.
find_tool() {
  local llvm sysroot path
  llvm=$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
  sysroot=$(rustc --print sysroot)
  for path in "$sysroot"/lib/rustlib/*/bin/llvm-profdata "/usr/lib/llvm-$llvm/bin/llvm-profdata"; do
    [ ! -x "$path" ] || { tool=("$path"); return; }
  done
  tool=(scripts/cross.sh profdata "$llvm")
}

measure() {
  say "$*"
  LLVM_PROFILE_FILE="$PWD/$directory/raw/%m-%p.profraw" $directory/release/postern bench "$@" > "$directory/bench.log" 2>&1 ||
    fail "bench $1: $(tail -n 5 "$directory/bench.log")"
}

[ "$(id -u)" = 0 ] || fail "root is needed: tunnels between namespaces are measured"
find_tool
rm -rf "$directory/raw" && mkdir -p "$directory/raw"
say "cargo build with counters, about 10 minutes on two cores"
# Paths are part of the names of some functions: it is built as for packages.
FOLDER=$directory RUSTFLAGS=-Cprofile-generate=$PWD/$directory/raw PGO='' TARGET='' scripts/dist.sh build
measure pipeline --seconds 0.5
measure pipeline --seconds 0.3 --burst 2
for cipher in aes-128-gcm aes-256-gcm chacha20-poly1305; do measure pipeline --protocol esp --cipher "$cipher" --seconds 0.3; done
measure secgw --rounds 1 --seconds 0.2
# With counters another engine is the fastest: this one is chosen without them.
for burst in 1 32; do measure crypto --cipher chacha20-poly1305 --sizes blocks --burst "$burst" --without nothing --seconds 0.1; done
measure tunnel --peer none --seconds 2 --rounds 1
measure ipsec --peer none --seconds 2 --rounds 1
"${tool[@]}" merge --sparse -o "$directory/postern.profdata" "$directory"/raw/*.profraw
rm -rf "$directory/raw"
say "$(du -h "$directory/postern.profdata" | cut -f1) target/profile/postern.profdata: make dist PGO=target/profile/postern.profdata"
