//! Facts as a daemon told them, as they look on the screen and in lines.

use super::draw::{Colours, age, draw, sparkline};
use super::readings::{Kind, Moment, Reading, Readings, Row};
use super::view::{Asked, Panel, Shown, View};
use super::{explanations, lines};
use gateway::api::model::{CryptoCipher, CryptoDirection, CryptoPlace};
use gateway::bottleneck::Processors;
use gateway::facts::model::{Facts, Protocol, State, Tunnel};
use gateway::path::model::Path;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

/// `second` seconds after a moment, of a daemon that was started at `started`.
fn facts(second: u64, started: u64) -> Facts {
    let tunnel = |protocol: &str, interface: &str, peer: &str, state: &str, suite: &str, rates: [u64; 2]| {
        json!({
            "protocol": protocol, "interface": interface, "peer": peer, "state": state, "suite": suite,
            "tunnel": if protocol == "ipsec" { json!(1) } else { json!(null) }, "public_key": null,
            "allowed_ips": [], "received_bytes": rates[0] * second, "sent_bytes": rates[1] * second,
            "received_packets": 0, "sent_packets": 0, "unsent_packets": 40 * second, "handshakes": 1,
            "last_handshake": if state == "up" { json!(1_000_000 - 65) } else { json!(null) }
        })
    };
    let thread =
        |id: u32, name: &str, each: u64| json!({ "id": id, "name": name, "nanoseconds": each * second });
    let told = json!({
        "at": 1_000_000 + second, "moment": 7_000_000 + 1000 * second,
        "daemon": { "version": "0.1.0", "started": started, "revision": 12, "refused_parts": 0 },
        "process": { "cpu_seconds": 1.0, "resident_bytes": 34_603_008, "virtual_bytes": 1, "threads": 9,
            "open_files": 9, "most_files": 1024 },
        "tunnels": [
            tunnel("wireguard", "wg0", "berlin", "up", "chacha20-poly1305", [125_000, 1_250_000]),
            tunnel("wireguard", "wg0", "rome", "down", "chacha20-poly1305", [0, 0]),
            tunnel("ipsec", "ipsec0", "oslo", "up", "aes256gcm128-esn", [2_500_000, 125]),
            tunnel("openvpn", "vtun0", "a\u{1b}[31mnn", "up", "AES-256-GCM", [0, 0]),
        ],
        "drops": [{ "interface": "wg0", "reason": "no-route", "outbound": 1500 * second, "inbound": 0,
            "handshake": 0 }],
        "workers": [],
        "threads": [thread(11, "wg0 out", 420_000_000), thread(12, "wg0 in", 50_000_000)],
        "handoffs": [], "offloads": [], "engines": []
    });
    let mut facts: Facts = serde_json::from_value(told).expect("facts");
    let path = Path { rtt_seconds: Some(0.0123), loss_ratio: Some(0.05), ..Path::default() };
    facts.tunnels[0].path = Some(Box::new(path));
    facts
}

fn ciphers() -> Vec<CryptoCipher> {
    let cipher = |name: &str, chosen: &str| {
        let place = |direction, size, chosen: &str| CryptoPlace {
            direction,
            burst: 64,
            size,
            chosen: chosen.to_owned(),
            costs: Vec::new(),
        };
        CryptoCipher {
            name: name.to_owned(),
            pinned: None,
            pin_refused: None,
            unused: Vec::new(),
            measured_here: false,
            places: vec![
                place(CryptoDirection::Seal, 64, "small"),
                place(CryptoDirection::Seal, 1420, chosen),
                place(CryptoDirection::Open, 1400, "open"),
            ],
        }
    };
    vec![cipher("chacha20-poly1305", "aws-lc"), cipher("aes-256-gcm", "ipsec-mb")]
}

fn reading(second: u64, started: u64) -> Reading {
    let ticks = 1000 + 200 * second;
    Reading {
        daemons: vec![(PathBuf::from("/run/postern/postern.sock"), facts(second, started))],
        ciphers: ciphers(),
        processors: Some(Processors { count: 2, all: ticks, idle: 500 + 50 * second, stolen: 2 * second }),
    }
}

fn moment() -> Moment {
    let mut readings = Readings::default();
    (1..4).map(|second| readings.add(reading(second, 990_000))).last().expect("three")
}

fn drawn(view: &mut View, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory");
    terminal.draw(|frame| draw(frame, view, Colours(false))).expect("memory");
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect()
}

fn press(view: &mut View, typed: &str) -> Asked {
    let pressed = |code| KeyEvent::new(code, KeyModifiers::NONE);
    let keys = typed.chars().map(|key| match key {
        '\n' => KeyCode::Enter,
        '\u{1b}' => KeyCode::Esc,
        '\u{8}' => KeyCode::Backspace,
        key => KeyCode::Char(key),
    });
    keys.map(|key| view.press(pressed(key))).last().expect("a key")
}

fn view() -> View {
    let mut view = View::default();
    view.show(moment());
    view
}

fn names(view: &View) -> Vec<String> {
    view.order.iter().map(|&at| view.moment.rows[at].name()).collect()
}

#[test]
fn a_screen_shows_what_was_told() {
    let expected = "\
1970-01-12T13:46:43Z  postern 0.1.0 up 2h46m43s  revision 12  in 21.0 Mbit/s  out 10.0 Mbit/s
tunnels: 3 up, 0 waiting, 1 down  processors: 2, 75% busy, 1% stolen  memory of the daemon: 33.00 MiB
threads: wg0 out 42%, wg0 in 5%

Name                     State           In v          Out In and out    Handshake Type      Engine     Lost/s       RTT
ipsec0                   up       20.0 Mbit/s   1.0 kbit/s           ██       1m8s ipsec     ipsec-mb        0         -
ipsec0 oslo 1            up       20.0 Mbit/s   1.0 kbit/s           ██       1m8s ipsec     ipsec-mb       40         -
wg0                      down      1.0 Mbit/s  10.0 Mbit/s           ██       1m8s wireguard aws-lc         1K         -
wg0 berlin               up        1.0 Mbit/s  10.0 Mbit/s           ██       1m8s wireguard aws-lc         40   12.3 ms
vtun0                    up           0 bit/s      0 bit/s                    1m8s openvpn   ipsec-mb        0         -
vtun0 a?[31mnn           up           0 bit/s      0 bit/s                    1m8s openvpn   ipsec-mb       40         -
wg0 rome                 down         0 bit/s      0 bit/s                   never wireguard aws-lc         40         -

1/7  q quit  Enter explain  / filter  v all  order: n name, s state, i in, o out, l lost, h handshake, e engine, r rtt";
    let shown = drawn(&mut view(), 120, 14);
    assert_eq!(shown.join("\n"), expected, "\n{}", shown.join("\n"));
}

#[test]
fn a_narrow_screen_has_fewer_columns_and_none_is_too_small() {
    let shown = drawn(&mut view(), 40, 9);
    assert!(shown[4].starts_with("Name ") && shown[4].ends_with("State           In v"), "{shown:#?}");
    assert!(shown[5].starts_with("ipsec0 ") && shown[5].ends_with("up       20.0 Mbit/s"), "{shown:#?}");
    assert!(shown[8].starts_with("1/7  q quit"), "{shown:#?}");
    for (width, height) in [(1, 1), (3, 5), (200, 2), (10, 7), (2, 60)] {
        let mut view = view();
        drawn(&mut view, width, height);
        view.panel = Some(Panel::default());
        drawn(&mut view, width, height);
    }
}

#[test]
fn rows_are_ordered_by_what_a_key_names_and_the_same_key_reverses() {
    let mut view = view();
    press(&mut view, "o");
    assert_eq!(names(&view)[..2], ["wg0", "wg0 berlin"]);
    press(&mut view, "o");
    assert_eq!(names(&view).last().map(String::as_str), Some("wg0 berlin"));
    press(&mut view, "s");
    assert_eq!(names(&view)[..2], ["wg0", "wg0 rome"], "what is down is first");
    press(&mut view, "n");
    assert_eq!(names(&view)[..3], ["ipsec0", "ipsec0 oslo 1", "vtun0"]);
    press(&mut view, "n");
    assert_eq!(names(&view)[0], "wg0 rome");
    press(&mut view, "l");
    assert_eq!(names(&view)[0], "wg0");
    press(&mut view, "r");
    assert_eq!(names(&view)[0], "wg0 berlin");
    press(&mut view, "v");
    assert_eq!((view.shown, names(&view).len()), (Shown::Interfaces, 3));
    press(&mut view, "v");
    assert!(names(&view).len() == 4 && names(&view).iter().all(|name| name.contains(' ')));
}

#[test]
fn a_filter_is_typed_and_the_selected_row_stays_selected() {
    let mut view = view();
    press(&mut view, "/WG0 bx\u{8}");
    assert_eq!((names(&view), view.is_typing), (vec!["wg0 berlin".to_owned()], true));
    assert!(drawn(&mut view, 80, 10)[3].starts_with("filter: WG0 b_"));
    press(&mut view, "\nq".get(..1).expect("a key"));
    assert!(!view.is_typing && names(&view).len() == 1);
    press(&mut view, "j\u{1b}");
    assert_eq!(view.row().map(Row::name).as_deref(), Some("wg0 berlin"), "it is still selected");
    press(&mut view, "/\u{1b}/down\n");
    assert_eq!(names(&view), ["wg0", "wg0 rome"]);
    assert_eq!(press(&mut view, "/q"), Asked::Nothing, "it is typed");
    assert_eq!(press(&mut view, "\nq"), Asked::Quit);
}

#[test]
fn enter_asks_for_an_explanation_and_shows_it() {
    let mut view = view();
    press(&mut view, "nj");
    let Asked::Explain(row) = press(&mut view, "\n") else { panic!("nothing is asked for") };
    assert_eq!((&*row.interface, row.peer.as_deref(), row.kind), ("ipsec0", Some("oslo"), Kind::Peer));
    assert!(drawn(&mut view, 80, 20).join("\n").contains("asking the daemon"));
    view.panel.as_mut().expect("open").text = Some("oslo: up\n  fix: nothing\n".to_owned());
    let shown = drawn(&mut view, 80, 20);
    assert!(shown[5].contains("ipsec0 oslo 1 (Esc closes") && shown[6].contains("oslo: up"), "{shown:#?}");
    press(&mut view, "j");
    assert!(drawn(&mut view, 80, 20)[6].contains("fix: nothing"), "it is scrolled");
    assert_eq!((press(&mut view, "\u{1b}"), view.panel.is_none()), (Asked::Nothing, true));
}

#[test]
fn a_row_is_explained_by_the_command_of_its_protocol() {
    let moment = moment();
    let of = |name: &str| {
        let row = moment.rows.iter().find(|row| row.name() == name).expect(name);
        explanations(row).into_iter().map(|words| words.join(" ")).collect::<Vec<_>>()
    };
    assert_eq!(of("wg0"), ["show bottleneck wg0"]);
    assert_eq!(of("wg0 rome"), ["explain interfaces wireguard wg0 peer rome", "show bottleneck wg0"]);
    assert_eq!(of("ipsec0 oslo 1")[0], "explain vpn ipsec peer oslo");
    assert_eq!(of("vtun0 a?[31mnn")[0], "explain openvpn vtun0 client a\u{1b}[31mnn");
    for words in moment.rows.iter().flat_map(explanations) {
        assert!(crate::operational::find(&words).is_some(), "{words:?}");
    }
}

#[test]
fn the_same_snapshot_again_changes_no_rate_and_a_restart_is_noticed() {
    let mut readings = Readings::default();
    let rate = |moment: &Moment| moment.rows.iter().map(|row| row.received_bits_per_second).sum::<f64>();
    assert!(rate(&readings.add(reading(1, 990_000))) < 1.0, "one reading tells no rate");
    let first = rate(&readings.add(reading(2, 990_000)));
    assert!((first - 42e6).abs() < 1.0, "{first}");
    assert!((rate(&readings.add(reading(2, 990_000))) - first).abs() < 1.0);
    let later = readings.add(reading(4, 990_000));
    assert!((rate(&later) - first).abs() < 1.0 && later.restarted.is_empty());
    let anew = readings.add(reading(1, 1_000_001));
    assert!(anew.restarted.len() == 1 && rate(&anew) < 1.0, "{anew:?}");
    assert!((rate(&readings.add(reading(2, 1_000_001))) - first).abs() < 1.0);
}

#[test]
fn lines_have_the_same_without_characters_that_a_terminal_obeys() {
    let text = lines::text(&moment());
    let all: Vec<&str> = text.lines().collect();
    assert_eq!(all.len(), 7, "{text}");
    assert_eq!(
        all[1],
        "1970-01-12T13:46:43Z ipsec ipsec0 oslo 1 up in 20.0 Mbit/s out 1.0 kbit/s lost/s 40 handshake 1m8s engine ipsec-mb"
    );
    assert!(
        all[5].contains(" wg0 berlin ") && all[5].ends_with(" engine aws-lc rtt 12.3 ms loss 5%"),
        "{text}"
    );
    assert!(all[4].contains(" interface wg0 tunnels 2 down in 1.0 Mbit/s"), "{text}");
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn ten_thousand_peers_are_read_and_drawn_without_a_pause() {
    let mut facts = facts(1, 990_000);
    facts.tunnels = (0..10_000)
        .map(|number| Tunnel {
            interface: "wg0".to_owned(),
            peer: format!("peer-{number}"),
            received_bytes: number * 1000,
            ..Tunnel::default()
        })
        .collect();
    let (mut readings, mut view) = (Readings::default(), View::default());
    let begun = Instant::now();
    for second in 1..=5 {
        (facts.moment, facts.at) = (1000 * second, 1_000_000 + second);
        facts.tunnels.iter_mut().enumerate().for_each(|(at, it)| it.received_bytes += 10 * at as u64);
        let mut reading = reading(1, 990_000);
        reading.daemons[0].1 = facts.clone();
        view.show(readings.add(reading));
        press(&mut view, "ns");
        assert_eq!(drawn(&mut view, 120, 50).len(), 50);
    }
    // A quarter of each second, also where tests share two processors.
    assert!(begun.elapsed().as_millis() < 5 * 250, "{:?}", begun.elapsed());
    press(&mut view, "iG");
    drawn(&mut view, 120, 50);
    assert_eq!((view.selected, view.top), (10_000, 10_000 - 43), "the last row is the last line");
}

#[test]
fn states_are_words_and_have_colours_unless_they_are_not_wanted() {
    let colours_of = |colours| {
        let mut terminal = Terminal::new(TestBackend::new(100, 14)).expect("memory");
        let mut view = view();
        terminal.draw(|frame| draw(frame, &mut view, colours)).expect("memory");
        terminal.backend().buffer().content().iter().any(|cell| cell.fg != Color::Reset)
    };
    assert!(colours_of(Colours(true)) && !colours_of(Colours(false)));
}

#[test]
fn ages_and_sparklines_are_short() {
    assert_eq!(age(None, 9), "never");
    assert_eq!([0, 59, 3723, 100_000].map(|seconds| age(Some(0), seconds)), ["0s", "59s", "1h2m", "1d3h"]);
    assert_eq!(sparkline(&[0.0, 1.0, 4.0, 8.0]), "         ▁▄█");
    assert_eq!(sparkline(&[0.0; 3]).trim(), "");
    let row = Row { protocol: Some(Protocol::Ipsec), state: State::Up, ..Row::default() };
    assert_eq!(row.protocol(), "ipsec");
}
