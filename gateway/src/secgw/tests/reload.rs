//! A file that is read again while packets pass.

use super::super::used_keys::UsedKeys;
use super::*;
use config::secgw::settings::Direction;
use packet::DropReason::Replayed;
use tunnel::Time;

impl Scene {
    fn reload(&mut self, file: &str) -> Vec<String> {
        let plan = plan(file, WORDS).unwrap_or_else(|refused| panic!("{refused:?}"));
        let control = Control::new(Arc::clone(&self.statistics), Arc::new(AwsLc), "x.cfg");
        control.replace(&plan).expect("the engine has the cipher")
    }
}

#[test]
fn what_is_the_same_goes_on_after_a_reload_and_the_rest_is_new() {
    let mut scene = Scene::new(&file());
    let inner = ours(&packet(ICMP, [192, 168, 2, 2], 0, &[8, 0, 1, 2, 3, 4, 5, 6]));
    let [_, sent] = scene.carry(0, &[inner.clone(), inner.clone()]);
    let arrived = |sent: &[u8]| [&OURS[..], &sent[6..]].concat();
    let first = arrived(&sent[0]);
    assert_eq!(scene.carry(1, std::slice::from_ref(&first))[0].len(), 1);
    // A line before all others moves them; SA 6 has another key, port 1 another station, and 192.168.3.0 is discarded.
    let changed = file()
        .replacen("bypass", "discard", 1)
        .replace("02:00:00:00:00:0f", "02:00:00:00:00:0e")
        .replace(&["b2"; 20].join(":"), &["b3"; 20].join(":"));
    let changes = scene.reload(&format!("\n{changed}"));
    for change in ["- sa out 6", "+ sa in 6", "sp out: 1 lines added, 1 removed", "neigh: 1 lines"] {
        assert!(changes.iter().any(|line| line.starts_with(change)), "{change}: {changes:?}");
    }
    assert_eq!(changes.len(), 6, "{changes:?}");
    let [_, sent] = scene.carry(0, &[inner]);
    assert_eq!(sent[0][..6], [2, 0, 0, 0, 0, 14], "the new station");
    assert_eq!(sent[0][34..42], [0, 0, 0, 5, 0, 0, 0, 3], "the number follows those before");
    assert_eq!(scene.carry(1, &[first]), NOTHING, "the window knows what was accepted before");
    assert_eq!(scene.carry(1, &[arrived(&sent[0])])[0].len(), 1);
    let to_3 = ours(&packet(ICMP, [192, 168, 3, 2], 0, &[8, 0, 1, 2, 3, 4, 5, 6]));
    assert_eq!(scene.carry(0, &[to_3]), NOTHING, "the verdict is that of the new file");
    let shown = scene.statistics.show();
    assert_eq!(shown.reloads, 1);
    let sa = |direction: &str| shown.sas.iter().find(|sa| sa.direction == direction && sa.spi == 5);
    let (sa_out, sa_in) = (sa("out").expect("it is there"), sa("in").expect("it is there"));
    assert_eq!((sa_out.packets, sa_out.line, sa_in.packets), (3, 7, 2));
    assert_eq!((&*sa_in.drops[0].reason, sa_in.drops[0].packets), (Replayed.name(), 1));
    let protect = &shown.rules[0];
    assert_eq!(
        (protect.line, &*protect.action, protect.packets, protect.bytes),
        (Some(2), "protect 5", 3, 3 * 28)
    );
    assert_eq!(scene.dropped(), [(Replayed, 1), (DropReason::Denied, 1)]);
    assert_eq!(scene.reload(&changed), Vec::<String>::new(), "lines may move");
}

#[test]
fn an_sa_that_goes_leaves_its_drops_and_its_key_is_erased() {
    let mut scene = Scene::new(&file());
    let inner = ours(&packet(ICMP, [192, 168, 2, 2], 0, &[8, 0, 1, 2, 3, 4, 5, 6]));
    let [_, sent] = scene.carry(0, &[inner]);
    let arrived = [&OURS[..], &sent[0][6..]].concat();
    scene.carry(1, &[arrived.clone(), arrived.clone()]);
    let key = {
        let tables = scene.statistics.tables.load();
        Arc::downgrade(&tables.sessions.session(5).expect("it is there").sa)
    };
    let without: String = file()
        .lines()
        .filter(|line| !line.starts_with("sa in 5 ") && !line.starts_with("sp ipv4 in esp protect 5"))
        .map(|line| format!("{line}\n"))
        .collect();
    scene.reload(&without);
    assert!(key.upgrade().is_none(), "no table and no worker has it");
    assert_eq!(scene.carry(1, &[arrived]), NOTHING);
    assert_eq!(scene.dropped(), [(DropReason::UnknownSa, 1), (Replayed, 1)]);
}

#[test]
fn an_sa_with_another_address_or_segment_size_keeps_its_numbers_and_its_window() {
    let mut scene = Scene::new(&file());
    let inner = ours(&packet(ICMP, [192, 168, 2, 2], 0, &[8, 0, 1, 2, 3, 4, 5, 6]));
    let [_, sent] = scene.carry(0, std::slice::from_ref(&inner));
    let first = [&OURS[..], &sent[0][6..]].concat();
    assert_eq!(scene.carry(1, std::slice::from_ref(&first))[0].len(), 1);
    let sa = |direction: &str| {
        let begin = format!("sa {direction} 5 ");
        file().lines().find(|line| line.starts_with(&begin)).expect("it is there").to_owned()
    };
    let moved = sa("out").replace("dst 172.16.2.5", "dst 172.16.2.6");
    let changed = file()
        .replace(&sa("in"), &format!("{} mss 1200", sa("in")))
        .replace(&sa("out"), &moved)
        .replace("172.16.2.5/32", "172.16.2.0/24");
    let changes = scene.reload(&changed);
    assert!(!changes.iter().any(|line| line.contains("sa in 5")), "{changes:?}");
    let [_, sent] = scene.carry(0, &[inner]);
    assert_eq!(sent[0][30..34], [172, 16, 2, 6], "the new address");
    assert_eq!(sent[0][38..42], [0, 0, 0, 2], "the number follows the one before");
    assert_eq!(scene.carry(1, &[first]), NOTHING, "the window knows what was accepted before");
}

#[test]
fn an_sa_that_comes_again_goes_on_after_its_last_number() {
    let mut scene = Scene::new(&file());
    let inner = ours(&packet(ICMP, [192, 168, 2, 2], 0, &[8, 0, 1, 2, 3, 4, 5, 6]));
    let [_, sent] = scene.carry(0, &[inner.clone(), inner.clone()]);
    let arrived: Vec<_> = sent.iter().map(|sent| [&OURS[..], &sent[6..]].concat()).collect();
    assert_eq!(scene.carry(1, &arrived)[0].len(), 2);
    let other = file().replace(&["a1"; 20].join(":"), &["b3"; 20].join(":"));
    assert!(scene.reload(&other).iter().any(|line| line.starts_with("- sa out 5")));
    // As when a commit is undone.
    assert!(scene.reload(&file()).iter().any(|line| line.starts_with("+ sa out 5")));
    let [_, sent] = scene.carry(0, &[inner]);
    assert_eq!(sent[0][34..42], [0, 0, 0, 5, 0, 0, 0, 3], "the nonces before are not repeated");
    assert_eq!(scene.carry(1, &arrived), NOTHING, "they were received before");
    assert_eq!(scene.carry(1, &[[&OURS[..], &sent[0][6..]].concat()])[0].len(), 1);
    assert_eq!(scene.dropped(), [(Replayed, 2)]);
}

#[test]
fn an_sa_does_not_begin_with_the_key_of_another_one() {
    let mut scene = Scene::new(&file());
    let error = |scene: &mut Scene, file: &str| {
        let plan = plan(file, WORDS).unwrap_or_else(|refused| panic!("{refused:?}"));
        let control = Control::new(Arc::clone(&scene.statistics), Arc::new(AwsLc), "x.cfg");
        control.replace(&plan).expect_err("it is refused").in_file("x.cfg")
    };
    let said = error(&mut scene, &file().replace(" 6 ", " 7 "));
    assert!(said.starts_with("x.cfg:") && said.contains(": error: sa "), "{said}");
    assert!(said.contains(" 7: another SA has its key") && said.contains("fix: write a new key"), "{said}");
    assert!(scene.statistics.show().sas.iter().all(|sa| sa.spi != 7), "nothing has changed");
    let other_key = file().replace(&["b2"; 20].join(":"), &["b3"; 20].join(":"));
    assert!(scene.reload(&other_key).iter().any(|line| line.starts_with("+ sa out 6")));
    // Another gateway of the daemon.
    let used_keys = UsedKeys::default();
    let plan = plan(&file(), WORDS).unwrap_or_else(|refused| panic!("{refused:?}"));
    let other = SecgwTables::with_keys(used_keys.clone(), &plan, &AwsLc).expect("keys are new");
    let refused = SecgwTables::with_keys(used_keys.clone(), &plan, &AwsLc).err();
    assert!(matches!(refused, Some(TablesError::UsedKey { .. })), "{refused:?}");
    other.outbound[&5].1.assign(9, Time::from_nanoseconds(0)).expect("it has numbers left");
    other.end();
    let moved = SecgwTables::with_keys(used_keys, &plan, &AwsLc).expect("no SA has the keys");
    assert_eq!(moved.outbound[&5].1.next(), 10);
}

#[test]
fn an_sa_of_a_gateway_that_is_made_anew_has_no_number_twice_whatever_is_refused() {
    let mut plan = plan(&file(), WORDS).unwrap_or_else(|refused| panic!("{refused:?}"));
    let before = SecgwTables::new(&plan, &AwsLc).expect("keys are new");
    before.outbound[&5].1.assign(9, Time::from_nanoseconds(0)).expect("it has numbers left");
    let sas = plan.sas.clone();
    plan.sas.retain(|sa| sa.spi != 5);
    let without = SecgwTables::taking_over(&before, &plan, &AwsLc).expect("keys are the same");
    assert!(without.sessions.session(5).is_none());
    // The step is undone: from the tables that it had.
    plan.sas = sas;
    let again = SecgwTables::taking_over(&without, &plan, &AwsLc).expect("no SA has the key");
    assert_eq!(again.outbound[&5].1.next(), 10);
    assert!(again.sessions.session(5).is_some());
}

#[test]
fn an_sa_with_more_workers_or_another_mtu_keeps_its_numbers_and_counts_what_all_carry() {
    let mut plan = plan(&file(), WORDS).unwrap_or_else(|refused| panic!("{refused:?}"));
    let tables = SecgwTables::new(&plan, &AwsLc).expect("the engine has the cipher");
    plan.lcores = vec![0, 1];
    let after = SecgwTables::taking_over(&tables, &plan, &AwsLc).expect("the engine has the cipher");
    let [(old, old_sa), (peer, sa)] = [&tables, &after].map(|tables| &tables.outbound[&5]);
    assert!(Arc::ptr_eq(old_sa, sa) && !Arc::ptr_eq(old, peer));
    let [old, inbound] = [&tables, &after].map(|tables| {
        tables.sas.iter().find(|it| it.spi == 5 && it.direction == Direction::Inbound).expect("it is there")
    });
    let session = after.sessions.session(5).expect("it is installed");
    assert!(Arc::ptr_eq(&session.peer, &inbound.peer) && !Arc::ptr_eq(&old.peer, &inbound.peer));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..10_000).for_each(|_| peer.sent.count(1, 60)));
        }
    });
    assert_eq!(peer.sent.packets(), 20_000);

    plan.mtu = 1400;
    let shorter = SecgwTables::taking_over(&after, &plan, &AwsLc).expect("the engine has the cipher");
    let (peer, same) = &shorter.outbound[&5];
    let path_mtu = peer.tunnel().expect("it is one").path_mtu.load(std::sync::atomic::Ordering::Relaxed);
    assert!(Arc::ptr_eq(same, sa) && path_mtu == 1400, "{path_mtu}");
}
