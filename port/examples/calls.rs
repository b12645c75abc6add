//! What other calls than the ports' would cost: `cargo run --release -p postern-port --example calls` (root).
//!
//! Three experiments, each in a network namespace of its own, one core, the receiver not counted:
//!
//! ```text
//! sending   a train of 45 datagrams: send, MSG_ZEROCOPY, io_uring, and io_uring without a copy; to a device without
//!           a carrier, where nothing reads them, and to a veth pair, whose other end copies
//! reading   a super-packet of a TUN device: read and cut into spaced slots, a scatter read into these slots, io_uring
//! small     single packets of a TUN device: read, and io_uring with as many reads in one call
//! ```
//! `bench/runs` has the figures, and why the ports make the calls that they make.
#![expect(unsafe_code, reason = "io_uring, scatter reads and a TUN device take buffers by address")]

use io_uring::{IoUring, cqueue, opcode, types};
use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read};
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Instant;

/// Datagrams of a train, their bytes, and all of them.
const SEGMENTS: usize = 45;
const SEGMENT: usize = 1400;
const TRAIN: usize = SEGMENTS * SEGMENT;
/// Where slots start: a segment with room before and after it.
const SLOT: usize = 1536;
const ROOM: usize = 64;
/// What comes before the payload: `virtio_net_hdr`, and IPv4 with UDP.
const VNET: usize = 10;
const HEADERS: usize = 28;
const ROUNDS: usize = 9;
/// Packets of a round: fewer than the queue of a TUN device holds.
const PACKETS: usize = 256;
/// Calls that io_uring is given at once.
const AT_ONCE: usize = 8;

const TUNSETIFF: libc::Ioctl = 0x4004_54ca as libc::Ioctl;
const TUNSETOFFLOAD: libc::Ioctl = 0x4004_54d0 as libc::Ioctl;
/// `TUN_F_CSUM`, `TSO4`, `TSO6`, `USO4` and `USO6`.
const OFFLOADS: libc::c_ulong = 0x67;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    if std::env::args().nth(1).as_deref() != Some("inside") {
        let program = std::env::current_exe()?;
        return Err(Command::new("unshare").arg("--net").arg(program).arg("inside").exec().into());
    }
    ip("link set lo up")?;
    sending()?;
    reading()
}

fn ip(words: &str) -> Outcome<()> {
    let status = Command::new("ip").args(words.split(' ')).status()?;
    if status.success() { Ok(()) } else { Err(format!("ip {words}: {status}").into()) }
}

/// The medians of the rounds of some ways, in nanoseconds a call, in alternation.
fn medians(calls: usize, ways: &mut [&mut dyn FnMut() -> io::Result<u128>]) -> Outcome<Vec<f64>> {
    let mut times = vec![Vec::new(); ways.len()];
    for _ in 0..ROUNDS {
        for (way, times) in ways.iter_mut().zip(&mut times) {
            times.push(way()? as f64 / calls as f64);
        }
    }
    for times in &mut times {
        times.sort_by(f64::total_cmp);
    }
    Ok(times.iter().map(|times| times[ROUNDS / 2]).collect())
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A socket whose sends are trains, and whose pages may be sent without a copy.
fn socket(local: &str, remote: &str) -> Outcome<UdpSocket> {
    let socket = UdpSocket::bind(local)?;
    socket.connect(remote)?;
    for (level, name, value) in [
        (libc::SOL_UDP, libc::UDP_SEGMENT, SEGMENT as libc::c_int),
        (libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1),
        (libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, 64 << 20),
    ] {
        let size = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: the value outlives the call, and has the given size.
        check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), size) })?;
    }
    Ok(socket)
}

/// Reads zero-copy completions: one may be for several sends.
fn pages_back(socket: RawFd) {
    let mut control = [0u8; 128];
    loop {
        // SAFETY: all zero is a message without buffers.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), control.len());
        // SAFETY: the message points to `control`, which outlives the call.
        let read =
            unsafe { libc::recvmsg(socket, &raw mut message, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) };
        if read < 0 {
            return;
        }
    }
}

/// Gives io_uring the calls of `make`, and waits for what they say; calls without a copy say it twice.
fn in_ring(ring: &mut IoUring, make: impl Fn(usize) -> io_uring::squeue::Entry) -> io::Result<()> {
    let (mut pending, mut outcome) = (0, Ok(()));
    for number in 0..AT_ONCE {
        // SAFETY: buffers and descriptors of the entries live until all have been answered, below.
        unsafe { ring.submission().push(&make(number)) }.map_err(io::Error::other)?;
        pending += 1;
    }
    while pending > 0 {
        match ring.submit_and_wait(1) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => panic!("{error}: buffers are in use"),
            _ => {}
        }
        for answer in ring.completion() {
            if answer.result() < 0 {
                outcome = Err(io::Error::from_raw_os_error(-answer.result()));
            }
            pending -= usize::from(!cqueue::more(answer.flags()));
        }
    }
    outcome
}

fn timed(calls: usize, mut call: impl FnMut(usize) -> io::Result<()>) -> io::Result<u128> {
    let begun = Instant::now();
    (0..calls).try_for_each(&mut call)?;
    Ok(begun.elapsed().as_nanos())
}

fn sending() -> Outcome<()> {
    println!("ns a train of {SEGMENTS} datagrams of {SEGMENT} bytes");
    println!("to            send  MSG_ZEROCOPY  io_uring  io_uring, no copy");
    // The other end of the first is down, so that packets are dropped before they reach the device, and nothing reads them.
    ip("link add dropped type veth peer name down")?;
    ip("link add near type veth peer name far")?;
    for (device, net) in [("dropped", "198.51.100"), ("near", "203.0.113")] {
        ip(&format!("address add {net}.1/24 dev {device}"))?;
        ip(&format!("link set {device} up"))?;
        // A station that is not there: the far end takes the packet, and throws it away.
        ip(&format!("neigh add {net}.2 lladdr 02:00:00:00:00:99 dev {device}"))?;
    }
    ip("link set far up")?;
    for (device, net) in [("dropped", "198.51.100"), ("near", "203.0.113")] {
        let socket = socket(&format!("{net}.1:0"), &format!("{net}.2:9"))?;
        let fd = socket.as_raw_fd();
        // As many trains as the gateway has batches, so that no send waits for pages of the one before.
        let trains: Vec<Vec<u8>> = (0..AT_ONCE).map(|at| vec![at as u8; TRAIN]).collect();
        let mut rings = [IoUring::new(64)?, IoUring::new(64)?];
        let [ring, ring_no_copy] = &mut rings;
        let entry = |at: usize| opcode::Send::new(types::Fd(fd), trains[at].as_ptr(), TRAIN as u32).build();
        let no_copy =
            |at: usize| opcode::SendZc::new(types::Fd(fd), trains[at].as_ptr(), TRAIN as u32).build();
        let found = medians(
            PACKETS,
            &mut [
                &mut || timed(PACKETS, |at| socket.send(&trains[at % AT_ONCE]).map(drop)),
                &mut || {
                    timed(PACKETS, |at| {
                        let train = &trains[at % AT_ONCE];
                        // SAFETY: the train outlives the socket.
                        let sent =
                            unsafe { libc::send(fd, train.as_ptr().cast(), TRAIN, libc::MSG_ZEROCOPY) };
                        if at % AT_ONCE == AT_ONCE - 1 {
                            pages_back(fd);
                        }
                        check(if sent < 0 { -1 } else { 0 })
                    })
                },
                &mut || timed(PACKETS / AT_ONCE, |_| in_ring(ring, entry)),
                &mut || timed(PACKETS / AT_ONCE, |_| in_ring(ring_no_copy, no_copy)),
            ],
        )?;
        let [send, zero_copy, ring, ring_no_copy] = found[..] else { unreachable!("four ways") };
        println!("{device:<12} {send:>5.0} {zero_copy:>13.0} {ring:>9.0} {ring_no_copy:>18.0}");
    }
    Ok(())
}

/// A TUN device with offloads.
fn tun(name: &str) -> Outcome<File> {
    let file = File::options().read(true).write(true).open("/dev/net/tun")?;
    // SAFETY: all zero is a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    // SAFETY: the request outlives the call.
    check(unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &raw mut request) })?;
    // SAFETY: the argument is a number.
    check(unsafe { libc::ioctl(file.as_raw_fd(), TUNSETOFFLOAD, OFFLOADS) })?;
    Ok(file)
}

fn reading() -> Outcome<()> {
    let device = tun("read0")?;
    // Otherwise the kernel has packets of its own for it.
    std::fs::write("/proc/sys/net/ipv6/conf/read0/disable_ipv6", "1")?;
    ip("address add 192.0.2.1/24 dev read0")?;
    ip("link set read0 up txqueuelen 1000")?;
    for (title, bytes) in
        [("super-packet", TRAIN), ("packet of 1400 bytes", SEGMENT), ("packet of 64 bytes", 36)]
    {
        read_packets(&device, title, bytes)?;
    }
    Ok(())
}

fn read_packets(device: &File, title: &str, bytes: usize) -> Outcome<()> {
    let sender = socket("192.0.2.1:0", "192.0.2.2:9")?;
    let (fd, payload) = (device.as_raw_fd(), vec![7; bytes]);
    let fill = || (0..PACKETS).try_for_each(|_| sender.send(&payload).map(drop));
    let whole = VNET + HEADERS + bytes;
    let mut buffer = vec![0u8; 66_000];
    let mut slots = vec![0u8; SEGMENTS * SLOT];
    let mut many = vec![vec![0u8; 66_000]; AT_ONCE];
    let places: Vec<*mut u8> = many.iter_mut().map(Vec::as_mut_ptr).collect();
    let mut ring = IoUring::new(64)?;
    let segments = bytes.div_ceil(SEGMENT);
    let in_slot = |segment: usize| segment * SLOT + ROOM + HEADERS;

    let mut plain = buffer.clone();
    let mut read = || {
        fill()?;
        timed(PACKETS, |_| (&*device).read(&mut plain).and_then(|read| right(read, whole)))
    };
    let mut into_slots = slots.clone();
    let mut cut = || {
        fill()?;
        timed(PACKETS, |_| {
            (&*device).read(&mut buffer).and_then(|read| right(read, whole))?;
            let payload = &buffer[VNET + HEADERS..whole];
            for (segment, part) in payload.chunks(SEGMENT).enumerate() {
                let start = in_slot(segment);
                into_slots[start - HEADERS..start].copy_from_slice(&buffer[VNET..VNET + HEADERS]);
                into_slots[start..start + part.len()].copy_from_slice(part);
            }
            black_box(&into_slots);
            Ok(())
        })
    };
    let mut scatter = || {
        fill()?;
        timed(PACKETS, |_| {
            let mut head = [0u8; VNET + HEADERS];
            let mut pieces = Vec::with_capacity(1 + segments);
            pieces.push(libc::iovec { iov_base: head.as_mut_ptr().cast(), iov_len: head.len() });
            for segment in 0..segments {
                let place = &mut slots[in_slot(segment)..][..SEGMENT];
                pieces.push(libc::iovec { iov_base: place.as_mut_ptr().cast(), iov_len: SEGMENT });
            }
            // SAFETY: the pieces are apart, and outlive the call.
            let read = unsafe { libc::readv(fd, pieces.as_ptr(), pieces.len() as libc::c_int) };
            right(usize::try_from(read).map_err(|_| io::Error::last_os_error())?, whole)?;
            for segment in 0..segments {
                let start = in_slot(segment);
                slots[start - HEADERS..start].copy_from_slice(&head[VNET..]);
            }
            black_box(&slots);
            Ok(())
        })
    };
    let entry = |at: usize| opcode::Read::new(types::Fd(fd), places[at], 66_000).build();
    let mut by_ring = || {
        fill()?;
        timed(PACKETS / AT_ONCE, |_| in_ring(&mut ring, entry))
    };
    let found = medians(PACKETS, &mut [&mut read, &mut cut, &mut scatter, &mut by_ring])?;
    let [read, cut, scatter, by_ring] = found[..] else { unreachable!("four ways") };
    println!(
        "\nns a {title}\nread {read:.0}, read and cut {cut:.0}, scatter read {scatter:.0}, io_uring {by_ring:.0}"
    );
    Ok(())
}

/// Fails for a packet that is not one of ours.
fn right(read: usize, whole: usize) -> io::Result<()> {
    if read == whole { Ok(()) } else { Err(io::Error::other(format!("{read} bytes, not {whole}"))) }
}
