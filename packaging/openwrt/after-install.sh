#!/bin/sh
# After the files are there, on OpenWrt or in an image builder: the user of the daemon, and its start. With PKG_UPGRADE=1 there was a
# version before.
. "$IPKG_INSTROOT/lib/functions.sh"

group_exists postern || group_add postern 7580
user_exists postern || user_add postern 7580 7580 postern /var/run/postern /bin/false

if [ -n "$IPKG_INSTROOT" ]; then
	# As OpenWrt's own packages do it there.
	for script in postern postern-close; do
		sh "$IPKG_INSTROOT/etc/rc.common" "$IPKG_INSTROOT/etc/init.d/$script" enable
	done
	exit 0
fi
if [ "$PKG_UPGRADE" = 1 ]; then
	# What the administrator has disabled stays so.
	/etc/init.d/postern enabled || exit 0
else
	/etc/init.d/postern enable
	/etc/init.d/postern-close enable
fi
# Another version of the program is not another instance for procd: the one before is stopped.
/etc/init.d/postern stop 2> /dev/null
/etc/init.d/postern start
# netifd learns of protocols when it starts.
ubus call network get_proto_handlers 2> /dev/null | grep -q postern_wireguard ||
	echo "postern: restart netifd once, for its new protocols: /etc/init.d/network restart"
exit 0
