#!/usr/bin/env bash
# Installs what a part of the work needs, and says what it does. Doing it twice does nothing.
#   scripts/setup.sh demo|test|bench
set -euo pipefail
cd "$(dirname "$0")/.."
part=${1:-test}

say() { printf '\033[1m[setup]\033[0m %s\n' "$*"; }

# For building: a C compiler and cmake; cargo and go fetch over TLS. For namespaces and traffic: ip, sysctl, ping, iperf3.
packages=(gcc g++ cmake ca-certificates iproute2 procps iputils-ping iperf3)
# Engines that are used when they are there; nothing needs them. Their packages have the names of Debian 12 or 13.
libraries=("libcrypto.so.3 libssl3t64 libssl3")
[ "$(dpkg --print-architecture)" != amd64 ] || libraries+=("libIPSec_MB.so libipsec-mb2 libipsec-mb1")
# Below it is kept from starting as a service.
strongswan=(strongswan-charon strongswan-swanctl libcharon-extra-plugins libstrongswan-extra-plugins
  libstrongswan-standard-plugins)
case $part in
  demo) ;;
  bench) packages+=(wireguard-tools openvpn openssl "${strongswan[@]}") ;;
  test)
    # wg and wg-quick, what wireguard-go's own test script uses, and a machine for the kernel's WireGuard and IPsec. The daemons
    # that need that IPsec are not installed: peers.sh brings them.
    packages+=(wireguard-tools ncat iptables kmod qemu-system-x86 busybox-static cpio xz-utils)
    # A machine of ARM, for our own program.
    [ -z "${ARM:-}" ] || packages+=(qemu-system-arm debootstrap)
    # What judges the unit; nothing is started.
    packages+=(systemd)
    # Shells whose completion is tested; what copies a configuration from and to another machine; nft, a packet filter in the way.
    packages+=(zsh fish curl openssh-client nftables)
    # ESP as others make it; what pyvyos is installed into; a responder of OCSP.
    packages+=(python3-scapy python3-cryptography python3-venv openssl)
    # The browser that reads the status page: 135 MB to fetch, 430 MB on the disk. NO_BROWSER=1 leaves it out, and its test is skipped.
    [ -n "${NO_BROWSER:-}" ] || packages+=(chromium chromium-driver python3-selenium)
    # What DPDK's tests of ipsec-secgw use.
    packages+=(net-tools python3-setuptools)
    # Ports and crypto devices of DPDK: its headers, which bring its drivers.
    packages+=(libdpdk-dev pkgconf)
    packages+=("${strongswan[@]}" strongswan-pki)
    # The other end of our OpenVPN.
    packages+=(openvpn)
    # What reads captures with the comments of their packets.
    packages+=(tshark)
    # What gives devices of a site addresses and names; the package without a service.
    packages+=(dnsmasq-base udhcpc)
    ;;
  *) echo "usage: $0 demo|test|bench" >&2; exit 2 ;;
esac

as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo)
export DEBIAN_FRONTEND=noninteractive
is_updated=
update() {
  [ -n "$is_updated" ] || "${as_root[@]}" apt-get update -qq
  is_updated=1
}

missing=()
present=$(/sbin/ldconfig -p)
for entry in "${libraries[@]}"; do
  read -r library names <<< "$entry"
  [[ $present != *"$library"* ]] || continue
  update
  for package in $names; do
    # apt-cache shows nothing for a name that other packages only refer to.
    if [ -n "$(apt-cache show "$package" 2>/dev/null)" ]; then
      missing+=("$package")
      break
    fi
  done
done
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null || true)
  [ "$status" = "ii " ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  say "apt-get install ${missing[*]}"
  update
  # strongswan-charon brings a service. It is neither started now, nor when the machine starts.
  policy=/usr/sbin/policy-rc.d
  if [[ " ${missing[*]} " == *" strongswan-charon "* ]]; then
    if [ ! -e "$policy" ]; then
      printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
      "${as_root[@]}" chmod 755 "$policy"
      trap '"${as_root[@]}" rm -f "$policy"' EXIT
    fi
    service=strongswan-starter.service
    if command -v systemctl >/dev/null && ! systemctl is-enabled -q "$service" 2>/dev/null; then
      disable_service=$service
    fi
  fi
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
  [ -z "${disable_service:-}" ] || "${as_root[@]}" systemctl disable -q "$disable_service" || true
fi

command -v cargo >/dev/null || { say "cargo is not here: install the Rust toolchain first"; exit 1; }
[ "$part" = demo ] || scripts/peers.sh "$part"
say "ready: $part"
