//! What went wrong with a peer: what each side wants, and the lines of configuration that mend it.

use super::connections::{Group, Names};
use super::proof::Proof;
use super::status::list;
use crate::api::model::IpsecFailure;
use config::print::quoted;
use config::settings::ipsec::{DhGroup, Encryption, prf_by_name};
use crypto::cipher::Integrity;
use crypto::exchange;
use ipnet::{IpNet, IpSubnets, Ipv4Subnets, Ipv6Subnets};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;
use tunnel::esp::TrafficSelector;
use tunnel::ikev2::proposal::Algorithm;
use tunnel::ikev2::{Cause, Path, Unproved};

/// Lines of configuration for one range of addresses.
const MOST_PREFIXES: usize = 8;

/// Says what went wrong with the peer of these names, or with one that is not known. What is not authentic, anybody may
/// have brought about.
pub fn failure(
    names: Option<&Names>,
    path: Path,
    authentic: bool,
    cause: &Cause,
    at: Duration,
) -> IpsecFailure {
    let unknown = unknown();
    let (what, details, fix) = explain(names.unwrap_or(&unknown), names.is_some(), path, cause);
    let what = if authentic { what } else { format!("{what} (unauthenticated, from {})", path.remote.ip()) };
    IpsecFailure { at: at.as_secs(), what, details, fix }
}

/// A call has not been answered yet.
pub fn unanswered(path: Path, sent: u32, since: Duration, at: Duration) -> IpsecFailure {
    let (remote, port) = (path.remote.ip(), path.remote.port());
    let (messages, seconds) = (if sent == 1 { "message" } else { "messages" }, since.as_secs_f32());
    IpsecFailure {
        at: at.as_secs(),
        what: format!(
            "{remote} has not answered {sent} {messages} to UDP port {port} within {seconds:.0} s, and is called again"
        ),
        details: Vec::new(),
        fix: vec![reach(path)],
    }
}

/// A peer takes ESP as a protocol of its own alone, which we may not send.
pub fn no_raw_sockets(at: Duration) -> IpsecFailure {
    let what = "it takes ESP without UDP, and this process may not open raw sockets".to_owned();
    let fix = "give it CAP_NET_RAW, or have the peer use NAT traversal".to_owned();
    IpsecFailure { at: at.as_secs(), what, details: Vec::new(), fix: vec![fix] }
}

fn unknown() -> Names {
    Names {
        peer: "NAME".to_owned(),
        ike_group: Group { name: "NAME".to_owned(), free: 1, pfs: None },
        proof: Proof::Secret("set vpn ipsec authentication psk NAME secret".to_owned()),
        ..Names::default()
    }
}

/// What went wrong, what each side wants, and what to do.
type Explained = (String, Vec<String>, Vec<String>);

fn explain(names: &Names, is_known: bool, path: Path, cause: &Cause) -> Explained {
    let remote = path.remote.ip();
    let set = format!("set vpn ipsec site-to-site peer {}", names.peer);
    match cause {
        Cause::NoConnection => no_connection(path, &set, is_known),
        Cause::NoSuchPeer { identity } => (
            format!("{remote} says that it is {identity}, and no peer is configured for that"),
            vec![],
            vec![format!("{set} authentication remote-id {}", quoted(identity))],
        ),
        Cause::Version1 | Cause::AsksEap { .. } | Cause::AsksAddress => {
            not_served(&tunnel(names, &set), cause)
        }
        Cause::OtherName { .. } | Cause::Named { .. } => other_name(names, &set, cause),
        Cause::NoProposal { of, ours, theirs } => no_proposal(names, of, ours, theirs),
        Cause::NoSelectors { ours, theirs } => no_selectors(&tunnel(names, &set), ours, theirs),
        Cause::Contested { packets, owner } => (
            format!("packets to {} are those of {owner}, which is connected", list(packets)),
            vec![],
            vec![
                format!("{} remote prefix PREFIX, one that no other peer has", tunnel(names, &set)),
                "behind one NAT, also local prefix, and mode tunnel for its esp-group".to_owned(),
                format!("if {owner} is gone: reset vpn ipsec site-to-site peer, its name here"),
            ],
        ),
        Cause::Moved { from, to } => (
            format!("{} began a connection, and its IKE_AUTH came from {}: ignored", from.ip(), to.ip()),
            vec!["a copy of it may be sent from anywhere, so both must come from one address".to_owned()],
            vec![format!("have the NAT before {} give one host one address (RFC 4787)", from.ip())],
        ),
        Cause::Mode => mode(names),
        Cause::NotAuthentic { identity, why } => {
            let fix = match why {
                Unproved::Identity => vec![format!("{set} authentication remote-id {}", quoted(identity))],
                Unproved::Sha1 => names.proof.without_sha1(&set, "the peer"),
                Unproved::Status(_) => vec![
                    "let this machine reach the place that the certificate names; it is asked again by itself".to_owned(),
                    "set pki ca NAME crl-file PATH, with a fresh list of its authority".to_owned(),
                    format!("{set} authentication x509 revocation relaxed, to do without"),
                ],
                Unproved::Proof(_) => vec![names.proof.to_believe(&set)],
            };
            (format!("{identity} has not shown who it is: {why}"), vec![], fix)
        }
        Cause::CannotSign(why) => {
            (format!("we cannot sign as the peer wants it: {why}"), vec![], vec![names.proof.to_sign(&set)])
        }
        Cause::OwnCertificate(why) => (
            format!("our own certificate is not valid now: {why}"),
            vec![],
            vec![
                format!("{set} authentication x509 certificate NAME, of one that its authority has renewed"),
                "or set the clock of this machine, if it is wrong".to_owned(),
            ],
        ),
        Cause::OnlySha1 => (
            "the peer names no hash to sign with (RFC 7427), and SHA-1 is not accepted".to_owned(),
            vec![],
            names.proof.without_sha1(&set, "us"),
        ),
        Cause::Refused => (
            "the peer does not believe that we are who we say we are".to_owned(),
            vec![],
            vec![
                names.proof.to_be_believed(&set),
                format!(
                    "{set} authentication local-id NAME: we say that we are {}; NAME is the remote-id that the peer has for us",
                    if names.local_id.is_empty() { "our address" } else { &names.local_id }
                ),
            ],
        ),
        Cause::Notified(notification) => {
            (format!("the peer refused with {notification}"), vec![], vec![its_log()])
        }
        Cause::Misbehaved(why) => {
            (format!("the peer does not follow the protocol: {why}"), vec![], vec![its_log()])
        }
        Cause::TooManyExchanges => (
            "the peer asks for more key exchanges or Child SAs than any lifetime makes necessary: they are put off"
                .to_owned(),
            vec![],
            vec!["look into the log of the peer: does it replace its keys all the time?".to_owned()],
        ),
        Cause::NoAnswer => (
            format!("{remote} does not answer on UDP port {}", path.remote.port()),
            vec![],
            vec![reach(path)],
        ),
    }
}

/// What a peer asks for that is not served; `tunnel` are the words before what a tunnel is for.
fn not_served(tunnel: &str, cause: &Cause) -> Explained {
    match cause {
        Cause::Version1 => (
            "the peer asks for IKEv1, which is not served".to_owned(),
            vec![],
            vec![
                "have the peer use IKEv2: key-exchange ikev2, or version 2, in its settings of IKE"
                    .to_owned(),
            ],
        ),
        Cause::AsksEap { identity } => (
            format!("{identity} asks for EAP, which is not served"),
            vec![],
            vec![
                "have the peer authenticate by a pre-shared secret, a certificate or a key, as is set here"
                    .to_owned(),
            ],
        ),
        _ => (
            "the peer asks for a virtual address, which is not served".to_owned(),
            vec![],
            vec![
                "have the peer ask for none, and use its own address or network in the tunnel".to_owned(),
                format!("{} remote prefix PREFIX, what the peer has there", tunnel),
            ],
        ),
    }
}

/// A name under which a side is not known.
fn other_name(names: &Names, set: &str, cause: &Cause) -> Explained {
    match cause {
        Cause::OtherName { asked, ours } => (
            format!("the peer asks for {asked}, and we are {ours} for it"),
            vec![],
            vec![
                format!("{set} authentication local-id {}", quoted(asked)),
                format!("or have the peer's remote-id for us be {}", quoted(ours)),
            ],
        ),
        Cause::Named { identity, named } if identity == named => (
            format!("{identity} calls from another address or with other settings than its peer here has"),
            vec![],
            vec![format!(
                "compare remote-address, local-id and ike-group of peer {} with its own",
                names.peer
            )],
        ),
        Cause::Named { identity, named } => (
            format!(
                "the peer calls itself {identity}, and its certificate is that of {named} too, which is this peer"
            ),
            vec![],
            vec![
                format!("have the peer send {named} as its identity"),
                format!("{set} authentication remote-id {}", quoted(identity)),
            ],
        ),
        other => (other.to_string(), vec![], vec![its_log()]),
    }
}

/// What to do about a peer that does not answer.
fn reach(path: Path) -> String {
    format!("ping {}; let UDP 500 and 4500 through on the way; is IKE served there?", path.remote.ip())
}

/// Nobody is configured for the addresses of a call. If it came from where a peer is, it is our own address that differs.
fn no_connection(path: Path, set: &str, is_known: bool) -> Explained {
    let (local, remote) = (path.local.ip(), path.remote.ip());
    if is_known {
        return (
            format!("{remote} calls us at {local}, and another local-address is set"),
            vec![],
            vec![
                format!("{set} local-address {local}"),
                "or have the peer call the address that is set".to_owned(),
            ],
        );
    }
    (format!("no peer is configured for {remote}"), vec![], vec![format!("{set} remote-address {remote}")])
}

fn its_log() -> String {
    "look into the log of the peer".to_owned()
}

fn mode(names: &Names) -> Explained {
    let groups = names.esp_groups.iter().map(|(_, group)| group);
    let fix = groups.map(|group| {
        format!("set vpn ipsec esp-group {} mode tunnel|transport, the same on both sides", group.name)
    });
    let mut fix: Vec<String> = fix.collect();
    fix.dedup();
    ("one side wants tunnel mode, the other transport mode".to_owned(), vec![], fix)
}

/// The words before what a tunnel is for, with its number if there is only one.
fn tunnel(names: &Names, set: &str) -> String {
    let mut numbers = names.esp_groups.iter().map(|(name, _)| name.rsplit('-').next().unwrap_or("N"));
    match (numbers.next(), numbers.next()) {
        (Some(only), None) => format!("{set} tunnel {only}"),
        _ => format!("{set} tunnel N"),
    }
}

fn no_selectors(
    set: &str,
    ours: &[Vec<TrafficSelector>; 2],
    theirs: &[Vec<TrafficSelector>; 2],
) -> Explained {
    let [local, remote] = theirs;
    let is_said = !local.is_empty() || !remote.is_empty();
    let theirs = if is_said {
        format!("the peer: local {}, remote {}", list(remote), list(local))
    } else {
        "the peer does not say".to_owned()
    };
    let fix = if is_said {
        let mut lines = traffic(set, "local", local);
        lines.extend(traffic(set, "remote", remote));
        let mut said = BTreeSet::new();
        lines.retain(|line| said.insert(line.clone()));
        lines
    } else {
        vec![format!("{set} local prefix and remote prefix: what is local here is remote there")]
    };
    (
        "no packets that both sides want in the tunnel".to_owned(),
        vec![format!("here: local {}, remote {}", list(&ours[0]), list(&ours[1])), theirs],
        fix,
    )
}

/// The lines that make one side of a tunnel what the peer has for it.
fn traffic(set: &str, side: &str, wanted: &[TrafficSelector]) -> Vec<String> {
    let mut lines = Vec::new();
    for selector in wanted {
        lines.extend(prefixes(selector).iter().map(|prefix| format!("{set} {side} prefix {prefix}")));
        if selector.protocol != 0 {
            lines.push(format!("{set} protocol {}", selector.protocol));
        }
        // A range of ports has no words.
        if selector.ports.start() == selector.ports.end() {
            lines.push(format!("{set} {side} port {}", selector.ports.start()));
        }
    }
    lines
}

/// The prefixes that make up a range of addresses; an odd one has hundreds, which nobody would type.
fn prefixes(selector: &TrafficSelector) -> Vec<IpNet> {
    let subnets: IpSubnets = match (selector.addresses.start(), selector.addresses.end()) {
        (IpAddr::V4(first), IpAddr::V4(last)) => Ipv4Subnets::new(*first, *last, 0).into(),
        (IpAddr::V6(first), IpAddr::V6(last)) => Ipv6Subnets::new(*first, *last, 0).into(),
        _ => return Vec::new(),
    };
    subnets.take(MOST_PREFIXES).collect()
}

fn no_proposal(names: &Names, of: &str, ours: &[String], theirs: &[String]) -> Explained {
    let esp = names.esp_groups.iter().find(|(name, _)| name == of).map(|(_, group)| group);
    let (words, group) = match esp {
        Some(group) => ("esp-group", group),
        None => ("ike-group", &names.ike_group),
    };
    let set = format!("set vpn ipsec {words} {}", group.name);
    let accepted = if theirs.is_empty() {
        "the peer does not say what it accepts".to_owned()
    } else {
        format!("the peer accepts {}", theirs.join(", "))
    };
    let wanted = theirs.iter().find_map(|text| Wanted::read(text, esp.is_none()));
    let fix = match &wanted {
        Some(wanted) if esp.is_some() => wanted.lines_for_esp(&set, group.free, ours),
        Some(wanted) => {
            let mut lines = wanted.lines_for_ike(&set, group.free);
            lines.extend(wanted.lines_for_pfs(names));
            lines
        }
        None if theirs.is_empty() => vec![format!(
            "{set} proposal {} encryption CIPHER, with one that the peer accepts; its configuration or log says which",
            group.free
        )],
        None => vec![format!(
            "what the peer accepts is not served here, or weak; have it accept {}",
            ours.join(", ")
        )],
    };
    (format!("no common proposal for {of}"), vec![format!("we accept {}", ours.join(", ")), accepted], fix)
}

/// The first algorithm of each kind of a proposal that can be advised, in the words of the configuration.
#[derive(Default)]
struct Wanted<'a> {
    encryption: &'a str,
    hash: Option<&'a str>,
    prf: Option<&'a str>,
    group: Option<u16>,
}

impl<'a> Wanted<'a> {
    /// Reads what [`describe`](tunnel::ikev2::proposal::describe) has written; `None` if we lack something that it needs, or
    /// if that is weak: nobody is told to weaken a connection. IKE needs a group and a function for keys, ESP may do without.
    fn read(text: &'a str, is_ike: bool) -> Option<Self> {
        let (mut wanted, mut has_weak_group) = (Self::default(), false);
        for word in text.split('-') {
            if let Some(group) = exchange::Group::ALL.iter().find(|group| group.name() == word) {
                let is_weak = DhGroup(group.id()).is_weak();
                has_weak_group |= is_weak;
                wanted.group = wanted.group.or(Some(group.id()).filter(|_| !is_weak));
            } else if word == "sha1" || word == "prfsha1" {
                // Named only to be passed over.
            } else if word.starts_with("prf") && prf_by_name(word).is_some() {
                wanted.prf = wanted.prf.or(Some(word));
            } else if Integrity::ALL.iter().any(|mac| Algorithm::name(*mac) == word) {
                wanted.hash = wanted.hash.or(Some(word));
            } else if wanted.encryption.is_empty()
                && Encryption::by_name(word).is_some_and(|cipher| !cipher.is_weak())
            {
                wanted.encryption = word;
            }
        }
        let authenticates = Encryption::by_name(wanted.encryption)?.authenticates();
        let is_whole = if is_ike {
            wanted.prf.is_some() && wanted.group.is_some()
        } else {
            wanted.group.is_some() || !has_weak_group
        };
        (is_whole && (authenticates || wanted.hash.is_some())).then_some(wanted)
    }

    /// The lines without which new keys of the tunnels would need another group than the one that is advised for IKE: where an
    /// `esp-group` names one, it takes all of IKE's instead.
    fn lines_for_pfs(&self, names: &Names) -> Vec<String> {
        let groups = names.esp_groups.iter().map(|(_, group)| group);
        let other = groups.filter(|group| group.pfs.is_some() && group.pfs != self.group);
        let names: BTreeSet<&str> = other.map(|group| &*group.name).collect();
        names.into_iter().map(|name| format!("set vpn ipsec esp-group {name} pfs enable")).collect()
    }

    /// The cipher, and its MAC if it needs one.
    fn protection(&self, set: &str, number: u16) -> Vec<String> {
        let hash = self.hash.map(|hash| format!("{set} proposal {number} hash {hash}"));
        let encryption = format!("{set} proposal {number} encryption {}", self.encryption);
        [encryption].into_iter().chain(hash).collect()
    }

    fn lines_for_ike(&self, set: &str, number: u16) -> Vec<String> {
        let mut lines = self.protection(set, number);
        lines.extend(self.group.map(|group| format!("{set} proposal {number} dh-group {group}")));
        let of_hash = self.hash.map(|hash| format!("prf{hash}"));
        let prf = self.prf.filter(|prf| of_hash.as_deref() != Some(prf));
        lines.extend(prf.map(|prf| format!("{set} proposal {number} prf {prf}")));
        lines
    }

    /// Where only the groups differ, it is perfect forward secrecy that is to be changed.
    fn lines_for_esp(&self, set: &str, number: u16, ours: &[String]) -> Vec<String> {
        let groups_differ = |ours: &Wanted<'_>| {
            (ours.encryption, ours.hash) == (self.encryption, self.hash) && ours.group != self.group
        };
        if ours.iter().filter_map(|text| Wanted::read(text, false)).any(|ours| groups_differ(&ours)) {
            let pfs = self.group.map_or("disable".to_owned(), |group| format!("dh-group{group}"));
            return vec![format!("{set} pfs {pfs}")];
        }
        self.protection(set, number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let group = |name: &str, free| Group { name: name.to_owned(), free, pfs: None };
        Names {
            peer: "berlin".to_owned(),
            ike_group: group("BERLIN", 2),
            esp_groups: [("berlin-tunnel-7".to_owned(), group("SITES", 3))].into(),
            proof: Proof::Secret("set vpn ipsec authentication psk sites secret".to_owned()),
            local_id: "paris.example".to_owned(),
        }
    }

    fn told(cause: &Cause) -> IpsecFailure {
        told_with(&names(), cause)
    }

    fn told_with(names: &Names, cause: &Cause) -> IpsecFailure {
        let path = Path {
            local: "192.0.2.1:500".parse().expect("literal"),
            remote: "192.0.2.2:500".parse().expect("literal"),
        };
        failure(Some(names), path, true, cause, Duration::from_secs(7))
    }

    #[test]
    fn what_anybody_may_have_said_is_marked() {
        let path = "192.0.2.1:500".parse().expect("literal");
        let path = Path { local: path, remote: path };
        let told = |authentic| failure(None, path, authentic, &Cause::Mode, Duration::ZERO).what;
        assert_eq!(told(false), format!("{} (unauthenticated, from 192.0.2.1)", told(true)));
    }

    #[test]
    fn a_peer_whose_packets_are_those_of_another_is_told_so() {
        let packets = vec![tunnel::ikev2::selectors::host([203, 0, 113, 7].into())];
        let cause = Cause::Contested { packets, owner: "road.example".to_owned() };
        let told = told(&cause);
        assert_eq!(told.what, "packets to 203.0.113.7/32 are those of road.example, which is connected");
        let set = "set vpn ipsec site-to-site peer berlin tunnel 7 remote prefix";
        assert!(told.fix[0].starts_with(set), "{:?}", told.fix);
    }

    fn proposals(of: &str, ours: &str, theirs: &[&str]) -> Vec<String> {
        let theirs = theirs.iter().map(|&text| text.to_owned()).collect();
        told(&Cause::NoProposal { of: of.to_owned(), ours: vec![ours.to_owned()], theirs }).fix
    }

    #[test]
    fn what_the_peer_accepts_for_ike_becomes_a_proposal() {
        let ours = "aes256gcm128-prfsha256-ecp256";
        let set = "set vpn ipsec ike-group BERLIN proposal 2";
        assert_eq!(
            proposals("IKE", ours, &["3des-sha1-prfsha1-modp1024", "aes128-sha256-prfsha256-modp2048"]),
            ["encryption aes128", "hash sha256", "dh-group 14"].map(|words| format!("{set} {words}"))
        );
        assert_eq!(
            proposals("IKE", ours, &["aes128gcm96-prfsha512-prfsha1-x25519"]),
            ["encryption aes128gcm96", "dh-group 31", "prf prfsha512"].map(|words| format!("{set} {words}"))
        );
    }

    #[test]
    fn a_proposal_that_is_not_served_here_is_passed_over() {
        let strange = "encryption transform 23 (256 bits)-sha256-prfsha256-modp2048";
        let fix =
            proposals("IKE", "aes128-sha256-prfsha256-ecp256", &[strange, "aes256-sha256-prfsha256-ecp256"]);
        assert_eq!(fix[0], "set vpn ipsec ike-group BERLIN proposal 2 encryption aes256");
        let fix = proposals("IKE", "aes128-sha256-prfsha256-ecp256", &[strange]);
        assert!(fix[0].contains("have it accept aes128-sha256-prfsha256-ecp256"), "{fix:?}");
    }

    #[test]
    fn nobody_is_told_to_weaken_a_connection() {
        let ours = "aes256gcm128-prfsha256-ecp256";
        for weak in [
            "aes128-sha256-prfsha256-modp1024",
            "aes128-sha256-prfsha256-modp1536",
            "aes128-sha1-prfsha1-modp2048",
            "aes128gcm128-prfsha1-modp2048",
            "3des-sha256-prfsha256-modp2048",
            "aes128gcm64-prfsha256-modp2048",
        ] {
            let fix = proposals("IKE", ours, &[weak]);
            assert!(fix.len() == 1 && fix[0].ends_with(&format!("have it accept {ours}")), "{weak}: {fix:?}");
        }
        let mixed = proposals("IKE", ours, &["3des-aes256-sha1-sha512-prfsha1-prfsha512-modp1024-modp4096"]);
        let set = "set vpn ipsec ike-group BERLIN proposal 2";
        assert_eq!(
            mixed,
            ["encryption aes256", "hash sha512", "dh-group 16"].map(|it| format!("{set} {it}"))
        );
        let of = "berlin-tunnel-7";
        for weak in
            ["aes128-sha1-noesn", "3des-sha256-noesn", "null-sha256-noesn", "aes128-sha256-modp1024-noesn"]
        {
            let fix = proposals(of, "aes128-sha256-ecp256-esn", &[weak]);
            assert!(fix.len() == 1 && fix[0].contains("have it accept"), "{weak}: {fix:?}");
        }
    }

    #[test]
    fn advice_for_ike_lets_the_tunnels_replace_their_keys() {
        let mut names = names();
        names.esp_groups[0].1.pfs = Some(19);
        let theirs = vec!["aes128gcm128-prfsha256-modp2048".to_owned()];
        let ours = vec!["aes256gcm128-prfsha256-ecp256".to_owned()];
        let cause = Cause::NoProposal { of: "IKE".to_owned(), ours, theirs };
        let fix = told_with(&names, &cause).fix;
        assert_eq!(fix.last().map(String::as_str), Some("set vpn ipsec esp-group SITES pfs enable"));
        names.esp_groups[0].1.pfs = Some(14);
        assert!(told_with(&names, &cause).fix.iter().all(|line| !line.contains("pfs")), "it has the group");
    }

    #[test]
    fn what_is_not_served_is_called_so() {
        for (cause, words) in [
            (Cause::Version1, "the peer asks for IKEv1, which is not served"),
            (Cause::AsksEap { identity: "road".to_owned() }, "road asks for EAP, which is not served"),
            (Cause::AsksAddress, "the peer asks for a virtual address, which is not served"),
        ] {
            let told = told(&cause);
            assert_eq!(told.what, words);
            assert!(!told.fix.is_empty());
        }
    }

    #[test]
    fn a_wrong_name_of_ours_is_told_with_the_right_one() {
        let (asked, ours) = ("hub.example".to_owned(), "192.0.2.1".to_owned());
        let fix = told(&Cause::OtherName { asked, ours }).fix;
        assert_eq!(fix[0], "set vpn ipsec site-to-site peer berlin authentication local-id hub.example");
        let fix = told(&Cause::Refused).fix;
        assert!(fix[1].contains("local-id NAME: we say that we are paris.example"), "{fix:?}");
    }

    #[test]
    fn a_call_without_an_answer_is_told_with_its_count() {
        let path = Path {
            local: "192.0.2.1:500".parse().expect("literal"),
            remote: "192.0.2.2:500".parse().expect("literal"),
        };
        let told = unanswered(path, 2, Duration::from_millis(2800), Duration::from_secs(7));
        assert_eq!(
            told.what,
            "192.0.2.2 has not answered 2 messages to UDP port 500 within 3 s, and is called again"
        );
        assert!(told.fix[0].starts_with("ping 192.0.2.2"));
    }

    #[test]
    fn what_the_peer_accepts_for_esp_becomes_a_proposal_or_secrecy() {
        let of = "berlin-tunnel-7";
        let set = "set vpn ipsec esp-group SITES";
        assert_eq!(
            proposals(of, "aes256gcm128-esn-noesn", &["aes128-sha256-noesn"]),
            [format!("{set} proposal 3 encryption aes128"), format!("{set} proposal 3 hash sha256")]
        );
        assert_eq!(
            proposals(of, "aes128-sha256-ecp256-esn", &["aes128-sha256-modp2048-noesn"]),
            [format!("{set} pfs dh-group14")]
        );
        assert_eq!(
            proposals(of, "aes128-sha256-ecp256-esn", &["aes128-sha256-noesn"]),
            [format!("{set} pfs disable")]
        );
    }

    #[test]
    fn a_peer_that_does_not_say_what_it_accepts_is_to_be_asked() {
        let fix = proposals("IKE", "aes256gcm128-prfsha256-ecp256", &[]);
        assert!(fix[0].starts_with("set vpn ipsec ike-group BERLIN proposal 2 encryption"), "{fix:?}");
    }

    #[test]
    fn a_wrong_secret_is_named_as_the_configuration_names_it() {
        let cause = Cause::NotAuthentic {
            identity: "192.0.2.2".to_owned(),
            why: Unproved::Proof("the pre-shared keys differ".to_owned()),
        };
        assert!(told(&cause).fix[0].starts_with("set vpn ipsec authentication psk sites secret SECRET"));
    }

    #[test]
    fn an_identity_can_be_typed_as_it_is_told() {
        let set = "set vpn ipsec site-to-site peer berlin authentication remote-id";
        for (identity, typed) in [
            ("moon", "moon"),
            ("C=CH, O=strongSwan, CN=moon", "'C=CH, O=strongSwan, CN=moon'"),
            ("@#0a1b", "'@#0a1b'"),
            ("o'hara", "'o'\"'\"'hara'"),
        ] {
            let other = Cause::NotAuthentic { identity: identity.to_owned(), why: Unproved::Identity };
            for cause in [other, Cause::NoSuchPeer { identity: identity.to_owned() }] {
                let fix = told(&cause).fix;
                assert_eq!(fix, [format!("{set} {typed}")]);
                let tree = config::parse(&fix[0]).unwrap_or_else(|errors| panic!("{errors:?}"));
                let peer = tree.at(&["vpn", "ipsec", "site-to-site", "peer", "berlin", "authentication"]);
                assert_eq!(peer.and_then(|tree| tree.value("remote-id")), Some(identity));
            }
        }
    }

    #[test]
    fn a_call_to_another_address_of_ours_is_told_from_one_of_a_stranger() {
        let ours = told(&Cause::NoConnection);
        assert_eq!(ours.fix[0], "set vpn ipsec site-to-site peer berlin local-address 192.0.2.1");
        let path = Path {
            local: "192.0.2.1:500".parse().expect("literal"),
            remote: "192.0.2.2:500".parse().expect("literal"),
        };
        let unknown = failure(None, path, true, &Cause::NoConnection, Duration::from_secs(7));
        assert_eq!(unknown.fix, ["set vpn ipsec site-to-site peer NAME remote-address 192.0.2.2"]);
    }

    #[test]
    fn what_a_peer_wants_in_the_tunnel_is_told_in_words_that_there_are() {
        let address = |text: &str| text.parse::<IpAddr>().expect("literal");
        let range = TrafficSelector {
            protocol: 17,
            ports: 53..=53,
            addresses: address("10.3.0.0")..=address("10.3.0.2"),
        };
        let told = told(&Cause::NoSelectors { ours: [vec![], vec![]], theirs: [vec![range], vec![]] });
        let set = "set vpn ipsec site-to-site peer berlin tunnel 7";
        let lines = ["local prefix 10.3.0.0/31", "local prefix 10.3.0.2/32", "protocol 17", "local port 53"];
        assert_eq!(told.fix, lines.map(|words| format!("{set} {words}")));
        let text: String = told.fix.iter().map(|line| line.to_owned() + "\n").collect();
        assert!(config::parse(&text).is_ok(), "{text}");
    }

    #[test]
    fn who_has_no_secret_is_not_told_to_set_one() {
        let unknown = Cause::NotAuthentic {
            identity: "moon".to_owned(),
            why: Unproved::Proof("nobody who is trusted has signed it".to_owned()),
        };
        for (proof, words) in [(Proof::Certificate, "x509 "), (Proof::Key, "rsa ")] {
            let names = Names { proof, ..names() };
            for cause in [&unknown, &Cause::Refused] {
                let fix = told_with(&names, cause).fix;
                let is_right = fix[0].contains(&format!("authentication {words}"));
                assert!(is_right && !fix[0].contains("secret"), "{fix:?}");
            }
        }
    }

    #[test]
    fn sha1_is_what_is_left_when_all_else_fails() {
        let names = Names { proof: Proof::Certificate, ..names() };
        let theirs = Cause::NotAuthentic { identity: "moon".to_owned(), why: Unproved::Sha1 };
        for cause in [theirs, Cause::OnlySha1] {
            let told = told_with(&names, &cause);
            assert!(told.what.contains("SHA-1"), "{}", told.what);
            let line = "set vpn ipsec site-to-site peer berlin authentication x509 accept-sha1";
            let last = told.fix.last().expect("there are some");
            assert!(last.starts_with(line) && last.contains("last resort"), "{last}");
            assert!(config::parse(line).is_ok());
            let fix = told_with(&Names { proof: Proof::Key, ..names.clone() }, &cause).fix;
            assert!(fix.iter().all(|line| !line.contains("accept-sha1")), "{fix:?}");
        }
    }

    #[test]
    fn selectors_are_told_from_both_sides_and_mended_from_here() {
        let net = |text: &str| {
            let net: IpNet = text.parse().expect("literal");
            vec![TrafficSelector {
                protocol: 0,
                ports: 0..=u16::MAX,
                addresses: net.network()..=net.broadcast(),
            }]
        };
        let told = told(&Cause::NoSelectors {
            ours: [net("10.1.0.0/16"), net("10.2.0.0/16")],
            theirs: [net("10.3.0.0/16"), net("10.2.0.0/16")],
        });
        assert_eq!(
            told.details,
            [
                "here: local 10.1.0.0/16, remote 10.2.0.0/16",
                "the peer: local 10.2.0.0/16, remote 10.3.0.0/16"
            ]
        );
        let set = "set vpn ipsec site-to-site peer berlin tunnel 7";
        assert_eq!(
            told.fix,
            [format!("{set} local prefix 10.3.0.0/16"), format!("{set} remote prefix 10.2.0.0/16")]
        );
    }
}
