//! Messages of nf_tables (linux/netfilter/nf_tables.h), as far as our rules need them.

use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};
use rustix::net::sockopt::{
    Timeout, set_socket_recv_buffer_size, set_socket_recv_buffer_size_force, set_socket_send_buffer_size,
    set_socket_send_buffer_size_force, set_socket_timeout,
};
use rustix::net::{RecvFlags, recv};
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

/// linux/netfilter/nfnetlink.h
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
pub(crate) const NF_TABLES: u16 = 10;
/// linux/netfilter/nf_tables.h
pub(crate) const NEW_TABLE: u16 = NF_TABLES << 8;
pub(crate) const DELETE_TABLE: u16 = NF_TABLES << 8 | 2;
pub(crate) const NEW_CHAIN: u16 = NF_TABLES << 8 | 3;
pub(crate) const NEW_RULE: u16 = NF_TABLES << 8 | 6;
const GET_RULE: u16 = NF_TABLES << 8 | 7;
pub(crate) const NEW_SET: u16 = NF_TABLES << 8 | 9;
pub(crate) const NEW_ELEMENTS: u16 = NF_TABLES << 8 | 0xc;
/// linux/netlink.h
const REQUEST: u16 = 0x1;
const ACK: u16 = 0x4;
const DUMP: u16 = 0x300;
/// Kinds of netlink's own messages.
const ERROR: u16 = 2;
const DONE: u16 = 3;
pub(crate) const CREATE: u16 = 0x400;
pub(crate) const APPEND: u16 = 0x800;
/// For IPv4 and IPv6.
const INET: u8 = 1;
/// How long the kernel may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// What every socket may send at once.
const USUAL_SEND: usize = 64 << 10;

/// What `meta` reads.
pub(crate) const MARK: u32 = 3;
pub(crate) const IIF: u32 = 4;
pub(crate) const IIFNAME: u32 = 6;
pub(crate) const OIFNAME: u32 = 7;
pub(crate) const NF_PROTOCOL: u32 = 15;
pub(crate) const L4_PROTOCOL: u32 = 16;
/// How values are compared.
pub(crate) const EQUAL: u32 = 0;
pub(crate) const NOT_EQUAL: u32 = 1;
pub(crate) const AT_MOST: u32 = 3;
pub(crate) const AT_LEAST: u32 = 5;
/// Which header `payload` reads.
pub(crate) const NETWORK_HEADER: u32 = 1;
pub(crate) const TRANSPORT_HEADER: u32 = 2;
/// What is kept with a rule for programs.
const USER_DATA: u16 = 7;
/// Protocols, as an IP header has them.
pub(crate) const ICMP_V6: u8 = 58;
/// Where a value is kept, and where a verdict.
const REGISTER: u32 = 1;
const VERDICT: u32 = 0;
const DROP: u32 = 0;
const ACCEPT: u32 = 1;
const JUMP: u32 = -3i32 as u32;

pub(crate) fn meta(key: u32) -> Vec<u8> {
    expression("meta", &[number(1, REGISTER), number(2, key)])
}

pub(crate) fn fib(of: u32, result: u32) -> Vec<u8> {
    expression("fib", &[number(1, REGISTER), number(2, result), number(3, of)])
}

/// The mark of the socket that a packet is for, if there is one.
pub(crate) fn socket_mark() -> Vec<u8> {
    const KEY: u32 = 1;
    expression("socket", &[number(1, KEY), number(2, REGISTER)])
}

/// Bytes of a header.
pub(crate) fn payload(header: u32, offset: u32, length: u32) -> Vec<u8> {
    expression("payload", &[number(1, REGISTER), number(2, header), number(3, offset), number(4, length)])
}

pub(crate) fn compare(how: u32, value: &[u8]) -> Vec<u8> {
    expression("cmp", &[number(1, REGISTER), number(2, how), nested(3, &[attribute(1, value)])])
}

/// Whether the value is in a set.
pub(crate) fn lookup(set: &str) -> Vec<u8> {
    expression("lookup", &[text(1, set), number(2, REGISTER)])
}

/// Compares the name of an interface.
pub(crate) fn interface(how: u32, interface: &str) -> Vec<u8> {
    // The length of all names of interfaces.
    let mut name = [0; 16];
    let length = interface.len().min(15);
    name[..length].copy_from_slice(&interface.as_bytes()[..length]);
    compare(how, &name)
}

pub(crate) fn protocol(number: u8) -> Vec<u8> {
    [meta(L4_PROTOCOL), compare(EQUAL, &[number])].concat()
}

fn verdict(of: &[Vec<u8>]) -> Vec<u8> {
    expression("immediate", &[number(1, VERDICT), nested(2, &[nested(2, of)])])
}

pub(crate) fn accept() -> Vec<u8> {
    verdict(&[number(1, ACCEPT)])
}

pub(crate) fn jump(chain: &str) -> Vec<u8> {
    verdict(&[number(1, JUMP), text(2, chain)])
}

/// Drops, with a counter that `nft list table` and [`counted`] show.
pub(crate) fn refuse() -> Vec<u8> {
    [counter(), drop()].concat()
}

/// A chain at a hook of netfilter.
pub(crate) fn base_chain(table: &str, chain: &str, hook: u32, priority: i32) -> Vec<u8> {
    chain_of("filter", table, chain, hook, priority)
}

/// A chain that translates addresses.
pub(crate) fn nat_chain(table: &str, chain: &str, hook: u32, priority: i32) -> Vec<u8> {
    chain_of("nat", table, chain, hook, priority)
}

fn chain_of(kind: &str, table: &str, chain: &str, hook: u32, priority: i32) -> Vec<u8> {
    let hook = nested(4, &[number(1, hook), number(2, priority as u32)]);
    [text(1, table), text(3, chain), hook, text(7, kind)].concat()
}

pub(crate) fn chain(table: &str, chain: &str) -> Vec<u8> {
    [text(1, table), text(3, chain)].concat()
}

pub(crate) fn rule(table: &str, chain: &str, expressions: &[Vec<u8>]) -> Vec<u8> {
    [text(1, table), text(2, chain), nested(4, &[expressions.concat()])].concat()
}

/// A comment of up to 128 bytes for a rule, as `nft list table` shows it.
pub(crate) fn comment(comment: &str) -> Vec<u8> {
    // A type, a length and the text, which a zero ends (libnftnl/udata.h).
    let length = comment.len() as u8 + 1;
    attribute(USER_DATA, &[&[0, length], comment.as_bytes(), &[0]].concat())
}

/// What the log of the kernel is to have of a packet, behind these words.
pub(crate) fn log(words: &str) -> Vec<u8> {
    expression("log", &[text(2, words)])
}

/// The sender is answered: a TCP reset, or ICMP port unreachable.
pub(crate) fn reject(is_tcp: bool) -> Vec<u8> {
    // linux/netfilter/nf_tables.h: NFT_REJECT_TCP_RST, NFT_REJECT_ICMPX_UNREACH with NFT_REJECT_ICMPX_PORT_UNREACH.
    let (kind, code) = if is_tcp { (1, 0) } else { (2, 1) };
    expression("reject", &[number(1, kind), attribute(2, &[code])])
}

pub(crate) fn drop() -> Vec<u8> {
    verdict(&[number(1, DROP)])
}

/// Whether the state of the connection is one of these (`NF_CT_STATE_BIT`).
pub(crate) fn in_states(bits: u32) -> Vec<u8> {
    const STATE: u32 = 0;
    let state = expression("ct", &[number(1, REGISTER), number(2, STATE)]);
    let bytes = |kind, value: u32| nested(kind, &[attribute(1, &value.to_ne_bytes())]);
    let mask = [number(1, REGISTER), number(2, REGISTER), number(3, 4), bytes(4, bits), bytes(5, 0)];
    [state, expression("bitwise", &mask), compare(NOT_EQUAL, &0u32.to_ne_bytes())].concat()
}

/// A counter, which [`counters`] reads.
pub(crate) fn counter() -> Vec<u8> {
    expression("counter", &[])
}

/// Whether a value is in a range, both ends included.
pub(crate) fn range(how: u32, first: &[u8], last: &[u8]) -> Vec<u8> {
    let value = |kind, bytes| nested(kind, &[attribute(1, bytes)]);
    expression("range", &[number(1, REGISTER), number(2, how), value(3, first), value(4, last)])
}

/// Compares the beginning of the name of an interface.
pub(crate) fn interface_begins(how: u32, name: &str) -> Vec<u8> {
    compare(how, name.as_bytes())
}

fn load(register: u32, value: &[u8]) -> Vec<u8> {
    expression("immediate", &[number(1, register), nested(2, &[attribute(1, value)])])
}

/// The source of packets becomes the address of the interface that they leave by, and their port one of these.
pub(crate) fn masquerade(ports: Option<(u16, u16)>) -> Vec<u8> {
    let Some((first, last)) = ports else { return expression("masq", &[]) };
    let loads = [load(1, &first.to_be_bytes()), load(2, &last.to_be_bytes())];
    [loads.concat(), expression("masq", &[number(2, 1), number(3, 2)])].concat()
}

/// The source or the destination of packets becomes one of these addresses, and their port one of these.
pub(crate) fn translate(
    is_destination: bool,
    addresses: Option<(Ipv4Addr, Ipv4Addr)>,
    ports: Option<(u16, u16)>,
) -> Vec<u8> {
    const IPV4: u32 = 2;
    let mut loads = Vec::new();
    let mut attributes = vec![number(1, is_destination.into()), number(2, IPV4)];
    if let Some((first, last)) = addresses {
        loads.extend([load(1, &first.octets()), load(2, &last.octets())]);
        attributes.extend([number(3, 1), number(4, 2)]);
    }
    if let Some((first, last)) = ports {
        loads.extend([load(3, &first.to_be_bytes()), load(4, &last.to_be_bytes())]);
        attributes.extend([number(5, 3), number(6, 4)]);
    }
    [loads.concat(), expression("nat", &attributes)].concat()
}

fn expression(name: &str, of: &[Vec<u8>]) -> Vec<u8> {
    nested(1, &[text(1, name), nested(2, of)])
}

/// An attribute of netlink, of this type.
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((value.len() + 4) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// One that has others in it.
pub(crate) fn nested(kind: u16, of: &[Vec<u8>]) -> Vec<u8> {
    attribute(0x8000 | kind, &of.concat())
}

pub(crate) fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_be_bytes())
}

pub(crate) fn text(kind: u16, value: &str) -> Vec<u8> {
    attribute(kind, &[value.as_bytes(), &[0]].concat())
}

/// Messages, of which the kernel takes all or none.
#[derive(Clone, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    messages: u32,
    /// What messages are for, from a number on.
    places: Vec<(u32, String)>,
}

/// The kernel took none of the messages, or its answer is missing.
#[derive(Debug)]
pub(crate) struct BatchError {
    /// Its reason.
    pub(crate) error: io::Error,
    /// What the first message is for that it refused, if it names one.
    pub(crate) place: Option<String>,
    /// Whether the kernel answered so. Otherwise it is not known whether the kernel took the messages: the answer may be lost.
    pub(crate) is_answer: bool,
}

impl From<io::Error> for BatchError {
    fn from(error: io::Error) -> Self {
        Self { error, place: None, is_answer: false }
    }
}

impl From<BatchError> for io::Error {
    fn from(refused: BatchError) -> Self {
        refused.error
    }
}

impl Batch {
    pub(crate) fn new() -> Self {
        let mut batch = Self::default();
        batch.message(BATCH_BEGIN, 0, 0, NF_TABLES, &[]);
        batch
    }

    /// The messages that follow are for this line of the configuration: a refusal of one names it.
    pub(crate) fn place(&mut self, place: impl Into<String>) {
        self.places.push((self.messages, place.into()));
    }

    /// Asks for a change of rules for IPv4 and IPv6.
    pub(crate) fn add(&mut self, kind: u16, flags: u16, attributes: &[u8]) {
        self.message(kind, flags | ACK, INET, 0, attributes);
    }

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

    /// Sends all, and reads the kernel's answer to each.
    pub(crate) fn send(mut self, socket: &Socket) -> Result<(), BatchError> {
        let asked = self.messages - 1;
        self.message(BATCH_END, 0, 0, NF_TABLES, &[]);
        // What the kernel said of a batch that it refused may still be there.
        while recv(socket, &mut [0u8; 4096][..], RecvFlags::DONTWAIT).is_ok() {}
        if self.bytes.len() > USUAL_SEND {
            let size = self.bytes.len() * 2;
            // In a container without rights on the machine, only the usual limit can be used up.
            set_socket_send_buffer_size_force(socket, size)
                .or_else(|_| set_socket_send_buffer_size(socket, size))
                .map_err(io::Error::from)?;
        }
        // Each answer takes up to a page of what waits to be read.
        let answers = self.messages as usize * ANSWER;
        if answers > USUAL_SEND {
            set_socket_recv_buffer_size_force(socket, answers)
                .or_else(|_| set_socket_recv_buffer_size(socket, answers))
                .map_err(io::Error::from)?;
        }
        socket.send(&self.bytes, 0)?;
        for _ in 0..asked {
            let answer = socket.recv_from_full()?.0;
            acknowledged(&answer).map_err(|error| BatchError {
                error,
                place: self.place_of(&answer),
                is_answer: true,
            })?;
        }
        Ok(())
    }

    /// What the message was for that the kernel answers: an answer has its number.
    fn place_of(&self, answer: &[u8]) -> Option<String> {
        let number = u32::from_ne_bytes(*answer.get(8..)?.first_chunk()?);
        let (_, place) = self.places.iter().rev().find(|(from, _)| *from <= number)?;
        Some(place.clone())
    }
}

/// What the kernel counts for an answer that waits.
const ANSWER: usize = 2048;
/// The header of netlink, and with that of netfilter's messages in it.
const NETLINK_HEADER: usize = 16;
const HEADERS: usize = NETLINK_HEADER + 4;

/// A socket to nf_tables, and its port number, by which a notification names the author of a change.
pub(crate) fn open() -> io::Result<(Socket, u32)> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    let port = socket.bind_auto()?.port_number();
    socket.connect(&SocketAddr::new(0, 0))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    Ok((socket, port))
}

/// The multicast group of changes (linux/netfilter/nfnetlink.h).
const CHANGES: u32 = 7;
/// Bytes of notifications that may wait: those of 10,000 rules that replace as many.
const NOTIFICATIONS: usize = 64 << 20;

/// A socket for the kernel's notifications of changes.
pub(crate) fn subscribe() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.add_membership(CHANGES)?;
    socket.set_non_blocking(true)?;
    // What is lost would have to be taken for a change by another, and thousands of rules of ours are told too.
    set_socket_recv_buffer_size_force(&socket, NOTIFICATIONS)
        .or_else(|_| set_socket_recv_buffer_size(&socket, NOTIFICATIONS))?;
    Ok(socket)
}

/// Whether a notification is about a change of a table by another socket than `port`.
pub(crate) fn is_change_by_another(bytes: &[u8], table: &str, port: u32) -> bool {
    let mut rest = bytes;
    while let Some(&length) = rest.first_chunk::<4>() {
        let length = u32::from_ne_bytes(length) as usize;
        let Some(message) = rest.get(..length).filter(|_| length >= HEADERS) else { return false };
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        let by = u32::from_ne_bytes([message[12], message[13], message[14], message[15]]);
        let is_of_tables = u16::from_ne_bytes([message[4], message[5]]) >> 8 == NF_TABLES;
        // The name of the table is the first attribute of all messages.
        let name = message.get(HEADERS + 4..HEADERS + 4 + table.len() + 1);
        let is_named = name.is_some_and(|name| name == [table.as_bytes(), &[0]].concat());
        if is_of_tables && by != port && is_named {
            return true;
        }
    }
    false
}

/// The packets that the rules of a table have counted; none if there is no such table.
pub(crate) fn counted(socket: &Socket, table: &str) -> io::Result<u64> {
    let mut packets = 0u64;
    rules(socket, table, |message| packets = counted_by_rule(message).packets.saturating_add(packets))?;
    Ok(packets)
}

/// What a rule has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl std::ops::AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// What each rule of a table with a comment has counted, with the comment.
pub(crate) fn counters(socket: &Socket, table: &str) -> io::Result<Vec<(String, Count)>> {
    let mut counters = Vec::new();
    rules(socket, table, |message| counters.extend(commented(message)))?;
    Ok(counters)
}

/// Reads the rules of a table.
fn rules(socket: &Socket, table: &str, mut read: impl FnMut(&[u8])) -> io::Result<()> {
    let mut request = Batch::default();
    request.message(GET_RULE, DUMP, INET, 0, &text(1, table));
    // What the kernel said of a batch that it refused may still be there.
    while recv(socket, &mut [0u8; 4096][..], RecvFlags::DONTWAIT).is_ok() {}
    socket.send(&request.bytes, 0)?;
    loop {
        let bytes = socket.recv_from_full()?.0;
        for (kind, message) in messages(&bytes) {
            match kind {
                DONE => return Ok(()),
                ERROR => acknowledged(message)?,
                NEW_RULE => read(message),
                _ => {}
            }
        }
    }
}

/// The messages of a datagram, with their kinds.
fn messages(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(*rest.first_chunk()?) as usize;
        let message = rest.get(..length).filter(|it| it.len() >= NETLINK_HEADER)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([message[4], message[5]]), message))
    })
}

/// What a rule has counted.
fn counted_by_rule(message: &[u8]) -> Count {
    let expressions = attributes(message.get(HEADERS..).unwrap_or_default()).filter(|(kind, _)| *kind == 4);
    let expressions = expressions.flat_map(|(_, list)| attributes(list)).map(|(_, expression)| expression);
    let mut count = Count::default();
    for counter in expressions.filter(|it| find(it, 1) == Some(b"counter\0")) {
        let value = |kind| find(find(counter, 2)?, kind)?.try_into().ok().map(u64::from_be_bytes);
        let (bytes, packets) = (value(1).unwrap_or(0), value(2).unwrap_or(0));
        count += Count { packets, bytes };
    }
    count
}

/// The comment of a rule, and what it has counted; none without a comment.
fn commented(message: &[u8]) -> Option<(String, Count)> {
    let data = find(message.get(HEADERS..)?, USER_DATA)?;
    let length = usize::from(*data.get(1)?);
    let comment = data.get(2..2 + length).filter(|_| data[0] == 0)?;
    let comment = String::from_utf8_lossy(comment.strip_suffix(&[0]).unwrap_or(comment)).into_owned();
    Some((comment, counted_by_rule(message)))
}

/// The attributes in a message or in another attribute, with their types.
fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let [a, b, c, d] = *rest.first_chunk()?;
        let (length, kind) = (usize::from(u16::from_ne_bytes([a, b])), u16::from_ne_bytes([c, d]) & 0x3fff);
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find_map(|(it, value)| (it == kind).then_some(value))
}

/// The kernel's acknowledgement of a message: an error message, with code 0 for success.
fn acknowledged(answer: &[u8]) -> io::Result<()> {
    let code = answer.get(16..20).and_then(|code| code.try_into().ok()).map(i32::from_ne_bytes);
    match code {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code)),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(packets: u64) -> Vec<u8> {
        expression("counter", &[attribute(1, &7u64.to_be_bytes()), attribute(2, &packets.to_be_bytes())])
    }

    #[test]
    fn the_counters_of_all_rules_are_read() {
        let mut rules = Batch::default();
        let two = [compare(EQUAL, &[1, 2, 3]), counter(5), accept(), counter(1 << 40)];
        for expressions in [&two[..], &[accept()], &[counter(3)]] {
            rules.message(NEW_RULE, 0, INET, 0, &rule("table", "chain", expressions));
        }
        let read =
            |bytes: &[u8]| messages(bytes).map(|(_, message)| counted_by_rule(message).packets).sum::<u64>();
        assert_eq!(read(&rules.bytes), 8 + (1 << 40));
        for end in 0..rules.bytes.len() {
            assert!(read(&rules.bytes[..end]) <= 8 + (1 << 40));
        }
        for at in 0..rules.bytes.len() {
            let mut wrong = rules.bytes.clone();
            wrong[at] ^= 0xff;
            read(&wrong);
        }
    }

    #[test]
    fn counters_are_those_of_the_comment_of_their_rule() {
        let mut rules = Batch::default();
        let with = |said: &str, packets| [rule("t", "c", &[counter(packets)]), comment(said)].concat();
        for attributes in [with("source 10", 5), rule("t", "c", &[counter(9)]), with("source 20", 0)] {
            rules.message(NEW_RULE, 0, INET, 0, &attributes);
        }
        let read = |bytes: &[u8]| {
            messages(bytes).filter_map(|(_, message)| commented(message)).collect::<Vec<(String, Count)>>()
        };
        let count = |packets| Count { packets, bytes: 7 };
        assert_eq!(
            read(&rules.bytes),
            [("source 10".to_owned(), count(5)), ("source 20".to_owned(), count(0))]
        );
        for at in 0..rules.bytes.len() {
            let mut wrong = rules.bytes.clone();
            wrong[at] ^= 0xff;
            read(&wrong);
            read(&rules.bytes[..at]);
        }
    }
}
