//! What arrives unprotected although it is from behind a peer is not let in (RFC 4301 section 5.2): the kernel, which
//! forwards packets and delivers them, is told so in rules of nf_tables.
//!
//! A packet is from behind a peer when its answer would go inside: the kernel is asked for the route to its source. So the
//! rules need not know who the peers are. Their table is ours, and goes with the socket that made it, however we end.

use super::gateway::NAME;
use crate::control::netlink::NetlinkError;
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use std::io;
use std::time::Duration;
use tunnel::ikev2::limits::{IKE_PORT, NAT_PORT};

/// The name of table and chain, as `nft list ruleset` shows it.
const TABLE: &str = "postern";
/// Before connections are tracked: what is not let in makes no state.
const PRIORITY: i32 = -300;

/// linux/netfilter/nfnetlink.h
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NF_TABLES: u16 = 10;
/// linux/netfilter/nf_tables.h
const NEW_TABLE: u16 = NF_TABLES << 8;
const NEW_CHAIN: u16 = NF_TABLES << 8 | 3;
const NEW_RULE: u16 = NF_TABLES << 8 | 6;
const OWNED: u32 = 2;
/// linux/netlink.h
const REQUEST: u16 = 0x1;
const ACK: u16 = 0x4;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;
/// For IPv4 and IPv6.
const INET: u8 = 1;
/// How long the kernel may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// The rules, as long as it lives.
pub struct Unprotected(#[expect(dead_code, reason = "the rules go with it")] Socket);

impl Unprotected {
    /// Has the kernel drop them.
    pub fn refuse() -> Result<Self, NetlinkError> {
        let refused = |error: io::Error| NetlinkError {
            what: "rules of nf_tables".to_owned(),
            error: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        };
        Self::install().map_err(refused)
    }

    fn install() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
        let (mut batch, rules) = (Batch::default(), rules());
        batch.message(BATCH_BEGIN, 0, 0, NF_TABLES, &[]);
        batch.message(NEW_TABLE, CREATE | ACK, INET, 0, &table());
        batch.message(NEW_CHAIN, CREATE | ACK, INET, 0, &chain());
        for rule in &rules {
            batch.message(NEW_RULE, CREATE | APPEND | ACK, INET, 0, rule);
        }
        batch.message(BATCH_END, 0, 0, NF_TABLES, &[]);
        socket.send(&batch.bytes, 0)?;
        for _ in 0..rules.len() + 2 {
            acknowledged(&socket.recv_from_full()?.0)?;
        }
        Ok(Self(socket))
    }
}

/// The first rule that matches decides.
fn rules() -> Vec<Vec<u8>> {
    [
        // The inside interface has what was protected.
        vec![meta(IIFNAME), interface(EQUAL), accept()],
        // What is not from behind a peer.
        vec![fib(SOURCE, OUTPUT_NAME), interface(NOT_EQUAL), accept()],
        // Neighbours on a link (RFC 2710, RFC 4861): the peer may be one.
        vec![protocol(ICMP_V6), payload(0, 1), compare(AT_LEAST, &[130]), compare(AT_MOST, &[143]), accept()],
        // What is not for this machine itself.
        vec![fib(DESTINATION, KIND), compare(NOT_EQUAL, &LOCAL.to_ne_bytes()), refuse()],
        // Outer packets, of a peer to which the tunnel leads. Later fragments have no ports, and are nothing without the
        // first: the rule that looks for ports does not match them.
        vec![protocol(ESP), accept()],
        vec![protocol(UDP), payload(2, 2), not_port(IKE_PORT), not_port(NAT_PORT), refuse()],
        vec![protocol(UDP), accept()],
        // Errors about them, from whoever is on the way.
        vec![protocol(ICMP), payload(0, 1), compare(EQUAL, &[3]), accept()],
        vec![protocol(ICMP), payload(0, 1), compare(AT_LEAST, &[11]), compare(AT_MOST, &[12]), accept()],
        vec![protocol(ICMP_V6), payload(0, 1), compare(AT_MOST, &[4]), accept()],
        vec![refuse()],
    ]
    .into_iter()
    .map(|expressions| rule(&expressions.concat()))
    .collect()
}

/// Protocols, as an IP header has them.
const ICMP: u8 = 1;
const UDP: u8 = 17;
const ESP: u8 = 50;
const ICMP_V6: u8 = 58;

/// linux/netfilter/nf_tables.h: what `meta` reads.
const IIFNAME: u32 = 6;
const L4_PROTOCOL: u32 = 16;
/// What `fib` looks for, and what it says.
const SOURCE: u32 = 1;
const DESTINATION: u32 = 2;
const OUTPUT_NAME: u32 = 2;
const KIND: u32 = 3;
/// linux/rtnetlink.h: what is for this machine.
const LOCAL: u32 = 2;
/// How values are compared.
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;
const AT_MOST: u32 = 3;
const AT_LEAST: u32 = 5;
/// Where a value is kept, and where a verdict.
const REGISTER: u32 = 1;
const VERDICT: u32 = 0;
const TRANSPORT_HEADER: u32 = 2;
const DROP: u32 = 0;
const ACCEPT: u32 = 1;

fn meta(key: u32) -> Vec<u8> {
    expression("meta", &[number(1, REGISTER), number(2, key)])
}

fn fib(of: u32, result: u32) -> Vec<u8> {
    expression("fib", &[number(1, REGISTER), number(2, result), number(3, of)])
}

/// Bytes of the header behind the IP header.
fn payload(offset: u32, length: u32) -> Vec<u8> {
    let place = [number(1, REGISTER), number(2, TRANSPORT_HEADER), number(3, offset), number(4, length)];
    expression("payload", &place)
}

fn compare(how: u32, value: &[u8]) -> Vec<u8> {
    expression("cmp", &[number(1, REGISTER), number(2, how), nested(3, &[attribute(1, value)])])
}

fn not_port(port: u16) -> Vec<u8> {
    compare(NOT_EQUAL, &port.to_be_bytes())
}

fn interface(how: u32) -> Vec<u8> {
    // The length of all names of interfaces.
    let mut name = [0; 16];
    name[..NAME.len()].copy_from_slice(NAME.as_bytes());
    compare(how, &name)
}

fn protocol(number: u8) -> Vec<u8> {
    [meta(L4_PROTOCOL), compare(EQUAL, &[number])].concat()
}

fn verdict(code: u32) -> Vec<u8> {
    expression("immediate", &[number(1, VERDICT), nested(2, &[nested(2, &[number(1, code)])])])
}

fn accept() -> Vec<u8> {
    verdict(ACCEPT)
}

/// And counts, which `nft list table inet postern` shows.
fn refuse() -> Vec<u8> {
    [expression("counter", &[]), verdict(DROP)].concat()
}

fn table() -> Vec<u8> {
    [text(1, TABLE), number(2, OWNED)].concat()
}

/// Of everything that arrives.
fn chain() -> Vec<u8> {
    let hook = nested(4, &[number(1, 0), number(2, PRIORITY as u32)]);
    [text(1, TABLE), text(3, TABLE), hook, text(7, "filter")].concat()
}

fn rule(expressions: &[u8]) -> Vec<u8> {
    [text(1, TABLE), text(2, TABLE), nested(4, &[expressions.to_vec()])].concat()
}

fn expression(name: &str, of: &[Vec<u8>]) -> Vec<u8> {
    nested(1, &[text(1, name), nested(2, of)])
}

/// An attribute of netlink, of this type.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((value.len() + 4) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// One that has others in it.
fn nested(kind: u16, of: &[Vec<u8>]) -> Vec<u8> {
    attribute(0x8000 | kind, &of.concat())
}

fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_be_bytes())
}

fn text(kind: u16, value: &str) -> Vec<u8> {
    attribute(kind, &[value.as_bytes(), &[0]].concat())
}

/// Messages, of which the kernel takes all or none.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    messages: u32,
}

impl Batch {
    fn message(&mut self, kind: u16, flags: u16, family: u8, resource: u16, attributes: &[u8]) {
        let length = (HEADERS + attributes.len()) as u32;
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend([kind.to_ne_bytes(), (REQUEST | flags).to_ne_bytes()].concat());
        self.bytes.extend([self.messages.to_ne_bytes(), [0; 4]].concat());
        self.bytes.extend([family, 0]);
        self.bytes.extend(resource.to_be_bytes());
        self.bytes.extend(attributes);
        self.messages += 1;
    }
}

/// The headers of netlink and of netfilter's messages in it.
const HEADERS: usize = 16 + 4;

/// What the kernel says of a message, which is that of an error also when there was none.
fn acknowledged(answer: &[u8]) -> io::Result<()> {
    let code = answer.get(16..20).and_then(|code| code.try_into().ok()).map(i32::from_ne_bytes);
    match code {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code)),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
