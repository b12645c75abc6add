//! Captures for clients on the Unix socket: ring of the workers ──> thread, makes pcapng ──> bounded channel ──> body of the answer.
//!
//! ```text
//! GET /v1/local/capture/INTERFACE?peer=NAME&which=carried|all|dropped&snap_length=N
//! ```
//! The client must be root: a capture has what the tunnel protects, and helpers of the daemon, which parse what the network sends, run as the
//! daemon's user.
//!
//! The answer is a stream of pcapng (draft-ietf-opsawg-pcapng) until the client goes. Interface 0 has inner packets, interface 1 packets as they
//! are outside, with IP and UDP headers that are made from their endpoints: both are IP packets (`LINKTYPE_RAW`). A packet's comment is its
//! peer and, if it was dropped, why and where. Statistics of interface 0 count the packets that were lost as the client read too slowly.

use super::Shown;
use super::server::{Client, problem};
use super::stream;
use crate::datapath::capture::{Captured, Direction, Layer, OpenCapture, SNAP_LENGTHS, Wanted, Which};
use crate::facts::model::Protocol;
use crate::rights::Rights;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use packet::Endpoint;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::interface_statistics::{InterfaceStatisticsBlock, InterfaceStatisticsOption};
use pcap_file::{DataLink, Endianness, PcapResult};
use port::pcap::outer_header;
use port::schedule::yield_to_packets;
use serde::Deserialize;
use std::borrow::Cow;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// Captures that a daemon has at once.
pub(super) const MOST: usize = 4;
/// What is kept of a packet, unless the client wants more or less.
const SNAP_LENGTH: usize = 2_048;
/// Bytes of pcapng that are sent at once, and how often that may wait for the client.
const CHUNK: usize = 64 << 10;
const CHUNKS: usize = 4;
/// The pause of the thread after it found packets, and after it found none.
const BUSY: Duration = Duration::from_millis(1);
const IDLE: Duration = Duration::from_millis(20);
/// How often statistics are sent at least.
const STATISTICS: Duration = Duration::from_secs(1);
/// How long a client may read nothing: a suspended one must not occupy one of the few captures for ever.
const STALLED: Duration = Duration::from_secs(600);
/// Bytes that the headers of an outer packet add.
const OUTER_HEADERS: usize = 48;
/// The bits of the option `epb_flags` for a packet that is received, and for one that is sent.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// What a client wants.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Asked {
    peer: Option<String>,
    which: Which,
    snap_length: Option<usize>,
}

impl Asked {
    /// The capture to open; `None` if the snap length is out of bounds.
    fn wanted(self) -> Option<Wanted> {
        let snap_length = self.snap_length.unwrap_or(SNAP_LENGTH);
        if !SNAP_LENGTHS.contains(&snap_length) {
            return None;
        }
        Some(Wanted { peer: self.peer, which: self.which, snap_length })
    }
}

/// Answers with a capture.
pub(super) async fn capture(
    State(shown): State<Shown>,
    client: Option<Extension<Client>>,
    Path(name): Path<String>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Response, Response> {
    if !client.is_some_and(|Extension(client)| client.is_root()) {
        let why = "only root, with a capability, may capture packets";
        let fix = format!("sudo postern monitor traffic interface {name}");
        return Err(problem(StatusCode::FORBIDDEN, why, fix));
    }
    let Query(asked) = asked.map_err(|rejection| {
        problem(StatusCode::BAD_REQUEST, rejection.body_text(), "ask for peer, which and snap_length")
    })?;
    let snap_length = asked.snap_length.unwrap_or_default();
    let wanted = asked.wanted().ok_or_else(|| {
        let [least, most] = [SNAP_LENGTHS.start(), SNAP_LENGTHS.end()];
        let why = format!("{snap_length} bytes of each packet cannot be kept");
        problem(StatusCode::BAD_REQUEST, why, format!("ask for {least} to {most}"))
    })?;
    let Some(interface) = shown.interfaces().find(|interface| interface.name() == name) else {
        let why = format!("{name} is no tunnel interface of this daemon");
        return Err(problem(StatusCode::NOT_FOUND, why, "postern show interfaces"));
    };
    if let Some(peer) = &wanted.peer {
        check_peer(&shown, &name, peer).await?;
    }
    let port = interface.sockets().iter().find_map(|(_, slot)| slot.load().as_ref().map(|it| it.port()));
    let permit = Arc::clone(&shown.captures).try_acquire_owned().map_err(|_| {
        let why = format!("{MOST} captures run already");
        problem(StatusCode::TOO_MANY_REQUESTS, why, "end one of them")
    })?;
    let Some(open) = interface.captures().map(|captures| captures.open(wanted)) else {
        let why = format!("{name} does not carry packets yet");
        return Err(problem(StatusCode::SERVICE_UNAVAILABLE, why, "try it again"));
    };
    // It alone has the interface's captures now: the thread notices when the interface is gone.
    drop(interface);
    let (sender, receiver) = mpsc::channel(CHUNKS);
    let thread = std::thread::Builder::new().name("capture".to_owned());
    let (answer, at_work) = stream::answer("application/x-pcapng", receiver);
    let pcapng = Pcapng { name, port: port.unwrap_or_default() };
    let started = thread.spawn(move || {
        let _until_the_end = (permit, at_work);
        if let Err(error) = yield_to_packets() {
            tracing::debug!("a capture may delay packets: {error}");
        }
        Rights::None.keep();
        if let Err(error) = pcapng.send(&open, &sender) {
            tracing::warn!("a capture has ended: {error}");
        }
    });
    started.map_err(|error| {
        problem(StatusCode::SERVICE_UNAVAILABLE, format!("a capture needs a thread: {error}"), "try it again")
    })?;
    Ok(answer)
}

/// Refuses an unknown peer. Clients of OpenVPN come and go: any name may be one.
async fn check_peer(shown: &Shown, interface: &str, peer: &str) -> Result<(), Response> {
    let mut peers = Vec::new();
    for service in shown.services() {
        peers.extend(service.tunnels().await.into_iter().filter(|it| it.interface == interface));
    }
    let may_come = peers.iter().all(|it| it.protocol == Protocol::OpenVpn);
    if may_come || peers.iter().any(|it| it.peer == peer) {
        return Ok(());
    }
    let why = format!("{interface} has no peer {peer}");
    // 404 is for an interface of another daemon: clients then ask the next one.
    Err(problem(StatusCode::BAD_REQUEST, why, "postern status lists the peers"))
}

/// Makes pcapng.
struct Pcapng {
    /// The interface.
    name: String,
    /// The UDP port that it has.
    port: u16,
}

impl Pcapng {
    /// Sends packets until the client or the interface is gone, or the client does not read.
    fn send(&self, open: &OpenCapture, sender: &mpsc::Sender<Bytes>) -> PcapResult<()> {
        let mut writer = self.begin(open.ring().wanted().snap_length)?;
        let (mut told, mut told_at) = (0, Instant::now());
        loop {
            let mut packets = 0;
            while writer.get_ref().len() < CHUNK
                && let Some(packet) = open.ring().take()
            {
                writer.write_pcapng_block(self.block(&packet))?;
                open.ring().give_back(packet);
                packets += 1;
            }
            let lost = open.ring().lost();
            if lost != told || told_at.elapsed() >= STATISTICS {
                (told, told_at) = (lost, Instant::now());
                writer.write_pcapng_block(statistics(lost))?;
            }
            let chunk = std::mem::take(writer.get_mut());
            if !chunk.is_empty() && !deliver(sender, chunk.into(), || open.is_over())
                || sender.is_closed()
                || open.is_over()
            {
                return Ok(());
            }
            std::thread::sleep(if packets > 0 { BUSY } else { IDLE });
        }
    }

    /// The blocks before the first packet.
    fn begin(&self, snap_length: usize) -> PcapResult<PcapNgWriter<Vec<u8>>> {
        let mut writer = PcapNgWriter::with_endianness(Vec::with_capacity(CHUNK), Endianness::Little)?;
        let outside = format!("{} outside", self.name);
        let interfaces = [
            (self.name.as_str(), "packets inside the tunnel"),
            (
                &outside,
                "packets outside, as they were received or would be sent; their IP and UDP headers are made",
            ),
        ];
        for (name, description) in interfaces {
            let options = vec![
                InterfaceDescriptionOption::IfName(name.into()),
                InterfaceDescriptionOption::IfDescription(description.into()),
                // Nanoseconds.
                InterfaceDescriptionOption::IfTsResol(9),
            ];
            let snaplen = (snap_length + OUTER_HEADERS) as u32;
            writer.write_pcapng_block(InterfaceDescriptionBlock {
                linktype: DataLink::RAW,
                snaplen,
                options,
            })?;
        }
        Ok(writer)
    }

    fn block<'p>(&self, packet: &'p Captured) -> EnhancedPacketBlock<'p> {
        let is_inbound = packet.direction == Direction::Inbound;
        let (interface_id, data, added) = match packet.layer {
            Layer::Inner => (0, Cow::Borrowed(packet.bytes.as_slice()), 0),
            Layer::Outer(endpoint) => {
                // Of an address family without a socket.
                let unknown = || Endpoint::new(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
                let endpoint = endpoint.unwrap_or_else(unknown);
                let header = outer_header(&endpoint, self.port, is_inbound, packet.length);
                let added = header.len();
                (1, Cow::Owned([header.as_slice(), &packet.bytes].concat()), added)
            }
        };
        let mut options = vec![EnhancedPacketOption::Flags(if is_inbound { INBOUND } else { OUTBOUND })];
        options.extend(comment(packet).map(|comment| EnhancedPacketOption::Comment(comment.into())));
        let original_len = (packet.length + added) as u32;
        EnhancedPacketBlock { interface_id, timestamp: packet.at, original_len, data, options }
    }
}

/// "berlin, bad-tag at decrypt", or what of this is known.
fn comment(packet: &Captured) -> Option<String> {
    let drop = packet.drop.map(|(reason, stage)| format!("{} at {stage}", reason.name()));
    let peer = packet.peer.as_ref().map(|peer| peer.as_str()).filter(|peer| !peer.is_empty());
    match (peer, drop) {
        (Some(peer), Some(drop)) => Some(format!("{peer}, {drop}")),
        (peer, drop) => drop.or(peer.map(str::to_owned)),
    }
}

/// How many packets were lost so far.
fn statistics(lost: u64) -> InterfaceStatisticsBlock<'static> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    InterfaceStatisticsBlock {
        interface_id: 0,
        // The upper half comes first, in each byte order, and this crate writes one number.
        timestamp: now.rotate_left(32),
        options: vec![InterfaceStatisticsOption::IsbIfDrop(lost)],
    }
}

/// Gives a chunk to the client; false if it has gone, or does not read, or if the capture is over. Meanwhile the ring may fill.
fn deliver(sender: &mpsc::Sender<Bytes>, chunk: Bytes, is_over: impl Fn() -> bool) -> bool {
    let (mut chunk, begun) = (chunk, Instant::now());
    loop {
        match sender.try_send(chunk) {
            Ok(()) => return true,
            Err(TrySendError::Closed(_)) => return false,
            Err(TrySendError::Full(back)) => chunk = back,
        }
        if is_over() || begun.elapsed() > STALLED {
            return false;
        }
        std::thread::sleep(BUSY);
    }
}

#[cfg(test)]
#[path = "capture/tests.rs"]
mod tests;
