//! Steering: which of several sockets receives a datagram, or an ESP packet. A program in the kernel decides, in classic BPF
//! (socket(7), SO_ATTACH_REUSEPORT_CBPF and SO_ATTACH_FILTER).
//!
//! ```text
//! UDP: datagram ── begins as data ──> its byte, modulo the number of sockets ──> that socket
//!          └────── any other ───────> the first socket
//! raw: packet ──> a copy for each socket ──> the filter of each socket drops the packets of the others
//! ```
//! The byte is part of a number that this side has chosen for the session: a receiver index, or an SPI. So the datagrams of a
//! session stay with one socket, and its thread, whatever address and port they come from. GRO merges datagrams of one source before
//! the program sees them, and they go where the first leads: a peer's sessions should all have the same socket.
#![expect(unsafe_code, reason = "setsockopt takes the program by address")]

use super::last_error;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};

/// How datagrams are spread over several sockets on one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steering {
    /// The number of sockets of each IP version.
    pub sockets: u8,
    /// The datagrams that are spread.
    pub spread: Spread,
    /// The place of the byte that names the socket.
    pub byte: u8,
}

/// Datagrams that are spread, by their first four bytes. All others, and shorter ones, go to the first socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Those that begin so.
    Beginning([u8; 4]),
    /// All but those that begin so.
    NotBeginning([u8; 4]),
}

/// The length of both programs.
const LENGTH: usize = 6;
type Program = [libc::sock_filter; LENGTH];
/// Loads four times the low half of a byte into the index register.
const HEADER_LENGTH: u32 = libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH;

/// An instruction; a comparison skips so many instructions if it holds, and if not.
fn instruction(code: u32, (jt, jf): (u8, u8), k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

impl Steering {
    /// The program of a port: it gets the payload, and returns the number of a socket. It returns 0 for a payload that ends before the
    /// byte.
    fn program(self) -> Program {
        let one = |code, k| instruction(code, (0, 0), k);
        let (skips, begin) = match self.spread {
            Spread::Beginning(begin) => ((0, 3), begin),
            Spread::NotBeginning(begin) => ((3, 0), begin),
        };
        [
            one(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
            instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, skips, u32::from_be_bytes(begin)),
            one(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, self.byte.into()),
            one(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, self.sockets.max(1).into()),
            one(libc::BPF_RET | libc::BPF_A, 0),
            one(libc::BPF_RET | libc::BPF_K, 0),
        ]
    }

    /// The filter of a raw socket: it gets the packet, over IPv4 with the IP header, and returns how many bytes of it are received: all
    /// or none. A packet that ends before the byte is for no socket.
    fn filter(self, socket: u8, is_v4: bool) -> Program {
        let one = |code, k| instruction(code, (0, 0), k);
        [
            // The length of the header, from the first byte of it. IPv6 packets come without.
            one(if is_v4 { HEADER_LENGTH } else { libc::BPF_LDX | libc::BPF_W | libc::BPF_IMM }, 0),
            one(libc::BPF_LD | libc::BPF_B | libc::BPF_IND, self.byte.into()),
            one(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, self.sockets.max(1).into()),
            instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, (0, 1), socket.into()),
            one(libc::BPF_RET | libc::BPF_K, u32::MAX),
            one(libc::BPF_RET | libc::BPF_K, 0),
        ]
    }

    /// Attaches the program to the group of sockets that `fd` belongs to.
    pub(super) fn attach(self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        set(fd, libc::SO_ATTACH_REUSEPORT_CBPF, &mut self.program())
    }

    /// Attaches the filter of the raw socket with this number.
    pub(super) fn attach_filter(self, fd: BorrowedFd<'_>, socket: u8, is_v4: bool) -> Result<(), Errno> {
        set(fd, libc::SO_ATTACH_FILTER, &mut self.filter(socket, is_v4))
    }
}

fn set(fd: BorrowedFd<'_>, option: libc::c_int, program: &mut Program) -> Result<(), Errno> {
    let whole = libc::sock_fprog { len: LENGTH as u16, filter: program.as_mut_ptr() };
    let length = size_of_val(&whole) as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of `whole`, and the LENGTH instructions that it points to. Both live until the
    // call returns.
    let outcome = unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, option, (&raw const whole).cast(), length)
    };
    if outcome < 0 { Err(last_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use crate::udp::{BATCH_BYTES, Spread, Steering, UdpBinding, UdpReceive, UdpSockets, UdpTransmit};
    use crate::{Offloads, Receive, Transmit, Wake};
    use packet::{Batch, DropCounters};
    use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
    use std::sync::Arc;
    use std::time::Duration;

    const SOCKETS: u8 = 3;
    const STEERING: Steering =
        Steering { sockets: SOCKETS, spread: Spread::Beginning([4, 0, 0, 0]), byte: 7 };

    /// Sockets on a free port of both loopback addresses, without those of IPv6 if the machine has none.
    fn bound() -> Arc<UdpSockets> {
        bound_with(STEERING)
    }

    fn bound_with(steering: Steering) -> Arc<UdpSockets> {
        let all = UdpBinding { steering: Some(steering), ..UdpBinding::default() };
        let loopback =
            UdpBinding { v4: Some(Ipv4Addr::LOCALHOST), v6: Some(Ipv6Addr::LOCALHOST), ..all.clone() };
        let bind = |at| UdpSockets::bind_at(0, at, &Offloads::default());
        Arc::new(bind(&loopback).or_else(|_| bind(&all)).expect("a free port"))
    }

    fn data(steers: u8, length: usize) -> Vec<u8> {
        let mut message = vec![0; length];
        message[0] = 4;
        message[7] = steers;
        message
    }

    /// What each thread has received once all have received `expected` together: the bytes of each datagram, and its source.
    fn received(sockets: &Arc<UdpSockets>, expected: usize) -> Vec<Vec<(Vec<u8>, SocketAddr)>> {
        let slot = Arc::new(Some(Arc::clone(sockets)).into());
        let (wake, drops) = (Wake::new().expect("there are descriptors"), DropCounters::default());
        let mut threads: Vec<UdpReceive> = (0..usize::from(SOCKETS))
            .map(|number| UdpReceive::new(Arc::clone(&slot), Arc::default()).of_thread(number))
            .collect();
        let mut all = vec![Vec::new(); threads.len()];
        let mut batch = Batch::new(BATCH_BYTES);
        let mut patience = 3000;
        while all.iter().map(Vec::len).sum::<usize>() < expected && patience > 0 {
            for (thread, all) in threads.iter_mut().zip(&mut all) {
                batch.clear();
                thread.receive(&mut batch, &drops).expect("readable");
                for train in batch.trains() {
                    let from = train.endpoint.expect("it has a source").remote;
                    all.extend(train.packets.clone().map(|index| (batch.packet(index).to_vec(), from)));
                }
                wake.notify();
                thread.wait(&wake).expect("poll works");
            }
            std::thread::sleep(Duration::from_millis(10));
            patience -= 1;
        }
        all
    }

    #[test]
    fn data_goes_where_its_byte_leads_and_all_else_to_the_first() {
        let sockets = bound();
        let mut sent = 0;
        for loopback in [Ipv4Addr::LOCALHOST.into(), std::net::IpAddr::from(Ipv6Addr::LOCALHOST)] {
            let Ok(peer) = UdpSocket::bind((loopback, 0)) else { continue };
            let mut send = |message: &[u8]| {
                sent += usize::from(peer.send_to(message, (loopback, sockets.port())).is_ok());
            };
            (0..=255).for_each(|steers| send(&data(steers, 32 + usize::from(steers))));
            // Handshakes, what begins otherwise, and what ends before the byte.
            for other in
                [&[1, 0, 0, 0, 0, 0, 0, 1][..], &[4, 1, 0, 0, 0, 0, 0, 1], &[4, 0, 0, 0, 0, 0, 0], &[4]]
            {
                send(other);
            }
        }
        let all = received(&sockets, sent);
        assert_eq!(all.iter().map(Vec::len).sum::<usize>(), sent, "none is lost");
        for (number, datagrams) in all.iter().enumerate() {
            for (datagram, _) in datagrams {
                let is_data = datagram.len() >= 32;
                let expected = if is_data { usize::from(datagram[7] % SOCKETS) } else { 0 };
                assert_eq!(number, expected, "{datagram:?}");
            }
            assert!(datagrams.len() > 80);
        }
    }

    #[test]
    fn esp_goes_where_its_spi_leads_and_ike_and_keepalives_to_the_first() {
        let spread = Spread::NotBeginning([0; 4]);
        let sockets = bound_with(Steering { sockets: SOCKETS, spread, byte: 0 });
        let peer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let esp = (0..=255).map(|steers| vec![steers, 0, 0, 1, steers]);
        let others = [vec![0xff], vec![0, 0, 0, 0, 2], vec![2, 0, 0]];
        let messages: Vec<Vec<u8>> = esp.chain(others).collect();
        for message in &messages {
            peer.send_to(message, (Ipv4Addr::LOCALHOST, sockets.port())).expect("loopback sends");
        }
        let all = received(&sockets, messages.len());
        for (number, datagrams) in all.iter().enumerate() {
            for (datagram, _) in datagrams {
                let is_esp = datagram.len() == 5 && datagram[..4] != [0; 4];
                let expected = if is_esp { usize::from(datagram[0] % SOCKETS) } else { 0 };
                assert_eq!(number, expected, "{datagram:?}");
            }
        }
        assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [86 + 3, 85, 85]);
    }

    #[test]
    fn a_peer_that_roams_stays_and_is_answered_from_the_same_port() {
        let sockets = bound();
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, sockets.port()));
        let peers: Vec<UdpSocket> = (1..30u8)
            .map(|last| UdpSocket::bind(SocketAddr::from(([127, 0, 0, last], 0))).expect("loopback is there"))
            .collect();
        for peer in &peers {
            peer.send_to(&data(5, 100), at).expect("loopback sends");
        }
        let all = received(&sockets, peers.len());
        assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [0, 0, peers.len()]);
        let slot = Arc::new(Some(Arc::clone(&sockets)).into());
        for number in 0..usize::from(SOCKETS) {
            let mut transmit = UdpTransmit::new(Arc::clone(&slot), Arc::default()).of_thread(number);
            let mut batch = Batch::new(4096);
            batch.append(1).expect("it fits").fill(number as u8);
            let to = peers[0].local_addr().expect("bound");
            batch.close_train(0, Some(packet::Endpoint::new(to)), 0);
            transmit.transmit(&mut batch, &DropCounters::default());
            let mut answer = [9; 4];
            peers[0].set_read_timeout(Some(Duration::from_secs(30))).expect("not zero");
            assert_eq!(peers[0].recv_from(&mut answer).expect("an answer"), (1, at));
            assert_eq!(usize::from(answer[0]), number);
        }
    }

    #[test]
    fn a_port_that_another_program_has_is_not_shared_with_it() {
        let first = bound();
        let binding = UdpBinding {
            v4: Some(Ipv4Addr::LOCALHOST),
            v6: None,
            steering: Some(STEERING),
            ..UdpBinding::default()
        };
        let refused = UdpSockets::bind_at(first.port(), &binding, &Offloads::default()).err();
        assert_eq!(refused.map(|it| it.error), Some(rustix::io::Errno::ADDRINUSE));
    }
}
