#!/bin/sh
# Before the files go. An upgrade keeps the daemon until the new one takes over.
[ -n "$IPKG_INSTROOT" ] && exit 0
[ "$PKG_UPGRADE" = 1 ] && exit 0
[ "$1" = upgrade ] && exit 0
/etc/init.d/postern stop
/etc/init.d/postern disable
/etc/init.d/postern-close disable
rm -f /etc/postern/last.conf
# Nothing is left that could open again what tunnels were to protect. procd ends the daemon in the background, for 15 seconds at most,
# and `open` refuses while there is one.
tries=0
until said="$(/usr/sbin/postern open 2>&1)" || [ "$tries" -ge 20 ]; do
	tries=$((tries + 1))
	sleep 1
done
echo "$said"
exit 0
