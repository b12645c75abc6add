//! SAs of the file that end.

use super::super::tables::Numbers;
use super::*;
use crate::clock::tests::later;
use config::secgw::settings::Direction;
use packet::DropReason::{CounterExhausted, KeyExpired};

fn with(words: &str) -> String {
    file()
        .replace("sa out 5 ", &format!("sa out 5 {words} "))
        .replace("sa in 5 ", &format!("sa in 5 {words} "))
}

fn inner() -> Vec<u8> {
    ours(&packet(ICMP, [192, 168, 2, 2], 0, &[8, 0, 1, 2, 3, 4, 5, 6]))
}

fn arrived(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    frames.iter().map(|sent| [&OURS[..], &sent[6..]].concat()).collect()
}

/// Reloads a file, or says why not.
fn reload(scene: &Scene, file: &str) -> Result<Vec<String>, String> {
    let plan = plan(file, WORDS).unwrap_or_else(|refused| panic!("{refused:?}"));
    let control = Control::new(Arc::clone(&scene.statistics), Arc::new(AwsLc), "x.cfg");
    control.replace(&plan).map_err(|error| error.in_file("x.cfg"))
}

#[test]
fn after_its_packets_an_sa_carries_nothing_and_nothing_leaves_in_clear() {
    let mut scene = Scene::new(&with("life-packets 3"));
    let [_, sent] = scene.carry(0, &[inner(), inner()]);
    assert_eq!((sent.len(), scene.statistics.news()), (2, Vec::<String>::new()));
    let [_, last] = scene.carry(0, &[inner()]);
    assert_eq!(last.len(), 1);
    assert_eq!(scene.carry(0, &[inner(), inner()]), NOTHING);
    assert_eq!(scene.dropped(), [(KeyExpired, 2)]);
    let news = scene.statistics.news();
    assert!(news.len() == 1 && news[0].contains("sa out 5, line 6, has reached the end"), "{news:?}");
    assert!(news[0].contains("fix: write a new key") && scene.statistics.news().is_empty(), "once");
    // The other end counts what arrives.
    assert_eq!(scene.carry(1, &arrived(&sent))[0].len(), 2);
    assert_eq!(scene.carry(1, &arrived(&last))[0].len(), 1);
    let shown = scene.statistics.show();
    for direction in ["out", "in"] {
        let sa = shown.sas.iter().find(|sa| sa.direction == direction && sa.spi == 5);
        let left = sa.and_then(|sa| sa.lifetime.clone()).expect("it has a limit");
        assert_eq!(
            (left.packets, left.has_ended, left.bytes, left.text()),
            (Some(0), true, None, "ended".into())
        );
    }
    assert!(shown.sas.iter().filter(|sa| sa.spi == 6).all(|sa| sa.lifetime.is_none()));
    assert!(
        scene
            .statistics
            .to_string()
            .contains("sa out 5 aes-128-gcm: 3 packets, 294 bytes; 2 key-expired; ended"),
        "{}",
        scene.statistics
    );
}

#[test]
fn bytes_and_seconds_end_an_sa_in_both_directions() {
    let mut scene = Scene::new(&with("life-bytes 200"));
    let [_, sent] = scene.carry(0, &[inner(), inner()]);
    let [_, more] = scene.carry(0, &[inner()]);
    assert!(sent.len() == 2 && more.len() <= 1);
    while !scene.carry(0, &[inner()])[1].is_empty() {
        assert!(scene.dropped().is_empty());
    }
    assert_eq!(scene.dropped(), [(KeyExpired, 1)]);

    let mut scene = Scene::new(&with("lifetime 3600"));
    let [_, sent] = scene.carry(0, &[inner(), inner()]);
    assert_eq!(scene.carry(1, &arrived(&sent[..1]))[0].len(), 1);
    assert_eq!(scene.statistics.news(), Vec::<String>::new());
    later(3600, || {
        assert_eq!(scene.carry(0, &[inner()]), NOTHING);
        assert_eq!(scene.carry(1, &arrived(&sent[1..])), NOTHING);
        assert_eq!(scene.dropped(), [(KeyExpired, 2)]);
        assert_eq!(scene.statistics.news().len(), 2, "both directions");
    });
}

/// Bursts under load are longer than what is left at last.
#[test]
fn an_sa_ends_with_the_first_burst_that_its_packets_are_too_few_for() {
    let mut scene = Scene::new(&with("life-packets 20 life-bytes 100000"));
    let burst = vec![inner(); 8];
    for _ in 0..2 {
        assert_eq!(scene.carry(0, &burst)[1].len(), 8);
    }
    let left = |scene: &Scene| {
        let sa = scene.statistics.show().sas.into_iter().find(|sa| sa.direction == "out" && sa.spi == 5);
        sa.and_then(|sa| sa.lifetime).expect("it has a limit")
    };
    let before = left(&scene);
    assert_eq!((before.packets, before.has_ended), (Some(4), false));
    for _ in 0..3 {
        assert_eq!(scene.carry(0, &burst), NOTHING);
    }
    assert_eq!(scene.carry(0, &[inner()]), NOTHING, "what was refused once is the end");
    assert_eq!(scene.dropped(), [(KeyExpired, 25)]);
    let after = left(&scene);
    assert_eq!((after.packets, after.has_ended, after.text()), (Some(0), true, "ended".into()));
    let news = scene.statistics.news();
    assert!(news.len() == 1 && news[0].contains("sa out 5, line 6, has reached the end"), "{news:?}");
}

#[test]
fn a_reload_gives_a_key_no_further_life() {
    let mut scene = Scene::new(&with("life-packets 3"));
    assert_eq!(scene.carry(0, &[inner(), inner()])[1].len(), 2);
    assert_eq!(reload(&scene, &format!("\n{}", with("life-packets 3"))), Ok(Vec::new()));
    let said = reload(&scene, &with("life-packets 30")).expect_err("it is the same key");
    assert!(said.starts_with("x.cfg:6: error: sa out 5") && said.contains("write a new key"), "{said}");
    // It goes, and comes again.
    let other = with("life-packets 3").replace(&["a1"; 20].join(":"), &["b3"; 20].join(":"));
    assert!(reload(&scene, &other).is_ok_and(|changes| !changes.is_empty()));
    assert_eq!(scene.carry(0, &[inner(), inner(), inner()])[1].len(), 3, "another key");
    assert!(reload(&scene, &with("life-packets 3")).is_ok_and(|changes| !changes.is_empty()));
    assert_eq!(scene.carry(0, &[inner()])[1].len(), 1);
    assert_eq!(scene.carry(0, &[inner()]), NOTHING);
    assert_eq!(scene.dropped(), [(KeyExpired, 1)]);
}

/// Some packets are left of an SA that ended because its last burst was longer.
#[test]
fn an_sa_that_has_ended_does_not_live_again_when_its_line_comes_again() {
    for words in ["life-packets 20", "life-bytes 2000", "lifetime 3600"] {
        let file = with(words);
        let mut scene = Scene::new(&file);
        let burst = vec![inner(); 8];
        let passed = scene.carry(0, &burst)[1].len();
        assert_eq!(passed, 8, "{words}");
        later(3600, || {
            while !scene.carry(0, &burst)[1].is_empty() {}
            let without: String = file
                .lines()
                .filter(|line| !line.starts_with("sa out 5"))
                .map(|line| format!("{line}\n"))
                .collect();
            reload(&scene, &without).expect("a line less");
            reload(&scene, &file).expect("and again");
            assert_eq!(scene.carry(0, &[inner()]), NOTHING, "{words}");
        });
    }
}

/// Without a limit an SA ends too: when it has no sequence numbers any more.
#[test]
fn an_sa_without_a_limit_that_has_no_numbers_left_is_said_to_have_ended() {
    let mut scene = Scene::new(&file());
    let sa = {
        let tables = scene.worker.tables();
        let sa = tables.sas.iter().find(|sa| sa.direction == Direction::Outbound && sa.spi == 5);
        let Numbers::Outbound(sa) = &sa.expect("it is there").numbers else { unreachable!() };
        Arc::clone(sa)
    };
    let now = crate::clock::Clock.monotonic();
    sa.assign((1 << 32) - 3, now).expect("there are as many");
    assert_eq!(scene.carry(0, &[inner()])[1].len(), 1);
    assert_eq!(scene.carry(0, &[inner(), inner()]), NOTHING);
    assert_eq!(scene.dropped(), [(CounterExhausted, 2)]);
    let news = scene.statistics.news();
    assert!(news.len() == 1 && news[0].contains("sa out 5, line 6, has reached the end"), "{news:?}");
}
