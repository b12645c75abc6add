//! The command line: words of EAL, `--`, words of ipsec-secgw.

use crate::{SITE_A, command_line, strictly};
use config::secgw::{CommandLine, QueueAssignment, check};

const PORTS: &str = "--vdev net_tap0 --vdev net_tap1";

#[test]
fn words_become_settings() {
    let words = command_line(
        "-l 0-2 -n 4 --no-huge -m 64 --vdev crypto_aesni_gcm0 --vdev net_af_xdp0,iface=eth1,queue_count=2 --vdev net_tap0 \
         --file-prefix a -- -p0x3 -u 1 -Pe -w 300 -j 8192 -t 5 -f ep0.cfg --config=(0,0,1),(1,0,2) --mtu 9000 --reassemble 64",
    )
    .expect("it is accepted");
    let (eal, application) = (&words.eal, &words.application);
    assert_eq!(words.cores.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(
        eal.ports().map(|device| device.name.as_str()).collect::<Vec<_>>(),
        ["net_af_xdp0", "net_tap0"]
    );
    assert_eq!(
        eal.ports().next().expect("there are two").arguments[0],
        ("iface".to_owned(), "eth1".to_owned())
    );
    assert!(eal.no_huge && eal.memory_megabytes == Some(64) && eal.file_prefix.as_deref() == Some("a"));
    assert_eq!((application.ports, application.unprotected, application.window), (3, 1, 300));
    assert!(application.promiscuous && application.extended_sequence);
    assert_eq!((application.buffer, application.mtu, application.statistics_seconds), (8192, 9000, 5));
    let queue = |port, core| QueueAssignment { port, queue: 0, core };
    assert_eq!(application.queues.as_deref(), Some(&[queue(0, 1), queue(1, 2)][..]));
    assert!(application.library, "reassembly implies -l");
}

#[test]
fn with_dpdk_all_words_but_those_of_lcores_are_for_its_eal() {
    let words = command_line(
        "-l 0-1 -n4 --vdev net_memif0,role=server --vdev crypto_openssl0 -a 0000:01:00.0 -s 2 --no-huge -m 64 --huge-unlink=existing \
         --main-lcore 0 --dpdk -- -p 5 -f x --config (2,0,0)",
    )
    .expect("it is accepted");
    let handed = "-n 4 --vdev net_memif0,role=server --vdev crypto_openssl0 -a 0000:01:00.0 --no-huge -m 64 --huge-unlink=existing";
    assert_eq!(words.eal.dpdk.as_ref().map(|words| words.join(" ")).as_deref(), Some(handed));
    let found: Vec<&str> = words.findings.iter().map(|finding| finding.text.as_str()).collect();
    assert_eq!(found, ["-s has no effect: it is about DPDK"], "lcores are not DPDK's");
    let findings = check(&strictly(SITE_A), &words, false);
    assert_eq!(findings, [], "only DPDK knows how many ports there are");
    assert_eq!(command_line("-- -p 1 -f x").map(|words| words.eal.dpdk), Ok(None));
    for words in ["--vdev net_memif0 --", "-a 0000:01:00.0 --"] {
        let refused = CommandLine::read(&words.split(' ').map(str::to_owned).collect::<Vec<_>>(), 4);
        assert!(refused.is_err_and(|finding| finding.fix.contains("--dpdk")), "{words}");
    }
}

#[test]
fn a_packet_that_is_larger_than_a_buffer_implies_the_library() {
    let library = |words: &str| {
        command_line(&format!("-- -p 1 -f x {words}")).expect("it is accepted").application.library
    };
    assert!(
        !library("") && !library("--mtu 2030") && library("--mtu 2031") && library("-a") && library("-l")
    );
    assert!(!library("--mtu 9000 -j 9146") && library("--mtu 9000 -j 9145"));
}

#[test]
fn wrong_words_are_refused() {
    for (words, message) in [
        ("-p 1 -f x", "Invalid EAL parameters: -p is no option here"),
        ("-l 0 -c 1 --", "Option -c is ignored, because (-l) is set!"),
        ("-l a --", "invalid core list syntax"),
        ("-c xyz --", "invalid coremask syntax"),
        ("--lcores 0@ --", "invalid parameter for --lcores"),
        ("-n 0 --", "invalid channel number"),
        ("-l 0 --main-lcore 1 --", "Main lcore is not enabled for DPDK"),
        ("--proc-type secondary --", "Postern has no secondary process"),
        ("--socket-mem 64 --no-huge --", "Option --socket-mem cannot be specified together with --no-huge"),
        (
            "-a 0000:01:00.0 -b 0000:02:00.0 --",
            "Options allow (-a) and block (-b) can't be used at the same time",
        ),
        ("-a 0000:01:00.0 --", "-a needs a PCI device under a driver of DPDK, which Postern does not have"),
        ("--vdev net_memif0 --", "--vdev net_memif0 needs a driver of DPDK that Postern does not have"),
        ("--vdev net_af_xdp0 --", "--vdev net_af_xdp0 has no iface"),
        ("-- -p 1", "Mandatory option \"-f\" not present"),
        ("-- -f x -f y", "\"-f\" option present more than once!"),
        ("-- -f x -p 0", "invalid portmask"),
        ("-- -f x -u 0", "invalid unprotected portmask"),
        ("-- -f x -j 2175", "Invalid frame buffer size value: 2175"),
        ("-- -f x -t y", "Invalid interval value: y"),
        ("-- -f x --config (0,0", "Invalid config"),
        ("-- -f x --config (0,0)", "Invalid config"),
        ("-- -f x --config (33,0,0)", "Invalid config"),
        ("-- -f x --single-sa y", "Invalid argument[sa_idx]"),
        ("-- -f x --cryptodev_mask y", "Invalid argument[portmask]"),
        (
            "-- -f x --transfer-mode event",
            "--transfer-mode event needs an event device, which Postern does not have",
        ),
        ("-- -f x --transfer-mode x", "Unsupported packet transfer mode"),
        (
            "-- -f x --event-schedule-type atomic",
            "error: option --event-schedule-type applies only to event mode",
        ),
        ("-- -f x --mtu 65536", "Invalid argument for 'mtu': 65536"),
        ("-- -f x --frag-ttl 10000000001", "Invalid argument for 'mtu': 10000000001"),
        ("-- -f x --rxoffload y", "Invalid argument for 'rxoffload': y"),
        ("-- -f x -z", "-z is no option here"),
    ] {
        assert_eq!(command_line(words).map(|_| ()), Err(message.to_owned()), "{words}");
    }
}

#[test]
fn what_seems_a_mask_and_is_none_is_a_finding() {
    let found = |words: &str| {
        let words = command_line(words).expect("it is accepted");
        (
            words.application.ports,
            words.findings.iter().map(|finding| finding.text.clone()).collect::<Vec<_>>(),
        )
    };
    assert_eq!(found("-- -f x -p 10"), (16, vec!["-p 10 is hexadecimal: 0x10".into()]));
    assert_eq!(
        found("-- -f x -p ports"),
        (u32::MAX, vec!["-p ports is no mask, and is read as 0xffffffff".into()])
    );
    assert_eq!(found("-- -f x -p 0xffffffff"), (u32::MAX, vec![]));
    assert_eq!(
        found("-- -f x -p 1 --desc-nb 64").1,
        ["--desc-nb has no effect: it is about the pools and queues of DPDK"]
    );
}

/// The messages at start.
fn start(words: &str) -> Vec<String> {
    let words = command_line(words).expect("the words are accepted");
    check(&strictly(SITE_A), &words, true).into_iter().map(|finding| finding.text).collect()
}

#[test]
fn words_and_file_are_checked_together() {
    assert_eq!(start(&format!("-l 0 {PORTS} -- -p 3 -u 1 -f x --config (0,0,0),(1,0,0)")), [""; 0]);
    assert_eq!(
        start(&format!("{PORTS} -- -p 3 -f x --config (0,0,3)")),
        [""; 0],
        "each of the four processors is an lcore"
    );
    for (words, message) in [
        ("-l 0 -- -p 3 -u 6 -f x --config (0,0,0)", "Invalid unprotected portmask 0x6"),
        ("-l 0 -- -p 3 -f x", "Error: No port/queue/core mappings"),
        ("-l 0 -- -p 3 -f x --config (0,0,1)", "error: lcore 1 is not enabled in lcore mask"),
        ("-- -p 3 -f x --config (0,0,4)", "error: lcore 4 is not enabled in lcore mask"),
        ("-l 0 -- -p 1 -f x --config (1,0,0)", "port 1 is not enabled in port mask"),
        ("-l 0 -- -p 7 -f x --config (2,0,0)", "port 2 is not present on the board"),
        ("-l 0 -- -p 3 -f x --config (0,0,0) --single-sa 3", "--single-sa 3: the file has 3 outbound SAs"),
    ] {
        assert_eq!(start(&format!("{PORTS} {words}")), [message], "{words}");
    }
    let queues: Vec<String> = (0..17).map(|queue| format!("(0,{queue},0)")).collect();
    let words = format!("-l 0 {PORTS} -- -p 3 -f x --config {}", queues.join(","));
    assert_eq!(start(&words), ["error: too many queues (17) for lcore: 0"]);
    let words = command_line(&format!("-l 0 {PORTS} -- -p 3 -u 1 -f x --config (0,0,0)")).expect("accepted");
    let findings = check(&strictly("rt ipv4 dst 10.0.0.0/8 port 0"), &words, true);
    assert_eq!(findings[0].text, "Cannot use unprotected portmask without configured SA inbound");
}

#[test]
fn ports_have_addresses_and_only_those_of_the_words() {
    let read = |addresses: &str| {
        command_line(&format!("{PORTS} -- -p 3 -u 2 -f x --config (0,0,0) --address {addresses}"))
            .map(|line| line.application.addresses.iter().map(|(port, it)| format!("{port} {it}")).collect())
    };
    let read: &dyn Fn(&str) -> Result<Vec<String>, String> = &read;
    assert_eq!(read("(0,192.0.2.1),(1,2001:db8::1)"), Ok(vec!["0 192.0.2.1".into(), "1 2001:db8::1".into()]));
    for wrong in [
        "x",
        "(0)",
        "(0,x)",
        "(32,192.0.2.1)",
        "(0,192.0.2.1",
        "(0,224.0.0.1)",
        "(0,::)",
        "(0,192.0.2.1),",
        "()",
    ] {
        let said = read(wrong).expect_err(wrong);
        assert!(said.contains("Invalid argument for 'address'"), "{wrong}: {said}");
    }
    let many: Vec<String> = (0..65).map(|last| format!("(0,192.0.2.{last})")).collect();
    assert!(read(&many.join(",")).is_err());
}
