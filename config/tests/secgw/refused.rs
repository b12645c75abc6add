//! Lines that are refused, with the messages of ipsec-secgw.

use crate::{SA, SP, error};

/// Each line is refused with the message behind it.
fn refused(rows: &[(&str, &str)]) {
    for (line, message) in rows {
        assert_eq!(error(line).as_deref(), Some(format!("f:1: error: {message}").as_str()), "{line}");
    }
}

#[test]
fn lines_without_a_rule() {
    refused(&[
        ("spd ipv4 in", "parsing \"spd ipv4 in\" failed"),
        ("SP ipv4 in", "parsing \"SP ipv4 in\" failed"),
        ("sp", "parsing \"sp\" failed"),
        ("\x0c", "parsing \"\x0c\" failed"),
        ("neigh port 1", "parsing \"neigh port 1\" failed"),
        ("neigh 1 port 00:11:22:33:44:55", "parsing \"neigh 1 port ***\" failed"),
        ("neigh port 65536 00:11:22:33:44:55", "parsing \"neigh port 65536 ***\" failed"),
        ("neigh port 1 00:11:22:33:44:55 x", "parsing \"neigh port 1 *** x\" failed"),
        ("neigh port 32 00:11:22:33:44:55", "invalid port number:32"),
    ]);
}

#[test]
fn lines_at_which_ipsec_secgw_crashes() {
    refused(&[
        ("sp \x0b", "missing ipv4 or ipv6"),
        ("sp ipv4", "missing \"in\" or \"out\""),
        ("sa in", "missing SPI"),
        ("rt \x0c", "missing ipv4 or ipv6"),
    ]);
}

#[test]
fn policies() {
    refused(&[
        ("sp ip in", "unrecognizable input ip"),
        ("sp ipv6 up", "unrecognized input \"ipv6\", expect \"in\" or \"out\""),
        ("sp ipv4 in bypass", "missing argument \"esp\""),
        ("sp ipv4 in esp", "missing argument \"protect\", \"bypass\", or \"discard\""),
        ("sp ipv4 in esp esp", "item \"esp\" already present"),
        ("sp ipv4 in protect 5 protect 5", "item \"protect\" already present"),
        ("sp ipv4 in bypass protect 5", "conflict item between \"protect\" and \"bypass\""),
        ("sp ipv4 in protect 5 discard", "conflict item between \"discard\" and \"protect\""),
        ("sp ipv4 in bypass discard", "conflict item between \"discard\" and \"discard\""),
        ("sp ipv4 in protect", "reaching the end of the token array"),
        ("sp ipv4 in protect x5", "input \"x5\" is not valid number string"),
        ("sp ipv4 in protect 0", "invalid SPI: 0"),
        ("sp ipv4 in protect 4294967295", "invalid SPI: 4294967295"),
        ("sp ipv4 in protect 4294967296", "invalid SPI: 4294967296"),
        ("sp ipv4 in pri -1", "input \"-1\" is not valid number string"),
        ("sp ipv4 in src 1.2.3", "unrecognized input \"1.2.3\", expect valid ipv4 addr"),
        ("sp ipv4 in src 1.2.3.4/x", "unrecognized input \"1.2.3.4/x\", expect valid ipv4 addr"),
        ("sp ipv6 in dst 1.2.3.4", "unrecognized input \"1.2.3.4\", expect valid ipv6 addr"),
        ("sp ipv4 in proto 17", "proto low over-limit"),
        ("sp ipv4 in proto 17:256", "proto high over-limit"),
        ("sp ipv4 in proto 17:", "unrecognized input \"17:\", expect \"from:to\""),
        ("sp ipv4 in sport 1:2:3", "unrecognized input \"1:2:3\", expect \"port_from:port_to\""),
        ("sp ipv4 in any", "unrecognized input \"any\""),
    ]);
    refused(&[(&format!("{SP}{}", " x".repeat(30)), "too many arguments")]);
}

#[test]
fn associations() {
    let key = "00:01:02:03:04:05:06:07:08:09:0a:0b:0c:0d:0e:0f";
    refused(&[
        ("sa in x", "input \"x\" is not valid number string"),
        ("sa in 5 mode tunnel", "unrecognized input \"tunnel\""),
        ("sa in 5 mode transport mode transport", "item \"mode\" already present"),
        ("sa in 5 mode transport src 1.2.3.4", "unrecognized input \"1.2.3.4\""),
        ("sa in 5 mode ipv4-tunnel src ::1", "unrecognized input \"::1\", expect valid ipv4 addr"),
        ("sa in 5 mode ipv6-tunnel dst 1.2.3.4", "unrecognized input \"1.2.3.4\", expect valid ipv6 addr"),
        ("sa in 5 cipher_algo rot13", "unrecognized input \"rot13\""),
        ("sa in 5 auth_algo aes-xcbc-mac", "unrecognized input \"aes-xcbc-mac\""),
        ("sa in 5 cipher_algo null cipher_key 00", "unrecognized input \"cipher_key\""),
        ("sa in 5 cipher_algo aes-128-cbc mode", "unrecognized input \"mode\", expect \"cipher_key\""),
        (
            &format!("sa in 5 cipher_algo aes-128-cbc {key}"),
            "unrecognized input \"***\", expect \"cipher_key\"",
        ),
        (&format!("sa in 5 cipher_algo aes-192-cbc cipher_key {key}"), "unrecognized input \"***\""),
        ("sa in 5 cipher_algo des-cbc cipher_key 000:01:02:03:04:05:06:07", "unrecognized input \"***\""),
        ("sa in 5 type offload", "Invalid input \"offload\""),
        ("sa in 5 port_id 1 flow-direction 2 0", "portid 2 not matching with already assigned portid 1"),
        (
            "sa in 5 type inline-crypto-offload flow-direction 0 0",
            "flow director not supported for security session type 1",
        ),
        ("sa in 5 udp-encap", "UDP encapsulation not supported for security session type 0"),
        ("sa in 5 type cpu-crypto udp-encap", "UDP encapsulation not supported for security session type 4"),
        (
            "sa in 5 fallback cpu-crypto",
            "Fallback session allowed if primary session is of type inline-crypto-offload only.",
        ),
        (
            "sa out 5 type inline-crypto-offload fallback cpu-crypto",
            "Fallback session not allowed for egress rule",
        ),
        ("sa in 5 type inline-crypto-offload fallback x", "unrecognized fallback type x."),
        (&format!("{SA} cipher_algo null"), "AEAD used, no need for cipher options"),
        (&format!("{SA} auth_algo null"), "AEAD used, no need for auth options"),
        ("sa in 5 mode transport", "missing cipher or AEAD options"),
        ("sa in 5 mode transport cipher_algo null", "missing auth or AEAD options"),
        ("sa in 5 cipher_algo null auth_algo null", "missing mode option"),
        ("sa in 5 lifetime 3600", "unrecognized input \"lifetime\""),
    ]);
}

#[test]
fn a_fallback_needs_the_library() {
    let line = "sa in 5 type inline-crypto-offload fallback cpu-crypto";
    let context = config::secgw::Context { library: Some(false), strict: true, ..Default::default() };
    let loaded = config::secgw::read(line.as_bytes(), &context);
    assert_eq!(loaded.findings[0].text, "Fallback session not allowed for legacy mode.");
}

#[test]
fn routes_and_flows() {
    refused(&[
        ("rt ip dst 1.2.3.4/8", "unrecognized input \"ip\""),
        ("rt ipv4 dst 1.2.3", "unrecognized input \"1.2.3\", expect valid ipv4 addr"),
        ("rt ipv6 dst x", "unrecognized input \"x\", expect valid ipv6 address"),
        ("rt ipv4 port x", "input \"x\" is not valid number string"),
        ("rt ipv4 dst", "reaching the end of the token array"),
        ("flow ipv4 src 1.2.3.4 dst 1.2.3.5", "Unrecognized input:dst"),
        ("flow ipv6 src 1.2.3.4", "unrecognized input \"1.2.3.4\", expect valid ipv6 address"),
        ("flow ipv4", "reaching the end of the token array"),
        ("flow queue x", "input \"x\" is not valid number string"),
    ]);
    let routes = |count: u32| -> String {
        (0..count).map(|number| format!("rt ipv4 dst 10.{}.{}.0/24\n", number / 256, number % 256)).collect()
    };
    assert_eq!(error(&routes(1024)), None);
    assert_eq!(error(&routes(1025)).as_deref(), Some("f:1025: error: too many rt rules, abort insertion"));
}
