//! `postern bench flood` for WireGuard: data without a session, and three types of initiations.

use super::scene::{Flood, Options, Scene};
use crate::Outcome;
use crate::crowd;
use crate::tunnel::progress_bar;
use crypto::engine::aws_lc::AwsLc;
use crypto::{PublicKey, hash, random};
use gateway::clock::Clock;
use lab::traffic;
use lab::wireguard::{Daemon, Plan, Tunnel, private_key};
use lab::{Lab, wait_until};
use packet::header::wireguard::Initiation;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tunnel::wireguard::device::Outbox;
use tunnel::wireguard::{Device, DeviceAction};
use zerocopy::{FromZeros, IntoBytes};

/// The type of datagram in a flood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WireGuardDatagram {
    /// Data messages without a session.
    Garbage,
    /// Initiations with a wrong mac1.
    BlindInitiations,
    /// Initiations with a valid mac1, from sources that know our public key.
    InformedInitiations,
    /// Replays of one initiation of a configured peer.
    Replays,
}

const KINDS: [(WireGuardDatagram, &str); 4] = [
    (WireGuardDatagram::Garbage, "data, unknown session"),
    (WireGuardDatagram::BlindInitiations, "initiations, wrong MAC"),
    (WireGuardDatagram::InformedInitiations, "initiations, valid MAC"),
    (WireGuardDatagram::Replays, "replayed initiation"),
];

pub(super) fn run(options: &Options) -> Outcome<Vec<Flood>> {
    let progress = progress_bar(options.progress, KINDS.len() as u64);
    let mut floods = Vec::new();
    for (kind, name) in KINDS {
        progress.set_message(name);
        let mut lab = crowd::lab()?;
        let plan = Plan { name: "f", ..Plan::SITES };
        let tunnel = Tunnel::start(&mut lab, &Daemon::Postern(options.program.clone()), &plan)?;
        traffic::serve(&mut lab, "b")?;
        let source = Source::new();
        let scene = Scene {
            lab: &lab,
            gateway: tunnel.gateways[0].process,
            inside: &tunnel.inside[1],
            port: 51_820,
            datagram: &|number| source.datagram(kind, number),
            call_anew: &|| call_anew(&lab, &tunnel),
        };
        floods.push(scene.measure(options, name)?);
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(floods)
}

/// The remote gateway drops its session and connects again; returns the milliseconds until a ping is answered.
fn call_anew(lab: &Lab, tunnel: &Tunnel) -> Outcome<f64> {
    let interface = &tunnel.gateways[1].interface;
    lab.ip("b", &format!("link set {interface} down"))?;
    lab.ip("b", &format!("link set {interface} up"))?;
    let started = Instant::now();
    let answered = || lab.run("b", "ping", &["-c", "1", "-i", "0.01", "-W", "1", &tunnel.inside[0]]).is_ok();
    wait_until(Duration::from_secs(60), answered)?;
    Ok(started.elapsed().as_secs_f64() * 1e3)
}

/// Makes the datagrams.
struct Source {
    /// The gateway's public key.
    public: PublicKey,
    /// An old initiation of its peer.
    seen: Vec<u8>,
}

impl Source {
    fn new() -> Self {
        // The keys of the gateways of a Plan.
        let [ours, theirs] = [0, 1].map(|end| private_key(51_820, end));
        let public = ours.public();
        let mut device = Device::new(Arc::new(AwsLc), Box::new(random::System::default()));
        let mut out = Outbox::new();
        device.set_private_key(Clock.monotonic(), Some(theirs.secret().clone()), &mut out);
        let (peer, _) = device.add_peer(public);
        device.start(Clock.monotonic());
        device.set_reachable(Clock.monotonic(), peer);
        // Dated an hour ago, so that the peer's own initiations are newer.
        let mut now = Clock.now();
        now.wall = now.wall.saturating_sub(Duration::from_secs(3600));
        device.handle_no_key(now, peer, &mut out);
        let seen = out.into_iter().find_map(|action| match action {
            DeviceAction::Send { message, .. } => Some(message),
            _ => None,
        });
        Self { public, seen: seen.expect("a reachable peer is sent an initiation") }
    }

    fn datagram(&self, kind: WireGuardDatagram, number: u32) -> Vec<u8> {
        match kind {
            WireGuardDatagram::Replays => return self.seen.clone(),
            WireGuardDatagram::Garbage => {
                let mut bytes = vec![0; 128];
                bytes[0] = 4;
                bytes[4..8].copy_from_slice(&number.wrapping_mul(2_654_435_761).to_le_bytes());
                return bytes;
            }
            WireGuardDatagram::BlindInitiations | WireGuardDatagram::InformedInitiations => {}
        }
        let mut message = Initiation::new_zeroed();
        message.kind = 1.into();
        message.sender = number.into();
        message.ephemeral = hash::hash(&[&number.to_le_bytes()]);
        if kind == WireGuardDatagram::InformedInitiations {
            let key = hash::hash(&[b"mac1----", &self.public.0]);
            let covered = message.as_bytes()[..size_of::<Initiation>() - 32].to_vec();
            message.macs.mac1 = hash::mac(&key, &[&covered]);
        }
        message.as_bytes().to_vec()
    }
}
