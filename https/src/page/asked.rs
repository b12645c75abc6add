//! What a reader asks for: a view, and what of it.

use form_urlencoded::Serializer;
use gateway::facts::model::{Protocol, Tunnel};

/// Characters of a filter.
const LONGEST: usize = 100;

/// A view.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Asked {
    /// All tunnels.
    Overview(Filter),
    /// One tunnel.
    Tunnel(Named),
    /// What limits speed, and what does the work.
    Performance,
    /// Why packets were dropped.
    Drops(Dropped),
    /// What rules say of the gateway and its machine.
    Health,
}

/// Which tunnels.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Filter {
    /// A part of the name of a peer or an interface, or a state or protocol.
    pub(super) text: String,
    /// The page, from 1 on.
    pub(super) page: usize,
}

/// A tunnel, as its address names it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Named {
    pub(super) protocol: String,
    pub(super) interface: String,
    pub(super) peer: String,
    pub(super) tunnel: Option<u32>,
}

/// Which drops.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Dropped {
    /// Of this interface only, unless it is empty.
    pub(super) interface: String,
    /// Also reasons for which nothing was dropped.
    pub(super) all: bool,
    /// The page, from 1 on.
    pub(super) page: usize,
}

impl Asked {
    /// The view at a path; none if there is none.
    pub(super) fn at(path: &str, query: &str) -> Option<Self> {
        let pairs = || form_urlencoded::parse(query.as_bytes());
        let value = |name: &str| pairs().find(|(it, _)| it == name).map(|(_, value)| value.into_owned());
        let page = || value("page").and_then(|page| page.parse().ok()).unwrap_or(1).max(1);
        Some(match path {
            "/" => Self::Overview(Filter {
                text: bounded(&value("filter").unwrap_or_default().to_lowercase()),
                page: page(),
            }),
            "/tunnel" => Self::Tunnel(Named {
                protocol: value("protocol").unwrap_or_default(),
                interface: value("interface").unwrap_or_default(),
                peer: value("peer").unwrap_or_default(),
                tunnel: value("tunnel").and_then(|number| number.parse().ok()),
            }),
            "/performance" => Self::Performance,
            "/health" => Self::Health,
            "/drops" => Self::Drops(Dropped {
                interface: bounded(&value("interface").unwrap_or_default()),
                all: value("all").is_some_and(|it| it == "yes"),
                page: page(),
            }),
            _ => return None,
        })
    }

    /// Its path and query.
    pub(super) fn place(&self) -> String {
        let mut query = Serializer::new(String::new());
        let path = match self {
            Self::Overview(Filter { text, page }) => {
                if !text.is_empty() {
                    query.append_pair("filter", text);
                }
                append_page(&mut query, *page);
                "/"
            }
            Self::Tunnel(Named { protocol, interface, peer, tunnel }) => {
                query.append_pair("protocol", protocol).append_pair("interface", interface);
                query.append_pair("peer", peer);
                if let Some(number) = tunnel {
                    query.append_pair("tunnel", &number.to_string());
                }
                "/tunnel"
            }
            Self::Performance => "/performance",
            Self::Health => "/health",
            Self::Drops(Dropped { interface, all, page }) => {
                if !interface.is_empty() {
                    query.append_pair("interface", interface);
                }
                if *all {
                    query.append_pair("all", "yes");
                }
                append_page(&mut query, *page);
                "/drops"
            }
        };
        let query = query.finish();
        if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
    }
}

/// The path and query of the view that a request asks for, as the page itself links to it; none if there is no such view.
pub fn place(path: &str, query: &str) -> Option<String> {
    Asked::at(path, query).map(|asked| asked.place())
}

/// The begin of a text, as it would be read again.
fn bounded(text: &str) -> String {
    let begin: String = text.trim().chars().take(LONGEST).collect();
    begin.trim_end().to_owned()
}

fn append_page(query: &mut Serializer<'_, String>, page: usize) {
    if page > 1 {
        query.append_pair("page", &page.to_string());
    }
}

impl Named {
    pub(super) fn of(tunnel: &Tunnel) -> Self {
        Self {
            protocol: tunnel.protocol.name().to_owned(),
            interface: tunnel.interface.clone(),
            peer: tunnel.peer.clone(),
            tunnel: tunnel.tunnel,
        }
    }

    /// The tunnel that is called so, without what else is known of it.
    pub(super) fn tunnel(&self) -> Option<Tunnel> {
        let protocols = [Protocol::WireGuard, Protocol::Ipsec, Protocol::OpenVpn];
        Some(Tunnel {
            protocol: protocols.into_iter().find(|it| it.name() == self.protocol)?,
            interface: self.interface.clone(),
            peer: self.peer.clone(),
            tunnel: self.tunnel,
            ..Tunnel::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_found_again_at_its_place() {
        let named = Named {
            protocol: "ipsec".to_owned(),
            interface: "ipsec0".to_owned(),
            peer: "a&peer=b/<i>\u{e9}".to_owned(),
            tunnel: Some(2),
        };
        let filter = Filter { text: "\"> a".to_owned(), page: 3 };
        let drops = Dropped { interface: "wg0".to_owned(), all: true, page: 1 };
        for asked in [
            Asked::Tunnel(named),
            Asked::Overview(filter),
            Asked::Performance,
            Asked::Drops(drops),
            Asked::Health,
        ] {
            let place = asked.place();
            let (path, query) = place.split_once('?').unwrap_or((&place, ""));
            assert_eq!(Asked::at(path, query), Some(asked), "{place}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_the_first_page_or_no_view() {
        let first = |text: &str| Some(Asked::Overview(Filter { text: text.to_owned(), page: 1 }));
        assert_eq!(Asked::at("/", "page=x&page=2"), first(""));
        assert_eq!(Asked::at("/", "page=0&filter=%FF%00"), first("\u{fffd}\0"));
        assert_eq!(Asked::at("/", &format!("filter={}", "x".repeat(5000))), first(&"x".repeat(LONGEST)));
        for path in ["/..", "/%2e%2e/etc/passwd", "//", "/tunnel/", "/Drops", "/performance%00", "*"] {
            assert_eq!(Asked::at(path, ""), None, "{path}");
        }
        assert_eq!(Named { protocol: "gre".to_owned(), ..Named::default() }.tunnel(), None);
    }
}
