//! Addresses of ports.

use super::*;
use packet::header::arp::Message;

const ASKER: [u8; 6] = [2, 0, 0, 0, 0, 9];

fn who_has(target: [u8; 4]) -> Vec<u8> {
    let target = ([0; 6], target.into());
    Message { is_request: true, sender: (ASKER, [192, 168, 1, 9].into()), target }.frame([0xff; 6])
}

#[test]
fn a_port_answers_for_its_own_addresses_alone_and_carries_the_rest_of_the_burst() {
    let words = format!("{WORDS} --address (0,192.168.1.1),(1,172.16.1.5),(1,fd00::1)");
    let mut scene = Scene::with(&file(), &words);
    let to_site = ours(&packet(ICMP, [192, 168, 2, 2], 0, &[8, 0, 1, 2, 3, 4, 5, 6]));
    let [inside, outside] = scene.carry(0, &[to_site.clone(), who_has([192, 168, 1, 1]), to_site]);
    assert_eq!((inside.len(), outside.len()), (1, 2));
    let answer = Message::parse(&inside[0][14..]).expect("an answer");
    assert_eq!((answer.is_request, answer.sender), (false, (OURS, [192, 168, 1, 1].into())));
    assert_eq!(inside[0][..6], ASKER);
    // The address of the other port is not behind this one.
    assert_eq!(scene.carry(0, &[who_has([172, 16, 1, 5])]), NOTHING);
    assert_eq!(scene.dropped(), [(DropReason::NotIp, 1)]);
    let [inside, outside] = scene.carry(1, &[who_has([172, 16, 1, 5])]);
    assert_eq!((inside.len(), outside.len()), (0, 1), "by the port that was asked");
    let shown = scene.statistics.show();
    assert_eq!((shown.ports[0].sent, shown.ports[1].sent), (1, 3));
}

#[test]
fn addresses_that_no_port_can_answer_for_are_refused() {
    let said = |words: &str, file: &str| -> String {
        let refused = plan(file, words).map(drop).expect_err("it is refused");
        refused.iter().map(|finding| finding.in_file("x").to_string()).collect()
    };
    let of_xdp = WORDS.replacen("net_tap1", "net_af_xdp1,iface=x", 1) + " --address (1,192.0.2.1)";
    assert!(plan(&file(), &of_xdp).is_ok());
    let with_ike = format!("{}sp ipv4 out ike b pri 1 dst 10.0.0.0/8 sport 0:65535 dport 0:65535\n", file());
    let text = said(&of_xdp, &with_ike);
    assert!(text.contains("needs it for IKE") && text.contains("fix: give the interface"), "{text}");
}
