//! The views of snapshots that are written here.

use super::super::asked::{Asked, Dropped, Filter, Named};
use super::super::rates::Rates;
use super::super::reasons::{Reason, Reasons};
use super::super::view::View;
use super::*;
use gateway::api::model::{Bottleneck, Bottlenecks, Limit, StageShare};
use gateway::facts::model::{Drop, Facts, State, Tunnel};
use gateway::path::model::{Mtu, Path};
use std::sync::Arc;

/// A name as an attacker would write it in a certificate.
const HOSTILE: &str = "b<i onmouseover=\"alert('x')\">&amp;\u{202e}";

fn tunnel(peer: &str, state: State) -> Tunnel {
    let suite = Some("chacha20-poly1305".to_owned());
    Tunnel { interface: "wg0".to_owned(), peer: peer.to_owned(), state, suite, ..Tunnel::default() }
}

fn dropped(reason: &str, inbound: u64) -> Drop {
    Drop { interface: "wg0".to_owned(), reason: reason.to_owned(), inbound, ..Drop::default() }
}

fn view(tunnels: Vec<Tunnel>) -> View {
    let reason = Reason {
        cause: "no answer from <192.0.2.1>".to_owned(),
        fix: vec![format!("set interfaces wireguard wg0 peer {HOSTILE}")],
    };
    let reasons = Reasons::new(&tunnel(HOSTILE, State::Down), reason);
    let drops = vec![dropped("bad-tag", 0), dropped("replayed", 5), dropped("no-route", 10)];
    let mut facts = Facts { tunnels, drops, ..Facts::default() };
    let before = Rates::since(&Rates::default(), &facts);
    facts.moment = 2000;
    facts.drops[1].inbound += 4;
    for tunnel in &mut facts.tunnels {
        tunnel.received_bytes += 500;
    }
    let rates = Rates::since(&before, &facts);
    View::new(facts, rates, reasons)
}

fn first(text: &str) -> Filter {
    Filter { text: text.to_owned(), page: 1 }
}

/// The markup of a view, which has each of its parts once, and nothing of what attackers write.
fn shown(view: &Rendered) -> String {
    let text = view.main.0.clone();
    for part in &view.parts {
        assert_eq!(text.matches(&part.html).count(), 1, "{}", part.id);
        assert!(part.html.contains(&format!("id=\"{}\"", part.id)), "{}", part.html);
        assert!(part.rows.iter().all(|row| part.html.contains(&row.html)), "{}", part.id);
    }
    let mut ids: Vec<&str> = text.split("id=\"").skip(1).filter_map(|it| it.split('"').next()).collect();
    ids.sort_unstable();
    assert!(ids.windows(2).all(|two| two[0] != two[1]), "an ID is there once: {ids:?}");
    assert!(!text.contains("<i ") && !text.contains("<i>"), "{text}");
    assert!(!text.contains(" style=") && !text.contains("<script"), "{text}");
    text
}

#[test]
fn what_is_down_comes_first_with_its_cause_and_fix_and_nothing_is_markup() {
    let view = view(vec![tunnel("a", State::Up), tunnel(HOSTILE, State::Down)]);
    let text = shown(&overview(&view, &first("")));
    let (down, up) =
        (text.find("b&lt;i onmouseover").expect("there"), text.find("<strong>a<").expect("there"));
    assert!(down < up && text.contains("no answer from &lt;192.0.2.1&gt;"), "{text}");
    assert!(text.contains("2.0 kbit/s"), "{text}");
    assert!(text.contains("peer=b%3Ci+onmouseover%3D%22alert%28%27x%27%29%22%3E%26amp%3B"), "{text}");
}

#[test]
fn ten_thousand_tunnels_come_a_hundred_a_page_and_can_be_filtered() {
    let view = view((0..10_000).map(|number| tunnel(&format!("peer{number:05}"), State::Up)).collect());
    let rows = |text: &str, page: usize| {
        let view = overview(&view, &Filter { text: text.to_owned(), page });
        (view.parts.iter().map(|part| part.rows.len()).sum::<usize>(), view.main.0)
    };
    let (count, text) = rows("", 1);
    assert!(count == 100 && text.contains("Page 1 of 100") && text.contains("page=2"), "{count}");
    assert!(text.len() < 150_000, "{}", text.len());
    let (count, text) = rows("", 100);
    assert!(count == 100 && text.contains("peer09999") && !text.contains("rel=\"next\""), "{count}");
    assert_eq!(rows("", 4_000_000_000).0, 100, "the last");
    let (count, text) = rows("peer0421", 1);
    assert!(count == 10 && !text.contains("Page 1"), "{count}");
    assert!(rows("down", 1).1.contains("No tunnels."));
}

#[test]
fn a_tunnel_has_its_state_cause_figures_and_drops() {
    let view =
        view(vec![tunnel(HOSTILE, State::Down), tunnel("up", State::Up), tunnel("idle", State::Waiting)]);
    let named = |peer: &str| Named::of(&tunnel(peer, State::Up));
    let down = shown(&super::tunnel(&view, &named(HOSTILE), &[]).expect("there"));
    for said in
        ["class=\"condition down\"", "no answer from &lt;192.0.2.1&gt;", "chacha20-poly1305", "replayed"]
    {
        assert!(down.contains(said), "{said}: {down}");
    }
    assert!(down.contains("interface=wg0&amp;all=yes") && !down.contains("bad-tag"), "{down}");
    assert!(shown(&super::tunnel(&view, &named("up"), &[]).expect("there")).contains("It carries packets."));
    assert!(shown(&super::tunnel(&view, &named("idle"), &[]).expect("there")).contains("needs none"));
    assert!(super::tunnel(&view, &named("another"), &[]).is_none());
    let path = Path {
        rtt_seconds: Some(0.012),
        loss_ratio: Some(0.05),
        path_mtu_bytes: Some(1312),
        mtu: Mtu::BlackHole,
        problem: Some("Packets of more than 1312 bytes are lost.".to_owned()),
        remedy: Some("set interfaces wireguard wg0 mtu 1312".to_owned()),
        ..Path::default()
    };
    let probed = Tunnel { path: Some(Box::new(path)), ..tunnel("up", State::Up) };
    let text = shown(&super::tunnel(&tests::view(vec![probed]), &named("up"), &[]).expect("there"));
    for said in [
        "12.0 ms",
        "5%",
        "1312 bytes; larger packets are lost",
        "<code>set interfaces wireguard wg0 mtu 1312",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
}

#[test]
fn drops_that_happen_now_come_first_and_all_reasons_can_be_seen() {
    let view = view(Vec::new());
    let wanted = Dropped { page: 1, ..Dropped::default() };
    let text = shown(&drops(&view, &wanted));
    let (now, before) = (text.find("replayed").expect("there"), text.find("no-route").expect("there"));
    assert!(now < before && text.contains("2.0/s") && !text.contains("bad-tag"), "{text}");
    assert!(text.contains("is behind the replay window"), "it tells what it means: {text}");
    let all = shown(&drops(&view, &Dropped { all: true, ..wanted.clone() }));
    assert!(all.contains("bad-tag") && all.contains("3 reasons"), "{all}");
    let of = shown(&drops(&view, &Dropped { interface: "wg1\"><i>".to_owned(), ..wanted }));
    assert!(of.contains("Nothing was dropped."), "{of}");
}

#[test]
fn the_limit_is_a_sentence_with_its_stages_and_remedy() {
    let limit = Bottleneck {
        interface: "wg0".to_owned(),
        direction: "out".to_owned(),
        limit: Limit::Cipher,
        sentence: "The cipher limits wg0 outbound.".to_owned(),
        remedy: Some("a <faster> engine".to_owned()),
        stages: vec![StageShare { stage: "encrypt".to_owned(), nanoseconds: 812.4, share: 0.61 }],
        ..Bottleneck::default()
    };
    let limits = Ok(Arc::new(Bottlenecks { bottlenecks: vec![limit] }));
    let text = shown(&performance(&view(Vec::new()), &limits, &Ok(Arc::default()), &Ok(Arc::default())));
    for said in ["The cipher limits wg0 outbound.", "a &lt;faster&gt; engine", "812 ns", "61%"] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let silent = Err("it does not answer".to_owned());
    let text = shown(&performance(&view(Vec::new()), &silent, &Err(String::new()), &Err(String::new())));
    assert!(text.contains("it does not answer"), "{text}");
}

#[test]
fn each_page_leads_to_the_others_and_tells_which_it_is() {
    let asked = Asked::Drops(Dropped { page: 1, ..Dropped::default() });
    let text =
        page(&asked, &drops(&view(Vec::new()), &Dropped { page: 1, ..Dropped::default() })).into_string();
    assert!(text.contains("<a href=\"/drops\" aria-current=\"page\">Drops</a>"), "{text}");
    assert!(text.contains("<a href=\"/performance\">") && text.contains("href=\"#main\""), "{text}");
}

#[test]
fn health_has_what_is_wrong_first_with_its_fix_and_every_rule() {
    use gateway::health::model::{Alert, AlertState, Health, Receiver, Rule, State as Says};
    let rule = |name: &str, state, why: Option<&str>| Rule {
        rule: name.to_owned(),
        state,
        why: why.map(str::to_owned),
        ..Rule::default()
    };
    let alert = |subject: &str, state, resolved_at| Alert {
        rule: "tunnel-down".to_owned(),
        subject: subject.to_owned(),
        sentence: format!("The tunnel {subject} is down."),
        remedy: "postern explain".to_owned(),
        state,
        since: 40,
        firing_since: Some(50),
        resolved_at,
        ..Alert::default()
    };
    let (name, way) = ("oncall".to_owned(), "mail".to_owned());
    let ill = Health {
        at: 60,
        rules: vec![
            rule("memory-low", Says::Ok, None),
            rule("accelerator-heartbeat", Says::Unknown, Some("/sys/kernel/debug can be read by root only")),
            rule("tunnel-down", Says::Firing, None),
        ],
        alerts: vec![alert(HOSTILE, AlertState::Firing, None), alert("old", AlertState::Resolved, Some(55))],
        receivers: vec![Receiver {
            name,
            way,
            failed: 2,
            problem: Some("no <i>".to_owned()),
            ..Receiver::default()
        }],
    };
    let text = shown(&health(&ill));
    for said in [
        "1 wrong",
        "1 unknown",
        "10 s ago",
        "<code>postern explain</code>",
        "by root only",
        "oncall</strong> mail",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let at = |word: &str| text.find(&format!("<strong>{word}</strong>")).expect(word);
    let rules = text.find("id=\"rules\"").expect("a table");
    let failing = rules + text[rules..].find("<strong>tunnel-down").expect("there");
    assert!(
        failing < at("accelerator-heartbeat") && at("accelerator-heartbeat") < at("memory-low"),
        "{text}"
    );
    let well = Health { alerts: Vec::new(), rules: vec![rule("memory-low", Says::Ok, None)], ..ill };
    assert!(shown(&health(&well)).contains("Nothing is wrong"));
    assert!(shown(&health(&Health::default())).contains("The daemon has just started."));
}
