#!/bin/sh
# After the files have gone. Debian calls it as `remove`, `purge`, ...; RPM as `0` or `1`.
set -e

if [ "$1" = purge ]; then
	# The configuration, its revisions with their secrets, and what was measured. The user stays: its number may be that of files elsewhere.
	rm -rf /etc/postern /var/lib/postern /var/cache/postern
	if command -v deb-systemd-helper > /dev/null; then
		deb-systemd-helper purge postern-close.service postern-machine.socket postern.service postern-archiver.service > /dev/null || true
	fi
fi
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
