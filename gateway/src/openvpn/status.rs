//! The status of an interface as OpenVPN 2.6 prints it: to the file of `status`, to the log, at the management interface.
//!
//! Programs parse it: the headers, the order of the fields and the names are OpenVPN's. Times are UTC.

use super::control_thread::{Session, Snapshot};
use ipnet::IpNet;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tunnel::openvpn::PeerAddress;

/// The version that is told to programs which look for one.
pub const VERSION: &str = concat!("OpenVPN 2.6.14 (compatible: Postern ", env!("CARGO_PKG_VERSION"), ")");

/// The formats of `status-version`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Version 1.
    #[default]
    Sections,
    /// Version 2.
    Commas,
    /// Version 3.
    Tabs,
}

impl Format {
    /// The format with this number.
    pub fn numbered(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Sections),
            2 => Some(Self::Commas),
            3 => Some(Self::Tabs),
            _ => None,
        }
    }

    fn separator(self) -> char {
        if self == Self::Tabs { '\t' } else { ',' }
    }
}

/// Bytes that a client's interface took from the kernel, and gave to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inside {
    /// Read from the TUN interface.
    pub read: u64,
    /// Written to it.
    pub written: u64,
}

/// A server at this time since 1970.
pub fn of_server(snapshot: &Snapshot, format: Format, now: Duration) -> String {
    let mut lines = Lines { text: String::new(), separator: format.separator() };
    if format == Format::Sections {
        sections(&mut lines, snapshot, now);
    } else {
        rows(&mut lines, snapshot, now);
    }
    lines.text
}

/// A client at this time since 1970. It has one format.
pub fn of_client(snapshot: &Snapshot, inside: Inside, now: Duration) -> String {
    let (received, sent) = snapshot.bytes();
    format!(
        "OpenVPN STATISTICS\nUpdated,{}\nTUN/TAP read bytes,{}\nTUN/TAP write bytes,{}\nTCP/UDP read bytes,{received}\n\
         TCP/UDP write bytes,{sent}\nAuth read bytes,{received}\nEND\n",
        time(now),
        inside.read,
        inside.written
    )
}

/// Lines of separated fields.
struct Lines {
    text: String,
    separator: char,
}

impl Lines {
    /// A line. What a client has chosen ends no field, and no line.
    fn add(&mut self, fields: &[&str]) {
        for (index, field) in fields.iter().enumerate() {
            if index > 0 {
                self.text.push(self.separator);
            }
            let separator = self.separator;
            self.text
                .extend(field.chars().map(|it| if it.is_control() || it == separator { '_' } else { it }));
        }
        self.text.push('\n');
    }
}

fn sections(lines: &mut Lines, snapshot: &Snapshot, now: Duration) {
    lines.add(&["OpenVPN CLIENT LIST"]);
    lines.add(&["Updated", &time(now)]);
    lines.add(&["Common Name", "Real Address", "Bytes Received", "Bytes Sent", "Connected Since"]);
    for session in &snapshot.sessions {
        lines.add(&[
            name(session),
            &real(session, snapshot),
            &session.received_bytes.to_string(),
            &session.sent_bytes.to_string(),
            &time(session.since),
        ]);
    }
    lines.add(&["ROUTING TABLE"]);
    lines.add(&["Virtual Address", "Common Name", "Real Address", "Last Ref"]);
    for session in &snapshot.sessions {
        for prefix in &session.prefixes {
            lines.add(&[&inner(prefix), name(session), &real(session, snapshot), &time(session.referred)]);
        }
    }
    lines.add(&["GLOBAL STATS"]);
    lines.add(&["Max bcast/mcast queue length", "0"]);
    lines.add(&["END"]);
}

fn rows(lines: &mut Lines, snapshot: &Snapshot, now: Duration) {
    lines.add(&["TITLE", VERSION]);
    lines.add(&["TIME", &time(now), &now.as_secs().to_string()]);
    let header = "Common Name,Real Address,Virtual Address,Virtual IPv6 Address,Bytes Received,Bytes Sent,Connected Since,\
                  Connected Since (time_t),Username,Client ID,Peer ID,Data Channel Cipher";
    lines.add(&[&["HEADER", "CLIENT_LIST"], &header.split(',').collect::<Vec<_>>()[..]].concat());
    for session in &snapshot.sessions {
        let address = |v4: bool| {
            let host =
                session.prefixes.iter().find(|prefix| is_host(prefix) && prefix.addr().is_ipv4() == v4);
            host.map(|prefix| prefix.addr().to_string()).unwrap_or_default()
        };
        lines.add(&[
            "CLIENT_LIST",
            name(session),
            &real(session, snapshot),
            &address(true),
            &address(false),
            &session.received_bytes.to_string(),
            &session.sent_bytes.to_string(),
            &time(session.since),
            &session.since.as_secs().to_string(),
            session.user.as_deref().unwrap_or("UNDEF"),
            &session.client_id.to_string(),
            &session.number.to_string(),
            &session.cipher,
        ]);
    }
    let header = "HEADER,ROUTING_TABLE,Virtual Address,Common Name,Real Address,Last Ref,Last Ref (time_t)";
    lines.add(&header.split(',').collect::<Vec<_>>());
    for session in &snapshot.sessions {
        for prefix in &session.prefixes {
            let seconds = session.referred.as_secs().to_string();
            lines.add(&[
                "ROUTING_TABLE",
                &inner(prefix),
                name(session),
                &real(session, snapshot),
                &time(session.referred),
                &seconds,
            ]);
        }
    }
    lines.add(&["GLOBAL_STATS", "Max bcast/mcast queue length", "0"]);
    lines.add(&["GLOBAL_STATS", "dco_enabled", "0"]);
    lines.add(&["END"]);
}

fn name(session: &Session) -> &str {
    session.common_name.as_deref().unwrap_or("UNDEF")
}

/// As OpenVPN 2.6: an IPv6 address has no port. With UDP and TCP in one server, as OpenVPN 2.7, which names the protocol.
fn real(session: &Session, snapshot: &Snapshot) -> String {
    let Some(PeerAddress { socket, is_tcp, .. }) = session.address else { return "UNDEF".to_owned() };
    let socket = SocketAddr::new(socket.ip().to_canonical(), socket.port());
    match socket.ip() {
        ip if snapshot.has_both => {
            let family = if ip.is_ipv4() { 4 } else { 6 };
            let protocol = if is_tcp { format!("tcp{family}-server") } else { format!("udp{family}") };
            format!("{protocol}:{socket}")
        }
        IpAddr::V4(_) => socket.to_string(),
        IpAddr::V6(v6) => v6.to_string(),
    }
}

fn is_host(prefix: &IpNet) -> bool {
    prefix.prefix_len() == prefix.max_prefix_len()
}

/// An address of a client, or a network behind it.
fn inner(prefix: &IpNet) -> String {
    if is_host(prefix) { prefix.addr().to_string() } else { prefix.to_string() }
}

/// A time since 1970, as `2026-11-23 12:40:52`.
pub fn time(since: Duration) -> String {
    let seconds = since.as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let mut text = String::new();
    // It grows as it must.
    let _ = write!(
        text,
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}",
        second / 3600,
        second / 60 % 60,
        second % 60
    );
    text
}

/// Year, month and day of a day since 1970. Years begin in March here, so that the leap day is their last.
fn date(days: u64) -> (u64, u64, u64) {
    const ERA: u64 = 146_097;
    // From 1 March of the year 0 on.
    let days = days + 719_468;
    let (era, day) = (days / ERA, days % ERA);
    let year = (day - day / 1460 + day / 36_524 - day / (ERA - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str) -> PeerAddress {
        address.parse::<SocketAddr>().expect("literal").into()
    }

    fn snapshot() -> Snapshot {
        let session = |name: &str, address: &str, number: u32| Session {
            number,
            client_id: u64::from(number) + 7,
            common_name: Some(name.to_owned()),
            user: None,
            address: Some(at(address)),
            local: None,
            prefixes: ["10.8.0.2/32", "fd00:8::1000/128", "10.20.0.0/16"]
                .map(|it| it.parse().expect("literal"))
                .to_vec(),
            cipher: "AES-256-GCM".to_owned(),
            duration: Duration::from_secs(10),
            since: Duration::from_secs(1_795_437_648),
            referred: Duration::from_secs(1_795_437_652),
            received_bytes: 4751,
            sent_bytes: 4961,
            received_packets: 0,
            sent_packets: 0,
        };
        let sessions = vec![session("Test-Client", "192.168.77.1:42774", 0)];
        Snapshot { up: true, port: 1194, has_both: false, sessions, failed: Vec::new(), ended: (100, 200) }
    }

    const NOW: Duration = Duration::from_secs(1_795_437_658);

    /// What OpenVPN 2.6.14 prints for such a client, but for the title and the length of a queue.
    #[test]
    fn the_formats_are_those_of_openvpn() {
        let one = "OpenVPN CLIENT LIST\nUpdated,2026-11-23 12:40:58\n\
                   Common Name,Real Address,Bytes Received,Bytes Sent,Connected Since\n\
                   Test-Client,192.168.77.1:42774,4751,4961,2026-11-23 12:40:48\nROUTING TABLE\n\
                   Virtual Address,Common Name,Real Address,Last Ref\n\
                   10.8.0.2,Test-Client,192.168.77.1:42774,2026-11-23 12:40:52\n\
                   fd00:8::1000,Test-Client,192.168.77.1:42774,2026-11-23 12:40:52\n\
                   10.20.0.0/16,Test-Client,192.168.77.1:42774,2026-11-23 12:40:52\n\
                   GLOBAL STATS\nMax bcast/mcast queue length,0\nEND\n";
        assert_eq!(of_server(&snapshot(), Format::Sections, NOW), one);
        let two = format!(
            "TITLE,{VERSION}\nTIME,2026-11-23 12:40:58,1795437658\n\
             HEADER,CLIENT_LIST,Common Name,Real Address,Virtual Address,Virtual IPv6 Address,Bytes Received,Bytes Sent,\
             Connected Since,Connected Since (time_t),Username,Client ID,Peer ID,Data Channel Cipher\n\
             CLIENT_LIST,Test-Client,192.168.77.1:42774,10.8.0.2,fd00:8::1000,4751,4961,2026-11-23 12:40:48,1795437648,UNDEF,7,0,\
             AES-256-GCM\n\
             HEADER,ROUTING_TABLE,Virtual Address,Common Name,Real Address,Last Ref,Last Ref (time_t)\n\
             ROUTING_TABLE,10.8.0.2,Test-Client,192.168.77.1:42774,2026-11-23 12:40:52,1795437652\n\
             ROUTING_TABLE,fd00:8::1000,Test-Client,192.168.77.1:42774,2026-11-23 12:40:52,1795437652\n\
             ROUTING_TABLE,10.20.0.0/16,Test-Client,192.168.77.1:42774,2026-11-23 12:40:52,1795437652\n\
             GLOBAL_STATS,Max bcast/mcast queue length,0\nGLOBAL_STATS,dco_enabled,0\nEND\n"
        );
        assert_eq!(of_server(&snapshot(), Format::Commas, NOW), two);
        assert_eq!(of_server(&snapshot(), Format::Tabs, NOW), two.replace(',', "\t"));
        let client = of_client(&snapshot(), Inside { read: 3, written: 4 }, NOW);
        let counted = "TUN/TAP read bytes,3\nTUN/TAP write bytes,4\nTCP/UDP read bytes,4851\nTCP/UDP write bytes,5161\n";
        assert!(
            client.starts_with("OpenVPN STATISTICS\nUpdated,2026-11-23") && client.contains(counted),
            "{client}"
        );
    }

    #[test]
    fn a_name_ends_no_field_and_no_line() {
        let mut snapshot = snapshot();
        snapshot.sessions[0].common_name = Some("a,b\nEND".to_owned());
        snapshot.sessions[0].address = Some(at("[fd77::1]:1194"));
        let text = of_server(&snapshot, Format::Commas, NOW);
        assert!(text.contains("CLIENT_LIST,a_b_END,fd77::1,10.8.0.2,"), "{text}");
        assert_eq!(text.lines().filter(|line| *line == "END").count(), 1);
    }

    #[test]
    fn with_udp_and_tcp_in_one_server_each_address_names_its_protocol() {
        let mut snapshot = Snapshot { has_both: true, ..snapshot() };
        for (address, expected) in [
            (at("192.168.77.1:42774"), "udp4:192.168.77.1:42774"),
            (PeerAddress::tcp(at("[fd77::1]:1194").socket), "tcp6-server:[fd77::1]:1194"),
        ] {
            snapshot.sessions[0].address = Some(address);
            let text = of_server(&snapshot, Format::Sections, NOW);
            assert!(text.contains(&format!("\nTest-Client,{expected},4751,")), "{text}");
            assert!(text.contains(&format!("\n10.8.0.2,Test-Client,{expected},")), "{text}");
        }
    }

    #[test]
    fn times_are_dates() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_868_799, "2000-02-29 23:59:59"),
            (951_868_800, "2000-03-01 00:00:00"),
            (4_107_542_399, "2100-02-28 23:59:59"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(time(Duration::from_secs(seconds)), expected);
        }
    }
}
