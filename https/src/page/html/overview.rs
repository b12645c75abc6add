//! All tunnels, those with trouble first.

use super::super::asked::{Asked, Filter, Named};
use super::super::rates::key;
use super::super::view::View;
use super::words::{ago, bits, bytes, duration, protocol, shape, state};
use super::{Part, Rendered, cell, number, pages, rows, table};
use gateway::facts::model::{State, Tunnel};
use maud::{Markup, html};

/// Tunnels on a page.
pub(super) const ROWS: usize = 100;

const HEADS: [&str; 8] =
    ["State", "Peer", "Interface", "Receiving", "Sending", "Received", "Sent", "Last handshake"];

/// The tunnels that fit a filter.
pub(crate) fn overview(view: &View, wanted: &Filter) -> Rendered {
    let fitting: Vec<&Tunnel> = view.facts.tunnels.iter().filter(|it| fits(&wanted.text, it)).collect();
    let all = fitting.len().div_ceil(ROWS).max(1);
    let page = wanted.page.min(all);
    let shown = fitting.iter().skip((page - 1) * ROWS).take(ROWS);
    let link = |page| Asked::Overview(Filter { page, ..wanted.clone() }).place();
    let summary = Part::new("summary", summary(view));
    let refused = Part::new("refused", refused(view));
    let found = Part::new(
        "found",
        html! {
            span #found {
                @match fitting.len() {
                    0 => "No tunnels.",
                    1 => "1 tunnel",
                    count => { (count) " tunnels, those with trouble first" }
                }
            }
        },
    );
    let rows = rows("tunnels", shown.map(|tunnel| row(view, tunnel)).collect());
    let pages = pages(page, all, link);
    let main = html! {
        h1 { "Overview" }
        (summary.markup())
        (refused.markup())
        (about(view))
        form.filter method="get" action="/" role="search" {
            label for="filter" { "Filter" }
            input #filter type="search" name="filter" value=(wanted.text)
                placeholder="peer, interface, protocol or state";
            button type="submit" { "Show" }
        }
        (table(&html! { (found.markup()) }, &HEADS, &rows))
        (pages.markup())
    };
    Rendered { title: "Overview".to_owned(), main, parts: vec![summary, refused, found, rows, pages] }
}

fn fits(text: &str, tunnel: &Tunnel) -> bool {
    let words = [&*tunnel.peer, &tunnel.interface, tunnel.state.name(), protocol(tunnel.protocol)];
    text.is_empty() || words.iter().any(|word| word.to_lowercase().contains(text))
}

fn summary(view: &View) -> Markup {
    html! {
        // Read aloud when it changes: how many are down, never how fast they are.
        ul #summary.summary aria-live="polite" {
            @for wanted in [State::Down, State::Waiting, State::Up] {
                li class=(wanted) {
                    span aria-hidden="true" { (shape(wanted)) } " " strong { (view.count(wanted)) } " " (wanted)
                }
            }
        }
    }
}

fn refused(view: &View) -> Markup {
    html! {
        div #refused role="alert" {
            @if view.facts.daemon.refused_parts > 0 {
                p.error {
                    (view.facts.daemon.refused_parts) " parts of the configuration are not in force: "
                    code { "postern status" } " tells which, and why"
                }
            }
        }
    }
}

fn about(view: &View) -> Markup {
    let daemon = &view.facts.daemon;
    html! {
        p.quiet {
            "Version " (daemon.version) ", running for " (duration(view.facts.at.saturating_sub(daemon.started)))
            @if let Some(revision) = daemon.revision { ", revision " (revision) }
            "."
        }
    }
}

/// A tunnel with its name as a link.
pub(super) fn link(tunnel: &Tunnel) -> Markup {
    html! {
        a href=(Asked::Tunnel(Named::of(tunnel)).place()) {
            strong { (tunnel.peer) }
            @if let Some(number) = tunnel.tunnel { " tunnel " (number) }
        }
    }
}

fn row(view: &View, tunnel: &Tunnel) -> Part {
    let id = format!("t{:016x}", key(tunnel));
    let rates = view.rates.of(tunnel);
    let peer = html! {
        (link(tunnel))
        @if let Some(reason) = view.reasons(tunnel).first() {
            div.cause { (reason.cause) }
            @if !reason.fix.is_empty() {
                div.fix { "Fix: " @for line in &reason.fix { code { (line) } } }
            }
        }
    };
    let interface = html! { (tunnel.interface) " " span.quiet { (protocol(tunnel.protocol)) } };
    let [state_head, peer_head, interface_head, receiving, sending, received, sent, handshake] = HEADS;
    let row = html! {
        tr id=(id) role="row" class=(tunnel.state) {
            (cell(state_head, &state(tunnel.state)))
            (cell(peer_head, &peer))
            (cell(interface_head, &interface))
            (number(receiving, &bits(rates.map(|[received, _]| received))))
            (number(sending, &bits(rates.map(|[_, sent]| sent))))
            (number(received, &bytes(tunnel.received_bytes)))
            (number(sent, &bytes(tunnel.sent_bytes)))
            (number(handshake, &ago(view.facts.at, tunnel.last_handshake)))
        }
    };
    Part::new(id, row)
}
