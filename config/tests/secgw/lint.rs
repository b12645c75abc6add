//! Traps of files that ipsec-secgw starts with, and errors at its start.

use crate::{SA, SITE_A, SITE_B, SP, rules, strictly};

/// The words with which site A runs.
const WORDS: &str = "-l 0-1 --vdev net_af_xdp0,iface=a --vdev net_af_xdp1,iface=b --vdev net_af_xdp2,iface=c \
                     --vdev net_af_xdp3,iface=d -- -l -p 0xf -u 0xc -w 1024 -f site.cfg --config (0,0,0),(1,0,0),(2,0,1),(3,0,1)";

/// A clean file: policies for all families and directions, an SA each way, routes.
const CLEAN: &str = "\
sp ipv4 in esp protect 300 pri 9 src 10.2.0.0/16 dst 10.1.0.0/16 sport 0:65535 dport 0:65535
sp ipv4 out esp protect 301 pri 9 src 10.1.0.0/16 dst 10.2.0.0/16 sport 0:65535 dport 0:65535
sp ipv6 in esp discard pri 1 sport 0:65535 dport 0:65535
sp ipv6 out esp discard pri 1 sport 0:65535 dport 0:65535
sa in 300 mode ipv4-tunnel src 192.0.2.2 dst 192.0.2.1 aead_algo aes-128-gcm aead_key 1:2:3:4:5:6:7:8:9:a:b:c:d:e:f:10:11:12:13:14
sa out 301 mode ipv4-tunnel src 192.0.2.1 dst 192.0.2.2 aead_algo aes-128-gcm aead_key f1:2:3:4:5:6:7:8:9:a:b:c:d:e:f:10:11:12:13:14
rt ipv4 dst 10.1.0.0/16 port 0
rt ipv4 dst 192.0.2.2/32 port 1
";

/// What adding lines to the clean file adds; the first one has the number 9.
fn added(lines: &str) -> Vec<String> {
    rules(&format!("{CLEAN}{lines}\n"), None, true)
}

/// A line of the clean file with other words.
fn changed(old: &str, new: &str) -> Vec<String> {
    assert!(CLEAN.contains(old));
    rules(&CLEAN.replacen(old, new, 1), None, true)
}

#[test]
fn clean_files_have_no_trap() {
    assert_eq!(rules(CLEAN, None, true), [""; 0]);
    assert_eq!(rules(SITE_A, Some(WORDS), true), [""; 0]);
    assert_eq!(rules(SITE_B, Some(WORDS), true), [""; 0]);
    let legacy = WORDS.replace("-l -p", "-p");
    let chacha = ["29 library-algorithm", "31 library-algorithm"];
    assert_eq!(rules(SITE_A, Some(&legacy), true), chacha, "chacha20-poly1305 needs -l");
    assert_eq!(rules(SITE_B, None, true), chacha);
}

#[test]
fn policies_that_match_nothing_or_too_much() {
    assert_eq!(changed(" sport 0:65535 dport 0:65535", ""), ["1 ports-zero"]);
    assert_eq!(changed("sport 0:65535", "sport 9:8"), ["1 port-order"]);
    assert_eq!(changed("pri 9 src", "pri 9 proto 6:17 src"), ["1 protocol-mask"]);
    assert_eq!(changed("pri 9 src", "pri 9 proto 17:255 src"), [""; 0]);
    assert_eq!(
        changed("sport 0:65535 dport 0:65535\n", "proto 1:255 sport 2048:2048 dport 0:65535\n"),
        ["1 icmp-ports"]
    );
    assert_eq!(changed("src 10.2.0.0/16", "src 10.2.0.1/16"), ["1 host-bits"]);
    assert_eq!(changed("src 10.2.0.0/16", "src 10.2.0.1"), ["1 any-address"]);
    assert_eq!(changed("sp ipv6 in", "sp ipv6 out"), ["0 no-policy", "4 duplicate-policy"]);
    let text =
        "sp ipv4 in esp discard pri 8 src 10.2.3.0/24 dst 10.1.0.0/24 proto 6:255 sport 0:65535 dport 80:80";
    assert_eq!(added(text), ["9 shadowed"]);
    assert_eq!(added(&text.replace("pri 8", "pri 9")), ["9 equal-priority"]);
    assert_eq!(added(&text.replace("pri 8", "pri 10")), [""; 0]);
}

#[test]
fn errors_at_start_have_the_line() {
    assert_eq!(changed("pri 9 ", ""), ["1 priority"]);
    assert_eq!(changed("pri 9", "pri 536870912"), ["1 priority"]);
    assert_eq!(changed("pri 9", "pri 536870911"), [""; 0]);
    assert_eq!(changed("protect 300", "protect 302"), ["1 spi-missing", "5 sa-without-policy"]);
    assert_eq!(changed("10.1.0.0/16 port", "10.1.0.0 port"), ["7 route-prefix"]);
    assert_eq!(changed("10.1.0.0/16 port", "10.1.0.0/33 port"), ["7 route-prefix"]);
    assert_eq!(added("rt ipv4 port 0"), ["9 route-prefix"]);
    assert_eq!(
        changed("mode ipv4-tunnel src", "type inline-crypto-offload port_id 0 mode ipv4-tunnel src"),
        ["5 hardware"]
    );
    let messages: Vec<String> =
        config::secgw::lint(&strictly(&CLEAN.replace("10.1.0.0/16 port", "10.1.0.0 port")), None, true)
            .iter()
            .map(|finding| finding.in_file("f").to_string())
            .collect();
    assert_eq!(
        messages,
        ["f:7: error: Fail to add entry num 0 to rt_ip4_0 LPM table on socket 0\n  \
          fix: write the destination with its prefix length, such as dst 10.1.0.0/32"]
    );
}

#[test]
fn what_only_postern_takes_is_refused_strictly() {
    let default = format!("{CLEAN}rt ipv4 dst 0.0.0.0/0 port 1\n");
    assert_eq!(
        (rules(&default, None, true), rules(&default, None, false)),
        (vec!["9 route-prefix".into()], vec!["9 default-route".into()])
    );
    let encapsulated = CLEAN.replacen("mode", "udp-encap mode", 1);
    assert_eq!(
        (rules(&encapsulated, None, true), rules(&encapsulated, None, false)),
        (vec!["5 line".into()], vec!["5 udp-encap".into()])
    );
    for word in ["lifetime 9", "life-bytes 9", "life-packets 9"] {
        let limited = CLEAN.replacen("mode", &format!("{word} mode"), 1);
        assert_eq!(rules(&limited, None, true), ["5 line"], "{word}");
        assert_eq!(rules(&limited, None, false), ["5 lifetime"], "{word}");
        for wrong in ["0", "-1", "x", "9 9"] {
            let limited = CLEAN.replacen("mode", &format!("{} mode", word.replace('9', wrong)), 1);
            assert!(rules(&limited, None, false).contains(&"5 line".to_owned()), "{word}: {wrong}");
        }
    }
    let negotiated = CLEAN.replace("esp protect 300", "ike east").replace("esp protect 301", "ike east");
    let negotiated: String =
        negotiated.lines().filter(|line| !line.starts_with("sa")).map(|line| format!("{line}\n")).collect();
    assert_eq!(rules(&negotiated, None, true), ["1 ike", "2 ike"]);
    assert_eq!(rules(&negotiated, None, false), [""; 0]);
    assert_eq!(rules(&CLEAN.replace("protect 300", "protect 300 ike east"), None, false), ["1 line"]);
    for wrong in ["rt ipv4 dst 0.0.0.0 port 1", "rt ipv4 dst 10.0.0.0/0 port 1"] {
        assert_eq!(rules(&format!("{CLEAN}{wrong}\n"), None, false)[0], "9 route-prefix", "{wrong}");
    }
}

#[test]
fn associations() {
    assert_eq!(added(SA.split(" aead").next().unwrap()), ["9 line"]);
    let sa = "sa in 300 mode ipv4-tunnel src 192.0.2.2 dst 192.0.2.1";
    assert_eq!(
        added(&format!("{sa} aead_algo aes-128-gcm aead_key a1:2:3:4:5:6:7:8:9:a:b:c:d:e:f:10:11:12:13:14")),
        ["9 duplicate-spi"]
    );
    assert_eq!(changed("f1:2", "1:2"), ["6 shared-key"]);
    assert_eq!(
        changed("1:2:3:4:5:6:7:8:9:a:b:c:d:e:f:10:11:12:13:14", &["0"; 20].join(":")),
        ["5 example-key"]
    );
    assert_eq!(changed("src 192.0.2.2 dst", "dst"), ["5 tunnel-address"]);
    assert_eq!(changed("src 192.0.2.2 dst 192.0.2.1", "src 192.0.2.1 dst 192.0.2.1"), ["5 tunnel-address"]);
    assert_eq!(changed("aes-128-gcm", "aes-128-ccm"), ["5 ccm-salt", "5 library-algorithm"]);
    let gcm = "aead_algo aes-128-gcm aead_key 1:2:3:4:5:6:7:8:9:a:b:c:d:e:f:10:11:12:13:14";
    assert_eq!(changed(gcm, "cipher_algo null auth_algo null"), ["5 null-cipher", "5 null-auth"]);
    assert_eq!(
        changed(gcm, "cipher_algo des-cbc cipher_key 1:2:3:4:5:6:7:8 auth_algo null"),
        ["5 weak-algorithm", "5 null-auth", "5 not-served", "5 library-algorithm"]
    );
    let gmac = "auth_algo aes-gmac auth_key 1:2:3:4:5:6:7:8:9:a:b:c:d:e:f:10:11:12:13:14";
    assert_eq!(changed(gcm, &format!("cipher_algo null {gmac}")), ["5 null-cipher", "5 library-algorithm"]);
    let cbc = "cipher_algo aes-128-cbc cipher_key 1:2:3:4:5:6:7:8:9:a:b:c:d:e:f:10";
    assert_eq!(
        changed(gcm, &format!("{cbc} {gmac}")),
        ["5 gmac-cipher", "5 not-served", "5 library-algorithm"]
    );
    let text = CLEAN.replace("301", "4000000000");
    assert_eq!(rules(&text, None, true), [""; 0], "directions are apart");
    let wide = "sa in 4000000000 mode transport cipher_algo null auth_algo null";
    assert!(
        added(wide).contains(&"9 wide-spi".to_owned())
            && added(wide).contains(&"9 sa-without-policy".to_owned())
    );
}

#[test]
fn routes_and_flows() {
    assert_eq!(changed("192.0.2.2/32", "192.0.2.9/32"), ["6 tunnel-without-route"]);
    assert_eq!(added("rt ipv4 dst 10.1.0.0/16 port 1"), ["9 duplicate-route"]);
    assert_eq!(added("rt ipv4 dst 10.3.0.1/16 port 1"), ["9 host-bits"]);
    assert_eq!(
        rules(SP, None, true),
        ["0 no-policy", "0 no-policy", "0 no-policy", "0 no-route", "1 spi-missing"]
    );
    assert_eq!(added("flow eth port 0 queue 1"), ["9 flow-hardware"]);
    assert_eq!(added("flow ipv4 dst 10.0.0.1"), ["9 flow-hardware", "9 flow-mask"]);
    assert_eq!(added("flow ipv6 dst 2001:db8::/32"), ["9 flow-hardware", "9 flow-mask"]);
    assert_eq!(added("flow ipv4 dst 10.0.0.0/8 ipv6 dst ::1"), ["9 flow-hardware", "9 flow-family"]);
}

#[test]
fn the_command_line_decides_about_ports_and_the_library() {
    let with = |words: &str| rules(SITE_A, Some(words), true);
    let fewer = WORDS.replace("-p 0xf", "-p 0x7");
    assert_eq!(with(&fewer), ["0 command-line", "0 command-line", "38 route-port", "44 neighbour-port"]);
    assert_eq!(with(&WORDS.replace("-w 1024", "-w 0")), ["0 no-replay-window"]);
    let text = SITE_A.replace("neigh port 3", "#");
    assert_eq!(rules(&text, Some(WORDS), true), ["0 default-neighbour"]);
    let both = format!("{SITE_A}sp ipv6 out esp protect 1000 pri 20 sport 0:65535 dport 0:65535\n");
    let legacy = WORDS.replace("-l -p", "-p");
    assert!(rules(&both, Some(WORDS), true).contains(&"19 library-mode".to_owned()));
    assert!(!rules(&both, Some(&legacy), true).iter().any(|rule| rule.ends_with("library-mode")));
    let alone = CLEAN.replace("protect 300", "bypass");
    assert!(rules(&alone, Some(WORDS), true).contains(&"5 library-mode".to_owned()));
    let direction = format!("{SA} flow-direction 0 5\n");
    assert!(rules(&direction, Some(WORDS), true).contains(&"1 flow-direction".to_owned()));
    assert!(
        !rules(&direction.replace("0 5", "0 0"), Some(WORDS), true).contains(&"1 flow-direction".to_owned())
    );
}

#[test]
fn ten_thousand_policies_are_compared_in_time() {
    let line = |number: u32| {
        format!(
            "sp ipv4 out esp bypass pri {} dst 10.{}.{}.0/24 sport 0:65535 dport 0:65535\n",
            number + 1,
            number / 256,
            number % 256
        )
    };
    let text: String = (0..10_000).map(line).collect();
    assert_eq!(rules(&text, None, true), ["0 no-policy", "0 no-policy", "0 no-policy", "0 no-route"]);
}

#[test]
fn a_route_by_which_decrypted_packets_leave_in_clear_is_named() {
    let words =
        "-l 0 --vdev net_tap0 --vdev net_tap1 -- -l -p 3 -u 2 -w 64 -f x.cfg --config (0,0,0),(1,0,0)";
    let clear = |file: &str| {
        let found = rules(file, Some(words), true);
        found.into_iter().filter(|rule| rule.ends_with("clear-route")).collect::<Vec<_>>()
    };
    assert_eq!(clear(CLEAN), [""; 0]);
    assert_eq!(clear(&CLEAN.replace("10.1.0.0/16 port 0", "10.1.0.0/16 port 1")), ["7 clear-route"]);
    // The longest prefix counts, as in the gateway.
    let more = format!("{CLEAN}rt ipv4 dst 10.0.0.0/8 port 1\n");
    assert_eq!(clear(&more), [""; 0]);
    assert_eq!(clear(&more.replace("rt ipv4 dst 10.1.0.0/16 port 0\n", "")), ["8 clear-route"]);
}
