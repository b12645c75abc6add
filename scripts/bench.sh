#!/usr/bin/env bash
# All benchmarks; each leaves its numbers as JSON and its report as text.
set -euo pipefail
cd "$(dirname "$0")/.."
run=$1
mkdir -p "$run"
postern=target/release/postern

measure() {
  local name=$1
  shift
  printf '\033[1m[bench]\033[0m postern bench %s\n' "$*"
  "$postern" bench "$@" --save "$run/$name.json" | tee "$run/$name.txt"
}

measure system system
measure crypto crypto --chart "$run/crypto"
measure choice choice
measure pipeline pipeline
measure look-up look-up
measure secgw secgw
measure tunnel tunnel
measure tunnel-engines tunnel --peer postern --peer-engine aws-lc
measure tunnel-without-cipher tunnel --cipher none --peer postern
measure pipeline-esp pipeline --protocol esp --cipher aes-128-gcm
measure ipsec ipsec
measure openvpn openvpn --chart "$run/openvpn.svg"
measure peers peers
measure commit commit
measure flood flood
measure flood-ike flood --protocol ike
measure openvpn-storm openvpn-storm
measure ike ike
measure rfc2544-memory rfc2544 --wire memory --size 64 --size 1518 --size imix --chart "$run/rfc2544-memory"
measure document-002 document-002 --chart "$run/document-002"
