//! The view as HTML. A state is a word and a shape, not only a colour.

use super::view::View;
use gateway::facts::model::{State, Tunnel};
use maud::{DOCTYPE, Markup, html};

/// Tunnels on a page.
pub(super) const ROWS: usize = 100;

/// What a reader wants to see of the tunnels.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Wanted {
    /// A part of the name of a peer or an interface, or a state or protocol.
    pub(super) filter: String,
    /// The page, from 1 on.
    pub(super) page: usize,
}

impl Wanted {
    pub(super) fn of(query: &str) -> Self {
        let mut wanted = Self { page: 1, ..Self::default() };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "filter" => wanted.filter = value.trim().to_lowercase(),
                "page" => wanted.page = value.parse().unwrap_or(1).max(1),
                _ => {}
            }
        }
        wanted
    }

    fn fits(&self, tunnel: &Tunnel) -> bool {
        let words = [&*tunnel.peer, &tunnel.interface, state(tunnel.state).1, protocol(tunnel)];
        words.iter().any(|word| word.to_lowercase().contains(&self.filter))
    }

    fn link(&self, page: usize) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("filter", &self.filter).append_pair("page", &page.to_string());
        format!("/?{}", query.finish())
    }
}

/// The shape and the word of a state.
fn state(state: State) -> (&'static str, &'static str) {
    match state {
        State::Up => ("\u{25cf}", "up"),
        State::Waiting => ("\u{25cb}", "waiting"),
        State::Down => ("\u{2716}", "down"),
    }
}

fn protocol(tunnel: &Tunnel) -> &'static str {
    use gateway::facts::model::Protocol;
    match tunnel.protocol {
        Protocol::WireGuard => "WireGuard",
        Protocol::Ipsec => "IPsec",
        Protocol::OpenVpn => "OpenVPN",
    }
}

/// A document with its frame.
fn document(title: &str, is_known: bool, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " - Postern" }
                link rel="stylesheet" href="/style.css";
            }
            body {
                header {
                    a.brand href="/" { "Postern" }
                    @if is_known {
                        form method="post" action="/logout" { button type="submit" { "Log out" } }
                    }
                }
                main { (body) }
            }
        }
    }
}

/// Where a reader logs in.
pub(super) fn login(why: Option<&str>) -> Markup {
    document(
        "Log in",
        false,
        &html! {
            h1 { "Log in" }
            @if let Some(why) = why { p.error role="alert" { (why) } }
            form.login method="post" action="/login" {
                label for="token" { "Token of " code { "service page token" } }
                input #token type="password" name="token" autocomplete="current-password" required autofocus;
                button type="submit" { "Log in" }
            }
        },
    )
}

/// Why nothing can be shown.
pub(super) fn failed(title: &str, why: &str, is_known: bool) -> Markup {
    document(
        title,
        is_known,
        &html! { h1 { (title) } p.error role="alert" { (why) } p { a href="/" { "Try again" } } },
    )
}

/// The tunnels, trouble first.
pub(super) fn overview(view: &View, wanted: &Wanted) -> Markup {
    let fitting: Vec<&Tunnel> = view.facts.tunnels.iter().filter(|it| wanted.fits(it)).collect();
    let pages = fitting.len().div_ceil(ROWS).max(1);
    let page = wanted.page.min(pages);
    let shown = fitting.iter().skip((page - 1) * ROWS).take(ROWS);
    document(
        "Overview",
        true,
        &html! {
            h1 { "Overview" }
            (summary(view))
            form.filter method="get" action="/" role="search" {
                label for="filter" { "Filter" }
                input #filter type="search" name="filter" value=(wanted.filter)
                    placeholder="peer, interface, protocol or state";
                button type="submit" { "Show" }
            }
            @if fitting.is_empty() { p { "No tunnels." } } @else {
                table role="table" {
                    caption { (fitting.len()) " tunnels, those with trouble first" }
                    thead role="rowgroup" {
                        tr role="row" {
                            @for head in ["State", "Peer", "Interface", "Received", "Sent", "Last handshake"] {
                                th scope="col" role="columnheader" { (head) }
                            }
                        }
                    }
                    tbody role="rowgroup" { @for tunnel in shown { (row(view, tunnel)) } }
                }
            }
            @if pages > 1 {
                nav aria-label="Pages" {
                    @if page > 1 { a href=(wanted.link(page - 1)) rel="prev" { "Previous" } }
                    span { "Page " (page) " of " (pages) }
                    @if page < pages { a href=(wanted.link(page + 1)) rel="next" { "Next" } }
                }
            }
        },
    )
}

fn summary(view: &View) -> Markup {
    let daemon = &view.facts.daemon;
    html! {
        ul.summary {
            @for wanted in [State::Down, State::Waiting, State::Up] {
                @let (shape, word) = state(wanted);
                li class=(word) { span aria-hidden="true" { (shape) } " " strong { (view.count(wanted)) } " " (word) }
            }
        }
        @if daemon.refused_parts > 0 {
            p.error role="alert" {
                (daemon.refused_parts) " parts of the configuration are not in force: "
                code { "postern status" } " tells which, and why"
            }
        }
        p.quiet {
            "Version " (daemon.version) ", running for " (duration(view.facts.at.saturating_sub(daemon.started)))
            @if let Some(revision) = daemon.revision { ", revision " (revision) }
            ". " a href="/" { "Reload" }
        }
    }
}

fn row(view: &View, tunnel: &Tunnel) -> Markup {
    let (shape, word) = state(tunnel.state);
    html! {
        tr role="row" class=(word) {
            td role="cell" data-label="State" { span.state { span aria-hidden="true" { (shape) } " " (word) } }
            td role="cell" data-label="Peer" {
                strong { (tunnel.peer) }
                @if let Some(number) = tunnel.tunnel { " tunnel " (number) }
                @if let Some(reason) = view.reason(tunnel) {
                    div.cause { (reason.cause) }
                    @if !reason.fix.is_empty() {
                        div.fix { "Fix: " @for line in &reason.fix { code { (line) } } }
                    }
                }
            }
            td role="cell" data-label="Interface" { (tunnel.interface) " " span.quiet { (protocol(tunnel)) } }
            td.number role="cell" data-label="Received" { (bytes(tunnel.received_bytes)) }
            td.number role="cell" data-label="Sent" { (bytes(tunnel.sent_bytes)) }
            td role="cell" data-label="Last handshake" {
                @match tunnel.last_handshake {
                    Some(at) => { (duration(view.facts.at.saturating_sub(at))) " ago" },
                    None => "none",
                }
            }
        }
    }
}

/// Bytes with a decimal prefix.
fn bytes(count: u64) -> String {
    let (mut count, mut unit) = (count as f64, "B");
    for next in ["kB", "MB", "GB", "TB", "PB"] {
        if count < 1000.0 {
            break;
        }
        (count, unit) = (count / 1000.0, next);
    }
    if unit == "B" { format!("{count} B") } else { format!("{count:.1} {unit}") }
}

fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::super::view::Reason;
    use super::*;
    use gateway::facts::model::{Facts, Protocol};
    use std::collections::BTreeMap;

    fn tunnel(peer: &str, state: State) -> Tunnel {
        Tunnel { interface: "wg0".to_owned(), peer: peer.to_owned(), state, ..Tunnel::default() }
    }

    fn view(tunnels: Vec<Tunnel>) -> View {
        let cause = "no answer from <192.0.2.1>".to_owned();
        let reason = Reason { cause, fix: vec!["set interfaces wireguard wg0 peer b".to_owned()] };
        let key = (Protocol::WireGuard, "wg0".to_owned(), "b<i>".to_owned());
        View::new(Facts { tunnels, ..Facts::default() }, BTreeMap::from([(key, reason)]))
    }

    #[test]
    fn what_is_down_comes_first_with_its_cause_and_fix_and_nothing_is_markup() {
        let view = view(vec![tunnel("a", State::Up), tunnel("b<i>", State::Down)]);
        let text = overview(&view, &Wanted::of("")).into_string();
        let (down, up) = (text.find("b&lt;i&gt;").expect("there"), text.find("<strong>a<").expect("there"));
        assert!(down < up && text.contains("no answer from &lt;192.0.2.1&gt;"), "{text}");
        assert!(
            text.contains("<code>set interfaces wireguard wg0 peer b</code>") && !text.contains("<i>"),
            "{text}"
        );
    }

    #[test]
    fn ten_thousand_tunnels_come_a_hundred_a_page_and_can_be_filtered() {
        let view = view((0..10_000).map(|number| tunnel(&format!("peer{number:05}"), State::Up)).collect());
        let rows = |query: &str| {
            let text = overview(&view, &Wanted::of(query)).into_string();
            (text.matches("<td role=\"cell\" data-label=\"Peer\"").count(), text)
        };
        let (count, text) = rows("");
        assert!(count == ROWS && text.contains("Page 1 of 100") && text.contains("page=2"), "{count}");
        assert!(text.len() < 100_000, "{}", text.len());
        let (count, text) = rows("page=100");
        assert!(count == ROWS && text.contains("peer09999") && !text.contains("rel=\"next\""), "{count}");
        assert_eq!(rows("page=4000000000").0, ROWS, "the last");
        let (count, text) = rows("filter=PEER0421");
        assert!(count == 10 && !text.contains("aria-label=\"Pages\""), "{count}");
        assert!(rows("filter=down").1.contains("No tunnels."));
        assert_eq!(Wanted::of("filter=%22%3E&page=x"), Wanted { filter: "\">".to_owned(), page: 1 });
    }

    #[test]
    fn figures_are_short() {
        assert_eq!([0, 999, 1000, 1_234_567].map(bytes), ["0 B", "999 B", "1.0 kB", "1.2 MB"]);
        assert_eq!([5, 120, 7200, 172_800].map(duration), ["5 s", "2 min", "2 h", "2 d"]);
    }
}
