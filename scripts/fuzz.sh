#!/usr/bin/env bash
# Runs each fuzz target for so many seconds, from the committed corpus on. A crash is written to fuzz/artifacts.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
# Sanitizers need a compiler that allows unfinished features: a nightly one, or the stable one told so.
if rustup toolchain list 2>/dev/null | grep -q nightly; then
  toolchain=(+nightly)
else
  toolchain=()
  export RUSTC_BOOTSTRAP=1
fi
# Optimizing across crates would take ten minutes and find nothing more.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
targets=$(sed -n 's/^name = "\(.*\)"$/\1/p' fuzz/Cargo.toml | grep -v -e postern -e '^fuzz$')
for target in $targets; do
  printf '\033[1m[fuzz]\033[0m %s, %s s\n' "$target" "$seconds"
  # New inputs go to a folder of their own; the committed ones are read only.
  mkdir -p "fuzz/artifacts/corpus/$target"
  cargo "${toolchain[@]}" fuzz run --features libfuzzer "$target" "fuzz/artifacts/corpus/$target" "fuzz/corpus/$target" -- \
    -max_total_time="$seconds" -max_len=8192 -print_final_stats=1
done
