//! `processors`: the threads of an interface stay on processors of their own.

use crate::daemon::{Site, key_pair, lines};
use crate::ipsec;
use crate::support::{answers, ask, sites};
use rustix::thread::{CpuSet, sched_getaffinity};
use std::collections::BTreeMap;
use std::path::Path;

/// The first and the last processor that there are; none on a machine with one.
fn two() -> Option<[usize; 2]> {
    let allowed = sched_getaffinity(None).expect("the kernel tells");
    let mut all = (0..CpuSet::MAX_CPU).filter(|&number| allowed.is_set(number));
    Some([all.next()?, all.next_back()?])
}

/// The threads of a gateway, and the processors of each.
fn threads(socket: &Path) -> BTreeMap<String, String> {
    let said = ask(&["show", "datapath", "threads", "--api", &socket.to_string_lossy()]);
    let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
    let all = said["threads"].as_array().expect("a list").iter();
    all.map(|thread| (text(&thread["name"]), text(&thread["processors"]))).collect()
}

#[test]
fn threads_take_the_processors_in_turn_until_they_are_free_again() {
    let (Some(mut lab), Some([first, last])) = (sites(), two()) else { return };
    let [(private, _), (_, public)] = [key_pair(), key_pair()];
    let mut site = Site::new(&lab, "a", &private);
    let more = ["receive-threads 2", "threads 3", &format!("processors {last},{first}")];
    site.write(&lines(0, &public, &more));
    site.start(&mut lab);
    let pinned = threads(&site.socket);
    let at = [first, last].map(|number| number.to_string());
    for (name, processor) in
        [("out", &at[1]), ("in", &at[0]), ("out 1", &at[1]), ("in 1", &at[0]), ("crypto", &at[1])]
    {
        assert_eq!(pinned[&format!("wg0 {name}")], *processor, "{name}: {pinned:?}");
    }
    let all = pinned["wg0 control"].clone();
    assert_ne!(all, at[0], "handshakes may run anywhere");
    site.write(&lines(0, &public, &["receive-threads 2", "threads 3", "processors 1000"]));
    let said = site.reload();
    assert!(
        said.contains("wg0 processors 1000: there is no processor 1000 that the daemon may use"),
        "{said}"
    );
    assert!(
        said.contains(&format!("set interfaces wireguard wg0 processors LIST with some of {all}")),
        "{said}"
    );
    assert_eq!(threads(&site.socket), pinned, "as before");
    site.write(&lines(0, &public, &["receive-threads 2", "threads 3"]));
    assert!(site.reload().contains("is in force"));
    let free = threads(&site.socket);
    assert!(free.values().all(|processors| *processors == all), "{free:?}");
}

#[test]
fn a_tunnel_of_ipsec_goes_on_while_its_threads_are_pinned() {
    let Some([first, _]) = two() else { return };
    let Some((lab, [a, _b])) = ipsec::started(|_, text| text) else { return };
    a.comes_up("other");
    let spis = a.spis("other");
    a.write(&format!("{}set vpn ipsec processors {first}\n", ipsec::configuration(0)));
    assert!(a.0.reload().contains("is in force"));
    let pinned = threads(&a.0.socket);
    for name in ["ipsec0 out", "ipsec0 in", "ipsec0 raw"] {
        assert_eq!(pinned[name], first.to_string(), "{pinned:?}");
    }
    assert!(answers(&lab, "a", "10.20.0.1"));
    assert_eq!(a.spis("other"), spis);
    a.write(&format!("{}set vpn ipsec processors 1000\n", ipsec::configuration(0)));
    assert!(a.0.reload().contains("fix: set vpn ipsec processors LIST"));
    assert_eq!(threads(&a.0.socket)["ipsec0 in"], first.to_string());
}
