#!/usr/bin/env bash
# Installs what a part of the work needs, and says what it does. Doing it twice does nothing.
#   scripts/setup.sh demo|test|bench
set -euo pipefail
cd "$(dirname "$0")/.."
part=${1:-test}

say() { printf '\033[1m[setup]\033[0m %s\n' "$*"; }

# For building: a C compiler and cmake. For namespaces and traffic: ip, sysctl, ping, iperf3.
packages=(gcc g++ cmake iproute2 procps iputils-ping iperf3)
# Engines that are used when they are there; nothing needs them.
/sbin/ldconfig -p | grep -q 'libcrypto\.so\.3' || packages+=(libssl3)
[ "$(dpkg --print-architecture)" = amd64 ] && packages+=(libipsec-mb1)
case $part in
  demo) ;;
  bench) packages+=(wireguard-tools) ;;
  test)
    # wg and wg-quick, what wireguard-go's own test script uses, and a machine for the kernel's WireGuard.
    packages+=(wireguard-tools ncat iptables kmod qemu-system-x86 busybox-static cpio)
    # ESP as others make it.
    packages+=(python3-scapy python3-cryptography)
    ;;
  *) echo "usage: $0 demo|test|bench" >&2; exit 2 ;;
esac

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null || true)
  [ "$status" = "ii " ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  as_root=()
  [ "$(id -u)" = 0 ] || as_root=(sudo)
  say "apt-get install ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
fi

command -v cargo >/dev/null || { say "cargo is not here: install the Rust toolchain first"; exit 1; }
[ "$part" = demo ] || scripts/peers.sh "$part"
say "ready: $part"
