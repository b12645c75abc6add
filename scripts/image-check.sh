#!/usr/bin/env bash
# Tries an image for containers (root): reads it with skopeo and umoci, and joins two containers by a WireGuard tunnel. One has the
# capabilities that docker gives, the other a user namespace, as where root starts no containers. Nothing of it stays.
#   scripts/image-check.sh FILE
set -euo pipefail
cd "$(dirname "$0")/.."
file=${1:?usage: $0 FILE}
# Containers are in namespaces of their own, and so are the mounts and the link between them.
if [ -z "${IMAGE_CHECK:-}" ]; then
  export IMAGE_CHECK=own
  exec unshare --mount --net --propagation private "$0" "$file"
fi
# crun refuses both versions of cgroups beside each other: it uses none here.
[ ! -d /sys/fs/cgroup/unified ] || mount --bind /sys/fs/cgroup/unified /sys/fs/cgroup
# The root of the second container enters it as a user of the machine without rights.
work=$(mktemp -d) && chmod 0755 "$work"
containers=()

say() { printf '\033[1m[image]\033[0m %s\n' "$*"; }
fail() { printf '%s\n' "$@" >&2; exit 1; }
runtime() { crun --root "$work/crun" --cgroup-manager=disabled "$@"; }
end() {
  local name
  for name in "${containers[@]}"; do runtime delete --force "$name" > /dev/null 2>&1 || true; done
  rm -rf --one-file-system "$work"
}
trap end EXIT

missing=()
for program in skopeo umoci crun jq; do command -v "$program" > /dev/null || missing+=("$program"); done
if [ ${#missing[@]} -gt 0 ]; then
  say "apt-get install ${missing[*]}"
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" > /dev/null
fi

say "skopeo inspect, as oci-archive and as docker-archive"
skopeo inspect "oci-archive:$file" > "$work/oci.json"
skopeo inspect "docker-archive:$file" > "$work/docker.json"
[ "$(jq -r .Os "$work/oci.json")" = linux ] || fail "it is not for Linux"
[ "$(jq -r '.Labels["org.opencontainers.image.title"]' "$work/docker.json")" = Postern ] || fail "its labels are not there"
jq -r '"  \(.Architecture), created \(.Created), \(.Labels["org.opencontainers.image.version"])"' "$work/oci.json"
tag=$(tar -xOf "$file" index.json | jq -r '.manifests[0].annotations["org.opencontainers.image.ref.name"]')
mkdir "$work/layout"
tar -xf "$file" -C "$work/layout"
case "$(jq -r .Architecture "$work/oci.json")-$(uname -m)" in
  amd64-x86_64 | arm64-aarch64) ;;
  *) say "it is for another processor: not started"; exit 0 ;;
esac

# What both have: docker's capabilities and one more, /dev/net/tun, and a configuration. crun makes the namespaces.
docker='["CAP_CHOWN","CAP_DAC_OVERRIDE","CAP_FSETID","CAP_FOWNER","CAP_MKNOD","CAP_NET_RAW","CAP_SETGID","CAP_SETUID","CAP_SETFCAP",
  "CAP_SETPCAP","CAP_NET_BIND_SERVICE","CAP_SYS_CHROOT","CAP_KILL","CAP_AUDIT_WRITE"]'
changes='.process.terminal = false | del(.process.rlimits, .linux.resources) | .hostname = $name
  | .process.capabilities = {bounding: $capabilities, effective: $capabilities, permitted: $capabilities}
  | .mounts |= map(select(.type != "cgroup"))
  | .mounts += [{destination: "/etc/postern", type: "bind", source: $etc, options: ["bind", "ro"]},
                {destination: "/dev/net/tun", type: "bind", source: "/dev/net/tun", options: ["bind"]}]'

# Makes a container, which waits: NAME FIRST-USER. With a first user of the host it has a user namespace.
create() {
  local name=$1 first=$2 map=()
  [ "$first" = 0 ] || map=(--uid-map "0:$first:65536" --gid-map "0:$first:65536")
  umoci unpack "${map[@]}" --image "$work/layout:$tag" "$work/$name" 2> "$work/log" || fail "$(cat "$work/log")"
  chmod 0755 "$work/$name"
  jq --arg name "$name" --arg etc "$work/$name-etc" --argjson capabilities "$(jq -c '. + ["CAP_NET_ADMIN"]' <<< "$docker")" "$changes" \
    "$work/$name/config.json" > "$work/config.json"
  mv "$work/config.json" "$work/$name/config.json"
  chown -R "$first:$((first + 7580))" "$work/$name-etc"
  runtime create --bundle "$work/$name" --pid-file "$work/$name.pid" "$name" > "$work/$name.log" 2>&1 || fail "crun: $(cat "$work/$name.log")"
  containers+=("$name")
}

# The configuration of one end: NAME OWN-NUMBER OTHER-NUMBER PRIVATE-KEY PUBLIC-KEY. The keys are published, and protect nothing.
configure() {
  mkdir -m 0750 "$work/$1-etc"
  cat > "$work/$1-etc/postern.conf" << END
set interfaces wireguard wg0 address 10.0.0.$2/30
set interfaces wireguard wg0 port 51820
set interfaces wireguard wg0 private-key $4
set interfaces wireguard wg0 peer other public-key $5
set interfaces wireguard wg0 peer other address 192.0.2.$3
set interfaces wireguard wg0 peer other port 51820
set interfaces wireguard wg0 peer other allowed-ips 10.0.0.$3/32
END
  chmod 0640 "$work/$1-etc/postern.conf"
}

# In the network of a container.
in_network() { local name=$1; shift; nsenter --net="/proc/$(cat "$work/$name.pid")/ns/net" "$@"; }

say "two containers, one of them in a user namespace"
configure aachen 1 2 QGubpp8oCIe6c5ASJ68fH+IN1GDBbr8h/3VT+qEWS10= GAyoGo/KXWBburYwK0aPugkthM9op2AthbjJCK3o0ms=
configure berlin 2 1 OI3ckC80ySBfagwGztGQ0p7Ng4u1z9HFQjNgHDO10HY= w31ZnImJ1ggFwJxdE32FBOiTYuihy/Ta/2uOA4MLlxE=
create aachen 0
create berlin 1000000
ip link add aachen type veth peer name berlin
for end in aachen:1 berlin:2; do
  name=${end%:*}
  ip link set "$name" netns "$(cat "$work/$name.pid")"
  in_network "$name" ip address add "192.0.2.${end#*:}/24" dev "$name"
  in_network "$name" ip link set "$name" up
  in_network "$name" ip link set lo up
  runtime start "$name"
done

# Waits until a command succeeds; ten seconds at most.
wait_for() {
  for _ in $(seq 50); do
    "$@" > "$work/log" 2>&1 && return 0
    sleep 0.2
  done
  fail "after ten seconds it still fails: $*" "$(cat "$work/log" "$work"/*.log)"
}

say "the configuration of the image itself"
chroot "$work/aachen/rootfs" /usr/bin/postern run --check
wait_for runtime exec aachen postern status
wait_for runtime exec berlin postern status
wait_for in_network aachen ping -c 1 -W 1 10.0.0.2
in_network berlin ping -q -c 3 -W 2 10.0.0.1 > "$work/log" || fail "$(cat "$work/log")"
runtime exec berlin postern show interfaces wireguard
runtime exec aachen postern show crypto chacha20-poly1305 | sed -n '/^engine/,/^$/p'
for end in aachen:7580 berlin:1007580; do
  name=${end%:*}
  is=$(awk '$1 == "Uid:" { print $3 }' "/proc/$(cat "$work/$name.pid")/status")
  [ "$is" = "${end#*:}" ] || fail "the daemon of $name is user $is, and should be ${end#*:}"
done
say "the tunnel carries packets, and both daemons are user postern"
runtime kill aachen TERM
is_stopped() { [ "$(runtime state aachen | jq -r .status)" = stopped ]; }
wait_for is_stopped
say "SIGTERM ends it"
