#!/usr/bin/env bash
# Builds DPDK's example program ipsec-secgw from Debian's source package, for `postern bench secgw --peer ipsec-secgw`.
# Nothing of it is kept in the repository, and the program stays in the directory that is given.
#   scripts/ipsec-secgw.sh DIRECTORY
set -euo pipefail
directory=$1

fail() { printf '%s\n' "$@" >&2; exit 1; }

packages=(libdpdk-dev librte-net-pcap23 librte-net-null23 librte-net-af-xdp23 librte-crypto-ipsec-mb23 gcc make pkgconf xz-utils)
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
[ ${#missing[@]} = 0 ] || fail "ipsec-secgw cannot be built: packages are missing" "  fix: apt-get install ${missing[*]}"

version=$(dpkg-query -W -f '${source:Version}' libdpdk-dev)
program=$directory/ipsec-secgw-$version
[ ! -x "$program" ] || { printf '%s\n' "$program"; exit 0; }

mkdir -p "$directory"
work=$(mktemp -d "$directory/build-XXXXXX")
trap 'rm -rf "$work"' EXIT
log=$work/log
"$(dirname "$0")/dpdk-source.sh" "$work" "$version" 2> "$log" || fail "ipsec-secgw cannot be built" "$(cat "$log")"
cd "$work/ipsec-secgw"
# It demands checksums by the card, which net_pcap and net_af_xdp do not have.
sed -i 's/\.offloads = RTE_ETH_RX_OFFLOAD_CHECKSUM,/.offloads = 0,/' ipsec-secgw.c
make -j "$(nproc)" > "$log" 2>&1 || fail "ipsec-secgw cannot be built" "$(tail -n 5 "$log")"
mv build/ipsec-secgw-shared "$program"
printf '%s\n' "$program"
