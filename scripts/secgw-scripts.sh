#!/usr/bin/env bash
# Runs DPDK's own tests of ipsec-secgw, unchanged, with `postern secgw` in its place, or with ipsec-secgw; needs root.
#   scripts/secgw-scripts.sh PROGRAM WORD...       words of run_test.sh: -p, or -4, -6, -46m, -46s, ... and names of tests
#   scripts/secgw-scripts.sh target/release/postern -p
#   scripts/secgw-scripts.sh target/release/postern -46m tun_aesgcm
# It exits as run_test.sh does, or with 77 if something is missing here. KEEP=DIRECTORY keeps the logs.
#
#   namespace:  dtap0 (kernel, local host) ── gateway ── wire (TAP) ── emulated machine: a Debian kernel with IPsec, the remote host
#
# The scripts reach the remote host by ssh and scp. Stand-ins for both are on PATH: ssh goes by a second TAP interface, scp by the tunnel.
set -euo pipefail
cd "$(dirname "$0")/.."
tests=$PWD/.peers/dpdk/ipsec-secgw/test kernel=$PWD/.peers/kernel
[ $# -ge 2 ] || { sed -n 's/^# \?//; 2,6p' "$0" >&2; exit 2; }
program=$(realpath "$1"); shift

missing() { printf '%s\n' "$@" >&2; exit 77; }

[ "$(id -u)" = 0 ] || missing "root is needed"
[ -f "$tests/run_test.sh" ] || missing "the source of DPDK is missing" "  fix: make setup"
PATH=/usr/bin:/usr/sbin:/bin:/sbin
for needed in ip ifconfig stdbuf python3; do
  command -v "$needed" > /dev/null || missing "$needed is missing" "  fix: make setup"
done
python3 -c 'import scapy, pkg_resources' 2> /dev/null || missing "scapy or setuptools is missing" "  fix: make setup"

namespace=secgw-scripts-$$
directory=$(mktemp -d)
machine=
clean() {
  [ -z "$machine" ] || kill "$machine" 2> /dev/null || true
  ip netns pids "$namespace" 2> /dev/null | xargs -r kill 2> /dev/null || true
  ip netns del "$namespace" 2> /dev/null || true
  [ -z "${KEEP:-}" ] || { mkdir -p "$KEEP" && cp "$directory"/run/* "$directory/console" "$KEEP/" 2> /dev/null; } || true
  rm -rf "$directory"
}
trap clean EXIT
mkdir -p "$directory/bin" "$directory/run"

# ipsec-secgw takes its memory from huge pages, which few machines have.
if [ "$(basename "$program")" = postern ]; then words=(secgw --api "$directory/secgw.sock"); else words=(--no-huge -m 512 "--file-prefix=$namespace"); fi
printf '#!/bin/bash\nexec %q %s "$@"\n' "$program" "$(printf '%q ' "${words[@]}")" > "$directory/bin/dpdk-ipsec-secgw"

ip netns add "$namespace"
in_namespace() { ip netns exec "$namespace" "$@"; }
in_namespace ip link set lo up
# The tests count each packet: the kernel must not send its own by new interfaces, nor wait before it uses an address.
in_namespace sysctl -qw net.ipv6.conf.default.disable_ipv6=1 net.ipv6.conf.default.accept_dad=0

# The remote host: one process for each connection, which gets a line, and for a file its bytes.
write_machine() {
  local root=$directory/root applet program library
  mkdir -p "$root"/{bin,modules,proc,dev,sys,tmp}
  cp "$(command -v busybox)" "$root/bin/busybox"
  for applet in sh mount insmod cat nc head sleep rm sysctl; do ln -s busybox "$root/bin/$applet"; done
  # Those of busybox, which its shell takes before these, have fewer words.
  for program in ip ifconfig; do
    cp "$(command -v "$program")" "$root/bin/full-$program"
    ldd "$(command -v "$program")" | grep -o '/[^ ]*' | while read -r library; do
      mkdir -p "$root$(dirname "$library")"
      cp "$library" "$root$library"
    done
  done
  cp "$kernel"/*.ko "$kernel/order-ipsec" "$root/modules/"
  cat > "$root/init" <<'END'
#!/bin/sh
mount -t proc proc /proc; mount -t devtmpfs dev /dev; mount -t sysfs sys /sys
for module in $(cat /modules/order-ipsec); do insmod /modules/$module || echo FAILED $module; done
ip() { full-ip "$@"; }
sysctl -w net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.eth0.accept_dad=0
ip link set lo up
ip link set eth1 up
ip addr add 10.255.255.2/30 dev eth1
nc -ll -p 22 -e /bin/serve &
echo READY
while true; do sleep 1000; done
END
  cat > "$root/bin/serve" <<'END'
#!/bin/sh
cd /tmp
read -r verb words
case $verb in
  run) sh -c "ip() { full-ip \"\$@\"; }; ifconfig() { full-ifconfig \"\$@\"; }; $words" 2>&1; printf '\n%s' $? ;;
  put) head -c "${words#* }" > "${words%% *}"; echo kept ;;
  get) cat "$words" ;;
esac
END
  chmod 755 "$root/init" "$root/bin/serve"
  (cd "$root" && find . | cpio --quiet -o -H newc > ../initramfs)
}

boot_machine() {
  local needed
  for needed in qemu-system-x86_64 cpio busybox; do
    command -v "$needed" > /dev/null || missing "$needed is missing" "  fix: make setup"
  done
  [ -f "$kernel/esp6.ko" ] || missing "a Debian kernel is missing in .peers" "  fix: make setup"
  local tap
  for tap in wire control; do
    in_namespace ip tuntap add "$tap" mode tap
    in_namespace ip link set "$tap" up
  done
  in_namespace ip addr add 10.255.255.1/30 dev control
  write_machine
  in_namespace qemu-system-x86_64 -accel tcg -m 512 -nographic -no-reboot \
    -append 'console=ttyS0 loglevel=1 panic=-1 no_timer_check' -kernel "$kernel/vmlinuz" -initrd "$directory/initramfs" \
    -netdev tap,id=wire,ifname=wire,script=no,downscript=no -device virtio-net-pci,netdev=wire \
    -netdev tap,id=control,ifname=control,script=no,downscript=no -device virtio-net-pci,netdev=control \
    < /dev/null > "$directory/console" 2>&1 &
  machine=$!
  touch "$directory/console"
  local deadline=$((SECONDS + 180))
  until grep -q READY "$directory/console"; do
    [ $SECONDS -lt $deadline ] || { echo "the emulated machine does not start" >&2; tail -n 20 "$directory/console" >&2; exit 1; }
    sleep 0.5
  done
}

write_stand_ins() {
  cat > "$directory/bin/ssh" <<'END'
#!/bin/bash
shift
exec 3<> /dev/tcp/10.255.255.2/22
printf 'run %s\n' "$*" >&3
said=$(cat <&3)
printf '%s\n' "${said%$'\n'*}"
exit "${said##*$'\n'}"
END
  cat > "$directory/bin/scp" <<'END'
#!/bin/bash
# scp FILE [ADDRESS]:NAME, or the reverse.
remote=$1
[[ $remote == \[* ]] || remote=$2
address=${remote#\[} address=${address%%\]*} name=${remote#*\]:}
exec 3<> "/dev/tcp/$address/22"
if [ "$remote" = "$1" ]; then
  printf 'get %s\n' "$name" >&3
  cat <&3 > "$2"
else
  printf 'put %s %s\n' "$name" "$(stat -c %s "$1")" >&3
  cat "$1" >&3
  read -r answer <&3
  [ "$answer" = kept ]
fi
END
}

case " $* " in *" -"*[46]*) boot_machine ;; esac
write_stand_ins
chmod 755 "$directory"/bin/*
cd "$directory/run"
export PATH="$directory/bin:$PATH" SGW_PATH="$directory/bin/dpdk-ipsec-secgw"
# Port 0 must be the wire: on a machine with a network card it is, as DPDK finds these first.
export REMOTE_HOST=remote REMOTE_IFACE=eth0 ETH_DEV=--no-pci
case " $* " in *" -"*[46]*) export CRYPTO_DEV="--vdev=crypto_aesni_mb0 --vdev=net_af_packet0,iface=wire" ;; esac
in_namespace bash "$tests/run_test.sh" "$@"
