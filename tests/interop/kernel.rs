//! With the kernel's own WireGuard: a stock Debian kernel in an emulated machine, whose network card is a TAP interface in
//! one of our namespaces.

use crate::machine::{Machine, NETWORK, Start, X86, kernel};
use crate::support::{answers, daemon, lab};
use crypto::{PrivateKey, Secret};
use lab::wireguard::Gateway;
use lab::{Lab, wait_until};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The emulated machine takes seconds for what others do in milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

const ENDS: Ends = Ends { ours: "10.90.0.1", theirs: "10.90.0.2" };

/// What the machine does when it boots: a link, a tunnel, a server that says what it received.
fn init(private: &str, public: &str) -> String {
    format!(
        "ip link set lo up; ip link set eth0 up; ip addr add 192.168.90.2/24 dev eth0\n\
         echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad\n\
         ip link add wg0 type wireguard\n\
         echo {private} > /private\n\
         wg set wg0 private-key /private listen-port 51820 peer {public} \
         allowed-ips 10.90.0.1/32,fd90::1/128 endpoint 192.168.90.1:51820\n\
         ip addr add 10.90.0.2/24 dev wg0; ip addr add fd90::2/64 dev wg0; ip link set wg0 mtu 1420 up\n\
         ping -c 1 -W 5 10.90.0.1 > /dev/null && echo IT-CALLS-US\n\
         ( while true; do nc -l -p 5000 | md5sum | sed 's/^/RECEIVED /'; done ) &\n\
         dd if=/dev/urandom of=/file bs=1024 count=1024 2> /dev/null; md5sum < /file | sed 's/^/SENDS /'\n\
         ( while true; do nc 10.90.0.1 5001 < /file > /dev/null 2>&1; sleep 1; done ) &\n\
         echo READY\n\
         while true; do sleep 1; wg show wg0 latest-handshakes | sed 's/^/HANDSHAKE /'; done\n"
    )
}

pub fn md5(bytes: &[u8]) -> String {
    let mut child =
        Command::new("md5sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("md5sum runs");
    child.stdin.take().expect("piped").write_all(bytes).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&output.stdout).split_whitespace().next().expect("a digest").to_owned()
}

#[test]
fn the_kernel_calls_us_and_we_call_it() {
    let Some(kernel) = kernel(&["wg"]) else { return };
    let Some(mut lab) = lab(&["a"]) else { return };
    lab.ip("a", "tuntap add outside mode tap").expect("TAP exists");
    lab.ip("a", "address add 192.168.90.1/24 dev outside").expect("an address");
    lab.ip("a", "link set outside up").expect("it is there");
    let (ours, theirs) = (PrivateKey::new(Secret::new([1; 32])), PrivateKey::new(Secret::new([2; 32])));
    let hex = |bytes: &[u8; 32]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let configuration = format!(
        "private_key={}\nlisten_port=51820\npublic_key={}\nallowed_ip=10.90.0.2/32\nallowed_ip=fd90::2/128\n",
        hex(ours.secret().expose()),
        hex(&theirs.public().0)
    );
    let interface = lab.interface("k");
    let start = |lab: &mut Lab, more: &str| {
        let gateway = Gateway::start(lab, &daemon(), "a", &interface).expect("it serves");
        gateway.set(&format!("{configuration}{more}")).expect("accepted");
        for address in ["10.90.0.1/24", "fd90::1/64 nodad"] {
            lab.ip("a", &format!("address add {address} dev {interface}")).expect("an address");
        }
        lab.ip("a", &format!("link set {interface} up")).expect("it is there");
        gateway
    };
    // It has our address, we do not have its: it must call.
    let gateway = start(&mut lab, "");
    let private = base64(theirs.secret().expose());
    let script = init(&private, &ours.public().to_string());
    let boot = Start {
        board: &X86,
        modules: "wireguard",
        programs: &["wg".into()],
        tree: None,
        script: &script,
        hardware: NETWORK,
    };
    let machine = Machine::boot(&mut lab, "a", &kernel, &boot);
    machine.says("IT-CALLS-US", PATIENCE);
    machine.says("READY", PATIENCE);
    assert!(answers(&lab, "a", "10.90.0.2") && answers(&lab, "a", "fd90::2"));
    exchange_files(&lab, &machine, ENDS);

    // A new daemon knows no session: now we must call.
    lab.kill(gateway.process, rustix::process::Signal::TERM);
    let _gateway = start(&mut lab, "endpoint=192.168.90.2:51820\n");
    wait_until(PATIENCE, || answers(&lab, "a", "10.90.0.2")).expect("we call it");
    exchange_files(&lab, &machine, ENDS);
    assert!(lab.ended(machine.process).is_none());
}

/// Addresses in a tunnel, of this side and of the machine.
#[derive(Clone, Copy)]
pub struct Ends {
    pub ours: &'static str,
    pub theirs: &'static str,
}

/// What the next file is made of.
static SEED: AtomicU32 = AtomicU32::new(1);

/// A file each way, compared by its digest: the machine takes what comes to port 5000, and sends to port 5001.
pub fn exchange_files(lab: &Lab, machine: &Machine, ends: Ends) {
    let (there, here) = (format!("{}:5000", ends.theirs), format!("{}:5001", ends.ours));
    // Others each time: what was received before does not count.
    let seed = SEED.fetch_add(2, Ordering::Relaxed);
    let data: Vec<u8> =
        (0..1u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761u32.wrapping_mul(seed)) >> 11) as u8).collect();
    lab.enter("a", || {
        let connected = wait_until(PATIENCE, || TcpStream::connect(&there).is_ok());
        connected.expect("it listens");
    })
    .expect("entered");
    let digest = md5(&data);
    // The probing connections above were received as empty files; the server listens again after each.
    let sent = || {
        let sent = lab.enter("a", || TcpStream::connect(&there).and_then(|mut to| to.write_all(&data)));
        sent.is_ok_and(|sent| sent.is_ok())
    };
    wait_until(PATIENCE, sent).expect("it takes the file");
    machine.says(&format!("RECEIVED {digest}"), PATIENCE);
    let received = lab.enter("a", || {
        let listener = TcpListener::bind(&here).expect("the port is free");
        let (mut from, _) = listener.accept().expect("it connects");
        from.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut received = Vec::new();
        from.read_to_end(&mut received).expect("it sends");
        received
    });
    assert_eq!(Some(md5(&received.expect("entered"))), machine.word_after("SENDS "));
}

fn base64(bytes: &[u8; 32]) -> String {
    crypto::PublicKey(*bytes).to_string()
}
