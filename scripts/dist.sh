#!/usr/bin/env bash
# Makes the packages of this machine's architecture in target/dist: .deb, .rpm, a tarball and an image; or tries them. Of static programs,
# also .ipk and .apk for OpenWrt.
#   scripts/dist.sh           builds the program, and makes them
#   scripts/dist.sh image     builds the program, and makes the image only
#   scripts/dist.sh openwrt   packs the program that is built for TARGET, for OpenWrt only
#   scripts/dist.sh build     builds the program only, in FOLDER instead of target/packages
#   scripts/dist.sh check     lintian; the same bytes from another folder; install, upgrade, remove, purge; containers (root)
#   TARGET=aarch64 scripts/dist.sh   the same for another processor or C library: `scripts/cross.sh list` (root)
#   FEATURES=openvpn TARGET=armv7-small-musl scripts/dist.sh   with a cargo feature that the target leaves out
#   PGO=target/profile/postern.profdata scripts/dist.sh   the same for this machine, by a profile of scripts/profile.sh
# One commit gives the same bytes: times are those of the commit, and paths of this machine are not in the program.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
dist=target/dist${TARGET:+/$TARGET}
tool=.peers/nfpm
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2> /dev/null || echo 1)}
export POSTERN_COMMIT=${POSTERN_COMMIT:-$(git rev-parse --short=12 HEAD 2> /dev/null || true)}
# Names that reach nobody: a distribution puts its own here.
export MAINTAINER="${MAINTAINER:-The Postern authors <authors@postern.invalid>}" HOMEPAGE=${HOMEPAGE:-https://postern.invalid}
# The program of TARGET, and what reads and runs it.
TARGET=${TARGET:-}
if [ -n "$TARGET" ]; then
  program=.peers/cross/target/$TARGET/postern run=(scripts/cross.sh run "$TARGET")
else
  # Not where `make build` builds: other flags would build all of it again.
  folder=${FOLDER:-target/packages}
  program=$folder/release/postern run=("$folder/release/postern")
fi
as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo)

say() { printf '\033[1m[dist]\033[0m %s\n' "$*"; }
fail() { printf '%s\n' "$@" >&2; exit 1; }
case ${FEATURES:-} in
  *dpdk*) fail "the packages have no library for DPDK, and FEATURES=$FEATURES is set" "  fix: make install FEATURES=dpdk" ;;
esac
if [ -n "${PGO:-}" ]; then
  # A second build is made in another folder.
  [ -z "$TARGET" ] || fail "a profile is for the processor of this machine, and TARGET=$TARGET is set" "  fix: leave out PGO or TARGET"
  PGO=$(realpath -e "$PGO") || fail "  fix: make profile"
  export PGO
fi
updated=
install_packages() {
  say "apt-get install $*"
  [ -n "$updated" ] || "${as_root[@]}" apt-get update -qq
  updated=1
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" > /dev/null
}

build() {
  if [ -n "$TARGET" ]; then
    scripts/cross.sh build "$TARGET"
    return
  fi
  local crates=${CARGO_HOME:-$HOME/.cargo} by_profile=
  if [ -n "${PGO:-}" ]; then
    # Under a name by its content: cargo builds again for other flags, and not for other files.
    mkdir -p target
    by_profile=$PWD/target/$(sha256sum "$PGO" | cut -c -16).profdata
    cp "$PGO" "$by_profile"
    by_profile=-Cprofile-use=$by_profile
  fi
  # A C compiler and cmake.
  scripts/setup.sh demo
  # Paths are in messages of panics and in C's assertions. The linker's build ID is a digest of symbols too, which are stripped later: some have
  # a digest of a folder in their names.
  CARGO_TARGET_DIR=$folder CFLAGS="-ffile-prefix-map=$PWD=/postern -ffile-prefix-map=$crates=/cargo ${CFLAGS:-}" \
    RUSTFLAGS="--remap-path-prefix=$PWD=/postern --remap-path-prefix=$crates=/cargo $by_profile ${RUSTFLAGS:-}" \
    "${CARGO:-cargo}" rustc --package postern --bin postern --release --locked ${FEATURES:+--features "$FEATURES"} \
    ${CARGO_OPTIONS:-} -- -Clink-arg=-Wl,--build-id=none
}

# nfpm makes all formats of packages from one file.
get_nfpm() {
  [ ! -x "$tool" ] || return 0
  command -v go > /dev/null || install_packages golang-go
  say "go install github.com/goreleaser/nfpm/v2/cmd/nfpm, about 3 minutes"
  GOBIN=$PWD/.peers go install github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.41.3
}

# The newest symbol version of a library that the program needs.
newest() {
  LC_ALL=C readelf -W --version-info "$1" | grep -o "$2_[0-9.]*" | sort -uV | tail -n 1 | sed "s/$2_//"
}

# What is below /usr, of a program that is stripped: the units, the manual, completions, the guide, examples.
stage() {
  local stage=$1 unit document
  rm -rf "$stage"
  install -D "$program" "$stage/usr/bin/postern"
  # Another processor's is stripped where it was built.
  [ -n "$TARGET" ] || strip --strip-unneeded "$stage/usr/bin/postern"
  "${run[@]}" generate manual "$stage/usr/share" > /dev/null
  find "$stage/usr/share/man" -type f -exec gzip -9n '{}' +
  mkdir -p "$stage/usr/lib/systemd/system" "$stage/usr/share/doc/postern/examples"
  for unit in examples/systemd/*; do
    # The lines that say where to copy them have no meaning here.
    sed -e 's|/usr/local/bin|/usr/bin|g' -e '/^# After `make install`/d' -e '/^#   \(useradd\|install\|cp\|systemctl\) /d' \
      -e 's| After `make install`:$||; s| *Copy this file.*then:$||' "$unit" > "$stage/usr/lib/systemd/system/$(basename "$unit")"
  done
  cp -r examples/. "$stage/usr/share/doc/postern/examples/"
  rm -rf "$stage/usr/share/doc/postern/examples/systemd"
  for document in README.md ARCHITECTURE.md SECURITY.md; do cp "$document" "$stage/usr/share/doc/postern/"; done
  cp -r docs "$stage/usr/share/doc/postern/guide"
  rm -f "$stage/usr/share/doc/postern/guide/book.toml"
  gzip -9nc CHANGELOG.md > "$stage/usr/share/doc/postern/changelog.gz"
  debian_changelog | gzip -9n > "$stage/usr/share/doc/postern/changelog.Debian.gz"
  install -D packaging/lintian-overrides "$stage/usr/share/lintian/overrides/postern"
  [[ $TARGET != *-musl ]] || cat packaging/lintian-overrides-static >> "$stage/usr/share/lintian/overrides/postern"
  copyright > "$stage/usr/share/doc/postern/copyright"
  find "$stage" -type d -exec chmod 0755 '{}' +
  find "$stage" -type f ! -path '*/bin/*' -exec chmod 0644 '{}' +
  find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" '{}' +
}

debian_changelog() {
  printf 'postern (%s-1) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- %s  %s\n' \
    "${VERSION:-$version}" "$MAINTAINER" "$(date -uR -d "@$SOURCE_DATE_EPOCH")"
}

copyright() {
  cat <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Postern

Files: *
Copyright: The Postern authors
License: Apache-2.0 or Expat

Files: https/vendor/uplot/*
Copyright: 2022 Leon Sorokin
License: Expat

License: Apache-2.0
 On Debian systems, the text is in /usr/share/common-licenses/Apache-2.0.

License: Expat
$(sed -e '1,/^$/d' -e 's/^$/./' -e 's/^/ /' LICENSE-MIT)
END
}

# What is on OpenWrt: the program, the init script and the protocols of netifd.
stage_openwrt() {
  local stage=$1
  rm -rf "$stage"
  install -D "$program" "$stage/usr/sbin/postern"
  cp -r packaging/openwrt/usr packaging/openwrt/lib "$stage/"
  find "$stage" -type d -exec chmod 0755 '{}' +
  chmod 0644 "$stage"/lib/functions/*
  chmod 0755 "$stage"/usr/libexec/* "$stage"/lib/netifd/proto/*
  find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" '{}' +
}

# Packages for OpenWrt, of static programs: its C library is musl.
pack_openwrt() {
  local format machine said
  case $TARGET in
    *-musl) ;;
    *) fail "OpenWrt needs a static program" "  fix: TARGET=aarch64-small-musl, armv7-small-musl or another of the targets with musl" ;;
  esac
  # What the kernel calls it.
  case $TARGET in armv7-*) machine=armv7l ;; *) machine=${TARGET%%-*} ;; esac
  get_nfpm
  mkdir -p "$dist"
  stage_openwrt target/openwrt
  rm -rf target/openwrt-scripts
  mkdir target/openwrt-scripts
  cp packaging/openwrt/*.sh target/openwrt-scripts/
  sed -i "s/@MACHINE@/$machine/g" target/openwrt-scripts/before-install.sh
  # apk has a script of its own for an upgrade, and opkg says in a variable that it is one.
  sed '1a PKG_UPGRADE=1' target/openwrt-scripts/after-install.sh > target/openwrt-scripts/after-upgrade.sh
  # Their times are in the package.
  touch -d "@$SOURCE_DATE_EPOCH" target/openwrt-scripts/*
  export VERSION=${VERSION:-$version}
  for format in ipk apk; do
    # Its names say nothing of the processor.
    said=$("$tool" package --config packaging/openwrt/nfpm.yaml --packager "$format" --target "$dist/postern-$VERSION-openwrt-${TARGET%-musl}.$format") ||
      fail "nfpm: $said"
  done
}

pack() {
  local said
  local left_out=()
  # Debian has the licence in a file of its own, and no such field.
  [ "$1" != deb ] || left_out+=(-e '/^license:/d')
  # A static program needs no libraries.
  [ -n "$GLIBC" ] || left_out+=(-e '/GLIBC/d' -e '/LIBGCC/d' -e '/libgcc/d')
  # The one that is suggested is for x86-64 only.
  [ -n "$GLIBC" ] && [ "$ARCH" = amd64 ] || left_out+=(-e '/^ *suggests:/,/libipsec/d')
  sed "${left_out[@]}" -e '' packaging/nfpm.yaml > target/nfpm.yaml
  # It writes errors to standard output.
  said=$("$tool" package --config target/nfpm.yaml --packager "$1" --target "$2") || fail "nfpm: $said"
}

# The name that packages and images have for the processor.
architecture() {
  case $TARGET in
    '') dpkg --print-architecture ;;
    aarch64 | aarch64-musl | aarch64-small-musl) echo arm64 ;;
    x86_64-musl | x86_64-small-musl) echo amd64 ;;
    # ARMv7 with hardware floating point: nfpm says armhf to Debian's packages, and armv7hl to others.
    *) echo arm7 ;;
  esac
}

# The image of a program that is linked with libraries has those of this machine.
make_image() {
  case $TARGET in
    '' | *-musl) ;;
    *) fail "an image of TARGET=$TARGET needs libraries that are not here" "  fix: TARGET=aarch64-musl, a static program" ;;
  esac
  command -v jq > /dev/null || install_packages jq
  [ -d /usr/share/ca-certificates/mozilla ] || install_packages ca-certificates
  scripts/image.sh make target/stage "$(architecture)" "$dist/postern-$version-${TARGET:-$(architecture)}.oci.tar"
}

# What the program is made of.
make_sbom() {
  local triple
  command -v jq > /dev/null || install_packages jq
  if [ -n "$TARGET" ]; then triple=$(scripts/cross.sh triple "$TARGET"); else triple=$(rustc -vV | sed -n 's/^host: //p'); fi
  # What is left out is not in the list.
  SBOM_OPTIONS=${FEATURES:+--features=${FEATURES// /,}}
  case $TARGET in *-small-*) SBOM_OPTIONS+=" --no-default-features" ;; esac
  export SBOM_OPTIONS
  scripts/sbom.sh make target/stage/usr/bin/postern "$triple" "$dist/postern-$version-${TARGET:-$(architecture)}.cdx.json"
}

make_packages() {
  local architecture format
  build
  get_nfpm
  architecture=$(architecture)
  [ "$architecture" != arm7 ] || BITS='' LIBGCC=libgcc_s.so.1
  # Folders in it are those of other targets.
  mkdir -p "$dist" && find "$dist" -maxdepth 1 -type f -delete
  stage target/stage
  case $TARGET in *-musl) GLIBC='' ;; *) GLIBC=$(newest target/stage/usr/bin/postern GLIBC) ;; esac
  export GLIBC BITS=${BITS-(64bit)} LIBGCC=${LIBGCC:-libgcc_s.so.1()(64bit)} VERSION=${VERSION:-$version} ARCH=$architecture
  for format in deb rpm; do
    pack "$format" "$dist/"
  done
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C target/stage -cJf "$dist/postern-$VERSION-${TARGET:-$architecture}.tar.xz" usr
  make_sbom
  case $TARGET in '' | *-musl) make_image ;; esac
  case $TARGET in *-musl) pack_openwrt ;; esac
  (cd "$dist" && sha256sum postern* > SHA256SUMS)
  ls -l "$dist" | awk '/^-/ { printf "%8.1f MB  %s\n", $5 / 1e6, $9 }'
}

# Builds and packs the same sources in another folder: every file must have the same bytes.
build_elsewhere() {
  local copy
  copy=$(mktemp -d)
  say "the same once more in $copy, and compares: as long as the first build"
  git ls-files -z | tar --null -T - -cf - | tar -xf - -C "$copy"
  ln -s "$(realpath .peers)" "$copy/.peers"
  (cd "$copy" && scripts/dist.sh make) > target/second.log 2>&1 || fail "the second build: $(tail -n 5 target/second.log)"
  diff "$dist/SHA256SUMS" "$copy/$dist/SHA256SUMS" || fail "the second build, in $copy, has other bytes"
  rm -rf "$copy"
  say "all files are the same, byte by byte"
}

# In a Debian of its own.
check() {
  local root deb newer
  [ "$(id -u)" = 0 ] || fail "root is needed for the chroot"
  case $TARGET in '' | "$(uname -m)-musl") ;; *) fail "packages of TARGET=$TARGET cannot be installed on this machine" ;; esac
  make_packages
  deb=$(ls "$dist"/*.deb)
  command -v lintian > /dev/null || install_packages lintian
  command -v debootstrap > /dev/null || install_packages debootstrap
  say "lintian"
  lintian --allow-root --fail-on error,warning "$deb"
  build_elsewhere
  say "the list of materials"
  scripts/sbom.sh check "$(ls "$dist"/*.cdx.json)"
  say "a newer version, for the upgrade"
  mkdir -p target/newer
  VERSION=$version+1 pack deb target/newer/
  newer=$(ls -t target/newer/*.deb | head -n 1)
  root=$(mktemp -d)
  # shellcheck disable=SC2064
  trap "umount -q '$root/proc' || true; rm -rf '$root'" EXIT
  say "debootstrap $(. /etc/os-release && echo "$VERSION_CODENAME"), about a minute"
  debootstrap --variant=minbase "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$root" > target/debootstrap.log 2>&1 || { tail -n 5 target/debootstrap.log >&2; exit 1; }
  mount -t proc proc "$root/proc"
  cp "$deb" "$root/old.deb"
  cp "$newer" "$root/new.deb"
  cp packaging/try.sh "$root/try.sh"
  chroot "$root" /bin/sh /try.sh
  scripts/image.sh check "$(ls "$dist"/*.oci.tar)"
}

case "${1:-make}" in
  make) make_packages ;;
  build) build ;;
  image) build && mkdir -p "$dist" && stage target/stage && make_image ;;
  openwrt) pack_openwrt ;;
  check) check ;;
  *) sed -n 's/^# \?//; 2,10p' "$0" >&2; exit 2 ;;
esac
