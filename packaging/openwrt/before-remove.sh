#!/bin/sh
# Before the files go. An upgrade keeps the daemon until the new one takes over.
[ -n "$IPKG_INSTROOT" ] && exit 0
[ "$PKG_UPGRADE" = 1 ] && exit 0
[ "$1" = upgrade ] && exit 0
/etc/init.d/postern stop
/etc/init.d/postern disable
/etc/init.d/postern-close disable
rm -f /etc/postern/last.conf
# Nothing is left that could open again what tunnels were to protect.
/usr/sbin/postern open || true
exit 0
