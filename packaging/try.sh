#!/bin/sh
# What `scripts/dist.sh check` does in a chroot that has the packages old.deb and new.deb in its root.
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

step() { printf '  %s\n' "$1"; }
is() { [ "$1" = "$2" ] || { printf 'it is %s, and should be %s\n' "$1" "$2" >&2; exit 1; }; }

step "install: the user, the configuration, the program"
apt-get install -qq -y --no-install-recommends /old.deb > /tmp/log 2>&1 || { cat /tmp/log >&2; exit 1; }
postern --version
getent passwd postern > /dev/null
is "$(stat -c '%U:%G %a' /etc/postern)" "root:postern 750"
is "$(stat -c '%U:%G %a' /etc/postern/postern.conf)" "root:postern 640"
is "$(readlink /usr/bin/postern-wireguard)" postern
! grep -rl /usr/local/bin /usr/lib/systemd/system/postern*
postern run --check

step "upgrade: a changed configuration stays, with its rights"
echo "set system host-name branch" >> /etc/postern/postern.conf
chmod 0600 /etc/postern/postern.conf
apt-get install -qq -y --no-install-recommends /new.deb > /tmp/log 2>&1 || { cat /tmp/log >&2; exit 1; }
grep -q branch /etc/postern/postern.conf
is "$(stat -c %a /etc/postern/postern.conf)" 600
is "$(dpkg-query -W -f '${Version}' postern | grep -c '+1')" 1

step "remove: the configuration stays"
apt-get remove -qq -y postern > /tmp/log 2>&1 || { cat /tmp/log >&2; exit 1; }
[ ! -e /usr/bin/postern ]
grep -q branch /etc/postern/postern.conf

step "purge: nothing is left"
mkdir -p /var/lib/postern && touch /var/lib/postern/secret
apt-get purge -qq -y postern > /tmp/log 2>&1 || { cat /tmp/log >&2; exit 1; }
[ ! -e /etc/postern ] && [ ! -e /var/lib/postern ]
