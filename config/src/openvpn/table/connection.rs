//! Sockets and peers.

use crate::openvpn::draft::{Draft, Local, Remote, Written};
use crate::openvpn::given::Given;
use crate::openvpn::row::{Row, harmless, served};
use crate::openvpn::settings::{Family, MssFix, Retry, Transport};
use crate::openvpn::verdict::Wrong;

/// Rows of sockets and peers.
pub(super) const ROWS: &[Row] = &[
    served("remote", "HOST [PORT] [PROTOCOL]", "connections", remote).connection(),
    served("remote-random", "", "connecting.random", |draft, _| {
        draft.connecting.random = true;
        Ok(())
    }),
    served("remote-random-hostname", "[1]", "connecting.random_hostname", |draft, _| {
        draft.connecting.random_hostname = true;
        Ok(())
    }),
    served("proto", "PROTOCOL", "connection.protocol", |draft, given| {
        draft.link.protocol = protocol(given, 0)?;
        Ok(())
    })
    .connection(),
    served("proto-force", "udp|tcp", "connecting.only", |draft, given| {
        let known = [("udp", Transport::Udp), ("tcp", Transport::TcpClient)];
        draft.connecting.only = Some(given.choice(0, &known)?);
        Ok(())
    }),
    served("port", "PORT", "connection.local_port, remote_port", |draft, given| {
        let port = given.port(0)?;
        draft.link.base.remote_port = port;
        draft.link.base.local_port = Some(port);
        draft.link.has_local_port = true;
        Ok(())
    })
    .connection(),
    served("lport", "PORT", "connection.local_port", |draft, given| {
        // OpenVPN takes 0 for any port.
        let port = given.number(0, 0..=u16::MAX)?;
        draft.link.base.local_port = (port != 0).then_some(port);
        draft.link.has_local_port = true;
        draft.link.binds = true;
        Ok(())
    })
    .connection(),
    served("rport", "PORT", "connection.remote_port", |draft, given| {
        draft.link.base.remote_port = given.port(0)?;
        Ok(())
    })
    .connection(),
    served("local", "HOST|* [PORT] [PROTOCOL]", "listen", local).connection(),
    served("bind", "[ipv6only]", "connection.bind", |draft, given| {
        if given.get(0).is_some() {
            given.choice(0, &[("ipv6only", ())])?;
            draft.link.base.ipv6_only = true;
        }
        draft.link.binds = true;
        Ok(())
    })
    .connection(),
    served("nobind", "", "connection.bind", |draft, _| {
        draft.link.nobind = true;
        Ok(())
    })
    .connection(),
    served("float", "", "connection.float", |draft, _| {
        draft.link.base.float = true;
        Ok(())
    })
    .connection(),
    served("connect-retry", "SECONDS [LIMIT]", "connection.retry_seconds", |draft, given| {
        let first = given.count(0)?.max(1);
        let limit = given.count_or(1, draft.link.base.retry_seconds.1)?;
        draft.link.base.retry_seconds = (first, limit.max(first));
        Ok(())
    })
    .connection(),
    served("connect-retry-max", "TIMES", "connecting.attempts", |draft, given| {
        draft.connecting.attempts = retry(given, &["unlimited", "infinite"])?;
        Ok(())
    })
    .connection(),
    served("connect-timeout", "SECONDS", "connection.timeout_seconds", timeout).connection(),
    served("server-poll-timeout", "SECONDS", "connection.timeout_seconds", timeout).connection(),
    served("resolv-retry", "SECONDS|infinite", "connecting.resolve", |draft, given| {
        draft.connecting.resolve = retry(given, &["infinite"])?;
        Ok(())
    }),
    served("preresolve", "", "connecting.preresolve", |draft, _| {
        draft.connecting.preresolve = true;
        Ok(())
    }),
    harmless("ip-remote-hint", "HOST", "the address of the peer is resolved from its name"),
    served("explicit-exit-notify", "[TIMES]", "connection.exit_notify", |draft, given| {
        draft.link.base.exit_notify = if given.get(0).is_some() { given.number(0, 0..=255)? } else { 1 };
        Ok(())
    })
    .connection(),
    served("mssfix", "[BYTES] [mtu|fixed]", "connection.mssfix", mssfix).connection(),
    served("tun-mtu", "BYTES", "connection.tun_mtu", |draft, given| {
        // RFC 8200 5: a link of IPv6 carries 1280 bytes; OpenVPN's limit without IPv6 is 100.
        draft.link.base.tun_mtu = given.number(0, 100..=65_000)?;
        Ok(())
    })
    .connection(),
    served("tun-mtu-max", "BYTES", "connection.tun_mtu_max", |draft, given| {
        draft.link.base.tun_mtu_max = given.number(0, 100..=65_000)?;
        Ok(())
    }),
    harmless("tun-mtu-extra", "BYTES", "buffers have room for each packet without it").connection(),
    served("link-mtu", "BYTES", "connection.tun_mtu", |draft, given| {
        // The overhead of AEAD over UDP and IPv4, rounded up for CBC with SHA-512.
        let bytes: u16 = given.number(0, 256..=65_000)?;
        draft.link.base.tun_mtu = bytes - 128;
        draft.warn(format!("the MTU inside is {}: set it with tun-mtu", bytes - 128));
        Ok(())
    })
    .connection(),
    served("mtu-disc", "no|maybe|yes", "process.mtu_discovery", |draft, given| {
        given.choice(0, &[("no", ()), ("maybe", ()), ("yes", ())])?;
        draft.process.mtu_discovery = Some(given.owned(0)?);
        Ok(())
    })
    .connection(),
    harmless("mtu-test", "", "path MTU is measured by the data path"),
    served("multihome", "[same-interface]", "process.multihome", |draft, _| {
        draft.process.multihome = true;
        Ok(())
    }),
    served("sndbuf", "BYTES", "process.send_buffer", |draft, given| {
        draft.process.send_buffer = Some(given.count(0)?).filter(|bytes| *bytes != 0);
        Ok(())
    }),
    served("rcvbuf", "BYTES", "process.receive_buffer", |draft, given| {
        draft.process.receive_buffer = Some(given.count(0)?).filter(|bytes| *bytes != 0);
        Ok(())
    }),
    served("mark", "MARK", "process.mark", |draft, given| {
        draft.process.mark = Some(given.count(0)?);
        Ok(())
    }),
    served("bind-dev", "INTERFACE", "process.bind_device", |draft, given| {
        draft.process.bind_device = Some(given.owned(0)?);
        Ok(())
    }),
    harmless("socket-flags", "FLAG...", "TCP sockets send at once"),
    served("tcp-nodelay", "", "server.tcp_nodelay", |draft, _| {
        draft.server.tcp_nodelay = true;
        draft.server.push.push("socket-flags TCP_NODELAY".to_owned());
        Ok(())
    })
    .server(),
];

/// A protocol, as `proto`, `remote` and `local` have it.
fn protocol(given: &Given<'_>, index: usize) -> Result<(Written, Family), Wrong> {
    use Written::{Tcp, TcpClient, TcpServer, Udp};
    let known = [
        ("udp", (Udp, Family::Any)),
        ("udp4", (Udp, Family::V4)),
        ("udp6", (Udp, Family::V6)),
        ("tcp", (Tcp, Family::Any)),
        ("tcp4", (Tcp, Family::V4)),
        ("tcp6", (Tcp, Family::V6)),
        ("tcp-client", (TcpClient, Family::Any)),
        ("tcp4-client", (TcpClient, Family::V4)),
        ("tcp6-client", (TcpClient, Family::V6)),
        ("tcp-server", (TcpServer, Family::Any)),
        ("tcp4-server", (TcpServer, Family::V4)),
        ("tcp6-server", (TcpServer, Family::V6)),
    ];
    given.choice(index, &known)
}

fn optional_protocol(given: &Given<'_>, index: usize) -> Result<Option<(Written, Family)>, Wrong> {
    given.get(index).map(|_| protocol(given, index)).transpose()
}

fn remote(draft: &mut Draft, given: &Given<'_>) -> Result<(), Wrong> {
    let port = given.get(1).map(|_| given.port(1)).transpose()?;
    let remote = Remote { host: given.owned(0)?, port, protocol: optional_protocol(given, 2)? };
    draft.link.remotes.push(remote);
    Ok(())
}

fn local(draft: &mut Draft, given: &Given<'_>) -> Result<(), Wrong> {
    let host = Some(given.owned(0)?).filter(|host| host != "*");
    let port = given.get(1).map(|_| given.port(1)).transpose()?;
    draft.link.locals.push(Local { host, port, protocol: optional_protocol(given, 2)? });
    draft.link.binds = true;
    Ok(())
}

fn timeout(draft: &mut Draft, given: &Given<'_>) -> Result<(), Wrong> {
    draft.link.base.timeout_seconds = given.count(0)?;
    Ok(())
}

fn retry(given: &Given<'_>, endless: &[&str]) -> Result<Retry, Wrong> {
    if given.get(0).is_some_and(|word| endless.contains(&word)) {
        return Ok(Retry::Infinite);
    }
    given.count(0).map(Retry::Limited)
}

fn mssfix(draft: &mut Draft, given: &Given<'_>) -> Result<(), Wrong> {
    let mssfix = &mut draft.link.base.mssfix;
    if given.get(0).is_none() {
        *mssfix = MssFix::Standard;
        return Ok(());
    }
    let bytes: u16 = given.number(0, 0..=u16::MAX)?;
    let of: fn(u16) -> MssFix = match given.get(1) {
        None => MssFix::Payload,
        Some(_) => given.choice(1, &[("mtu", MssFix::Mtu as fn(u16) -> MssFix), ("fixed", MssFix::Fixed)])?,
    };
    *mssfix = if bytes == 0 { MssFix::Off } else { of(bytes) };
    Ok(())
}
