#!/bin/sh
# After the files are there. Debian calls it as `configure [OLD-VERSION]`, RPM as `1` (installed) or `2` (upgraded).
set -e

case "$1" in
abort-*|triggered) exit 0 ;;
esac
is_upgrade=false
[ "$1" = 2 ] && is_upgrade=true
[ "$1" = configure ] && [ -n "${2:-}" ] && is_upgrade=true

if ! getent passwd postern > /dev/null; then
	nologin=/usr/sbin/nologin
	[ -x "$nologin" ] || nologin=/sbin/nologin
	if [ -e /etc/debian_version ]; then
		adduser --system --group --no-create-home --home /var/lib/postern --shell "$nologin" --quiet postern
	else
		useradd --system --user-group --no-create-home --home-dir /var/lib/postern --shell "$nologin" \
			--comment "Postern VPN gateway" postern
	fi
fi

# The daemon reads its configuration as this user. What an administrator has changed stays.
if [ "$is_upgrade" = false ]; then
	chgrp postern /etc/postern /etc/postern/postern.conf
	chmod 0750 /etc/postern
	chmod 0640 /etc/postern/postern.conf
fi

units="postern-close.service postern-machine.socket postern.service"
if command -v deb-systemd-helper > /dev/null; then
	# Debian's own: what the administrator has disabled or forbidden (policy-rc.d) stays so.
	for unit in $units; do
		deb-systemd-helper unmask "$unit" > /dev/null || true
		if deb-systemd-helper --quiet was-enabled "$unit"; then
			deb-systemd-helper enable "$unit" > /dev/null || true
		else
			deb-systemd-helper update-state "$unit" > /dev/null || true
		fi
	done
	manager=deb-systemd-invoke
else
	[ "$is_upgrade" = true ] || systemctl enable --quiet $units
	manager=systemctl
fi

[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
if [ "$is_upgrade" = true ]; then
	# What tunnels protect stays closed in between.
	$manager try-restart postern.service postern-archiver.service
	exit 0
fi
$manager start $units || echo "postern: the daemon does not start; see systemctl status postern" >&2
