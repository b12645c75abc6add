//! Errors of files: all at once, with their lines, and without secrets.

use super::{CLIENT, Memory, SERVER, arguments, bad, good, shown, text};
use config::openvpn::load;

#[test]
fn all_errors_are_told_at_once_with_their_lines() {
    let shown = bad(&format!("{CLIENT}porto udp\n\nverb x\ncipher BF-CBC\nresolve-retry infinite\n"));
    assert!(shown.contains(
        "it.conf:7: porto: it is not a directive of OpenVPN 2.6 or 2.7\n  fix: did you mean proto?"
    ));
    assert!(shown.contains("it.conf:9: verb: x is not a number from 0 to 15\n  fix: write verb LEVEL"));
    assert!(shown.contains("it.conf:10: cipher: BF-CBC"));
    assert!(
        shown.contains("it.conf:11: resolve-retry: it is not")
            && shown.contains("did you mean resolv-retry?")
    );
    let lines: Vec<&str> = shown.lines().filter(|line| line.starts_with("it.conf")).collect();
    assert_eq!(lines.len(), 4, "{shown}");
}

#[test]
fn a_truncated_block_is_one_error_and_shows_nothing() {
    let shown = bad(&format!("{CLIENT}<key>\n-----BEGIN PRIVATE KEY-----\nT3BlblNlc2FtZQ==\n"));
    assert_eq!(shown, "it.conf:7: key: <key> has no end\n  fix: write </key> behind its last line\n");
    let pem = bad(&format!("{CLIENT}<key>\n-----BEGIN PRIVATE KEY-----\nT3BlblNlc2FtZQ==\n</key>\n"));
    assert!(
        pem.contains("it.conf:7: key: the block is truncated: the END line of PRIVATE KEY is missing"),
        "{pem}"
    );
    let connection = bad(&format!("{CLIENT}<connection>\nremote a.example\n"));
    assert!(connection.contains("it.conf:7: connection: <connection> has no end"), "{connection}");
}

#[test]
fn a_key_outside_of_its_block_is_one_error_and_is_not_shown() {
    let shown = bad(&format!(
        "{CLIENT}-----BEGIN OpenVPN Static key V1-----\n4f70656e536573616d654f70656e5365\n\
         a4f70656e536573616d654f70656e536\n-----END OpenVPN Static key V1-----\n"
    ));
    assert!(shown.starts_with("it.conf:7: 4 lines from here to line 10 are no directives"), "{shown}");
    assert_eq!(shown.lines().count(), 2, "{shown}");
}

#[test]
fn words_that_may_be_secrets_are_not_repeated() {
    let shown = bad(&format!("{CLIENT}T3BlblNlc2FtZQ== hunter2\n"));
    assert!(shown.contains("it.conf:7: this line is no directive"), "{shown}");
    let shown = bad(&format!("{CLIENT}passwort hunter2\n"));
    assert!(shown.contains("it.conf:7: passwort: it is not a directive"), "{shown}");
}

#[test]
fn quotes_and_backslashes_are_checked() {
    assert!(bad(&format!("{SERVER}push \"route 10.0.0.0\n")).contains("it.conf:6: a quotation does not end"));
    let windows = bad(&format!("{SERVER}ca C:\\vpn\\ca.crt\n"));
    assert!(windows.contains("it.conf:6: a backslash stands before"), "{windows}");
}

#[test]
fn unknown_directives_are_ignored_where_the_file_allows_it() {
    for allowed in [
        "ignore-unknown-option future other\nfuture 1",
        "setenv FORWARD_COMPATIBLE 1\nfuture 1",
        "setenv opt future 1",
    ] {
        let loaded =
            text(&format!("{CLIENT}{allowed}\n")).unwrap_or_else(|refusals| panic!("{}", shown(&refusals)));
        assert!(loaded.remarks.iter().any(|remark| remark.directive == "future"), "{allowed}");
    }
    // A directive that is known is refused all the same.
    assert!(bad(&format!("{CLIENT}setenv opt fragment 1400\n")).contains("fragment: fragments"));
}

#[test]
fn files_include_others_up_to_a_depth() {
    let files = Memory::default()
        .with("/a/it.conf", "cd /b\nconfig more.conf\nca ca.crt\n")
        .with("/b/more.conf", "client\ndev tun\nremote a.example\nverb 99\n");
    let words = arguments(&["/a/it.conf", "--auth-user-pass"]);
    let refusals = load(&words, &files).expect_err("two arguments are directives");
    assert!(shown(&refusals).starts_with("command line: an argument does not belong"));
    let words = arguments(&["--config", "/a/it.conf", "--auth-user-pass"]);
    let refusals = load(&words, &files).expect_err("it is wrong");
    assert!(shown(&refusals).starts_with("/b/more.conf:4: verb: 99 is not"), "{}", shown(&refusals));
    let endless = Memory::default().with("it.conf", "config it.conf\n");
    let refusals = load(&arguments(&["it.conf"]), &endless).expect_err("endless");
    assert!(shown(&refusals).contains("it.conf:1: config: files are included more than 10 deep"));
    let doubling = Memory::default().with("it.conf", "config it.conf\nconfig it.conf\n");
    let refusals = load(&arguments(&["it.conf"]), &doubling).expect_err("doubling");
    assert!(shown(&refusals).contains("config: more than 64 files are included"));
    let missing = load(&arguments(&["it.conf"]), &Memory::default()).expect_err("missing");
    assert!(shown(&missing).starts_with("command line: config: cannot read it.conf"));
}

#[test]
fn the_command_line_has_the_same_directives() {
    let words =
        "--dev tun --client --remote vpn.example.net 443 tcp --ca ca.crt --cert a.crt --key a.key --verb 4";
    let words: Vec<&str> = words.split(' ').collect();
    let loaded = load(&arguments(&words), &Memory::default()).unwrap_or_else(|it| panic!("{}", shown(&it)));
    assert_eq!(loaded.settings.connections[0].remote_port, 443);
    assert_eq!(loaded.settings.log.verbosity, 4);
    let refusals = load(&arguments(&["--dev", "tun", "--clent"]), &Memory::default()).expect_err("wrong");
    assert!(shown(&refusals).contains("command line: clent: it is not a directive"), "{}", shown(&refusals));
}

#[test]
fn later_directives_replace_earlier_ones() {
    let settings = good(&format!("{CLIENT}verb 3\nverb 5\nca [inline]\n<ca>\n{}</ca>\n", super::CERTIFICATE));
    assert_eq!(settings.log.verbosity, 5);
    assert!(settings.tls.authority.expect("one").file.is_none());
}
