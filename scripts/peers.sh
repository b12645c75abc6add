#!/usr/bin/env bash
# Brings the programs that we are compared with into .peers/: the newest wireguard-go from the Go proxy, and for the tests a
# Debian kernel with its WireGuard, IPsec and crypto modules, libreswan, OpenIKED, OpenVPN 2.7 and Prometheus. A program that cannot
# be had is named, and the tests that need it are skipped aloud.
set -euo pipefail
cd "$(dirname "$0")/.."
part=${1:-test}
mkdir -p .peers

say() { printf '\033[1m[peers]\033[0m %s\n' "$*"; }
as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo)

# A Go that is old enough to be Debian's cannot build it, but can fetch one that can, as a module.
modern_go() {
  local go=$1 version
  version=$("$go" env GOVERSION 2>/dev/null | sed 's/^go//')
  [ "$(printf '%s\n1.21\n' "$version" | sort -V | head -n 1)" = 1.21 ]
}

build_wireguard_go() {
  local go
  go=$(command -v go || true)
  if [ -z "$go" ]; then
    say "apt-get install golang-go, to build wireguard-go"
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends golang-go >/dev/null
    go=$(command -v go)
  fi
  if ! modern_go "$go"; then
    local toolchain=golang.org/toolchain@v0.0.1-go1.24.6.linux-amd64
    say "$("$go" version | cut -d' ' -f3) is too old for wireguard-go: fetching a newer one as a module"
    (cd / && "$go" mod download "$toolchain") || return 1
    go=$("$go" env GOMODCACHE)/$toolchain/bin/go
    chmod +x "$go" "$(dirname "$go")"/../pkg/tool/linux_amd64/* 2>/dev/null || true
  fi
  say "go install golang.zx2c4.com/wireguard@latest"
  GOBIN="$PWD/.peers" "$go" install golang.zx2c4.com/wireguard@latest || return 1
  mv .peers/wireguard .peers/wireguard-go
}

if [ ! -x .peers/wireguard-go ]; then
  if ! build_wireguard_go; then
    say "the newest wireguard-go cannot be built here: comparisons use Debian's, which is from 2022, if it is installed"
  fi
fi

# The kernel's WireGuard, its IPsec and its crypto API run in an emulated machine, whatever kernel this machine has.
# What must be loaded for a purpose, with all that it needs before it, is written in that order to order-<purpose>.
wireguard_modules=(virtio_pci virtio_net wireguard)
crypto_modules=(virtio_pci virtio_crypto algif_aead algif_skcipher algif_hash ctr gcm ccm ghash_generic chacha_generic
  poly1305_generic chacha20poly1305 des_generic sha512_generic xcbc authenc)
ipsec_modules=(virtio_pci virtio_net esp4 esp6 xfrm_user authenc authencesn jitterentropy_rng drbg seqiv echainiv cbc ctr gcm
  ccm ghash_generic chacha_generic poly1305_generic chacha20poly1305 des_generic sha256_generic sha512_generic xcbc
  crypto_null)
# libreswan speaks to the kernel by xfrm_user, OpenIKED by af_key.
ike_modules=("${ipsec_modules[@]}" af_key)
# Two gateways in one machine, of which one uses the device.
device_modules=("${crypto_modules[@]}" tun veth)
# A kernel that has TUN and no nf_tables.
plain_modules=(tun)

fetch_kernel() {
  local work image version purpose module file
  apt-cache show linux-image-amd64 >/dev/null 2>&1 || "${as_root[@]}" apt-get update -qq
  image=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
  [ -n "$image" ] || return 1
  version=${image#linux-image-}
  say "apt-get download $image, for the kernel's WireGuard, IPsec and crypto API"
  work=$(mktemp -d)
  (cd "$work" && apt-get download -qq "$image" && dpkg-deb -x ./*.deb tree) || { rm -rf "$work"; return 1; }
  # What is there is taken away only when there is something else: tests may be running.
  rm -rf .peers/kernel.new
  mkdir -p .peers/kernel.new
  # Since Debian 13 the modules are below /usr and compressed.
  [ -e "$work/tree/lib" ] || ln -s usr/lib "$work/tree/lib"
  find "$work/tree/lib/modules/" -name '*.ko.xz' -exec xz -d '{}' +
  PATH=$PATH:/sbin:/usr/sbin depmod -b "$work/tree" "$version"
  for purpose in wireguard ipsec crypto device ike plain; do
    local -n modules=${purpose}_modules
    for module in "${modules[@]}"; do
      PATH=$PATH:/sbin:/usr/sbin modprobe -d "$work/tree" -S "$version" --show-depends "$module"
    done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++' | while read -r file; do
      cp "$file" .peers/kernel.new/
      basename "$file" >> ".peers/kernel.new/order-$purpose"
    done
  done
  cp "$work/tree/boot/vmlinuz-$version" .peers/kernel.new/vmlinuz
  rm -rf "$work" .peers/kernel
  mv .peers/kernel.new .peers/kernel
}

if [ "$part" = test ] && ! [ -f .peers/kernel/order-device -a -f .peers/kernel/order-ike -a -f .peers/kernel/order-plain -a -f .peers/kernel/esp6.ko ]; then
  fetch_kernel || say "no Debian kernel can be had here: the tests with its WireGuard, IPsec and crypto API will be skipped"
fi

# Unpacks packages of Debian, and all that they need, below $work/tree. They are not installed: they would start as services, and
# libreswan conflicts with strongSwan. As if nothing were installed, apt brings everything of one release.
unpack() {
  local package
  say "apt-get download $*, and what they need"
  mkdir -p "$work/archives/partial" "$work/tree"
  apt-cache show "$1" >/dev/null 2>&1 || "${as_root[@]}" apt-get update -qq
  apt-get -qq -y -o Dir::State::status=/dev/null -o Debug::NoLocking=1 -o "Dir::Cache::archives=$work/archives" \
    --no-install-recommends --download-only install "$@" >/dev/null 2>&1 || return 1
  for package in "$work"/archives/*.deb; do
    dpkg-deb -x "$package" "$work/tree" || return 1
  done
}

# Copies unpacked programs to a folder: copy_programs FOLDER PROGRAM...
copy_programs() {
  local folder=$1 program
  shift
  mkdir -p "$folder"
  for program in "$@"; do
    cp "$work/tree/$program" "$folder/" || return 1
  done
}

# Copies the libraries that files need to a folder, and the loader to a path: copy_libraries FOLDER LOADER FILE...
copy_libraries() {
  local folder=$1 path=$2 loader libraries file
  shift 2
  loader=$(find "$work/tree" -type f -name 'ld-linux-*.so.*' | head -n 1)
  libraries=$(find "$work/tree" -type f -name 'libc.so.6' -printf '%h\n' | head -n 1)
  libraries=$libraries:$work/tree/usr/lib/$(basename "$libraries")
  mkdir -p "$folder" "$(dirname "$path")"
  for file in "$@"; do
    "$loader" --library-path "$libraries" --list "$file" || return 1
  done | sed -n 's/.*=> \([^ ]*\) .*/\1/p' | sort -u | xargs -I '{}' cp -L '{}' "$folder/"
  cp "$loader" "$path"
}

# Brings programs to .peers/NAME, which the function fetch_NAME makes in $work/NAME.
bring() {
  local name=$1 work is_made=
  work=$(mktemp -d)
  if "fetch_$name"; then
    rm -rf ".peers/$name"
    mv "$work/$name" ".peers/$name"
    is_made=1
  fi
  rm -rf "$work"
  [ -n "$is_made" ]
}

# Two more IKEv2 daemons, which run in that machine only.
ike_programs=(usr/libexec/ipsec/pluto usr/libexec/ipsec/addconn usr/libexec/ipsec/whack usr/bin/certutil usr/sbin/iked
  usr/sbin/ikectl)
# What libraries load by name.
ike_plugins=(libsoftokn3.so libfreebl3.so libfreeblpriv3.so legacy.so)

fetch_ike() {
  local folder=$work/ike libraries=$work/ike/lib/x86_64-linux-gnu plugin
  unpack libreswan openiked && copy_programs "$folder/bin" "${ike_programs[@]}" || return 1
  # iproute2, under a name that busybox does not have.
  find "$work/tree" -type f -path '*bin/ip' -exec cp -L '{}' "$folder/bin/xfrm" ';'
  mkdir -p "$libraries" "$folder/usr/lib/x86_64-linux-gnu/ossl-modules"
  for plugin in "${ike_plugins[@]}"; do
    find "$work/tree" -type f -name "$plugin" -exec cp -L '{}' "$libraries/" ';'
  done
  copy_libraries "$libraries" "$folder/lib64/ld-linux-x86-64.so.2" "$folder"/bin/* "$libraries"/* || return 1
  mv "$libraries/legacy.so" "$folder/usr/lib/x86_64-linux-gnu/ossl-modules/"
}

if [ "$part" = test ] && ! [ -x .peers/ike/bin/pluto -a -x .peers/ike/bin/iked ]; then
  bring ike || say "libreswan and OpenIKED cannot be had here: the tests with them will be skipped"
fi

# Programs that read the files which the machine helper writes.
fetch_machine() {
  local folder=$work/machine
  unpack rsyslog snmpd snmp snmptrapd cron || return 1
  copy_programs "$folder/bin" usr/sbin/rsyslogd usr/sbin/snmpd usr/sbin/snmptrapd usr/bin/snmpget \
    usr/bin/snmpwalk usr/bin/snmpbulkwalk usr/sbin/cron || return 1
  # Modules of rsyslogd.
  cp -r "$work"/tree/usr/lib/*/rsyslog "$folder/modules" || return 1
  copy_libraries "$folder/lib" "$folder/lib/loader" "$folder"/bin/* "$folder"/modules/*.so
}

if [ "$part" = test ] && ! [ -x .peers/machine/bin/snmptrapd ]; then
  bring machine || say "rsyslog, snmpd and cron cannot be had here: the tests with them will be skipped"
fi

# The scripts that test DPDK's ipsec-secgw, with the program itself.
if [ "$part" = test ] && ! [ -f .peers/dpdk/ipsec-secgw/test/run_test.sh ]; then
  scripts/dpdk-source.sh .peers/dpdk || say "the source of DPDK cannot be had here: its tests of ipsec-secgw will be skipped"
fi

# The receivers of backups and copies of the configuration: age decrypts, an SSH server takes files.
fetch_remote() {
  local folder=$work/remote
  unpack age openssh-server && copy_programs "$folder/bin" usr/bin/age usr/sbin/sshd || return 1
  # Since OpenSSH 9.8 the server is several programs.
  find "$work/tree/usr/lib/openssh" -type f -name 'sshd-*' -exec cp '{}' "$folder/bin/" ';' 2>/dev/null || true
  copy_libraries "$folder/lib" "$folder/lib/loader" "$folder"/bin/sshd*
}

if [ "$part" = test ] && ! [ -x .peers/remote/bin/age -a -x .peers/remote/bin/sshd ]; then
  bring remote || say "age and an SSH server cannot be had here: the tests with them will be skipped"
fi

# Prometheus, which scrapes metrics. It needs the C library only, so that what Debian has with it stays away.
fetch_prometheus() {
  say "apt-get download prometheus"
  apt-cache show prometheus >/dev/null 2>&1 || "${as_root[@]}" apt-get update -qq
  (cd "$work" && apt-get download -qq prometheus && dpkg-deb -x ./prometheus_*.deb tree) || return 1
  copy_programs "$work/prometheus" usr/bin/prometheus usr/bin/promtool || return 1
  "$work/prometheus/prometheus" --version >/dev/null 2>&1
}

if [ "$part" = test ] && ! [ -x .peers/prometheus/prometheus ]; then
  bring prometheus || say "Prometheus cannot be had here: the tests with it will be skipped"
fi

# VyOS's client library for Python, for the API over HTTPS.
pyvyos=0.4.1

fetch_pyvyos() {
  say "pip install pyvyos==$pyvyos"
  rm -rf .peers/pyvyos
  python3 -m venv .peers/pyvyos && .peers/pyvyos/bin/pip install -q "pyvyos==$pyvyos" && return
  rm -rf .peers/pyvyos
  return 1
}

if [ "$part" = test ] && ! [ -x .peers/pyvyos/bin/python ]; then
  fetch_pyvyos || say "pyvyos cannot be had here: the test with it will be skipped"
fi

# OpenVPN of Debian's testing release, with its libraries beside: epoch keys came with 2.7.
fetch_openvpn() {
  local folder=$work/openvpn apt mirror
  mirror=$(scripts/debian-mirror.sh) || return 1
  mkdir -p "$work/lists/partial" "$work/cache" "$work/archives/partial" "$work/tree"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror testing main" \
    > "$work/sources.list"
  apt=(-qq -y -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$work/lists"
    -o Dir::State::status=/dev/null -o "Dir::Cache=$work/cache" -o "Dir::Cache::archives=$work/archives" -o Debug::NoLocking=1)
  say "apt-get download openvpn of Debian testing, and what it needs"
  apt-get "${apt[@]}" update >/dev/null 2>&1 || return 1
  apt-get "${apt[@]}" --no-install-recommends --download-only install openvpn >/dev/null 2>&1 || return 1
  find "$work/archives" -name '*.deb' -exec dpkg-deb -x '{}' "$work/tree" ';'
  copy_programs "$folder/bin" usr/sbin/openvpn || return 1
  copy_libraries "$folder/lib" "$folder/lib/loader" "$folder/bin/openvpn" || return 1
  printf '#!/bin/sh\nfolder=$(dirname "$0")\nexec "$folder/lib/loader" --library-path "$folder/lib" "$folder/bin/openvpn" "$@"\n' \
    > "$folder/openvpn"
  chmod +x "$folder/openvpn"
  "$folder/openvpn" --version | head -n 1 | grep -q '^OpenVPN 2\.[7-9]'
}

if [ "$part" = test ] && ! [ -x .peers/openvpn/openvpn ]; then
  bring openvpn || say "OpenVPN 2.7 cannot be had here: the test of epoch keys with it will be skipped"
fi

# The rules of accessibility by which the status page is judged: axe-core, which is not shipped (MPL-2.0).
fetch_axe() {
  local version=4.14.1 sum=29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c
  command -v npm >/dev/null && (cd "$work" && npm pack --silent "axe-core@$version" >/dev/null) || return 1
  tar -xzf "$work/axe-core-$version.tgz" -C "$work" package/axe.min.js || return 1
  echo "$sum  $work/package/axe.min.js" | sha256sum --check --quiet && mv "$work/package/axe.min.js" "$work/axe.min.js"
}

if [ "$part" = test ] && ! [ -f .peers/axe.min.js ]; then
  # Its name is that of the file.
  fetch_axe.min.js() { fetch_axe; }
  bring axe.min.js || say "axe-core cannot be had here: the test of the status page in a browser will be skipped"
fi
