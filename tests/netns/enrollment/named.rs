//! Head office is reached at a name, whose address changes.

use super::Offices;
use crate::names::{Etc, hosts_file_of};
use crate::support::PATIENCE;
use lab::{Lab, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::time::Duration;

/// WireGuard gives up a session that has not answered after 15 s, and the handshake after it after 5 s; then names are looked up every 5 s.
const NOTICED: Duration = Duration::from_secs(60);

/// Two offices, of which the branch knows the name of head office by its hosts file.
fn named(more: &[&str]) -> Option<(Offices, Etc)> {
    let mut etc = None;
    let reached = [&["host-name head.invalid"], more].concat();
    let prepare = |lab: &Lab| {
        let files = hosts_file_of(lab, "b");
        // It is not asked, and it is behind a tunnel for everything.
        files.write("resolv.conf", "nameserver 198.51.100.53\n");
        etc = Some(files);
    };
    let offices = Offices::beside(&[], prepare, &reached)?;
    Some((offices, etc?))
}

fn is_at(etc: &Etc, address: &str) {
    etc.write("hosts", &format!("127.0.0.1 localhost\n{address} head.invalid\n"));
}

/// Head office starts anew at another address, and its name says so. It does not know where the branch is, which must call it.
fn moves(offices: &mut Offices, etc: &Etc) {
    offices.head.signal(Signal::TERM);
    let process = offices.head.process.expect("it was started");
    wait_until(PATIENCE, || offices.lab.ended(process).is_some()).expect("it ends");
    offices.lab.ip("a", "address delete 192.168.77.1/24 dev outside").expect("it has it");
    offices.lab.ip("a", "address add 192.168.77.7/24 dev outside").expect("a free address");
    is_at(etc, "192.168.77.7");
    offices.head.start(&mut offices.lab);
    wait_until(NOTICED, || offices.devices_meet())
        .unwrap_or_else(|error| panic!("{error}: {}", offices.branch.logged()));
    let logged = offices.branch.logged();
    assert!(logged.contains("head.invalid is 192.168.77.7"), "it was looked up: {logged}");
    assert_eq!(offices.branch.peer("head-office")["endpoint"], "192.168.77.7:51820");
}

#[test]
fn a_branch_joins_by_name_and_follows_head_office_to_another_address() {
    let Some((mut offices, etc)) = named(&[]) else { return };
    let token = offices.token(&[]);
    let said = offices.refused(&token);
    assert!(
        said.contains("head.invalid: the name cannot be looked up") && said.contains("getent ahosts"),
        "{said}"
    );
    is_at(&etc, "192.168.77.1");
    offices.joins(&token);
    assert!(offices.devices_meet(), "{}", offices.branch.logged());
    let saved = Offices::saved(&offices.branch);
    for line in ["host-name head.invalid", "port 51820", "backup-address 192.168.77.1"] {
        assert!(saved.contains(&format!("peer head-office {line}\n")), "{line}: {saved}");
    }
    moves(&mut offices, &etc);
}

#[test]
fn a_branch_joins_by_an_address_while_the_name_has_none() {
    let Some((mut offices, etc)) = named(&["address 192.168.77.1"]) else { return };
    let created = offices.enroll(&["create", "berlin", "--networks", "10.2.0.0/24"]);
    let mistyped = "host-name head.invalid cannot be looked up here";
    assert!(created["warnings"].to_string().contains(mistyped), "{created}");
    let token = created["token"].as_str().expect("text");
    let output = offices.run(&offices.branch, "b", &["join", "--json", token]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{}", offices.branch.logged());
    let joined: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&joined["host_name"], &joined["endpoint"]), (&"head.invalid".into(), &Value::Null));
    assert!(
        joined["warnings"].to_string().contains("head.invalid: the name cannot be looked up"),
        "{joined}"
    );
    let saved = Offices::saved(&offices.branch);
    assert!(saved.contains("head-office host-name head.invalid"), "{saved}");
    assert!(saved.contains("head-office backup-address 192.168.77.1"), "{saved}");
    assert!(offices.devices_meet());
    // The name is what counts once that address is gone.
    moves(&mut offices, &etc);
}

#[test]
fn a_branch_joins_although_the_first_address_of_the_name_is_dead() {
    let Some((offices, etc)) = named(&[]) else { return };
    etc.write("hosts", "192.168.77.99 head.invalid\n192.168.77.1 head.invalid\n");
    offices.joins(&offices.token(&[]));
    assert!(offices.devices_meet(), "{}", offices.branch.logged());
    assert_eq!(offices.branch.peer("head-office")["endpoint"], "192.168.77.1:51820");
    assert!(Offices::saved(&offices.branch).contains("head-office backup-address 192.168.77.1\n"));
}

#[test]
fn a_branch_that_sends_everything_through_the_tunnel_hears_that_its_resolver_is_behind_it() {
    let Some((offices, etc)) = named(&["network 0.0.0.0/0"]) else { return };
    is_at(&etc, "192.168.77.1");
    let token = offices.token(&[]);
    let join = ["join", "--json", "--allow", "0.0.0.0/0", &token];
    let output = offices.run(&offices.branch, "b", &join);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{}", offices.branch.logged());
    let joined: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let warnings = joined["warnings"].to_string();
    assert!(warnings.contains("its name cannot be looked up while the tunnel is down"), "{warnings}");
    assert!(warnings.contains("route 198.51.100.53/32 next-hop"), "{warnings}");
    assert!(!warnings.contains("has no peer"), "that was so before it had joined: {warnings}");
}
