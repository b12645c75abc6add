#!/bin/sh
# The protocols postern_wireguard, postern_openvpn and postern_ipsec of netifd. The daemon makes the links, with their addresses and
# routes; netifd is told of them, and shows them. ifdown disables the tunnel in the daemon, ifup enables it.

[ -n "$INCLUDE_ONLY" ] || {
	. /lib/functions.sh
	. ../netifd-proto.sh
	init_proto "$@"
}
. "${POSTERN_FUNCTIONS:-/lib/functions/postern.sh}"

# In the background: netifd gives a script seconds only, and the reload may wait for another one.
postern_reload_later() {
	/etc/init.d/postern reload > /dev/null 2>&1 < /dev/null &
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

# Also netifd's own restarts come here: only after ifdown it does not start the interface again.
postern_teardown() {
	local interface="$1" link autostart

	json_get_var link link
	link="${link:-$interface}"
	proto_kill_command "$interface"
	# ifup is ifdown, and then up: by now netifd has heard of both.
	sleep "${POSTERN_PATIENCE:-1}"
	autostart="$(
		json_load "$(ubus -S call "network.interface.$interface" status 2> /dev/null || echo '{}')"
		json_get_var it autostart
		echo "$it"
	)"
	[ "$autostart" = 0 ] || return 0
	postern_note "$link" down && postern_reload_later
	return 0
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
