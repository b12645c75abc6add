//! The examples are accepted, without a warning.

use config::settings::ipsec::{Peer, Remote, Start};
use std::path::Path;
use std::sync::Arc;

/// The IPsec peer of an example.
fn peer(file: &str, name: &str) -> Arc<Peer> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(file);
    let tree = config::parse(&std::fs::read_to_string(path).expect("it is text")).expect("right");
    let (mut settings, _) = config::Settings::new(&tree).expect("right");
    settings.ipsec.peers.remove(name).expect("it is there")
}

#[test]
fn the_two_sites_of_ipsec_are_each_other_s_half() {
    let (a, b) = (peer("ipsec-site-a.conf", "site-b"), peer("ipsec-site-b.conf", "site-a"));
    assert_eq!(a.remote_addresses, [Remote::Address(b.local_address.expect("set"))]);
    assert_eq!(b.remote_addresses, [Remote::Address(a.local_address.expect("set"))]);
    assert_eq!((&a.local_id, &a.remote_id), (&b.remote_id, &b.local_id));
    assert_eq!((&a.authentication, &a.ike), (&b.authentication, &b.ike));
    let (ours, theirs) = (&a.tunnels[&1], &b.tunnels[&1]);
    assert_eq!((&ours.local, &ours.remote, &ours.esp), (&theirs.remote, &theirs.local, &theirs.esp));
    assert_eq!((a.start, b.start), (Start::Initiate, Start::Respond));
}

#[test]
fn every_example_is_right() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let entries = std::fs::read_dir(folder).expect("it is there").flatten();
    let examples: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|it| it == "conf"))
        .collect();
    assert!(!examples.is_empty());
    for path in examples {
        let text = std::fs::read_to_string(&path).expect("it is text");
        let checked = config::parse(&text).and_then(|tree| config::Settings::new(&tree));
        let (settings, warnings) = checked.unwrap_or_else(|errors| {
            let file = path.display().to_string();
            let said: Vec<String> =
                errors.iter().map(|error| error.in_text(&file, &text).to_string()).collect();
            panic!("{}", said.join("\n"))
        });
        assert!(warnings.is_empty(), "{}: {warnings:?}", path.display());
        let serves_tunnels = !settings.wireguard.is_empty()
            || !settings.openvpn.is_empty()
            || !settings.ipsec.peers.is_empty()
            || !settings.secgw.is_empty();
        assert!(serves_tunnels, "{}", path.display());
    }
}
