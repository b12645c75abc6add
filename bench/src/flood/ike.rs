//! `postern bench flood --protocol ike`: a flood against an IPsec gateway. One of its peers has no fixed address, so
//! any source may send IKE_SA_INIT.

use super::scene::{Flood, Options, SOURCES, Scene};
use crate::Outcome;
use crate::ike::Daemon;
use crate::sites::{self, End, GATEWAY, Peer, Sites, Suite};
use crate::tunnel::progress_bar;
use lab::traffic;
use lab::{Lab, wait_until};
use std::net::Ipv4Addr;
use std::time::Duration;
use tunnel::ikev2::limits::{IKE_PORT, NAT_PORT};

/// The type of datagram in a flood.
#[derive(Clone, Copy)]
enum IkeDatagram {
    /// Shorter than an IKE header: dropped by the first check.
    TooShort,
    /// IKE_SA_INIT requests that a peer could send.
    First,
    /// IKE_SA_INIT requests without an acceptable proposal.
    Unacceptable,
    /// Messages of unknown IKE SAs, on the port of ESP in UDP.
    Unknown,
    /// ESP packets with unknown SPIs.
    Esp,
}

const KINDS: [(IkeDatagram, &str); 5] = [
    (IkeDatagram::TooShort, "too short for IKE"),
    (IkeDatagram::First, "IKE_SA_INIT"),
    (IkeDatagram::Unacceptable, "IKE_SA_INIT, no proposal chosen"),
    (IkeDatagram::Unknown, "IKE, unknown SA"),
    (IkeDatagram::Esp, "ESP, unknown SPI"),
];

/// The algorithms of the gateway.
const SUITE: Suite = Suite::GcmX25519;
/// The outer addresses of both gateways.
const OUTSIDE: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 168, 77, 1), Ipv4Addr::new(192, 168, 77, 2)];
/// A host behind the other gateway.
const INSIDE: &str = "10.201.0.1";
/// Number of new peers that connect during a flood, one after the other.
const CALLERS: usize = 5;
/// Time limit for each of them.
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) fn run(options: &Options) -> Outcome<Vec<Flood>> {
    let progress = progress_bar(options.progress, KINDS.len() as u64);
    let mut floods = Vec::new();
    for (kind, name) in KINDS {
        progress.set_message(name);
        let mut lab = sites::lab()?;
        lab.ip("b", &format!("address add {INSIDE}/32 dev lo"))?;
        let [gateway, other] = start(&mut lab, options)?;
        traffic::serve(&mut lab, "b")?;
        let source = Source::new()?;
        let scene = Scene {
            lab: &lab,
            gateway: gateway.process,
            inside: INSIDE,
            port: kind.port(),
            datagram: &|number| source.datagram(kind, number),
            call_anew: &|| call_anew(&lab, options.seconds),
        };
        floods.push(scene.measure(options, name)?);
        gateway.end(&mut lab);
        other.end(&mut lab);
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(floods)
}

/// Starts both gateways and waits for their tunnel.
fn start(lab: &mut Lab, options: &Options) -> Outcome<[Daemon; 2]> {
    let end = |number: usize| End {
        identity: format!("end{number}.example"),
        address: OUTSIDE[number].to_string(),
        network: format!("10.20{number}.0.0/16"),
    };
    let between = |number: usize| Peer { local: end(number), remote: end(1 - number) };
    let anyone = End {
        identity: "anyone.example".to_owned(),
        address: "any".to_owned(),
        network: "10.127.0.0/16".to_owned(),
    };
    let anyone = Peer { local: End::gateway(GATEWAY), remote: anyone };
    let callers =
        (0..CALLERS).map(|number| sites::site(caller(number)).lines(&format!("caller{number}"), "none"));
    let ours = SUITE.groups() + &between(0).lines("other", "none") + &anyone.lines("anyone", "none");
    let gateway = Daemon::start(lab, &options.program, "a", &(ours + &callers.collect::<String>()))?;
    let theirs = SUITE.groups() + &between(1).lines("other", "initiate");
    let other = Daemon::start(lab, &options.program, "b", &theirs)?;
    let answers = || lab.run("a", "ping", &["-c", "1", "-W", "1", INSIDE]).is_ok();
    wait_until(Duration::from_secs(20), answers).map_err(|error| format!("no tunnel: {error}"))?;
    Ok([gateway, other])
}

/// The number of a configured peer, whose address no datagram of the flood has.
fn caller(number: usize) -> usize {
    SOURCES as usize + number
}

/// New peers connect during a transfer; returns the longest time until a tunnel is up, in milliseconds.
fn call_anew(lab: &Lab, seconds: u32) -> Outcome<f64> {
    std::thread::scope(|scope| {
        let transfer = scope.spawn(|| traffic::tcp(lab, "a", INSIDE, 1, false, seconds));
        // Wait until the transfer has its full speed.
        std::thread::sleep(Duration::from_secs(1));
        let slowest = call_all(lab)?;
        transfer.join().map_err(|_| "the transfer panicked")??;
        Ok(slowest)
    })
}

fn call_all(lab: &Lab) -> Outcome<f64> {
    let call = |number| -> Outcome<f64> {
        let mut caller = Sites::new(caller(number)..caller(number) + 1, SUITE)?;
        let calls = caller.call(1, PATIENCE)?;
        match caller.failure() {
            Some(why) => Err(format!("a new peer was refused: {why}").into()),
            None => Ok(calls.seconds * 1e3),
        }
    };
    let times = lab.enter("c", || (0..CALLERS).map(call).collect::<Outcome<Vec<f64>>>())??;
    Ok(times.into_iter().fold(0.0, f64::max))
}

/// Makes the datagrams.
struct Source {
    first: Vec<u8>,
    unacceptable: Vec<u8>,
}

impl IkeDatagram {
    fn port(self) -> u16 {
        match self {
            Self::TooShort | Self::First | Self::Unacceptable => IKE_PORT,
            Self::Unknown | Self::Esp => NAT_PORT,
        }
    }
}

impl Source {
    fn new() -> Outcome<Self> {
        let [first, unacceptable] = [SUITE, Suite::CbcModp2048].map(sites::first_message);
        Ok(Self { first: first?, unacceptable: unacceptable? })
    }

    fn datagram(&self, kind: IkeDatagram, number: u32) -> Vec<u8> {
        // Spread SPIs over all values, except those for IKE in UDP and for no SPI.
        let spi = (u64::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        let with_spi = |message: &[u8]| {
            let mut message = message.to_vec();
            message[..spi.len()].copy_from_slice(&spi);
            message
        };
        match kind {
            IkeDatagram::TooShort => vec![0x5a; 20],
            IkeDatagram::First => with_spi(&self.first),
            IkeDatagram::Unacceptable => with_spi(&self.unacceptable),
            IkeDatagram::Unknown => {
                let mut message = with_spi(&self.first);
                // An INFORMATIONAL request (RFC 7296, section 3.1) with a responder SPI.
                message[8..16].copy_from_slice(&spi);
                message[18] = 37;
                [&[0; 4][..], &message].concat()
            }
            IkeDatagram::Esp => [&spi[..], &[0x5a; 120]].concat(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tunnel::ikev2::message::{Exchange, Message};

    #[test]
    fn datagrams_are_of_their_kind() {
        let source = Source::new().expect("first messages can be made");
        let first = source.datagram(IkeDatagram::First, 7);
        let message = Message::parse(&first).expect("a message");
        assert_eq!((message.header.exchange, message.header.responder_spi), (Exchange::IkeSaInit, 0));
        assert_ne!(first, source.datagram(IkeDatagram::First, 8));
        assert!(source.datagram(IkeDatagram::TooShort, 7).len() < 28);
        assert_ne!(source.datagram(IkeDatagram::Esp, 7)[..4], [0; 4]);
        assert_eq!(source.datagram(IkeDatagram::Unknown, 7)[..4], [0; 4]);
    }
}
