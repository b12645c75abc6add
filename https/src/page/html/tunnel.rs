//! One tunnel: whether it is up, why not and what to do, what it carries, and what its interface drops.

use super::super::asked::{Asked, Dropped, Named};
use super::super::rates::key;
use super::super::view::View;
use super::words::{ago, bits, bytes, count, per_second, percent, protocol, round_trip, state};
use super::{Part, Rendered, drops, rows, table};
use gateway::api::engine_of;
use gateway::api::model::CryptoCipher;
use gateway::facts::model::{State, Tunnel};
use gateway::path::model::{Mtu, Path};
use maud::{Markup, html};

/// A tunnel with the engines of ciphers; none if there is no such tunnel.
pub(crate) fn tunnel(view: &View, named: &Named, ciphers: &[CryptoCipher]) -> Option<Rendered> {
    let tunnel = view.tunnel(key(&named.tunnel()?))?;
    let condition = Part::new("condition", condition(view, tunnel));
    let figures = rows("figures", figures(view, tunnel, ciphers));
    let of_interface = drops::some(view, &tunnel.interface);
    let caption = html! { "Packets that " (tunnel.interface) " dropped, of all its peers" };
    let all = Dropped { interface: tunnel.interface.clone(), all: true, page: 1 };
    let main = html! {
        h1 {
            (tunnel.peer)
            @if let Some(number) = tunnel.tunnel { " tunnel " (number) }
            " " span.quiet { (tunnel.interface) ", " (protocol(tunnel.protocol)) }
        }
        (condition.markup())
        h2 { "Figures" }
        table.figures role="table" { caption.hidden { "What is known of the tunnel" } (figures.markup()) }
        h2 { "Drops" }
        (table(&caption, &drops::HEADS, &of_interface))
        p {
            a href=(Asked::Drops(all).place()) { "All reasons of " (tunnel.interface) }
            ", " a href=(Asked::Performance.place()) { "what limits its speed" }
            ", " a href="/" { "all tunnels" }
        }
    };
    Some(Rendered { title: tunnel.peer.clone(), main, parts: vec![condition, figures, of_interface] })
}

/// Its state, with the cause and the fix.
fn condition(view: &View, tunnel: &Tunnel) -> Markup {
    let reasons = view.reasons(tunnel);
    html! {
        section #condition class={ "condition " (tunnel.state) } aria-label="State" aria-live="polite" {
            p.now { (state(tunnel.state)) }
            @for reason in reasons {
                p.cause { (reason.cause) }
                @if !reason.fix.is_empty() { div.fix { "Fix: " @for line in &reason.fix { code { (line) } } } }
            }
            @if reasons.is_empty() { p.quiet { (means(tunnel)) } }
            @if let Some((problem, remedy)) = problem(tunnel) {
                p.cause { (problem) }
                div.fix { "Fix: " code { (remedy) } }
            }
        }
    }
}

/// The size that comes through, and what is lost.
fn mtu(path: &Path) -> String {
    let size = path.path_mtu_bytes.map(bytes_of);
    match path.mtu {
        Mtu::Unknown => "not known".to_owned(),
        Mtu::Searching => "being searched".to_owned(),
        Mtu::Fits => size.unwrap_or_default(),
        Mtu::Told => format!("{}; senders are told", size.unwrap_or_default()),
        Mtu::BlackHole => {
            format!(
                "{}; larger packets are lost: a black hole",
                size.unwrap_or_else(|| "not known".to_owned())
            )
        }
    }
}

fn bytes_of(size: u32) -> String {
    format!("{size} bytes")
}

/// What a state means that nothing else explains.
fn means(tunnel: &Tunnel) -> Markup {
    match tunnel.state {
        State::Up => html! { "It carries packets." },
        State::Waiting => {
            html! { "It has no keys, and needs none: there is no traffic, or the peer has not called." }
        }
        State::Down => html! { "The cause is not known yet: " code { (explains(tunnel)) } " tells more." },
    }
}

/// What probes find wrong with the path of a tunnel that is not down.
fn problem(tunnel: &Tunnel) -> Option<(&str, &str)> {
    let path = tunnel.path.as_deref().filter(|_| tunnel.state != State::Down)?;
    Some((path.problem.as_deref()?, path.remedy.as_deref()?))
}

/// The command that explains it.
fn explains(tunnel: &Tunnel) -> String {
    use gateway::facts::model::Protocol;
    match tunnel.protocol {
        Protocol::WireGuard => {
            format!("postern explain interfaces wireguard {} peer {}", tunnel.interface, tunnel.peer)
        }
        Protocol::Ipsec => format!("postern explain vpn ipsec peer {}", tunnel.peer),
        Protocol::OpenVpn => format!("postern explain interfaces openvpn {}", tunnel.interface),
    }
}

fn figures(view: &View, tunnel: &Tunnel, ciphers: &[CryptoCipher]) -> Vec<Part> {
    let rates = view.rates.of(tunnel);
    let path = tunnel.path.as_deref();
    let suite = tunnel.suite.as_deref();
    let engine = suite.and_then(|suite| engine_of(suite, ciphers));
    let or_unknown = |text: Option<&str>| text.unwrap_or("not known").to_owned();
    let carried = |bytes_: u64, packets: u64| format!("{}, {} packets", bytes(bytes_), count(packets));
    let unsent = tunnel
        .unsent_packets
        .map(|packets| format!("{} packets, {}", count(packets), per_second(view.rates.unsent(tunnel))));
    let known = [
        ("Endpoint", Some(or_unknown(tunnel.endpoint.as_deref()))),
        ("Prefixes", (!tunnel.allowed_ips.is_empty()).then(|| prefixes(&tunnel.allowed_ips))),
        ("Algorithms", Some(or_unknown(suite))),
        ("Engine", Some(or_unknown(engine.as_deref()))),
        ("Receiving", Some(bits(rates.map(|[received, _]| received)))),
        ("Sending", Some(bits(rates.map(|[_, sent]| sent)))),
        ("Received", Some(carried(tunnel.received_bytes, tunnel.received_packets))),
        ("Sent", Some(carried(tunnel.sent_bytes, tunnel.sent_packets))),
        ("Not sent: link congested, or send failed", unsent),
        ("Handshakes", tunnel.handshakes.map(|it| it.to_string())),
        ("Last handshake", Some(ago(view.facts.at, tunnel.last_handshake))),
        ("Round-trip time", path.map(|path| round_trip(path.rtt_seconds))),
        ("Lost probes", path.and_then(|path| path.loss_ratio).map(percent)),
        ("Path MTU", path.map(mtu)),
    ];
    let row = |(number, (name, value)): (usize, (&str, Option<String>))| {
        let id = format!("figure{number}");
        let row = html! {
            tr id=(id) role="row" { th scope="row" role="rowheader" { (name) } td role="cell" { (value?) } }
        };
        Some(Part::new(id, row))
    };
    known.into_iter().enumerate().filter_map(row).collect()
}

/// A few prefixes, and how many more there are.
fn prefixes(all: &[String]) -> String {
    const SHOWN: usize = 16;
    let shown = all.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if all.len() > SHOWN { format!("{shown} and {} more", all.len() - SHOWN) } else { shown }
}
