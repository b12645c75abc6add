//! Words of older versions and of EdgeOS, in the words of the grammar.

use super::{Configuration, Statement};
use crate::import::credentials::Store;
use crate::import::files::Files;
use crate::import::network;
use crate::import::place::Origin;
use crate::import::report::{Draft, Set};
use crate::import::wg_quick;
use crate::schema::{Cursor, Kind, Place, Type, key_of};
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use zeroize::Zeroizing;

/// What is known of a configuration as a whole.
struct Context<'a, 'b> {
    files: &'a dyn Files,
    store: &'a mut Store<'b>,
    /// Names for peers that are called by their keys, as EdgeOS has it, by interface and key.
    names: BTreeMap<(String, String), String>,
    /// Peers that are told to be disabled.
    held: BTreeSet<String>,
    /// Interfaces to which EdgeOS adds no routes.
    without_routes: BTreeMap<String, Origin>,
}

pub(super) fn import(
    configuration: &Configuration,
    files: &dyn Files,
    store: &mut Store<'_>,
    draft: &mut Draft,
) {
    let statements = &configuration.statements;
    let names = names(statements);
    let mut context = Context { files, store, names, held: BTreeSet::new(), without_routes: BTreeMap::new() };
    for statement in statements {
        if let [.., "x509", "key", "file", file] = statement.words()[..] {
            context.store.add_private(Path::new(file));
        }
    }
    for statement in statements {
        context.statement(statement, draft);
    }
    if configuration.is_old {
        old_defaults(statements, draft);
    }
    context.without_routes(statements, draft);
}

/// Names for WireGuard peers that are called by their public keys: their descriptions, or numbers.
fn names(statements: &[Statement]) -> BTreeMap<(String, String), String> {
    let mut names: BTreeMap<(String, String), Option<String>> = BTreeMap::new();
    let mut used = BTreeSet::new();
    for statement in statements {
        let ["interfaces", "wireguard", interface, "peer", peer, ref rest @ ..] = statement.words()[..]
        else {
            continue;
        };
        let peer = (interface.to_owned(), peer.to_owned());
        if key_of(&peer.1).is_none() {
            used.insert(peer);
            continue;
        }
        let name = names.entry(peer).or_default();
        if let ["description", text] = rest {
            let kept: String =
                text.chars().map(|c| if c.is_whitespace() { '-' } else { c }).take(40).collect();
            *name = Some(kept).filter(|name| !name.is_empty() && key_of(name).is_none());
        }
    }
    // All descriptions before the first number: a description may be peer1.
    for ((interface, _), name) in &mut names {
        *name = name.take().filter(|name| used.insert((interface.clone(), name.clone())));
    }
    // A number is used once, also for peers of different interfaces.
    let mut numbered = (1u32..).map(|number| format!("peer{number}"));
    let named = names.into_iter().map(|((interface, key), name)| {
        let is_free = |name: &String| !used.contains(&(interface.clone(), name.clone()));
        let name = name.or_else(|| numbered.find(is_free)).unwrap_or_default();
        ((interface, key), name)
    });
    named.collect()
}

/// The words of a statement that may be shown: those that lead to its value, and the first that the grammar does not know.
fn shown(words: &[&str]) -> String {
    let mut cursor = Cursor::root();
    for (index, word) in words.iter().enumerate() {
        if cursor.node().is_some_and(|node| node.kind != Kind::Branch) {
            return words[..index].join(" ");
        }
        match cursor.down(word) {
            Some(next) => cursor = next,
            // Where the name of a secret was forgotten, the secret stands.
            None if cursor.secrets().next().is_some() && index + 1 == words.len() => {
                return words[..index].join(" ");
            }
            None => return words[..=index].join(" "),
        }
    }
    words.join(" ")
}

/// The path of a statement, and its value.
fn divided<'a>(words: &[&'a str]) -> (String, Option<&'a str>) {
    let is_value = words.split_last().is_some_and(|(_, path)| {
        let node = Cursor::at(path.iter().copied()).and_then(Cursor::node);
        node.is_some_and(|node| node.kind != Kind::Branch)
    });
    match words.split_last() {
        Some((value, path)) if is_value => (path.join(" "), Some(value)),
        _ => (words.join(" "), None),
    }
}

impl Context<'_, '_> {
    fn statement(&mut self, statement: &Statement, draft: &mut Draft) {
        let words = statement.words();
        let origin = Origin { place: statement.place.clone(), option: shown(&words) };
        match words[..] {
            ["interfaces", "wireguard", interface, ref rest @ ..] => {
                self.wireguard(interface, rest, &words, &origin, draft);
            }
            ["vpn", "ipsec", "site-to-site", "peer", peer, ref rest @ ..] => {
                self.peer(peer, rest, &words, &origin, draft);
            }
            ["vpn", "rsa-keys", "rsa-key-name", name, "rsa-key", key] => {
                self.rsa_key(name, key, &origin, draft);
            }
            ["vpn", "rsa-keys", ..] => {
                let fix = "make a new key pair: set pki key-pair NAME private key BASE64, and give its public key to the peers";
                draft.leave_open(&origin, "the private key is in a format of the router's", fix);
            }
            ["vpn", "ipsec", "ike-group", _, "key-exchange", "ikev1"] => {
                let why = "IKEv1 is obsolete (RFC 9395) and not supported: the group is for IKEv2";
                draft.leave(&origin, why, "have the peers of the group use IKEv2 too");
            }
            ["vpn", "ipsec", "auto-firewall-nat-exclude", "enable"] => {
                let why = "no rule is made by itself: NAT may change packets of tunnels";
                draft.leave_open(
                    &origin,
                    why,
                    "set nat source rule 1 destination address PREFIX, and: exclude",
                );
            }
            ["interfaces", "ethernet" | "bridge", .., "address", "dhcpv6"] => {
                let why = "Postern leaves DHCPv6 to the operating system";
                draft.leave(&origin, why, "have it get the address of the interface");
            }
            ["nat", list @ ("source" | "destination"), "rule", number, ref rest @ ..] => {
                nat([list, number], rest, &words, &origin, draft);
            }
            ["vpn", "ipsec", "auto-firewall-nat-exclude" | "allow-access-to-local-interface", "disable"] => {
                draft.take(&origin, &[]);
            }
            ["vpn", "ipsec", "allow-access-to-local-interface", _] => {
                let why = "no rule is made by itself: a local zone lets in what its rules say";
                draft.leave_open(&origin, why, "write a rule: set firewall zone NAME local-zone");
            }
            _ => keep(&words, &origin, draft),
        }
    }

    fn wireguard(
        &mut self,
        interface: &str,
        rest: &[&str],
        words: &[&str],
        origin: &Origin,
        draft: &mut Draft,
    ) {
        let path = |word: &str| format!("interfaces wireguard {interface} {word}");
        match *rest {
            ["peer", peer, ref rest @ ..] => self.wireguard_peer(interface, peer, rest, origin, draft),
            ["private-key", text] if key_of(text).is_none() => {
                let is_path = text.starts_with('/');
                let of_name = || format!("/config/auth/wireguard/{text}/private.key");
                let file = if is_path { text.to_owned() } else { of_name() };
                self.key_file(&path("private-key"), &file, origin, draft);
            }
            ["listen-port", port] => {
                draft.translate(origin, &[(path("port"), Some(port))], "it is port here");
            }
            ["route-allowed-ips", "true"] => draft.take(origin, &[]),
            ["route-allowed-ips", _] => _ = self.without_routes.insert(interface.to_owned(), origin.clone()),
            ["firewall", ..] => {
                let why = "rules of a firewall are not imported";
                draft.leave_open(
                    origin,
                    why,
                    "give the interface a zone: set firewall zone NAME member interface",
                );
            }
            _ => keep(words, origin, draft),
        }
    }

    fn wireguard_peer(
        &mut self,
        interface: &str,
        peer: &str,
        rest: &[&str],
        origin: &Origin,
        draft: &mut Draft,
    ) {
        let known = self.names.get(&(interface.to_owned(), peer.to_owned())).cloned();
        let name = known.as_deref().unwrap_or(peer);
        let path = |word: &str| format!("interfaces wireguard {interface} peer {name} {word}");
        // The report names the peer as the result does.
        let mut origin = origin.clone();
        if known.is_some() {
            draft.imply(&origin, &path("public-key"), Some(peer));
            origin.option = shown(&[&["interfaces", "wireguard", interface, "peer", name], rest].concat());
        }
        let origin = &origin;
        match *rest {
            [] => draft.take(origin, &[(format!("interfaces wireguard {interface} peer {name}"), None)]),
            ["pubkey", key] => {
                draft.translate(origin, &[(path("public-key"), Some(key))], "it is public-key here");
            }
            ["endpoint", endpoint] => wg_quick::endpoint(&path(""), endpoint, origin, draft),
            ["preshared-key", file] if file.starts_with('/') && key_of(file).is_none() => {
                self.key_file(&path("preshared-key"), file, origin, draft);
            }
            ["persistent-keepalive", "0"] => draft.take(origin, &[]),
            ["allowed-ips", list] => {
                let texts: Vec<String> = list
                    .split(',')
                    .map(str::trim)
                    .filter(|text| !text.is_empty())
                    .map(|text| {
                        network::prefixes(text)
                            .ok()
                            .and_then(|found| Some(found.first()?.to_string()))
                            .unwrap_or_else(|| text.to_owned())
                    })
                    .collect();
                let sets: Vec<Set<'_>> =
                    texts.iter().map(|text| (path("allowed-ips"), Some(&**text))).collect();
                let is_all = texts.iter().any(|text| text.ends_with("/0"));
                if is_all {
                    let why = "Postern routes allowed-ips to the peer, which the router may not have done";
                    draft.translate(origin, &sets, why);
                } else if texts[..] == [list] {
                    draft.take(origin, &sets);
                } else {
                    draft.translate(origin, &sets, "one prefix a line, without host bits");
                }
            }
            _ => {
                let words = [&["interfaces", "wireguard", interface, "peer", name], rest].concat();
                keep(&words, origin, draft);
            }
        }
    }

    /// A key that is in a file.
    fn key_file(&self, path: &str, file: &str, origin: &Origin, draft: &mut Draft) {
        let text = self.files.read(Path::new(file)).map_err(|error| error.to_string());
        let key = text.and_then(|text| {
            let key = text.as_str().map(str::trim).unwrap_or_default();
            if key_of(key).is_some() {
                Ok(Zeroizing::new(key.to_owned()))
            } else {
                Err("it holds no key".to_owned())
            }
        });
        match key {
            Ok(key) => {
                let why = "the key is part of the configuration here";
                draft.translate(origin, &[(path.to_owned(), Some(&key))], why);
            }
            Err(why) => {
                let fix = format!("set {path} KEY, with the content of that file, or import with --root DIR");
                draft.leave(origin, format!("the key is in {file}: {why}"), fix);
            }
        }
    }

    fn peer(&mut self, peer: &str, rest: &[&str], words: &[&str], origin: &Origin, draft: &mut Draft) {
        let path = |word: &str| format!("vpn ipsec site-to-site peer {peer} {word}");
        match *rest {
            ["vti", ..] => {
                if self.held.insert(peer.to_owned()) {
                    draft.imply(origin, &path("disable"), None);
                }
                draft.leave_open(
                    origin,
                    "virtual tunnel interfaces are not supported; the peer is disabled, and its packets are not protected",
                    format!("set {} and remote prefix PREFIX, then: delete {}", path("tunnel 1 local prefix PREFIX"), path("disable")),
                );
            }
            ["local-ip", address] => {
                draft.translate(
                    origin,
                    &[(path("local-address"), Some(address))],
                    "it is local-address here",
                );
            }
            ["tunnel", tunnel, side @ ("local" | "remote"), "subnet", prefix] => {
                let path = path(&format!("tunnel {tunnel} {side} prefix"));
                draft.translate(origin, &[(path, Some(prefix))], "it is prefix here");
            }
            ["authentication", "rsa-key-name", name] => {
                let path = path("authentication rsa remote-key");
                draft.translate(origin, &[(path, Some(name))], "keys are key pairs of pki here");
            }
            ["authentication", "x509", "cert-file", file] => {
                let found = self.store.certificate(file, origin, draft);
                named(found, &path("authentication x509 certificate"), origin, draft);
            }
            ["authentication", "x509", "ca-cert-file", file] => {
                let found = self.store.authority(file, origin, draft);
                named(found, &path("authentication x509 ca-certificate"), origin, draft);
            }
            ["authentication", "x509", "crl-file", _] => {
                let fix = "set pki ca NAME crl-file FILE";
                draft.leave_open(origin, "a revocation list belongs to an authority here", fix);
            }
            ["authentication", "x509", "key", "file", _] => {
                draft.translate(origin, &[], "the key goes to the certificate that it belongs to");
            }
            ["authentication", "x509", "key", "password", _] => {
                let fix = "decrypt the key: openssl pkey -in KEY -out PLAIN, and import again";
                draft.leave(origin, "encrypted private keys are not supported", fix);
            }
            _ => keep(words, origin, draft),
        }
    }

    fn rsa_key(&mut self, name: &str, key: &str, origin: &Origin, draft: &mut Draft) {
        let named = Origin { option: name.to_owned(), ..origin.clone() };
        match self.store.key_pair(key, &named, draft) {
            Ok(name) => draft.translate(
                origin,
                &[(format!("pki key-pair {name}"), None)],
                "keys are key pairs of pki here",
            ),
            Err(why) => draft.leave(origin, why, format!("set pki key-pair {name} public key BASE64")),
        }
    }

    /// Interfaces without routes, for which a prefix of length 0 would be one for all packets.
    fn without_routes(&self, statements: &[Statement], draft: &mut Draft) {
        for (interface, origin) in &self.without_routes {
            let is_full = statements.iter().any(|statement| {
                matches!(statement.words()[..], ["interfaces", "wireguard", of, "peer", _, "allowed-ips", list]
                    if of == interface && list.split(',').any(|text| text.trim().ends_with("/0")))
            });
            let why = "Postern routes allowed-ips to the peer";
            if !is_full {
                draft.leave(origin, why, "name in allowed-ips what the peer is to get");
                continue;
            }
            let path = format!("interfaces wireguard {interface} disable");
            draft.imply(origin, &path, None);
            let why = format!("{why}, and here that is every address: the interface is disabled");
            draft.leave_open(
                origin,
                why,
                format!("name the prefixes behind the peer in allowed-ips, then: delete {path}"),
            );
        }
    }
}

/// What VyOS 1.3 and EdgeOS have where an option is missing.
fn old_defaults(statements: &[Statement], draft: &mut Draft) {
    let mut groups: BTreeMap<&str, (Origin, Vec<Vec<&str>>)> = BTreeMap::new();
    for statement in statements {
        if let ["vpn", "ipsec", "ike-group", group, ref rest @ ..] = statement.words()[..] {
            let option = format!("vpn ipsec ike-group {group}");
            let new = || (Origin { place: statement.place.clone(), option }, Vec::new());
            groups.entry(group_of(statement)).or_insert_with(new).1.push(rest.to_vec());
        }
    }
    for (group, (origin, lines)) in groups {
        let has = |word: &str, below: Option<&str>| {
            lines.iter().any(|line| {
                line.first() == Some(&word) && below.is_none_or(|below| line.get(1) == Some(&below))
            })
        };
        let path = |word: &str| format!("vpn ipsec ike-group {group} {word}");
        if !has("key-exchange", None) {
            let why =
                "IKEv1 is the default of that version, and is not supported: have the peers use IKEv2 too";
            draft.translate(&origin, &[(path("key-exchange"), Some("ikev2"))], why);
        }
        if has("dead-peer-detection", None) && !has("dead-peer-detection", Some("action")) {
            let why = "the default of that version is hold";
            draft.translate(&origin, &[(path("dead-peer-detection action"), Some("trap"))], why);
        }
    }
}

/// The name of the group that a statement is about.
fn group_of(statement: &Statement) -> &str {
    statement.words.get(3).map(|word| word.as_str()).unwrap_or_default()
}

/// A name in `pki` that a file has got.
fn named(found: Result<String, String>, path: &str, origin: &Origin, draft: &mut Draft) {
    match found {
        Ok(name) => {
            let why = "the certificate is part of the configuration here";
            draft.translate(origin, &[(path.to_owned(), Some(&name))], why);
        }
        Err(why) => {
            draft.leave(origin, why, format!("set {path} NAME, a name of pki, or import with --root DIR"));
        }
    }
}

/// A statement of a rule of NAT. One that is not supported would widen the rule, which is then disabled.
fn nat([list, number]: [&str; 2], rest: &[&str], words: &[&str], origin: &Origin, draft: &mut Draft) {
    let path = format!("nat {list} rule {number}");
    match rest {
        // VyOS 1.3.
        ["outbound-interface" | "inbound-interface", "any"] => draft.take(origin, &[]),
        [link @ ("outbound-interface" | "inbound-interface"), name] => {
            let set = (format!("{path} {link} name"), Some(*name));
            draft.translate(origin, &[set], "interfaces are named behind the word name");
        }
        _ => {
            let (node, value) = divided(words);
            let kind = Cursor::at(node.split(' ')).and_then(Cursor::node).map(|node| node.kind);
            let fits = match (kind, value) {
                (Some(Kind::Flag), None) => true,
                (Some(kind), Some(value)) => kind.value_type().is_some_and(|kind| kind.check(value).is_ok()),
                _ => false,
            };
            if fits {
                return draft.take(origin, &[(node, value)]);
            }
            draft.leave_open(
                origin,
                "Postern does not support it: the rule is disabled",
                format!("look at it, and: delete {path} disable"),
            );
            draft.imply(origin, &format!("{path} disable"), None);
        }
    }
}

/// A statement in the words of the grammar; a prefix loses its host bits.
fn keep(words: &[&str], origin: &Origin, draft: &mut Draft) {
    let known =
        (1..=words.len()).find_map(|length| match Cursor::at(words[..length].iter().copied())?.place() {
            Place::Unsupported(known) => Some(known.instead),
            _ => None,
        });
    if let Some(instead) = known {
        let instead = Some(instead).filter(|instead| !instead.starts_with("remove the line"));
        let fix = instead.unwrap_or("weigh whether the tunnel may do without");
        return draft.leave_open(origin, "Postern does not support it", fix);
    }
    let (path, value) = divided(words);
    let kind = Cursor::at(path.split(' ')).and_then(Cursor::node).and_then(|node| node.kind.value_type());
    let prefix = value.filter(|_| kind == Some(Type::Prefix)).and_then(|value| value.parse::<IpNet>().ok());
    match prefix.filter(|prefix| prefix.trunc() != *prefix) {
        Some(prefix) => {
            let text = prefix.trunc().to_string();
            draft.translate(origin, &[(path, Some(&text))], "a prefix has no host bits here");
        }
        None => draft.take(origin, &[(path, value)]),
    }
}
