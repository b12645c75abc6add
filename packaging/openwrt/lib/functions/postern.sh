# What the init script and the protocols of netifd share: the configuration of the daemon, made of UCI.
#
#   network, postern of /etc/config ── postern import uci ──┐
#   interfaces that netifd has taken down ── disable lines ─┴──> $POSTERN_CONF ── postern reload
#
# For busybox ash.

POSTERN=${POSTERN:-/usr/sbin/postern}
POSTERN_UCI=${POSTERN_UCI:-/etc/config}
# In memory: it holds keys, and is made again at each start.
POSTERN_CONF=${POSTERN_CONF:-/var/etc/postern/postern.conf}
# The last one that was right, on flash: what starts if UCI is wrong when the router does. Its keys are in $POSTERN_UCI, too.
POSTERN_LAST=${POSTERN_LAST:-/etc/postern/last.conf}
# A file for each interface that ifup or ifdown has decided on, with the word up or down.
POSTERN_LINKS=${POSTERN_LINKS:-/var/run/postern-links}

postern_log() {
	logger -t postern -p "daemon.$1" "$2"
}

# Makes the configuration. If UCI is wrong, that is the last one that was right. Interfaces that netifd holds down are disabled in
# $POSTERN_CONF only, not in the copy on flash: ifdown and ifup are heeded also while UCI is wrong.
postern_make() {
	local folder="${POSTERN_CONF%/*}" new

	mkdir -p "$folder" || return 1
	postern_import || postern_last || return 1
	if ! { new="$(mktemp "$folder/new.XXXXXX")" && cat "$POSTERN_CONF.right" > "$new" &&
		postern_downs "$POSTERN_CONF.right" >> "$new"; }; then
		rm -f "$new"
		postern_log err "$folder cannot be written: the configuration before stays"
		# Without an instance, procd would end a daemon that runs.
		[ -f "$POSTERN_CONF" ]
		return
	fi
	# The daemon becomes this user, and reads the file again by itself.
	grep -q '^postern:' /etc/passwd && chown postern "$new"
	mv "$new" "$POSTERN_CONF"
}

# Makes $POSTERN_CONF.right of UCI. If the daemon would refuse it, or a part of it that matters for security would be left, the one
# before stays, and the reason is in the log.
postern_import() {
	local folder="${POSTERN_CONF%/*}" new report file files=

	for file in "$POSTERN_UCI/network" "$POSTERN_UCI/postern"; do
		[ ! -f "$file" ] || files="$files $file"
	done
	new="$(mktemp "$folder/new.XXXXXX")" || return 1
	report="$(mktemp "$folder/report.XXXXXX")" || {
		rm -f "$new"
		return 1
	}
	# No path of ours has a space.
	# shellcheck disable=SC2086
	if ! "$POSTERN" import uci --only-postern $files > "$new" 2> "$report"; then
		# The second is an error of syntax, which has no option.
		sed -n '/^refused: /p; s/^postern: //p' "$report" | while read -r file; do postern_log err "$file"; done
		postern_log err "it is not used: postern import uci --only-postern $POSTERN_UCI says what is wrong"
		rm -f "$new" "$report"
		return 1
	fi
	rm -f "$report"
	# It is moved into place as a whole: without a tunnel, there is none in UCI.
	if ! echo "set system allow-empty" >> "$new"; then
		rm -f "$new"
		return 1
	fi
	mv "$new" "$POSTERN_CONF.right"
	postern_keep
	return 0
}

# Keeps the configuration, if it is another one: flash wears out.
postern_keep() {
	cmp -s "$POSTERN_CONF.right" "$POSTERN_LAST" && return 0
	mkdir -p "${POSTERN_LAST%/*}" && (umask 077 && cp "$POSTERN_CONF.right" "$POSTERN_LAST.new") && mv "$POSTERN_LAST.new" "$POSTERN_LAST"
}

# The last configuration that was right: of before the start of the router, if there is none since.
postern_last() {
	[ -f "$POSTERN_CONF.right" ] && return 0
	if [ ! -f "$POSTERN_LAST" ]; then
		postern_log err "there is no configuration: no tunnel, and nothing is protected"
		return 1
	fi
	postern_log err "the configuration is the last one that was right, of before the start of the router"
	# Whole or not at all: what is missing would be open.
	(umask 077 && cp "$POSTERN_LAST" "$POSTERN_CONF.copy") && mv "$POSTERN_CONF.copy" "$POSTERN_CONF.right"
}

# Closes what tunnels protect, unless a daemon serves it.
postern_close() {
	"$POSTERN" close --config "$POSTERN_CONF" 2>&1 | grep -v '^nothing to do' | logger -t postern -p daemon.notice
}

# Tells the daemon to read the file. One that is about to start has no socket yet, and may have read the file before.
postern_reload() {
	local tries=0
	while [ "$tries" -lt 15 ]; do
		"$POSTERN" reload && return 0
		# It has answered, and refuses: what is wrong stays so.
		[ -S /run/postern/postern.sock ] && break
		tries=$((tries + 1))
		sleep 1
	done
	postern_log warn "the daemon does not answer, or refuses: postern reload says why"
	return 1
}

# Prints the lines that disable what netifd holds down: after ifdown, and with `option auto '0'` until ifup.
postern_downs() {
	local conf="$1"

	postern_down() {
		local proto link auto state
		config_get proto "$1" proto
		case "$proto" in
			postern_*) ;;
			*) return 0 ;;
		esac
		config_get link "$1" link "$1"
		config_get_bool auto "$1" auto 1
		state="$(cat "$POSTERN_LINKS/$link" 2> /dev/null)"
		[ "$state" = up ] && return 0
		[ "$state" = down ] || [ "$auto" = 0 ] || return 0
		case "$link" in
			wg*) grep -q "^set interfaces wireguard $link " "$conf" && echo "set interfaces wireguard $link disable" ;;
			vtun*) grep -q "^set interfaces openvpn $link " "$conf" && echo "set interfaces openvpn $link disable" ;;
			ipsec0) sed -n 's/^set vpn ipsec site-to-site peer \([^ ]*\).*/set vpn ipsec site-to-site peer \1 disable/p' "$conf" | sort -u ;;
		esac
		return 0
	}
	# Where UCI cannot be read, nothing says what an interface is: what was down stays so.
	if ! config_load network; then
		sed -n '/^set interfaces \(wireguard\|openvpn\) [^ ]* disable$/p
			/^set vpn ipsec site-to-site peer [^ ]* disable$/p' "$POSTERN_CONF" 2> /dev/null
		return 0
	fi
	config_foreach postern_down interface
}

# Prints the ports that peers call, as lines of a protocol and a port: udp 51820. Without a port: all of the protocol. What is disabled
# has none.
postern_ports() {
	awk '
		$2 == "interfaces" && $5 == "disable" { off[$4] = 1 }
		$2 == "interfaces" && $3 == "wireguard" && $5 == "port" { wireguard[$4] = $6 }
		$2 == "interfaces" && $3 == "openvpn" && $5 == "mode" && $6 != "client" { listens[$4] = 1 }
		$2 == "interfaces" && $3 == "openvpn" && $5 == "local-port" { port[$4] = $6 }
		$2 == "interfaces" && $3 == "openvpn" && $5 == "protocol" && $6 ~ /^tcp/ { tcp[$4] = 1 }
		$2 == "vpn" && $3 == "ipsec" && $4 == "site-to-site" { peers[$6] = 1 }
		$2 == "vpn" && $3 == "ipsec" && $4 == "site-to-site" && $7 == "disable" { down[$6] = 1 }
		END {
			for (name in wireguard) if (!(name in off)) print "udp", wireguard[name]
			for (name in listens) if (!(name in off)) print (name in tcp) ? "tcp" : "udp", (name in port) ? port[name] : 1194
			for (name in peers) if (!(name in down)) { print "udp 500\nudp 4500\nesp"; break }
		}' "$POSTERN_CONF" 2> /dev/null | sort -u
}

# Notes whether an interface is to be up. Says whether that changes something: up is what an interface without a note is.
postern_note() {
	local link="$1" state="$2" before

	mkdir -p "$POSTERN_LINKS"
	before="$(cat "$POSTERN_LINKS/$link" 2> /dev/null)"
	[ "$before" = "$state" ] && return 1
	echo "$state" > "$POSTERN_LINKS/$link"
	[ "$state" = down ] || [ "$before" = down ] || [ "$3" = 0 ]
}
