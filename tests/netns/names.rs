//! Peers that are found by name, and peers with several addresses.

use crate::closed;
use crate::daemon::key_pair;
use crate::ipsec::{Gateway, configuration};
use crate::support::{PATIENCE, sites, without};
use lab::{Lab, wait_until};
use rustix::process::Signal;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::time::Duration;

/// The files of /etc that the processes of a namespace see; removed with it.
pub(crate) struct Etc(PathBuf);

impl Etc {
    fn new(lab: &Lab, site: &str) -> Self {
        let folder = PathBuf::from("/etc/netns").join(lab.namespace(site));
        std::fs::create_dir_all(&folder).expect("a directory");
        Self(folder)
    }

    /// Writes a file in place: a process that has started sees the new content.
    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).expect("a file");
    }
}

impl Drop for Etc {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
        // It is shared with the user's own namespaces, if there are any.
        let _ = std::fs::remove_dir("/etc/netns");
    }
}

/// Has the first site take names from a file alone, which has none yet.
pub(crate) fn hosts_file(lab: &Lab) -> Etc {
    hosts_file_of(lab, "a")
}

/// The same of any site.
pub(crate) fn hosts_file_of(lab: &Lab, site: &str) -> Etc {
    let etc = Etc::new(lab, site);
    etc.write("hosts", "127.0.0.1 localhost\n");
    etc.write("nsswitch.conf", "hosts: files\n");
    etc
}

/// Has the first site ask a resolver for names that never answers: it waits 150 s for each.
pub(crate) fn silent_resolver(lab: &Lab) -> (Etc, UdpSocket) {
    let etc = Etc::new(lab, "a");
    etc.write("nsswitch.conf", "hosts: dns\n");
    etc.write("resolv.conf", "nameserver 192.168.77.2\noptions timeout:30 attempts:5\n");
    let resolver = lab.enter("b", || UdpSocket::bind("192.168.77.2:53")).expect("entered").expect("free");
    resolver.set_read_timeout(Some(PATIENCE)).expect("a socket");
    (etc, resolver)
}

const REMOTE: &str = "set vpn ipsec site-to-site peer other remote-address";

/// The configuration of the first site, with another remote address for its peer.
fn with_remote(remote: &str) -> String {
    let (given, wanted) = (format!("{REMOTE} 192.168.77.2\n"), format!("{REMOTE} {remote}\n"));
    let text = configuration(0);
    assert!(text.contains(&given), "{text}");
    text.replace(&given, &wanted)
}

/// The second site, which waits to be called.
fn second(lab: &mut Lab) -> Gateway {
    let mut gateway = Gateway::new(lab, "b");
    gateway.write(&configuration(1));
    gateway.0.start(lab);
    gateway
}

#[test]
fn a_peer_whose_name_gets_an_address_later_is_called() {
    let Some(mut lab) = sites() else { return };
    let etc = hosts_file(&lab);
    let mut a = Gateway::new(&lab, "a");
    a.write(&with_remote("branch.invalid"));
    a.0.start(&mut lab);
    let _b = second(&mut lab);
    a.comes_up("second");
    assert!(a.spis("other").is_empty());
    let log = std::fs::read_to_string(&a.0.log).expect("it logs");
    assert!(log.contains("branch.invalid has no address now"), "{log}");
    etc.write("hosts", "127.0.0.1 localhost\n192.168.77.2 branch.invalid\n");
    a.comes_up("other");
}

#[test]
fn a_peer_that_a_reload_adds_and_whose_name_gets_an_address_later_is_in_force() {
    let Some(mut lab) = sites() else { return };
    let etc = hosts_file(&lab);
    let with = with_remote("branch.invalid");
    let before = without(&with, "site-to-site peer other ");
    let mut a = Gateway::new(&lab, "a");
    a.write(&before);
    a.0.start(&mut lab);
    a.write(&with);
    let said = a.0.reload();
    assert!(said.contains("branch.invalid has no address now") && said.contains("retried every"), "{said}");
    assert!(said.contains(" is in force") && !said.contains("is unchanged"), "{said}");
    // It is part of what is in force: the same file changes nothing.
    let said = a.0.reload();
    assert!(!said.contains("+ vpn ipsec"), "{said}");
    let _b = second(&mut lab);
    etc.write("hosts", "127.0.0.1 localhost\n192.168.77.2 branch.invalid\n");
    a.comes_up("other");
}

#[test]
fn a_peer_that_is_not_at_its_first_address_is_called_at_its_next() {
    let Some(mut lab) = sites() else { return };
    let mut a = Gateway::new(&lab, "a");
    a.write(&(with_remote("192.168.77.9") + &format!("{REMOTE} 192.168.77.2\n")));
    a.0.start(&mut lab);
    let _b = second(&mut lab);
    a.comes_up("second");
    a.comes_up("other");
    assert_eq!(a.peer("other")["ike"]["remote"], "192.168.77.2:4500");
}

#[test]
fn a_daemon_that_waits_for_a_resolver_can_be_ended() {
    let Some(mut lab) = sites() else { return };
    let (_etc, resolver) = silent_resolver(&lab);
    let mut a = Gateway::new(&lab, "a");
    a.write(&with_remote("branch.invalid"));
    let process = a.0.spawn(&mut lab);
    resolver.recv(&mut [0; 512]).expect("the resolver is asked, and says nothing");
    process.signal(Signal::TERM);
    wait_until(PATIENCE, || lab.ended(process).is_some()).expect("it ends");
    assert!(lab.ip("a", "link show ipsec0").is_err(), "its interface is gone");
}

#[test]
fn open_at_exit_counts_while_the_configuration_that_has_it_waits_for_a_resolver() {
    let Some(mut lab) = closed::lab() else { return };
    let (_etc, resolver) = silent_resolver(&lab);
    let open = with_remote("branch.invalid") + "set system open-at-exit\n";
    let before = configuration(0);
    let mut a = Gateway::new(&lab, "a");
    for is_started_with_it in [true, false] {
        a.write(if is_started_with_it { &open } else { &before });
        let process = a.0.spawn(&mut lab);
        if !is_started_with_it {
            wait_until(PATIENCE, || a.0.socket.exists()).expect("it serves");
            a.write(&open);
            process.signal(Signal::HUP);
        }
        resolver.recv(&mut [0; 512]).expect("the resolver is asked, and says nothing");
        assert!(closed::traces(&lab).contains("10.20.0.0/16"), "closed, as long as it runs");
        process.signal(Signal::TERM);
        wait_until(PATIENCE, || lab.ended(process).is_some()).expect("it ends");
        assert_eq!(closed::traces(&lab), "", "started with it: {is_started_with_it}");
    }
}

#[test]
fn an_interface_that_is_deleted_while_a_reload_waits_for_a_resolver_is_told_not_to_be_in_force() {
    let Some(mut lab) = sites() else { return };
    let (_etc, resolver) = silent_resolver(&lab);
    let wg0 = format!("set interfaces wireguard wg0 private-key {}\n", key_pair().0);
    let with = with_remote("branch.invalid") + &wg0;
    let before = without(&with, "site-to-site peer other ");
    let mut a = Gateway::new(&lab, "a");
    a.write(&before);
    a.0.start(&mut lab);
    a.write(&with);
    let said = std::thread::scope(|scope| {
        let reload = scope.spawn(|| a.0.reload());
        let mut question = [0; 512];
        let (mut length, mut from) = resolver.recv_from(&mut question).expect("the resolver is asked");
        lab.ip("a", "link delete wg0").expect("it goes");
        wait_until(PATIENCE, || a.0.logged().contains("interface wg0 is gone")).expect("it is noticed");
        resolver.set_read_timeout(Some(Duration::from_millis(50))).expect("a socket");
        while !reload.is_finished() {
            if length > 4 {
                // There is no such name.
                question[2..4].copy_from_slice(&[0x81, 0x83]);
                resolver.send_to(&question[..length], from).expect("it is sent");
            }
            (length, from) = resolver.recv_from(&mut question).unwrap_or((0, from));
        }
        reload.join().expect("it ends")
    });
    assert!(said.contains("is not in force for wg0, deleted while it was applied"), "{said}");
    assert!(!said.contains(" is in force"), "{said}");
    a.write(&before);
    let said = a.0.reload();
    assert!(said.contains("is in force") && lab.ip("a", "link show wg0").is_ok(), "{said}");
}

#[test]
fn a_peer_that_is_refused_keeps_its_groups_until_it_is_accepted() {
    let Some(mut lab) = sites() else { return };
    let mut a = Gateway::new(&lab, "a");
    a.write(&configuration(0));
    a.0.start(&mut lab);
    let b = second(&mut lab);
    a.comes_up("other");
    let spis = a.spis("other");
    let other_cipher = |text: String| {
        text.replace(
            "esp-group SITES proposal 1 encryption aes256gcm128",
            "esp-group SITES proposal 1 encryption aes128gcm128",
        )
    };
    a.write(&other_cipher(with_remote("nowhere.invalid")));
    let said = a.0.reload();
    assert!(said.contains("nowhere.invalid has no address now") && said.contains("is unchanged"), "{said}");
    assert_eq!(a.spis("other"), spis, "the session is kept");
    let cipher = |gateway: &Gateway| gateway.says("show vpn ipsec sa detail");
    assert!(!cipher(&a).contains("ESP:AES_GCM_16-128"), "{}", cipher(&a));
    // The same file, with an address that is one: what was refused is tried again, with the new group.
    b.write(&other_cipher(configuration(1)));
    assert!(b.0.reload().contains("in force"));
    a.write(&other_cipher(configuration(0)));
    let said = a.0.reload();
    assert!(said.contains("is in force") && !said.contains("is unchanged"), "{said}");
    a.says("reset vpn ipsec site-to-site peer other");
    let changed = || a.spis("other").len() == 1 && cipher(&a).matches("ESP:AES_GCM_16-128").count() >= 1;
    wait_until(PATIENCE, changed).unwrap_or_else(|error| panic!("{error}: {}", cipher(&a)));
}
