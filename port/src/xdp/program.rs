//! The XDP program of a port: a few instructions that hand frames to AF_XDP sockets, loaded without a compiler or a library.
//!
//! A queue without a socket goes on to the kernel. The attachment is a link: it ends with its descriptor, so that a process that is
//! killed leaves the interface as it was.

#![expect(unsafe_code, reason = "bpf(2) takes its attributes by address")]

use crate::link::last_error;
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

// linux/bpf.h
const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
const XDP_PASS: i32 = 2;
const BPF_FUNC_REDIRECT_MAP: i32 = 51;

/// Queues of an interface that can have a socket.
pub const QUEUES: u32 = 64;

/// How the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver.
    Native,
    /// In the kernel's stack, behind the driver.
    Generic,
}

impl Mode {
    /// `XDP_FLAGS_DRV_MODE` or `XDP_FLAGS_SKB_MODE`.
    fn flags(self) -> u32 {
        match self {
            Self::Native => 4,
            Self::Generic => 2,
        }
    }

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }
}

/// Which frames the port takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// All.
    All,
    /// IPv4, IPv6 but neighbour discovery, and VLANs; all else, such as ARP, stays with the kernel.
    Ip,
}

/// A loaded program, its map of sockets, and its attachment.
pub(super) struct Program {
    map: OwnedFd,
    /// Held for its descriptor.
    _link: OwnedFd,
    /// How it runs.
    pub(super) mode: Mode,
}

/// One instruction.
#[derive(Clone, Copy)]
#[repr(C)]
struct Instruction {
    code: u8,
    /// Destination in the low half, source in the high one.
    registers: u8,
    offset: i16,
    immediate: i32,
}

const fn instruction(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { code, registers: to | from << 4, offset, immediate }
}

/// The program: registers 1 to 5 are the arguments of calls, 1 is the context at its start.
fn instructions(map: BorrowedFd<'_>, take: Take) -> Vec<Instruction> {
    // Loads of a 32-bit, a 16-bit and an 8-bit field, moves, sums and jumps (linux/bpf.h, bpf_common.h).
    const LOAD: u8 = 0x61;
    const LOAD_16: u8 = 0x69;
    const LOAD_8: u8 = 0x71;
    const MOVE: u8 = 0xbf;
    const SET: u8 = 0xb7;
    const ADD: u8 = 0x07;
    const IF_GREATER: u8 = 0x2d;
    const IF_EQUAL: u8 = 0x15;
    const IF_NOT_EQUAL: u8 = 0x55;
    const IF_LESS: u8 = 0xa5;
    const IF_GREATER_THAN: u8 = 0x25;
    const GO: u8 = 0x05;
    const EXIT: u8 = 0x95;
    let redirect = [
        // The queue; the map, in two slots; what happens without a socket.
        instruction(LOAD, 2, 1, 16, 0),
        instruction(0x18, 1, 1, 0, map.as_raw_fd()),
        instruction(0, 0, 0, 0, 0),
        instruction(SET, 3, 0, 0, XDP_PASS),
        instruction(0x85, 0, 0, 0, BPF_FUNC_REDIRECT_MAP),
        instruction(EXIT, 0, 0, 0, 0),
    ];
    if take == Take::All {
        return redirect.to_vec();
    }
    let pass = [instruction(SET, 0, 0, 0, XDP_PASS), instruction(EXIT, 0, 0, 0, 0)];
    let be = |ether_type: u16| i32::from(ether_type.to_be());
    // Jumps count the instructions between: `pass` begins at 20, `redirect` at 22.
    let choose = [
        instruction(LOAD, 2, 1, 0, 0),
        instruction(LOAD, 3, 1, 4, 0),
        instruction(MOVE, 4, 2, 0, 0),
        instruction(ADD, 4, 0, 0, 14),
        instruction(IF_GREATER, 4, 3, 15, 0),
        instruction(LOAD_16, 5, 2, 12, 0),
        instruction(IF_EQUAL, 5, 0, 15, be(packet::header::ethernet::IPV4)),
        instruction(IF_EQUAL, 5, 0, 14, be(packet::header::ethernet::VLAN)),
        instruction(IF_EQUAL, 5, 0, 13, be(packet::header::ethernet::SERVICE_VLAN)),
        instruction(IF_EQUAL, 5, 0, 1, be(packet::header::ethernet::IPV6)),
        instruction(GO, 0, 0, 9, 0),
        // IPv6: ICMPv6 of types 133 to 137 is neighbour discovery.
        instruction(MOVE, 4, 2, 0, 0),
        instruction(ADD, 4, 0, 0, 55),
        instruction(IF_GREATER, 4, 3, 6, 0),
        instruction(LOAD_8, 5, 2, 20, 0),
        instruction(IF_NOT_EQUAL, 5, 0, 6, 58),
        instruction(LOAD_8, 5, 2, 54, 0),
        instruction(IF_LESS, 5, 0, 4, 133),
        instruction(IF_GREATER_THAN, 5, 0, 3, 137),
    ];
    choose.into_iter().chain([instruction(GO, 0, 0, 0, 0)]).chain(pass).chain(redirect).collect()
}

#[derive(Clone, Copy)]
#[repr(C)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    most: u32,
    flags: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct MapUpdate {
    map: u32,
    _pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct ProgramLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    licence: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach: u32,
    flags: u32,
}

/// bpf(2): what a successful call returns.
fn bpf<T: Copy>(command: libc::c_int, attributes: &T) -> Result<libc::c_int, Errno> {
    // SAFETY: the call reads `size_of::<T>()` bytes of the attributes, and what they point to, which live until it returns.
    let outcome =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    if outcome < 0 { Err(last_error()) } else { Ok(outcome as libc::c_int) }
}

/// bpf(2) of a command that returns a descriptor.
fn bpf_descriptor<T: Copy>(command: libc::c_int, attributes: &T) -> Result<OwnedFd, Errno> {
    let fd = bpf(command, attributes)?;
    // SAFETY: the call has returned a new descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Program {
    /// Loads the program and attaches it to an interface: in the driver, or behind it if the driver has no room for it.
    pub(super) fn attach(interface: u32, take: Take, modes: &[Mode]) -> Result<Self, Errno> {
        let map = MapCreate { kind: BPF_MAP_TYPE_XSKMAP, key_size: 4, value_size: 4, most: QUEUES, flags: 0 };
        let map = bpf_descriptor(BPF_MAP_CREATE, &map)?;
        let program = load(&map, take)?;
        let mut last = Errno::OPNOTSUPP;
        for &mode in modes {
            let attributes = LinkCreate {
                program: program.as_raw_fd() as u32,
                interface,
                attach: BPF_XDP,
                flags: mode.flags(),
            };
            match bpf_descriptor(BPF_LINK_CREATE, &attributes) {
                Ok(link) => return Ok(Self { map, _link: link, mode }),
                Err(error @ (Errno::BUSY | Errno::EXIST)) => return Err(error),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Hands the frames of a queue to a socket.
    pub(super) fn serve(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        let value = socket.as_raw_fd() as u32;
        let attributes = MapUpdate {
            map: self.map.as_raw_fd() as u32,
            _pad: 0,
            key: (&raw const queue) as u64,
            value: (&raw const value) as u64,
            flags: 0,
        };
        bpf(BPF_MAP_UPDATE_ELEM, &attributes).map(drop)
    }
}

fn load(map: &OwnedFd, take: Take) -> Result<OwnedFd, Errno> {
    let (code, licence) = (instructions(map.as_fd(), take), c"MIT");
    let mut name = [0; 16];
    name[..7].copy_from_slice(b"postern");
    let attributes = ProgramLoad {
        kind: BPF_PROG_TYPE_XDP,
        count: code.len() as u32,
        instructions: code.as_ptr() as u64,
        licence: licence.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel: 0,
        flags: 0,
        name,
        interface: 0,
        attach: BPF_XDP,
    };
    bpf_descriptor(BPF_PROG_LOAD, &attributes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the program redirects a frame: the instructions that it uses, carried out by hand.
    fn redirects(code: &[Instruction], frame: &[u8]) -> bool {
        const FRAME: u64 = 0x1000;
        let (mut registers, mut next) = ([0u64; 11], 0usize);
        let byte = |address: u64| u64::from(frame[(address - FRAME) as usize]);
        loop {
            let it = code[next];
            let (to, from) = (usize::from(it.registers & 15), usize::from(it.registers >> 4));
            let (offset, value) = (registers[from].wrapping_add(it.offset as u64), it.immediate as u64);
            let jumps = match it.code {
                0x61 => {
                    registers[to] = if it.offset == 4 { FRAME + frame.len() as u64 } else { FRAME };
                    false
                }
                0x69 => {
                    registers[to] = byte(offset) | byte(offset + 1) << 8;
                    false
                }
                0x71 => {
                    registers[to] = byte(offset);
                    false
                }
                0xbf => {
                    registers[to] = registers[from];
                    false
                }
                0xb7 => {
                    registers[to] = value;
                    false
                }
                0x07 => {
                    registers[to] += value;
                    false
                }
                0x18 => {
                    next += 1;
                    false
                }
                0x2d => registers[to] > registers[from],
                0x15 => registers[to] == value,
                0x55 => registers[to] != value,
                0xa5 => registers[to] < value,
                0x25 => registers[to] > value,
                0x05 => true,
                0x85 => return true,
                0x95 => return false,
                code => panic!("no instruction {code:#x}"),
            };
            next = next + 1 + if jumps { it.offset as usize } else { 0 };
        }
    }

    #[test]
    fn ip_is_taken_and_arp_and_neighbour_discovery_stay_with_the_kernel() {
        let map = std::fs::File::open("/dev/null").expect("it is there");
        let code = instructions(map.as_fd(), Take::Ip);
        let ether = |ether_type: [u8; 2], rest: &[u8]| [&[0; 12][..], &ether_type, rest].concat();
        let v6 = |next: u8, kind: u8| {
            let mut packet = [0; 60];
            (packet[6], packet[40]) = (next, kind);
            ether([0x86, 0xdd], &packet)
        };
        for taken in
            [ether([8, 0], &[0; 46]), ether([0x81, 0], &[0; 46]), v6(17, 135), v6(58, 128), v6(58, 138)]
        {
            assert!(redirects(&code, &taken), "{taken:?}");
        }
        for left in [ether([8, 6], &[0; 46]), v6(58, 133), v6(58, 137), ether([0x88, 0xcc], &[]), vec![0; 13]]
        {
            assert!(!redirects(&code, &left), "{left:?}");
        }
        assert!(redirects(&instructions(map.as_fd(), Take::All), &ether([8, 6], &[0; 46])));
    }
}
