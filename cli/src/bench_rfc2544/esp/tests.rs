//! SAs of files and lines, and what is refused.

use super::*;
use bench::rfc2544::Protocol;

const KEY: &str = "00:01:02:03:04:05:06:07:08:09:0a:0b:0c:0d:0e:0f:10:11:12:13";
const ALL_PORTS: &str = "sport 0:65535 dport 0:65535";

fn frames() -> Frames {
    let addresses = [[10, 10, 0, 1].into(), [10, 20, 0, 1].into()];
    Frames { addresses, protocol: Protocol::Udp, both: true, in_memory: false, streams: 1 }
}

fn read(frames: &Frames, side: Side, lines: &[&str]) -> Outcome<Option<(Esp, [Vec<Stream>; 2])>> {
    let sa = lines.iter().map(|&line| line.to_owned()).collect();
    EspArguments { esp: None, sa, esp_side: Some(side), esp_sequence: None }.read(frames)
}

fn read_file(frames: &Frames, text: &str) -> Outcome<(Esp, [Vec<Stream>; 2])> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), text).expect("it can be written");
    let (esp, sa, esp_side, esp_sequence) = (Some(file.path().to_owned()), Vec::new(), None, Some(7));
    EspArguments { esp, sa, esp_side, esp_sequence }.read(frames).map(|it| it.expect("there is a file"))
}

fn line(direction: &str, spi: u32) -> String {
    format!(
        "{direction} {spi} aead_algo aes-128-gcm aead_key {KEY} mode ipv4-tunnel src 192.0.2.1 dst 198.51.100.1"
    )
}

#[test]
fn the_sa_of_the_policy_with_the_highest_priority_is_used() {
    let text = format!(
        "sp ipv4 in esp protect 2000 pri 1 src 10.20.0.0/16 dst 10.10.0.0/16 {ALL_PORTS}\n\
         sp ipv4 in esp protect 2001 pri 2 src 10.20.0.0/16 dst 10.10.0.0/16 {ALL_PORTS}\n\
         sp ipv4 in esp protect 2002 pri 3 src 10.30.0.0/16 dst 10.10.0.0/16 {ALL_PORTS}\n\
         sa {}\nsa {}\nsa {}\nsa {}\n",
        line("in", 2000),
        line("in", 2001),
        line("in", 2002),
        line("out", 1000)
    );
    let (esp, streams) = read_file(&frames(), &text).expect("it is right");
    assert_eq!((esp.ports, esp.first_sequence), ([false, true], Some(7)));
    assert_eq!(esp.opened_by_device[1].iter().map(|sa| sa.spi).collect::<Vec<_>>(), [2001]);
    assert!(esp.opened_by_device[0].is_empty() && esp.sealed_by_device[0].spi == 1000);
    assert_eq!(streams[0], [Stream::between([10, 10, 0, 1].into(), [10, 20, 0, 1].into())]);
    let away = Frames { addresses: [[10, 10, 0, 1].into(), [10, 99, 0, 1].into()], ..frames() };
    let error = read_file(&away, &text).err().expect("no policy").to_string();
    assert!(error.contains("no policy for frames from 10.99.0.1 to 10.10.0.1"), "{error}");
}

#[test]
fn streams_are_spread_over_the_sas_of_all_forms() {
    let tunnel = "mode ipv6-tunnel src 2001:db8::1 dst 2001:db8::2";
    let sas = [
        format!("out 10 aead_algo aes-128-gcm aead_key {KEY} {tunnel}"),
        format!("out 11 aead_algo aes-128-gcm aead_key {KEY} {tunnel} type no-offload udp-encap"),
        format!("out 12 aead_algo aes-128-gcm aead_key {KEY} mode transport"),
        line("in", 13),
        format!("in 14 aead_algo aes-128-gcm aead_key {KEY} mode transport"),
    ];
    let mut text: String = sas.iter().map(|sa| format!("sa {sa}\n")).collect();
    for (way, spi) in [("out", 10), ("out", 11), ("out", 12), ("in", 13), ("in", 14)] {
        let net = format!("src 10.{spi}.0.0/16 dst 10.99.0.0/16 {ALL_PORTS}");
        let _ = writeln!(text, "sp ipv4 {way} esp protect {spi} pri 1 {net}");
    }
    let (esp, streams) = read_file(&Frames { streams: 6, ..frames() }, &text).expect("it is right");
    let forms: Vec<_> = esp.sealed_by_device.iter().map(|sa| (sa.tunnel.is_some(), sa.in_udp)).collect();
    assert_eq!(forms, [(true, false), (true, true), (false, false)]);
    assert_eq!(esp.by_stream, [vec![0, 1, 2, 0, 1, 2], vec![0, 1, 0, 1, 0, 1]]);
    assert_eq!(streams.map(|of| of.len()), [6; 2]);
    assert_eq!(esp.addresses(1).len(), 2, "one of each family: {:?}", esp.addresses(1));
    let missing = text.replace("sa in 14", "sa in 15");
    let error = read_file(&Frames { streams: 6, ..frames() }, &missing).err().expect("no SA").to_string();
    assert!(error.contains("needs an SA in with SPI 14"), "{error}");
}

#[test]
fn what_the_tester_cannot_do_is_refused_in_words() {
    let both = |lines: &[&str]| read(&frames(), Side::Both, lines).err().map(|error| error.to_string());
    let (first, second) = (line("in", 2000), line("in", 2001));
    assert_eq!(both(&[&first, &second]), None);
    assert!(both(&[&first]).is_some_and(|error| error.contains("sa in for each direction")));
    assert!(both(&[&first, &first]).is_some_and(|error| error.contains("sequence numbers of SPI 2000")));
    assert!(both(&["in 2000 nothing"]).is_some_and(|error| error.starts_with("--sa:1: error: ")));
    let rx = read(&frames(), Side::Rx, &[&first]).err().expect("nothing is sealed").to_string();
    assert!(rx.contains("sa out"), "{rx}");
    let memory = Frames { in_memory: true, ..frames() };
    let error = read(&memory, Side::Rx, &[&first]).err().expect("memory does not encrypt").to_string();
    assert!(error.contains("--esp-side both"), "{error}");
}
