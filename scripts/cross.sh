#!/usr/bin/env bash
# Builds the program for another processor, in a Debian of its own below .peers/cross (root; 3 minutes and 5 GB, once).
#   scripts/cross.sh list                  the targets
#   scripts/cross.sh triple TARGET         what compilers call it
#   scripts/cross.sh build TARGET          build it: .peers/cross/target/TARGET/postern, stripped; FEATURES=openvpn: with this cargo feature,
#                                          where the target is without
#   scripts/cross.sh run TARGET WORDS...   run it in an emulated processor
#   scripts/cross.sh count TARGET WORDS... run it in an emulated machine whose nanoseconds are instructions, for `bench`
#   scripts/cross.sh test TARGET WORDS...  run the tests of protocols, ciphers and packets in an emulated processor
#   scripts/cross.sh machine TARGET        what the tests boot in an emulated ARM machine, in .peers/arm/TARGET: Debian's kernel, and the
#                                          program as tests have it, without its cargo features
#   scripts/cross.sh profdata LLVM WORDS... llvm-profdata of that version of LLVM, on files below this folder
# The host needs no other Rust: the compiler and its libraries for ARM are packages of that Debian. zig (from PyPI) compiles C, and links for
# the C library of Debian 11; LLVM's linker makes static programs with Debian's musl.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD/.peers/cross
# The C library that programs must start with: Debian 11's.
glibc=2.31

say() { printf '\033[1m[cross]\033[0m %s\n' "$*"; }
fail() { printf '%s\n' "$@" >&2; exit 1; }

# Sets what a target means: the triple, the C library's version, the emulator with its processor, the prefix of binutils, where its
# libraries are, a machine for it, options of cargo, and flags for Rust and C.
#   aarch64            any 64-bit ARM; AES and PMULL are found at run time
#   aarch64-musl, x86_64-musl
#                      static programs, which need nothing of the machine and can load no engines
#   aarch64-small-musl, x86_64-small-musl
#                      the same for little flash: without cargo features and tables for backtraces
#   armv7              any 32-bit ARMv7 with hardware floating point
#   armv7-musl, armv7-small-musl
#                      a static program, and one for little flash, of instructions of 16 bits where there are some (Thumb-2)
#   armv7-cortex-a7, armv7-cortex-a9, armv7-cortex-a15, armv7-krait
#                      the same with NEON, scheduled for this core
describe() {
  local cpu=
  case $1 in
    aarch64)
      triple=aarch64-unknown-linux-gnu emulator=(qemu-aarch64 -cpu cortex-a53) binutils=aarch64-linux-gnu libraries=aarch64-linux-gnu
      emulator_of_machine=(qemu-system-aarch64 -M virt -cpu cortex-a53)
      kernel=linux-image-cloud-arm64:arm64 emulated=.peers/arm/aarch64
      ;;
    aarch64-musl) describe aarch64; static aarch64 ;;
    x86_64-musl) emulator=(env) binutils=x86_64-linux-gnu; static x86_64 ;;
    aarch64-small-musl) describe aarch64-musl; small ;;
    x86_64-small-musl) describe x86_64-musl; small ;;
    armv7-musl) describe armv7; static armv7 ;;
    armv7-small-musl) describe armv7-musl; small; rust_flags+=" -Ctarget-feature=+thumb-mode" c_flags=-mthumb ;;
    armv7)
      triple=armv7-unknown-linux-gnueabihf emulator=(qemu-arm -cpu cortex-a15) binutils=arm-linux-gnueabihf libraries=arm-linux-gnueabihf
      # Debian's kernel for it has no addresses beyond 4 GB.
      emulator_of_machine=(qemu-system-arm -M "virt,highmem=off" -cpu cortex-a15)
      kernel=linux-image-armmp:armhf emulated=.peers/arm/armv7
      # Otherwise zig's memcpy, a loop of words, takes the place of the C library's, which uses NEON. Rust has the rest.
      link=(-Clink-arg=-rtlib=none -Clink-arg=/target/read_tp.o)
      ;;
    armv7-cortex-a7) cpu=cortex-a7 ;;
    armv7-cortex-a9) cpu=cortex-a9 ;;
    armv7-cortex-a15) cpu=cortex-a15 ;;
    armv7-krait) cpu=krait ;;
    *) fail "TARGET=$1 is not known" "  fix: one of $(list | tr '\n' ' ')" ;;
  esac
  [ -n "$cpu" ] || return 0
  describe armv7
  rust_flags="-Ctarget-cpu=$cpu -Ctarget-feature=+neon"
  # zig spells processors so.
  c_flags="-mcpu=${cpu//-/_}"
}

# A static program: there is no package of the standard library for musl, so it is built too, which asks for the compiler's next features.
static() {
  local flag
  triple=$1-unknown-linux-musl musl=$1-linux-musl version='' options=(-Zbuild-std="std,panic_abort") environment=(RUSTC_BOOTSTRAP=1)
  # zig's linker keeps functions that are equal twice and has no short relocations: 0.6 MB of 12. Its C library keeps what small
  # pieces of memory were once taken for.
  link=(-Clinker=ld.lld -Clinker-flavor=ld.lld -Clink-self-contained=yes)
  for flag in --icf=all -zpack-relative-relocs -pie --no-dynamic-linker -ztext; do link+=("-Clink-arg=$flag"); done
  [ "$1" != armv7 ] || triple+=eabihf musl=arm-linux-musleabihf
}

small() {
  # A panic says what, but not in which line.
  profile=small rust_flags="-Cforce-unwind-tables=no -Zlocation-detail=none"
  options+=(--no-default-features -Zbuild-std-features=optimize_for_size)
}

list() { printf '%s\n' aarch64 aarch64-musl aarch64-small-musl x86_64-musl x86_64-small-musl armv7 armv7-musl armv7-small-musl armv7-cortex-a7 armv7-cortex-a9 armv7-cortex-a15 armv7-krait; }

# Runs a command in that Debian.
inside() {
  chroot "$root" env -i HOME=/root PATH=/opt/zig/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C \
    SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt CARGO_HTTP_CAINFO=/etc/ssl/certs/ca-certificates.crt \
    DEBIAN_FRONTEND=noninteractive "$@"
}

packages=(rustc cargo rust-src cmake make gcc g++ clang bindgen python3-venv g++-aarch64-linux-gnu g++-arm-linux-gnueabihf
  libstd-rust-dev:arm64 libstd-rust-dev:armhf lld musl-dev musl-dev:arm64 musl-dev:armhf qemu-user libc6:arm64 libc6:armhf libgcc-s1:arm64 libgcc-s1:armhf)

install_package() {
  say "apt-get install $1"
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$1" > /dev/null
}

set_up() {
  [ "$(id -u)" = 0 ] || fail "root is needed for the chroot below .peers/cross"
  [ "$(cat "$root/.ready" 2> /dev/null)" != "${packages[*]}" ] || return 0
  command -v debootstrap > /dev/null || install_package debootstrap
  rm -rf --one-file-system "$root"
  mkdir -p "$root"
  say "debootstrap forky, a minute"
  # An older debootstrap knows no forky; all of Debian's suites are made by one script.
  debootstrap --variant=minbase --include=ca-certificates forky "$root" "${MIRROR:-$(scripts/debian-mirror.sh)}" \
    /usr/share/debootstrap/scripts/sid > .peers/cross.log 2>&1 || fail "debootstrap: $(tail -n 3 .peers/cross.log)"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  # Certificates that the host trusts, of a mirror for example.
  cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
  # Indexes of a mirror may be old; signatures are checked all the same.
  printf 'Acquire::Check-Valid-Until "false";\n' > "$root/etc/apt/apt.conf.d/90cross"
  inside dpkg --add-architecture arm64
  inside dpkg --add-architecture armhf
  say "apt-get install rustc, cargo and the cross compilers, 2 minutes"
  { inside apt-get update -qq && inside apt-get install -qq -y --no-install-recommends "${packages[@]}"; } > .peers/cross.log 2>&1 \
    || fail "apt-get in .peers/cross: $(tail -n 3 .peers/cross.log)"
  say "pip install ziglang cargo-zigbuild"
  inside python3 -m venv /opt/zig
  inside /opt/zig/bin/pip install -q ziglang==0.17.1 cargo-zigbuild==0.24.1
  echo "${packages[*]}" > "$root/.ready"
}

# Mounts the source, the crates and the kernel's folders, for this process alone: nothing stays mounted, whatever ends it.
mount_all() {
  local crates=${CARGO_HOME:-$HOME/.cargo}/registry
  mkdir -p "$root/src" "$root/target" "$root/root/.cargo/registry" "$crates"
  mount --bind "$PWD" "$root/src"
  mount -t proc proc "$root/proc"
  mount --bind /dev "$root/dev"
  # What cargo has fetched for the host.
  mount --bind "$crates" "$root/root/.cargo/registry"
}

# What links need that the compiler and zig do not bring: musl with its objects for the start of a program, where the compiler would have its
# own; and LLVM's libunwind, which zig compiles for musl.
make_start() {
  local folder name flag
  [[ $triple != armv7-* ]] || inside arm-linux-gnueabihf-gcc -march=armv7-a -c -o /target/read_tp.o /src/scripts/read_tp.s
  [ -n "$musl" ] || return 0
  folder=$(inside rustc --print sysroot)/lib/rustlib/$triple/lib/self-contained
  inside mkdir -p "$folder"
  inside sh -c 'cd "$1" && cp crti.o crtn.o ./*.a "$2/"' sh "/usr/lib/$musl" "$folder"
  # For 64-bit ARM the compiler asks for those of a program with a fixed address.
  for name in rcrt1 crt1; do inside cp "/usr/lib/$musl/rcrt1.o" "$folder/$name.o"; done
  for name in crtbegin crtend; do
    for flag in S ''; do
      inside cp "$(inside "$binutils-gcc" -print-file-name="${name}S.o")" "$folder/$name$flag.o"
    done
  done
  # shellcheck disable=SC2016
  inside sh -ec '
    cd "$(mktemp -d)" && echo "int main(void) { return 0; }" > nothing.c
    ZIG_GLOBAL_CACHE_DIR=$PWD python-zig cc -target "$1" nothing.c -lunwind -o nothing
    cp o/*/libunwind.a "$2/" && rm -rf "$PWD"' sh "$musl" "$folder"
}

# Runs cargo-zigbuild on the source for the target.
zigbuild() {
  inside sh -c 'cd /src && exec "$@"' sh env CARGO_TARGET_DIR="/target/cargo/$target" RUSTFLAGS="$rust_flags" \
    CFLAGS="$c_flags" POSTERN_COMMIT="${POSTERN_COMMIT-$(git rev-parse --short=12 HEAD 2> /dev/null || true)}" "${environment[@]}" \
    cargo-zigbuild "$@"
}

build() {
  local from
  set_up
  mount_all
  make_start
  say "cargo-zigbuild, $target: 10 minutes on two cores"
  zigbuild rustc --profile "$profile" --locked --package postern --bin postern --target "$triple$version" "${options[@]}" \
    ${FEATURES:+--features "$FEATURES"} ${CARGO_OPTIONS:-} -- "${link[@]}"
  from="/target/cargo/$target/$triple/$profile/postern"
  inside mkdir -p "/target/$place"
  inside "$binutils-strip" --strip-unneeded -o "/target/$place/postern" "$from"
  say "$(du -h --apparent-size "$root/target/$place/postern" | cut -f1) .peers/cross/target/$place/postern"
}

# Runs the tests of protocols, ciphers and packets in an emulated processor; those of the daemon are for the machine.
unit_tests() {
  local name=CARGO_TARGET_${triple^^}_RUNNER package packages_of_tests=()
  set_up
  mount_all
  make_start
  for package in packet crypto tunnel; do packages_of_tests+=(--package "postern-$package"); done
  say "cargo-zigbuild test, $target"
  environment+=("${name//-/_}=${emulator[*]}")
  zigbuild test --profile testing --locked --target "$triple$version" "${packages_of_tests[@]}" --no-fail-fast "${options[@]}" -- "$@"
}

need_machine() {
  [ -n "${emulated:-}" ] || fail "there is no emulated machine for TARGET=$target" "  fix: aarch64 or armv7, or one that is made of them"
}

# Puts a kernel of Debian with what the machine of a test loads, and busybox, below .peers/arm.
fetch_kernel() {
  local file module modules=(virtio_pci virtio_net tun nf_tables nft_fib_inet)
  # Only what has been fetched whole is there.
  [ ! -f "$emulated/vmlinuz" ] || return 0
  set_up
  say "apt-get download $kernel and busybox"
  inside sh -ec 'rm -rf /root/machine && mkdir -p /root/machine/tree && cd /root/machine
    needed() { apt-cache depends --recurse --no-suggests --no-recommends --no-conflicts --no-breaks --no-replaces "$1" | grep "^linux-[bim]"; }
    apt-get download -qq -o APT::Sandbox::User=root $(needed "$1") "busybox-static:${1#*:}"
    for package in *.deb; do dpkg-deb -x "$package" tree; done' sh "$kernel"
  file=$root/root/machine/tree
  [ -e "$file/lib" ] || ln -s usr/lib "$file/lib"
  find "$file/lib/modules/" -name '*.ko.xz' -exec xz -d '{}' +
  version=$(basename "$(find "$file"/lib/modules/ -mindepth 1 -maxdepth 1 | head -n 1)")
  PATH=$PATH:/sbin:/usr/sbin depmod -b "$file" "$version"
  rm -rf "$emulated.new" && mkdir -p "$emulated.new/tree/bin"
  for module in "${modules[@]}"; do
    PATH=$PATH:/sbin:/usr/sbin modprobe -d "$file" -S "$version" --show-depends "$module"
  done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++' | while read -r module; do
    cp "$module" "$emulated.new/"
    basename "$module" >> "$emulated.new/order-site"
  done
  cp "$(find "$file" -path '*/bin/busybox' -type f | head -n 1)" "$emulated.new/tree/bin/"
  cp "$(find "$file" -name 'vmlinuz*' -type f | head -n 1)" "$emulated.new/vmlinuz"
  rm -rf "$emulated" "$root/root/machine"
  mv "$emulated.new" "$emulated"
}

# Puts the program of a target into a tree, with its libraries and its loader, where the loader looks for them.
put_program() {
  local file names
  cp "$root/target/$1/postern" "$2/bin/"
  mkdir -p "$2/lib"
  names=$(inside "$binutils-readelf" --wide -d -l "/target/$1/postern" |
    sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p; s/.*interpreter: .*\/\(.*\)\]/\1/p' | sort -u)
  for file in $names; do
    cp -L "$(find "$root/usr/lib/$libraries" "$root/usr/lib/" -maxdepth 1 -name "$file" | head -n 1)" "$2/lib/"
  done
}

# A tree that a kernel can boot into, with that kernel and modules in the order in which they are loaded.
machine() {
  need_machine
  profile=testing CARGO_OPTIONS="--no-default-features ${CARGO_OPTIONS:-}" place=machine/$target build
  fetch_kernel
  put_program "machine/$target" "$emulated/tree"
}

# Runs the program in a machine whose clock goes on by a nanosecond with each instruction, so that what it measures are instructions: its
# "ns" are instructions, and its "GB/s" bytes an instruction. They say nothing of pipelines and caches.
count() {
  local tree quoted
  need_machine
  need_program
  command -v "${emulator_of_machine[0]}" > /dev/null || install_package qemu-system-arm
  command -v cpio > /dev/null || install_package cpio
  mount_all
  fetch_kernel
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  tree=$work/tree
  cp -r "$emulated/tree" "$tree"
  rm -f "$tree/bin/postern"
  put_program "$target" "$tree"
  mkdir -p "$tree/proc" "$tree/sys" "$tree/dev" "$tree/tmp"
  printf -v quoted ' %q' "$@"
  cat > "$tree/init" << END
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
# Until the kernel has nothing more to do: while it waits, the clock of the machine jumps.
/bin/busybox sleep 20
# No progress is shown to a file.
/bin/postern$quoted > /tmp/out 2>&1
code=\$?
echo; echo COUNTED
/bin/busybox cat /tmp/out
echo "ENDED \$code"
/bin/busybox poweroff -f
END
  chmod 755 "$tree/init"
  (cd "$tree" && find . | cpio --quiet -o -H newc) > "$work/initramfs"
  "${emulator_of_machine[@]}" -m 512 -nographic -no-reboot -icount shift=0,sleep=off -kernel "$emulated/vmlinuz" -initrd "$work/initramfs" \
    -append "console=ttyAMA0 loglevel=1 panic=-1" < /dev/null > "$work/console" 2>&1 || fail "$(cat "$work/console")"
  tr -d '\r' < "$work/console" | sed -n '/^COUNTED$/,/^ENDED /{ /^COUNTED$/d; /^ENDED /d; p }'
  grep -aq '^ENDED 0' "$work/console" || fail "it did not end well" "$(tail -n 5 "$work/console")"
}

# Fails where the program of the target has not been built.
need_program() {
  [ "$(id -u)" = 0 ] || fail "root is needed for the chroot below .peers/cross"
  [ -x "$root/target/$target/postern" ] || fail ".peers/cross/target/$target/postern is missing" "  fix: scripts/cross.sh build $target"
}

run() {
  need_program
  mount_all
  inside sh -c 'cd /src && exec "$@"' sh "${emulator[@]}" "/target/$target/postern" "$@"
}

profdata() {
  local llvm=$1
  shift
  set_up
  mount_all
  if [ ! -x "$root/usr/lib/llvm-$llvm/bin/llvm-profdata" ]; then
    say "apt-get install llvm-$llvm"
    inside apt-get install -qq -y --no-install-recommends "llvm-$llvm" > .peers/cross.log 2>&1 ||
      fail "llvm-profdata of LLVM $llvm: $(tail -n 3 .peers/cross.log)" "  fix: rustup component add llvm-tools"
  fi
  inside sh -c 'cd /src && exec "$@"' sh "/usr/lib/llvm-$llvm/bin/llvm-profdata" "$@"
}

# Mounts of its own.
if [ "$(id -u)" = 0 ] && [ -z "${CROSS_MOUNTS:-}" ]; then
  export CROSS_MOUNTS=own
  exec unshare --mount --propagation private scripts/cross.sh "$@"
fi
command=${1:-}
rust_flags='' c_flags='' profile=${PROFILE:-release} target=${2:-} place=${2:-} version=.$glibc musl='' options=() environment=() link=()
case $command in
  list) list ;;
  triple) describe "$target" && echo "$triple" ;;
  build) describe "$target" && build ;;
  machine) describe "$target" && machine ;;
  test) describe "$target" && shift 2 && unit_tests "$@" ;;
  run) describe "$target" && shift 2 && run "$@" ;;
  count) describe "$target" && shift 2 && count "$@" ;;
  profdata) shift && profdata "$@" ;;
  *) sed -n 's/^# \?//; 2,11p' "$0" >&2; exit 2 ;;
esac
