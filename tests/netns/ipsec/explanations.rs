//! What `explain` says of a tunnel that does not come up, and the lines with which it does.

use super::{ESP, IKE, INSIDE, SECRET, configuration, started};
use crate::support::PATIENCE;
use lab::wait_until;
use std::process::Stdio;

#[test]
fn a_wrong_secret_is_explained_on_both_sides() {
    let wrong =
        |end, text: String| if end == 1 { text.replace("secret right", "secret wrong") } else { text };
    let Some((_lab, [a, b])) = started(wrong) else { return };
    for (gateway, what) in [(&a, "rejected our authentication"), (&b, "the pre-shared keys differ")] {
        let said = gateway.explains("other");
        assert!(said.contains("peer other: down\n") && said.contains(what), "{said}");
        assert!(said.contains(&format!("  fix: {SECRET} SECRET")), "{said}");
        assert!(gateway.says("show vpn ipsec sa").contains(what));
    }
}

#[test]
fn a_tunnel_that_failed_is_tried_again_as_long_as_packets_come() {
    let wrong = |end, text: String| match end {
        0 => text.replace("connection-type initiate", "connection-type trap"),
        _ => text.replace("secret right", "secret wrong"),
    };
    let Some((mut lab, [a, b])) = started(wrong) else { return };
    let mut pings = lab.command("a", "ping");
    let pings = pings.args(["-i", "0.2", "-I", "10.10.0.1", "10.20.0.1"]).stdout(Stdio::null());
    lab.start(pings).expect("it starts");
    a.explains("other");
    b.write(&configuration(1));
    assert!(b.0.reload().contains("in force"));
    // Not before ten seconds are over.
    wait_until(PATIENCE, || a.spis("other").len() == 1).expect("it comes up");
}

/// The lines that are to be typed.
fn mending(said: &str) -> String {
    let lines =
        said.lines().filter_map(|line| line.trim_start().trim_start_matches("fix: ").strip_prefix("set "));
    lines.map(|line| format!("set {line}\n")).collect()
}

/// What the second site says when `wrong` is in its configuration, which is mended by the lines that it says.
fn is_mended(wrong: &[(&str, &str)]) -> Option<[String; 2]> {
    let change = |end, text: String| match end {
        1 => wrong.iter().fold(text, |text, (right, wrong)| text.replace(right, wrong)),
        _ => text,
    };
    let (_lab, [a, b]) = started(change)?;
    let said = [&a, &b].map(|gateway| gateway.explains("other"));
    b.write(&(change(1, configuration(1)) + &mending(&said[1])));
    assert!(b.0.reload().contains("in force"), "{}", said[1]);
    a.says("reset vpn ipsec site-to-site peer other");
    b.comes_up("other");
    let now = b.says("explain vpn ipsec peer other");
    assert!(now.contains("peer other: up\n") && !now.contains("fix:"), "{now}");
    Some(said)
}

#[test]
fn a_wrong_proposal_for_ike_is_mended_by_the_lines_that_explain_it() {
    let wrong = [
        (format!("{IKE} encryption aes256gcm128\n"), format!("{IKE} encryption aes128\n{IKE} hash sha256\n")),
        (format!("{IKE} dh-group 31\n"), format!("{IKE} dh-group 14\n")),
    ];
    let Some([a, b]) = is_mended(&wrong.each_ref().map(|(right, wrong)| (&**right, &**wrong))) else {
        return;
    };
    assert!(
        a.contains("no common proposal for IKE") && a.contains("we accept aes256gcm128-prfsha256-x25519"),
        "{a}"
    );
    assert!(a.contains("  fix: set vpn ipsec ike-group SITES proposal 2 encryption"), "{a}");
    assert!(b.contains("we accept aes128-sha256-prfsha256-modp2048\n"), "{b}");
    assert!(b.contains("the peer offers aes256gcm128-prfsha256-x25519\n"), "{b}");
    assert!(b.contains("  fix: set vpn ipsec ike-group SITES proposal 2 encryption aes256gcm128\n"), "{b}");
}

#[test]
fn a_wrong_proposal_for_esp_is_mended_by_the_lines_that_explain_it() {
    let (right, wrong) =
        (format!("{ESP} encryption aes256gcm128\n"), format!("{ESP} encryption aes128\n{ESP} hash sha1\n"));
    let Some([a, b]) = is_mended(&[(&right, &wrong)]) else { return };
    assert!(a.contains("no common proposal for other-tunnel-1"), "{a}");
    assert!(b.contains("  fix: set vpn ipsec esp-group SITES proposal 2 encryption aes256gcm128\n"), "{b}");
}

#[test]
fn networks_that_do_not_fit_are_told_from_both_sides() {
    let wrong = |end, text: String| if end == 1 { text.replace(INSIDE[1], "10.99.0.0/16") } else { text };
    let Some((_lab, [a, b])) = started(wrong) else { return };
    assert!(a.explains("other").contains("here: local 10.10.0.0/16, remote 10.20.0.0/16"));
    let said = b.explains("other");
    assert!(said.contains("the peer: local 10.10.0.0/16, remote 10.20.0.0/16"), "{said}");
    let tunnel = "vpn ipsec site-to-site peer other tunnel 1 local prefix";
    let fix =
        format!("  fix: delete {tunnel} 10.99.0.0/16\n       set {tunnel} 10.20.0.0/16\n       here; or");
    assert!(said.contains(&fix), "{said}");
}
