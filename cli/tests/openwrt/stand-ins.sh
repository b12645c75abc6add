# Stand-ins of our own for the functions of OpenWrt that the scripts of packaging/openwrt call: they print what they are called with.
# Sections are in $STAND_INS/PACKAGE, as lines SECTION TYPE OPTION=VALUE...; members of a list are repeated.

config_load() { CONFIG="$STAND_INS/$1"; }
config_get() {
	local found
	found="$(awk -v section="$2" -v option="$3=" '
		$1 == section { for (i = 3; i <= NF; i++) if (index($i, option) == 1) { print substr($i, length(option) + 1); exit } }' "$CONFIG")"
	eval "$1=\"\${found:-$4}\""
}
config_get_bool() { config_get "$@"; }
config_foreach() {
	local section
	for section in $(awk -v kind="$2" '$2 == kind { print $1 }' "$CONFIG"); do "$1" "$section"; done
}
config_list_foreach() {
	local value
	for value in $(awk -v section="$1" -v option="$2=" '
		$1 == section { for (i = 3; i <= NF; i++) if (index($i, option) == 1) print substr($i, length(option) + 1) }' "$CONFIG"); do
		"$3" "$value"
	done
}

called() { echo "$@"; }
logger() { echo "log: $5" >&2; }
for name in procd_open_instance procd_set_param procd_close_instance procd_add_reload_trigger procd_set_config_changed \
	json_add_array json_close_array json_add_object json_close_object json_add_string \
	proto_init_update proto_send_update proto_add_ipv4_address proto_add_ipv6_address proto_add_ipv4_route proto_add_ipv6_route \
	proto_add_data proto_close_data proto_notify_error proto_block_restart proto_run_command proto_kill_command \
	proto_config_add_string proto_config_add_boolean add_protocol; do
	eval "$name() { called $name \"\$@\"; }"
done
