//! Every proposal that both sides have: each a tunnel, or a peer, of its own, all at once in one pair of daemons.

use super::{Ours, TheirSa, ours, pings, sites, theirs};
use lab::Lab;
use lab::strongswan::StrongSwan;
use std::fmt::Write as _;

/// Ciphers that authenticate, by the names that both sides have for them.
const COMBINED: &[&str] = &[
    "aes128gcm8",
    "aes192gcm8",
    "aes256gcm8",
    "aes128gcm12",
    "aes192gcm12",
    "aes256gcm12",
    "aes128gcm16",
    "aes192gcm16",
    "aes256gcm16",
    "aes128ccm8",
    "aes192ccm8",
    "aes256ccm8",
    "aes128ccm12",
    "aes192ccm12",
    "aes256ccm12",
    "aes128ccm16",
    "aes192ccm16",
    "aes256ccm16",
    "chacha20poly1305",
];
/// Ciphers that need a MAC.
const PLAIN: &[&str] = &["aes128", "aes192", "aes256", "aes128ctr", "aes192ctr", "aes256ctr", "3des"];
const HASHES: &[&str] = &["sha1", "sha256", "sha384", "sha512", "aesxcbc"];
/// Groups by their number, and by charon's name.
const GROUPS: &[(u8, &str)] = &[
    (31, "curve25519"),
    (19, "ecp256"),
    (20, "ecp384"),
    (21, "ecp521"),
    (14, "modp2048"),
    (2, "modp1024"),
    (5, "modp1536"),
    (15, "modp3072"),
    (16, "modp4096"),
    (17, "modp6144"),
    (18, "modp8192"),
];
/// What the peer's ESP in user space does not have: its AEADs are those that IKE uses, and AES-GMAC is none of them.
const NOT_THEIRS: &[&str] = &["aes128gmac", "aes192gmac", "aes256gmac"];

/// Each cipher with each MAC that it needs.
fn ciphers() -> Vec<(&'static str, Option<&'static str>)> {
    let with_mac = PLAIN.iter().flat_map(|&cipher| HASHES.iter().map(move |&hash| (cipher, Some(hash))));
    COMBINED.iter().map(|&cipher| (cipher, None)).chain(with_mac).collect()
}

/// An address in each of so many networks of charon, without which it sets up no tunnel.
fn add_addresses(lab: &Lab, count: usize) {
    for number in 1..=count {
        lab.ip("b", &format!("address add 10.2.{number}.1/24 dev lo")).expect("an address");
    }
}

/// Pings from a to b through each tunnel; says which do not answer, and how often.
fn silent(lab: &Lab, count: usize) -> Vec<(usize, u32)> {
    let answered = |number: usize| {
        let (from, to) = (format!("10.1.{number}.1"), format!("10.2.{number}.1"));
        pings(lab, "a", &to, &["-c", "3", "-i", "0.05", "-W", "5", "-s", "1200", "-I", &from]).1
    };
    (1..=count).map(|number| (number, answered(number))).filter(|(_, answered)| *answered != 3).collect()
}

#[test]
fn every_esp_proposal_of_both_carries_packets() {
    let Some(mut lab) = sites() else { return };
    let mut proposals = ciphers();
    proposals.extend(HASHES.iter().map(|&hash| ("null", Some(hash))));
    let (mut ours_more, mut children) = (Vec::new(), String::new());
    for (index, (cipher, hash)) in proposals.iter().enumerate() {
        let number = index + 1;
        let (group, their_group) = GROUPS[index % GROUPS.len()];
        ours_more.push(format!("esp-group E{number} proposal 1 encryption {cipher}"));
        ours_more.extend(hash.map(|hash| format!("esp-group E{number} proposal 1 hash {hash}")));
        ours_more.push(format!("esp-group E{number} pfs dh-group{group}"));
        ours_more.push(format!("PEER tunnel {number} esp-group E{number}"));
        ours_more.push(format!("PEER tunnel {number} local prefix 10.1.{number}.0/24"));
        ours_more.push(format!("PEER tunnel {number} remote prefix 10.2.{number}.0/24"));
        let theirs =
            [Some(*cipher), *hash, Some(their_group)].into_iter().flatten().collect::<Vec<_>>().join("-");
        let _ = write!(
            children,
            "child{number} {{ local_ts = 10.2.{number}.0/24\n remote_ts = 10.1.{number}.0/24\n\
             esp_proposals = {theirs}\n }}\n"
        );
    }
    add_addresses(&lab, proposals.len());
    let ours_more: Vec<&str> = ours_more.iter().map(String::as_str).collect();
    let configuration = ours(&ours_more)
        .replace("set vpn ipsec site-to-site peer b tunnel 1 local prefix 10.1.0.0/24\n", "")
        .replace("set vpn ipsec site-to-site peer b tunnel 1 remote prefix 10.2.0.0/24\n", "");
    let swanctl = theirs("", "").replace("children { net {", &format!("children {{ {children} net {{"));
    let charon = StrongSwan::start(&mut lab, "b", &swanctl, "").expect("it starts");
    let daemon = Ours::start(&mut lab, "a", &configuration);
    daemon.wait_for_tunnels(&lab, &charon);
    let silent: Vec<_> =
        silent(&lab, proposals.len()).into_iter().map(|(number, of)| (proposals[number - 1], of)).collect();
    assert!(silent.is_empty(), "{silent:?}\n{}", daemon.tell(&charon));
}

#[test]
fn what_charons_esp_lacks_is_refused_by_it_alone() {
    let Some(mut lab) = sites() else { return };
    let (cipher, charon) = (NOT_THEIRS[2], theirs("", "esp_proposals = aes256gmac"));
    let charon = StrongSwan::start(&mut lab, "b", &charon, "").expect("it starts");
    let daemon = Ours::start(&mut lab, "a", &ours(&[&format!("esp-group E proposal 1 encryption {cipher}")]));
    daemon.wait(&charon, "charon refuses", || !daemon.peer()["failure"].is_null());
    assert!(TheirSa::all(&charon.sas(&lab).expect("it answers")).is_empty());
    assert!(charon.log().contains("unable to install"), "{}", daemon.tell(&charon));
}

/// A proposal for IKE.
struct Ike {
    cipher: &'static str,
    hash: Option<&'static str>,
    prf: &'static str,
    group: (u8, &'static str),
}

fn ike_proposals() -> Vec<Ike> {
    let with = |index: usize, (cipher, hash)| Ike {
        cipher,
        hash,
        prf: ["prfsha256", "prfsha384", "prfsha512", "prfsha1", "prfaesxcbc"][index % 5],
        group: GROUPS[index % GROUPS.len()],
    };
    ciphers().into_iter().enumerate().map(|(index, it)| with(index, it)).collect()
}

#[test]
fn every_ike_proposal_of_both_makes_a_tunnel() {
    let Some(mut lab) = sites() else { return };
    let proposals = ike_proposals();
    add_addresses(&lab, proposals.len());
    let (mut more, mut connections) = (String::new(), String::new());
    for (index, Ike { cipher, hash, prf, group: (group, their_group) }) in proposals.iter().enumerate() {
        let (number, address) = (index + 1, format!("192.168.77.{}", 101 + index));
        lab.ip("b", &format!("address add {address}/24 dev outside")).expect("an address");
        // Every second is called by charon.
        let (our_start, their_start) = if index % 2 == 0 { ("initiate", "none") } else { ("none", "start") };
        let mut set = |line: &str| {
            let _ = writeln!(more, "set vpn ipsec {line}");
        };
        set(&format!("ike-group I{number} proposal 1 encryption {cipher}"));
        if let Some(hash) = hash {
            set(&format!("ike-group I{number} proposal 1 hash {hash}"));
        }
        set(&format!("ike-group I{number} proposal 1 prf {prf}"));
        set(&format!("ike-group I{number} proposal 1 dh-group {group}"));
        set(&format!("authentication psk sites id {address}"));
        for line in [
            "authentication mode pre-shared-secret",
            "authentication local-id 192.168.77.1",
            &format!("authentication remote-id {address}"),
            &format!("connection-type {our_start}"),
            &format!("ike-group I{number}"),
            "default-esp-group E",
            "local-address 192.168.77.1",
            &format!("remote-address {address}"),
            &format!("tunnel 1 local prefix 10.1.{number}.0/24"),
            &format!("tunnel 1 remote prefix 10.2.{number}.0/24"),
        ] {
            set(&format!("site-to-site peer p{number} {line}"));
        }
        let ike = [Some(*cipher), *hash, Some(prf), Some(their_group)];
        let ike = ike.into_iter().flatten().collect::<Vec<_>>().join("-");
        let _ = write!(
            connections,
            "connections {{ site{number} {{\n version = 2\n local_addrs = {address}\n\
             remote_addrs = 192.168.77.1\n proposals = {ike}\n encap = yes\n\
             local {{ auth = psk\n id = {address}\n }}\n remote {{ auth = psk\n id = 192.168.77.1\n }}\n\
             children {{ net{number} {{ local_ts = 10.2.{number}.0/24\n remote_ts = 10.1.{number}.0/24\n\
             esp_proposals = aes256gcm16\n start_action = {their_start}\n }} }} }} }}\n"
        );
    }
    let configuration: String = ours(&[])
        .lines()
        .filter(|line| !line.contains("peer b"))
        .map(|line| format!("{line}\n"))
        .chain([more])
        .collect();
    let daemon = Ours::start(&mut lab, "a", &configuration);
    let charon = StrongSwan::start(&mut lab, "b", &(theirs("", "") + &connections), "").expect("it starts");
    daemon.wait_for_tunnels(&lab, &charon);
    let silent = silent(&lab, proposals.len());
    assert!(silent.is_empty(), "{silent:?}\n{}", daemon.tell(&charon));
}
