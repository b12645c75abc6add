//! `postern bench tunnel --peer ceiling`: the least that carries packets between TUN and UDP with the engine of the gateway.
//!
//! ```text
//! receive → lay out → seal → transmit        receive → open → strip → transmit
//! ```
//! It has the gateway's ports and cipher, one peer, a fixed key, and nothing else: no route, handshake, replay window, timer
//! or counter but those of its ports. What it is faster by is the price of the gateway's other stages. It is configured as
//! wireguard-go is, and uses the endpoint and the port alone.

use crate::Outcome;
use arc_swap::ArcSwapOption;
use crypto::{Cipher, Engine};
use gateway::api::model::Workers;
use gateway::api::show_worker;
use gateway::host;
use gateway::host::netlink::LinkChange;
use gateway::tunnel_interface::QUEUE_LENGTH;
use packet::header::wireguard::DATA_OVERHEAD;
use packet::{Batch, DropCounters, Endpoint, Train};
use port::tun::{self, TunDevice, TunReceive, TunTransmit};
use port::udp::{self, UdpReceive, UdpSockets, UdpTransmit};
use port::{Offloads, Receive, Tally, Transmit, Wake};
use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use tunnel::Protection;
use tunnel::esp::Outer;

/// The MTU of the benchmark's interfaces, up to which packets are padded.
const MTU: usize = 1420;
/// Both ends have the same key, which protects nothing: the benchmark's own namespaces have no other traffic.
const KEY: [u8; 32] = [7; 32];
const INDEX: u32 = 1;

/// Serves `interface` until the process is stopped.
pub fn serve(interface: &str, engine: &dyn Engine) -> Outcome<()> {
    let offloads = Arc::new(Offloads::default());
    let device = Arc::new(TunDevice::create(interface, 1, &offloads)?);
    // As long as that of the gateway's interfaces: with a shorter one fewer packets are carried that are lost later.
    let queue = LinkChange { queue_length: Some(QUEUE_LENGTH), ..LinkChange::default() };
    host::change_link(interface, &[queue])?;
    let (port, remote) = configure(interface)?;
    let sockets = Arc::new(UdpSockets::bind(port, 0, &offloads)?);
    let slot = Arc::new(ArcSwapOption::new(Some(sockets)));
    let tallies = ["out", "in"].map(|worker| (worker, Arc::new(Tally::default())));
    let [(_, of_out), (_, of_in)] = tallies.clone();
    let (inside, to_inside) = tun::halves(device, Arc::clone(&offloads));
    let (inside, to_inside) = (inside.counted(Arc::clone(&of_out)), to_inside.counted(Arc::clone(&of_in)));
    let outside = UdpReceive::new(Arc::clone(&slot), Arc::clone(&offloads)).counted(of_in);
    let to_outside = UdpTransmit::new(slot, offloads).counted(of_out);
    tell_counts(interface.to_owned(), tallies)?;
    let key = || Ok::<_, crypto::engine::LoadError>(engine.load(Cipher::ChaCha20Poly1305, &KEY)?.into());
    let (sealing, opening): (Protection, Protection) = (key()?, key()?);
    std::thread::scope(|scope| {
        let inbound = scope.spawn(move || carry_in(outside, to_inside, &opening));
        carry_out(inside, to_outside, &sealing, remote)?;
        inbound.join().map_err(|_| "the inbound thread panicked")?
    })
}

/// The name of the socket, in the namespace of the ceiling, that tells what it has counted.
pub(crate) fn counts_of(interface: &str) -> io::Result<UnixAddress> {
    UnixAddress::from_abstract_name(format!("postern-ceiling-{interface}"))
}

/// Tells each client what the ports have counted, as `GET /v1/workers` does.
fn tell_counts(interface: String, tallies: [(&'static str, Arc<Tally>); 2]) -> io::Result<()> {
    let listener = UnixListener::bind_addr(&counts_of(&interface)?)?;
    let tell = move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let workers = tallies.each_ref().map(|(worker, tally)| show_worker(&interface, worker, tally));
            let workers = Workers { workers: workers.into() };
            // A client that has gone asks again.
            let _ = serde_json::to_string(&workers).map(|text| client.write_all(text.as_bytes()));
        }
    };
    std::thread::Builder::new().name("counts".to_owned()).spawn(tell).map(drop)
}

/// Waits for a request that names an endpoint; returns it and the port.
fn configure(interface: &str) -> Outcome<(u16, SocketAddr)> {
    let path = PathBuf::from("/var/run/wireguard").join(format!("{interface}.sock"));
    std::fs::create_dir_all("/var/run/wireguard")?;
    // A ceiling that was killed before it was configured has left it.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path)?;
    loop {
        if let Some(configured) = answer(&listener.accept()?.0)? {
            std::fs::remove_file(path)?;
            return Ok(configured);
        }
    }
}

/// Answers one request; what it configures, if that is enough.
fn answer(mut stream: &UnixStream) -> Outcome<Option<(u16, SocketAddr)>> {
    let (mut port, mut remote) = (None, None);
    let lines = BufReader::new(stream).lines();
    for line in lines.map_while(Result::ok).take_while(|line| !line.is_empty()) {
        match line.split_once('=') {
            Some(("listen_port", value)) => port = Some(value.parse()?),
            Some(("endpoint", value)) => remote = Some(value.parse()?),
            _ => {}
        }
    }
    // A client that only asks whether this answers, or has gone already, is one too.
    let _ = stream.write_all(b"errno=0\n\n");
    Ok(port.zip(remote))
}

/// From TUN to UDP.
fn carry_out(
    mut inside: TunReceive,
    mut outside: UdpTransmit,
    protection: &Protection,
    remote: SocketAddr,
) -> Outcome<()> {
    let (mut batch, drops, wake) = (Batch::new(tun::BATCH_BYTES), DropCounters::default(), Wake::new()?);
    let mut sequence = 0;
    loop {
        if !receive(&mut inside, &mut batch, &drops, &wake)? {
            continue;
        }
        let packets = 0..batch.len();
        protection.lay_out(&mut batch, packets.clone(), INDEX, sequence, MTU);
        protection.seal(&mut batch, packets.clone(), INDEX, sequence).map_err(|_| "the engine failed")?;
        sequence += packets.len() as u64;
        batch.set_trains([Train { packets, endpoint: Some(Endpoint::new(remote)), ds_field: 0 }]);
        outside.transmit(&mut batch, &drops);
    }
}

/// From UDP to TUN.
fn carry_in(mut outside: UdpReceive, mut inside: TunTransmit, protection: &Protection) -> Outcome<()> {
    let (mut batch, drops, wake) = (Batch::new(udp::BATCH_BYTES), DropCounters::default(), Wake::new()?);
    loop {
        if !receive(&mut outside, &mut batch, &drops, &wake)? {
            continue;
        }
        let mut packets = 0..batch.len();
        let Some(endpoint) = batch.trains().first().and_then(|train| train.endpoint) else { continue };
        let short = batch.live(packets.clone()).filter(|&index| batch.packet(index).len() < DATA_OVERHEAD);
        short.collect::<Vec<_>>().into_iter().for_each(|index| batch.discard(index));
        protection.open(&mut batch, packets.clone(), &[], &drops);
        let outer = Outer { endpoint: &endpoint, ds_field: 0, transport: None };
        protection.strip(&mut batch, &mut packets, &outer, &drops);
        inside.transmit(&mut batch, &drops);
    }
}

/// Starts a batch with what has arrived, or waits; whether anything had.
fn receive(
    port: &mut impl Receive,
    batch: &mut Batch,
    drops: &DropCounters,
    wake: &Wake,
) -> io::Result<bool> {
    batch.clear();
    let some = port.receive(batch, drops)? != 0;
    if !some {
        port.wait(wake)?;
    }
    Ok(some)
}
