//! Log, status file, privileges, and directives about reading or about other systems.

use crate::openvpn::draft::Draft;
use crate::openvpn::given::Given;
use crate::openvpn::row::{Row, harmless, served};
use crate::openvpn::settings::Status;
use crate::openvpn::verdict::Wrong;

const WINDOWS: &str = "it is for Windows";
const READING: &str = "it was carried out while the file was read";
const WITHOUT_TAP: &str = "it is for TAP devices";

/// Rows of the process.
pub(super) const ROWS: &[Row] = &[
    harmless("config", "FILE", READING),
    harmless("cd", "DIRECTORY", READING),
    harmless("ignore-unknown-option", "NAME...", READING),
    served("verb", "LEVEL", "log.verbosity", |draft, given| {
        draft.log.verbosity = given.number(0, 0..=15)?;
        Ok(())
    }),
    served("mute", "LINES", "log.mute", |draft, given| {
        draft.log.mute = given.count(0)?;
        Ok(())
    }),
    served("log", "FILE", "log.file", |draft, given| {
        draft.log.file = Some((given.path(0)?, false));
        Ok(())
    }),
    served("log-append", "FILE", "log.file", |draft, given| {
        draft.log.file = Some((given.path(0)?, true));
        Ok(())
    }),
    served("syslog", "[NAME]", "log.syslog", |draft, given| {
        draft.log.syslog = Some(given.get(0).unwrap_or("openvpn").to_owned());
        Ok(())
    }),
    served("daemon", "[NAME]", "process.is_daemon, log.syslog", |draft, given| {
        draft.process.is_daemon = true;
        draft.log.syslog = Some(given.get(0).unwrap_or("openvpn").to_owned());
        Ok(())
    }),
    served("suppress-timestamps", "", "log.without_time", |draft, _| {
        draft.log.without_time = true;
        Ok(())
    }),
    harmless("machine-readable-output", "", "the log has JSON where the environment asks for it"),
    harmless("errors-to-stderr", "", "errors go to standard error"),
    served("echo", "[TEXT...]", "log.echo", |draft, given| {
        let words: Vec<&str> = given.from(0).collect();
        draft.log.echo.push(words.join(" "));
        Ok(())
    }),
    served("status", "FILE [SECONDS]", "log.status", |draft, given| {
        let every_seconds = given.count_or(1, 60)?;
        draft.log.status = Some(Status { file: given.path(0)?, every_seconds });
        Ok(())
    }),
    served("status-version", "[1|2|3]", "log.status_version", |draft, given| {
        draft.log.status_version = if given.get(0).is_some() { given.number(0, 1..=3)? } else { 1 };
        Ok(())
    }),
    served("user", "USER", "process.user", |draft, given| {
        draft.process.user = Some(given.owned(0)?);
        Ok(())
    }),
    served("group", "GROUP", "process.group", |draft, given| {
        draft.process.group = Some(given.owned(0)?);
        Ok(())
    }),
    served("chroot", "DIRECTORY", "process.root", |draft, given| {
        draft.process.root = Some(given.path(0)?);
        Ok(())
    }),
    harmless("setcon", "CONTEXT", "the process is confined by its own system call filter"),
    served("writepid", "FILE", "process.pid_file", |draft, given| {
        draft.process.pid_file = Some(given.path(0)?);
        Ok(())
    }),
    served("nice", "PRIORITY", "process.nice", |draft, given| {
        draft.process.nice = Some(given.number(0, -20..=19)?);
        Ok(())
    }),
    served("mlock", "", "process.lock_memory", |draft, _| {
        draft.process.lock_memory = true;
        Ok(())
    }),
    served("remap-usr1", "SIGHUP|SIGTERM", "process.remap_usr1", |draft, given| {
        given.choice(0, &[("SIGHUP", ()), ("SIGTERM", ())])?;
        draft.process.remap_usr1 = Some(given.owned(0)?);
        Ok(())
    }),
    served("persist-key", "", "process.persist_key", |draft, _| {
        draft.process.persist_key = true;
        Ok(())
    }),
    served("persist-local-ip", "", "process.persist_addresses", |draft, _| {
        draft.process.persist_addresses.0 = true;
        Ok(())
    }),
    served("persist-remote-ip", "", "process.persist_addresses", |draft, _| {
        draft.process.persist_addresses.1 = true;
        Ok(())
    }),
    served("shaper", "BYTES", "process.shaper", shaper),
    harmless("fast-io", "", "sockets are read and written in batches"),
    harmless("iproute", "COMMAND", "routes are set through netlink"),
    harmless("memstats", "FILE", "statistics come from the status file and from the API"),
    harmless("gremlin", "MASK", "it is a test of OpenVPN itself"),
    harmless("http-proxy-retry", "", "there is no proxy"),
    harmless("http-proxy-timeout", "SECONDS", "there is no proxy").connection(),
    harmless("socks-proxy-retry", "", "there is no proxy"),
    harmless("mtu-dynamic", "[ARGUMENT...]", "it ended with OpenVPN 2.0"),
    harmless("udp-mtu", "BYTES", "the MTU inside is tun-mtu").connection(),
    harmless("msg-channel", "NUMBER", WINDOWS),
    harmless("win-sys", "DIRECTORY|env", WINDOWS),
    harmless("ip-win32", "METHOD [ARGUMENT...]", WINDOWS),
    harmless("dhcp-renew", "", WINDOWS),
    harmless("dhcp-pre-release", "", WINDOWS),
    harmless("dhcp-release", "", WINDOWS),
    harmless("dhcp-internal", "INDEX", WINDOWS),
    harmless("rdns-internal", "", WINDOWS),
    harmless("tap-sleep", "SECONDS", WINDOWS),
    harmless("pause-exit", "", WINDOWS),
    harmless("service", "EVENT [STATE]", WINDOWS),
    harmless("allow-nonadmin", "[ADAPTER]", WINDOWS),
    harmless("show-net-up", "", WINDOWS),
    harmless("windows-driver", "DRIVER", WINDOWS),
    harmless("lladdr", "ADDRESS", WITHOUT_TAP),
    harmless("vlan-pvid", "ID", WITHOUT_TAP),
    harmless("vlan-accept", "KIND", WITHOUT_TAP),
];

fn shaper(draft: &mut Draft, given: &Given<'_>) -> Result<(), Wrong> {
    // The limits of OpenVPN.
    draft.process.shaper = Some(given.number(0, 100..=100_000_000)?);
    Ok(())
}
