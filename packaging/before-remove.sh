#!/bin/sh
# Before the files go. Debian calls it as `remove`, or `upgrade VERSION`; RPM as `0` (removed) or `1` (upgraded).
set -e

case "$1" in
remove|deconfigure|0) ;;
*) exit 0 ;;
esac
[ -d /run/systemd/system ] || exit 0
if command -v deb-systemd-invoke > /dev/null; then
	deb-systemd-invoke stop postern.service postern-archiver.service postern-machine.socket postern-close.service
else
	systemctl disable --quiet --now postern.service postern-archiver.service postern-machine.socket postern-close.service
fi
# Nothing is left that could open again what tunnels were to protect.
postern open || true
