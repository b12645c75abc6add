#!/bin/sh
# The protocols postern_wireguard, postern_openvpn and postern_ipsec of netifd. The daemon makes the links, with their addresses and
# routes; netifd is told of them, and shows them. ifdown disables the tunnel in the daemon, ifup enables it.

[ -n "$INCLUDE_ONLY" ] || {
	. /lib/functions.sh
	. ../netifd-proto.sh
	init_proto "$@"
}
. "${POSTERN_FUNCTIONS:-/lib/functions/postern.sh}"

# In the background: netifd gives a script seconds only, and the reload may wait for another one. It would start a daemon that was
# stopped: 3 says that procd knows of none.
postern_reload_later() {
	(
		exec > /dev/null 2>&1 < /dev/null
		/etc/init.d/postern status
		[ $? = 3 ] || /etc/init.d/postern reload
	) &
}

# Disables the tunnel of an interface that stays down. `/etc/init.d/network restart` and the end of the router take all interfaces
# down, and then end netifd: what is protected must not open then.
postern_disable_later() {
	(
		exec > /dev/null 2>&1 < /dev/null
		sleep "${POSTERN_PATIENCE:-5}"
		[ -d "/proc/$PPID" ] || exit 0
		json_load "$(ubus -S call "network.interface.$1" status || echo '{}')"
		json_get_var autostart autostart
		[ "$autostart" = 0 ] || exit 0
		postern_note "$2" down && postern_reload_later
	) &
}

postern_init_config() {
	# The names are those of netifd.
	# shellcheck disable=SC2034
	no_device=1 available=1 lasterror=1
	proto_config_add_string link
	proto_config_add_string zone
	# Only that ifup reads it.
	proto_config_add_boolean auto
}

postern_setup() {
	local kind="$1" interface="$2" link zone auto

	json_get_vars link zone auto
	link="${link:-$interface}"
	case "$kind:$link" in
		wireguard:wg[0-9]* | openvpn:vtun[0-9]* | ipsec:ipsec0) ;;
		*)
			proto_notify_error "$interface" NO_LINK_OF_THIS_NAME
			proto_block_restart "$interface"
			return 1
			;;
	esac
	postern_note "$link" up "${auto:-1}" && postern_reload_later
	proto_run_command "$interface" /usr/libexec/postern-link "$interface" "$link" "$zone"
}

# Also netifd's own restarts come here: only after ifdown it does not start the interface again. ifup is ifdown, and then up.
postern_teardown() {
	local interface="$1" link

	json_get_var link link
	proto_kill_command "$interface"
	postern_disable_later "$interface" "${link:-$interface}"
}

proto_postern_wireguard_init_config() { postern_init_config; }
proto_postern_wireguard_setup() { postern_setup wireguard "$1"; }
proto_postern_wireguard_teardown() { postern_teardown "$1"; }
proto_postern_openvpn_init_config() { postern_init_config; }
proto_postern_openvpn_setup() { postern_setup openvpn "$1"; }
proto_postern_openvpn_teardown() { postern_teardown "$1"; }
proto_postern_ipsec_init_config() { postern_init_config; }
proto_postern_ipsec_setup() { postern_setup ipsec "$1"; }
proto_postern_ipsec_teardown() { postern_teardown "$1"; }

[ -n "$INCLUDE_ONLY" ] || {
	add_protocol postern_wireguard
	add_protocol postern_openvpn
	add_protocol postern_ipsec
}
