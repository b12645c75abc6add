#!/usr/bin/env bash
# Makes an image for containers: an archive of an OCI image layout that docker, podman and skopeo read. No container program, no root.
#   scripts/image.sh make STAGE ARCHITECTURE FILE    of the program in STAGE (scripts/dist.sh), with the libraries that it needs here
#   scripts/image.sh check FILE                      reads it with skopeo and umoci, and joins two containers by a tunnel (root)
# The same program and the same libraries give the same bytes: SOURCE_DATE_EPOCH is the time of everything.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${VERSION:-$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2> /dev/null || echo 1)}
# The user that the daemon becomes; a number below 65,536, which containers without root have too.
user=7580

say() { printf '\033[1m[image]\033[0m %s\n' "$*"; }
fail() { printf '%s\n' "$@" >&2; exit 1; }

# Engines that are loaded at run time, where this machine has them.
engines=(libcrypto.so.3 libIPSec_MB.so.2 libIPSec_MB.so.1)

# The folder where this machine keeps an engine, with its name; nothing if it has none.
engine() { /sbin/ldconfig -p | awk -v name="$1" '$1 == name && /x86-64|AArch64/ && !found { print $NF; found = 1 }'; }

# What a program or library is linked with, by the names that the loader asks for; nothing of a static one.
linked() { ldd "$1" 2> /dev/null | grep -o '/[^ ]*' || true; }

# Copies a library, with the licence and the record of its Debian package: scanners of images read these.
add_library() {
  local root=$1 library=$2 package
  mkdir -p "$root$(dirname "$library")"
  cp -L "$library" "$root$library"
  package=$(dpkg -S "$library" 2> /dev/null || dpkg -S "/usr$library" 2> /dev/null || dpkg -S "${library#/usr}")
  package=${package%%:*}
  mkdir -p "$root/var/lib/dpkg/status.d" "$root/usr/share/doc/$package"
  dpkg-query -s "$package" > "$root/var/lib/dpkg/status.d/$package"
  cp -L "/usr/share/doc/$package/copyright" "$root/usr/share/doc/$package/"
}

# The libraries of the program, and engines with theirs.
add_libraries() {
  local root=$1 program=$2 name path
  [ -n "$(linked "$program")" ] || return 0
  for path in $(linked "$program"); do add_library "$root" "$path"; done
  for name in "${engines[@]}"; do
    path=$(engine "$name")
    [ -n "$path" ] || continue
    for path in "$path" $(linked "$path"); do add_library "$root" "$path"; done
  done
}

# Everything that the image has, with its modes.
make_root() {
  local stage=$1 root=$2
  rm -rf "$root"
  install -D -m 0755 "$stage/usr/bin/postern" "$root/usr/bin/postern"
  ln -s postern "$root/usr/bin/postern-wireguard"
  install -D -m 0644 "$stage/usr/share/doc/postern/copyright" "$root/usr/share/doc/postern/copyright"
  add_libraries "$root" "$stage/usr/bin/postern"
  install -d "$root/etc/ssl/certs"
  # Debian's authorities, for webhooks of alerts; not what this machine trusts besides.
  find /usr/share/ca-certificates/mozilla -name '*.crt' | LC_ALL=C sort | xargs cat > "$root/etc/ssl/certs/ca-certificates.crt"
  install -D -m 0644 /usr/share/doc/ca-certificates/copyright "$root/usr/share/doc/ca-certificates/copyright"
  printf 'root:x:0:0:root:/:/sbin/nologin\npostern:x:%s:%s:Postern:/var/lib/postern:/sbin/nologin\n' $user $user > "$root/etc/passwd"
  printf 'root:x:0:\npostern:x:%s:\n' $user > "$root/etc/group"
  install -D -m 0640 packaging/postern.conf "$root/etc/postern/postern.conf"
  chmod 0750 "$root/etc/postern"
  # What the daemon of a user who is not root must find.
  install -d -m 0700 "$root/var/lib/postern"
  install -d "$root/var/cache/postern" "$root/run/postern" "$root/run/wireguard" "$root/tmp"
  chmod 1777 "$root/tmp"
}

# Puts a root into a tar archive: root's, but the folders of the daemon.
pack_root() {
  local root=$1 file=$2
  local options=(--format=gnu --sort=name --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$root")
  local excluded=(--exclude=./etc/postern --exclude=./var/lib/postern --exclude=./var/cache/postern --exclude=./run/postern --exclude=./run/wireguard)
  tar "${options[@]}" --owner=0 --group=0 "${excluded[@]}" -cf "$file" .
  # `save` over HTTPS and `commit` of a user write below these.
  tar "${options[@]}" --owner=0 --group=$user -rf "$file" ./etc/postern
  tar "${options[@]}" --owner=$user --group=$user -rf "$file" ./run/postern ./run/wireguard ./var/cache/postern ./var/lib/postern
}

# Stores standard input as a blob of a layout, and prints its digest.
blob() {
  local layout=$1 digest
  cat > "$layout/new"
  digest=$(sha256sum "$layout/new" | cut -d ' ' -f 1)
  mv "$layout/new" "$layout/blobs/sha256/$digest"
  echo "$digest"
}

# What a descriptor says of a blob.
descriptor() {
  local layout=$1 type=$2 digest=$3
  jq -cnS --arg type "$type" --arg digest "sha256:$digest" --argjson size "$(stat -c %s "$layout/blobs/sha256/$digest")" \
    '{mediaType: $type, digest: $digest, size: $size}'
}

# How the image is started, in the words of the image specification.
configuration() {
  local architecture=$1 layer=$2 commit
  commit=${POSTERN_COMMIT:-$(git rev-parse --short=12 HEAD 2> /dev/null || echo unknown)}
  jq -cnS --arg created "$(date -u -d "@$SOURCE_DATE_EPOCH" +%FT%TZ)" --arg architecture "$architecture" --arg layer "sha256:$layer" \
    --arg version "$version" --arg commit "$commit" '{
    created: $created, architecture: $architecture, os: "linux",
    config: {
      Entrypoint: ["/usr/bin/postern"], Cmd: ["run"], WorkingDir: "/", StopSignal: "SIGTERM",
      Env: ["PATH=/usr/bin"],
      Volumes: {"/etc/postern": {}, "/var/lib/postern": {}},
      Labels: {
        "org.opencontainers.image.title": "Postern",
        "org.opencontainers.image.description": "VPN gateway for IPsec, WireGuard and OpenVPN: needs NET_ADMIN and /dev/net/tun",
        "org.opencontainers.image.licenses": "Apache-2.0 OR MIT",
        "org.opencontainers.image.version": $version,
        "org.opencontainers.image.revision": $commit,
        "org.opencontainers.image.created": $created
      }
    },
    rootfs: {type: "layers", diff_ids: [$layer]},
    history: [{created: $created, created_by: "scripts/image.sh"}]
  }'
}

make_image() {
  local stage=$1 architecture=$2 file=$3 work=target/image layout=target/image/layout layer plain config manifest name=postern
  rm -rf "$work"
  mkdir -p "$layout/blobs/sha256"
  # A umask that hides files would hide them in the image.
  umask 022
  make_root "$stage" "$work/root"
  pack_root "$work/root" "$work/layer.tar"
  plain=$(sha256sum "$work/layer.tar" | cut -d ' ' -f 1)
  layer=$(gzip -9nc "$work/layer.tar" | blob "$layout")
  config=$(configuration "$architecture" "$plain" | blob "$layout")
  manifest=$(jq -cnS --argjson config "$(descriptor "$layout" application/vnd.oci.image.config.v1+json "$config")" \
    --argjson layer "$(descriptor "$layout" application/vnd.oci.image.layer.v1.tar+gzip "$layer")" \
    '{schemaVersion: 2, mediaType: "application/vnd.oci.image.manifest.v1+json", config: $config, layers: [$layer]}' | blob "$layout")
  printf '{"imageLayoutVersion":"1.0.0"}' > "$layout/oci-layout"
  descriptor "$layout" application/vnd.oci.image.manifest.v1+json "$manifest" | jq -cS --arg version "$version" --arg architecture "$architecture" \
    '{schemaVersion: 2, mediaType: "application/vnd.oci.image.index.v1+json",
      manifests: [. + {platform: {os: "linux", architecture: $architecture}, annotations: {"org.opencontainers.image.ref.name": $version}}]}' > "$layout/index.json"
  # What `docker load` reads where it knows no layouts.
  jq -cnS --arg config "blobs/sha256/$config" --arg layer "blobs/sha256/$layer" --arg tag "$name:$version" \
    '[{Config: $config, RepoTags: [$tag], Layers: [$layer]}]' > "$layout/manifest.json"
  tar --format=gnu --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime="@$SOURCE_DATE_EPOCH" -C "$layout" \
    -cf "$file" blobs index.json manifest.json oci-layout
  rm -rf "$work"
  say "$(du -h --apparent-size "$file" | cut -f 1) $file"
}

case "${1:-}" in
  make) [ $# = 4 ] || fail "usage: $0 make STAGE ARCHITECTURE FILE"; make_image "$2" "$3" "$4" ;;
  check) [ $# = 2 ] || fail "usage: $0 check FILE"; exec scripts/image-check.sh "$2" ;;
  *) sed -n 's/^# \?//; 2,4p' "$0" >&2; exit 2 ;;
esac
