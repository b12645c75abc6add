//! Lines that ipsec-secgw accepts and reads otherwise than they are written: each is a finding, and no error.

use crate::{SA, SP, error, rules, strictly};

/// Each line is accepted, with a finding of the rule behind it.
fn found(rows: &[(&str, &str)]) {
    for (line, rule) in rows {
        assert_eq!(error(line), None, "{line}");
        let findings = strictly(line).findings;
        assert!(findings.iter().any(|finding| finding.rule == *rule), "{line}: {findings:?}");
    }
}

#[test]
fn numbers_and_ranges() {
    found(&[
        ("sp ipv4 in esp protect 4294967301", "number-cut"),
        ("sp ipv4 in esp bypass pri 4294967297", "number-cut"),
        ("sp ipv4 in esp bypass sport 80", "range-read"),
        ("sp ipv4 in esp bypass sport tcp:80", "range-read"),
        ("sp ipv4 in esp bypass dport 0:65536", "range-read"),
        ("sp ipv4 in esp bypass src 10.0.0.1", "any-address"),
        ("sp ipv4 in esp bypass src 10.0.0.1/33", "prefix-length"),
        ("sp ipv6 in esp bypass src 2001:db8::/129", "prefix-length"),
        ("sp ipv4 in esp bypass src 192.168.100.10055", "address-cut"),
        (&format!("{SA} mss 70000"), "number-cut"),
        (&format!("{SA} mss x"), "number-cut"),
        ("rt ipv4 dst 10.0.0.0/280 port 0", "number-cut"),
        ("rt ipv4 dst 10.0.0.0/24 port 256", "number-cut"),
        ("flow port 65536", "number-cut"),
    ]);
}

#[test]
fn words_that_are_ignored() {
    let key = "cipher_algo null auth_algo null";
    found(&[
        ("sa in 0 whatever", "spi-zero"),
        (&format!("sa up 5 mode transport {key}"), "direction"),
        (&format!("sa in 5 src x mode ipv4-tunnel {key}"), "address-before-mode"),
        (&format!("sa in 5 mode ipv4-tunnel src 1.2.3.4/24 {key}"), "length-ignored"),
        (&format!("sa in 5 mode transport {key} type inline-crypto-offload"), "offload-without-port"),
        (&format!("sa in 5 mode transport {key}{}", " telemetry".repeat(25)), "excess-words"),
        ("rt ipv4 dst 10.0.0.0/8 via 10.0.0.1 port 1", "word-ignored"),
        ("rt ipv4 dst 10.0.0.0/8", "route-without-port"),
        ("flow ipv4 any", "word-ignored"),
        ("flow ipv4 src 1.2.3.4/33", "flow-dropped"),
        ("neigh port 1 00:11:22:33:44:5g", "ethernet-address"),
        ("rt ipv4 dst 10.0.0.0/8 port 1\rport 2", "line-cut"),
        ("rt ipv4 dst 10.0.0.0/8 port 1\0port 2", "line-cut"),
        ("rt ipv4 \\\n", "unfinished-line"),
        (
            "sa in 5 mode transport auth_algo null cipher_algo des-cbc cipher_key 1:zz::0x:-1:5:6:7",
            "key-digits",
        ),
    ]);
    let flows: String = "flow port 1\n".repeat(129);
    assert!(rules(&flows, None, true).contains(&"129 flow-dropped".to_owned()));
    assert_eq!(strictly(&flows).settings.flows.len(), 128);
}

#[test]
fn words_that_stop_nothing() {
    for line in
        ["", "   ", "\r", "# sp", "sp ipv4 in esp bypass # sport x", "rt ipv4\tdst 10.0.0.0/8 \x0b port\x0c1"]
    {
        assert_eq!(error(line), None, "{line:?}");
    }
    assert_eq!(error(&format!("\t {SP}\r\n{SA}\r\n")), None, "lines may end with a carriage return");
}
