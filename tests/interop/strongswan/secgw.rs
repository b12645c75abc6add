//! `postern secgw` with SAs from IKE: a host behind the gateway between ports at site a, charon at site b.

use super::{PATIENCE, ours, pings, site_labs, theirs};
use crate::support::postern;
use lab::strongswan::StrongSwan;
use lab::{Lab, Process, wait_until};
use rustix::process::Signal;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Policies for one peer; what they are for is also what its tunnel is for.
const FILE: &str = "\
sp ipv4 out ike b pri 1 src 10.1.0.0/24 dst 10.2.0.0/24 sport 0:65535 dport 0:65535
sp ipv4 in ike b pri 1 src 10.2.0.0/24 dst 10.1.0.0/24 sport 0:65535 dport 0:65535
rt ipv4 dst 192.168.77.2/32 port 1
rt ipv4 dst 10.1.0.0/24 port 0
neigh port 0 02:00:00:00:00:01
neigh port 1 02:00:00:00:00:02
";

/// Before these, those for another peer.
const FILE_OF_C: &str = "\
sp ipv4 out ike c pri 1 src 10.1.0.0/24 dst 10.3.0.0/24 sport 0:65535 dport 0:65535
sp ipv4 in ike c pri 1 src 10.3.0.0/24 dst 10.1.0.0/24 sport 0:65535 dport 0:65535
";

/// This peer, which does not answer.
pub(super) fn peer_c() -> String {
    let lines: String =
        ours(OURS).lines().filter(|line| line.contains(" peer b ")).map(|line| format!("{line}\n")).collect();
    lines.replace("peer b", "peer c").replace("77.2", "77.3").replace("10.2.", "10.3.")
        + "set vpn ipsec authentication psk sites id 192.168.77.3\n"
}

/// An SA of ours lasts 1,000 packets. A peer that does not answer is given up after some seconds, and called when there are packets.
pub(super) const OURS: &[&str] = &[
    "PEER connection-type trap",
    "esp-group E life-packets 1000",
    "ike-group I dead-peer-detection interval 2",
    "ike-group I dead-peer-detection timeout 5",
];

/// host ─ a ─ b: the host and b know nothing of ports, and the kernel of a has its address for IKE.
pub(super) fn scene() -> Option<Lab> {
    let lab = site_labs(&["a", "b", "host"])?;
    lab.connect(("a", "outside", "192.168.77.1/24"), ("b", "outside", "192.168.77.2/24"))
        .expect("veth exists");
    lab.connect(("host", "eth0", "10.1.0.2/24"), ("a", "inside", "192.0.2.1/32")).expect("veth exists");
    lab.ip("a", "address delete 10.1.0.1/16 dev lo").expect("it is there");
    for (namespace, words) in [
        ("host", "link set eth0 address 02:00:00:00:00:01 mtu 1300"),
        ("b", "link set outside address 02:00:00:00:00:02"),
        ("host", "neigh replace 10.1.0.9 lladdr 02:00:00:00:00:99 dev eth0"),
        ("host", "route add 10.2.0.0/24 via 10.1.0.9"),
    ] {
        lab.ip(namespace, words).expect(words);
    }
    Some(lab)
}

/// Where the gateway answers.
fn socket(folder: &Path) -> PathBuf {
    folder.join("secgw.sock")
}

/// What a command says to the gateway of a folder.
fn ask(lab: &Lab, folder: &Path, words: &str) -> String {
    let output = lab.command("a", postern()).args(words.split(' ')).arg("--api").arg(socket(folder)).output();
    let output = output.expect("it starts");
    [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat()
}

/// Has the gateway read its files again, with these peers.
fn reload(lab: &Lab, folder: &Path, peers: &str) -> String {
    std::fs::write(folder.join("postern.conf"), peers).expect("it can be written");
    ask(lab, folder, "reload secgw")
}

/// The gateway under test.
struct Secgw {
    process: Process,
    output: PathBuf,
}

impl Secgw {
    fn start(lab: &mut Lab, folder: &Path) -> Self {
        let output = folder.join("output");
        let said = File::options().create(true).append(true).open(&output).expect("it can be made");
        let mut command = lab.command("a", postern());
        command.args(["secgw", "-l", "0", "--vdev", "net_af_xdp0,iface=inside"]);
        command.args(["--vdev", "net_af_xdp1,iface=outside", "--", "-P", "-p", "0x3", "-u", "0x2", "-f"]);
        command.arg(folder.join("site.cfg")).args(["--config", "(0,0,0),(1,0,0)", "--ike"]);
        command
            .arg(folder.join("postern.conf"))
            .arg("--api")
            .arg(socket(folder))
            .stdout(said.try_clone().expect("a copy"))
            .stderr(said);
        Self { process: lab.start(&mut command).expect("it starts"), output }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.output).unwrap_or_default()
    }
}

/// Counts what arrives at b: packets that should be in a tunnel, and datagrams of IKE and ESP.
pub(super) const COUNTERS: &str = "\
table netdev wire {
  counter clear {}
  counter sealed {}
  chain arrives {
    type filter hook ingress device \"outside\" priority 0;
    ip saddr 10.0.0.0/8 counter name clear
    udp dport 4500 counter name sealed
  }
}
";

/// The packets of a counter.
pub(super) fn counted(lab: &Lab, name: &str) -> u64 {
    let said = lab.run("b", "nft", &["list", "counter", "netdev", "wire", name]).expect("it is there");
    let number = said.split("packets ").nth(1).and_then(|rest| rest.split(' ').next());
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{said}"))
}

/// Whether packets pass; the first ones ask for the SA.
fn comes_up(lab: &Lab, secgw: &Secgw, charon: &StrongSwan, when: &str) {
    let answered = || lab.run("host", "ping", &["-c", "1", "-W", "1", "10.2.0.1"]).is_ok();
    wait_until(2 * PATIENCE, answered)
        .unwrap_or_else(|error| panic!("{when}: {error}\n{}\n--- charon:\n{}", secgw.said(), charon.log()));
}

#[test]
fn policies_get_their_sas_from_ike_and_keep_them_through_rekeying_and_the_death_of_each_side() {
    let Some(mut lab) = scene() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("site.cfg"), FILE).expect("it can be written");
    std::fs::write(folder.path().join("postern.conf"), ours(OURS)).expect("it can be written");
    let mut charon = StrongSwan::start(&mut lab, "b", &theirs("", ""), "").expect("it starts");
    let rules = folder.path().join("rules");
    std::fs::write(&rules, COUNTERS).expect("it can be written");
    lab.run("b", "nft", &["-f", &rules.to_string_lossy()]).expect("the kernel takes them");
    let mut secgw = Secgw::start(&mut lab, folder.path());
    comes_up(&lab, &secgw, &charon, "at the start");
    let (counts, reloads) = std::thread::scope(|scope| {
        let pings =
            scope.spawn(|| pings(&lab, "host", "10.2.0.1", &["-c", "4000", "-i", "0.0025", "-W", "3"]));
        // Another peer comes before this one, and goes.
        let mut reloads = 0;
        while !pings.is_finished() || reloads % 2 == 1 {
            let (file, peers, change) = match reloads % 2 {
                0 => (FILE_OF_C.to_owned() + FILE, ours(OURS) + &peer_c(), "+ ike c"),
                _ => (FILE.to_owned(), ours(OURS), "- ike c"),
            };
            std::fs::write(folder.path().join("site.cfg"), file).expect("it can be written");
            let said = reload(&lab, folder.path(), &peers);
            assert!(said.contains(change) && said.contains("in force"), "{said}");
            reloads += 1;
        }
        (pings.join().expect("it ends"), reloads)
    });
    assert!(reloads > 1, "they were during the pings");
    assert_eq!(counts, (4000, 4000), "{}\n--- charon:\n{}", secgw.said(), charon.log());
    let rekeyed = || secgw.said().matches("b-tunnel-1 is rekeyed").count();
    let asked = charon.log().matches("parsed CREATE_CHILD_SA request").count();
    let before = rekeyed();
    assert!(asked > 0 && before >= asked, "{}", secgw.said());
    charon.swanctl(&lab, &["--rekey", "--child", "net"]).expect("it asks us for new keys");
    wait_until(PATIENCE, || rekeyed() > before).unwrap_or_else(|error| panic!("{error}: {}", secgw.said()));
    assert_eq!(
        pings(&lab, "host", "10.2.0.1", &["-c", "50", "-i", "0.01", "-s", "1200", "-W", "3"]),
        (50, 50)
    );
    let shown = ask(&lab, folder.path(), "show secgw ike");
    for part in ["b-tunnel-1", "IKEv2", "up", "192.168.77.2"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let shown = ask(&lab, folder.path(), "show secgw ike detail");
    assert!(shown.contains("rekeying in") && shown.contains("10.2.0.0/24"), "{shown}");
    let said = ask(&lab, folder.path(), "reset secgw ike nobody");
    assert!(said.contains("no policy names a peer nobody") && said.contains("one of b"), "{said}");

    // Each of these ends the SAs: packets are dropped until there are others, and none is in clear.
    let deleted = |charon: &StrongSwan| charon.log().matches("received DELETE for IKE_SA").count();
    let before = deleted(&charon);
    ask(&lab, folder.path(), "reset secgw ike b");
    wait_until(PATIENCE, || deleted(&charon) > before).unwrap_or_else(|error| panic!("{error}"));
    comes_up(&lab, &secgw, &charon, "after its reset");
    charon.swanctl(&lab, &["--terminate", "--ike", "site"]).expect("it deletes its IKE SA");
    comes_up(&lab, &secgw, &charon, "after the deletion by charon");
    let before = deleted(&charon);
    let said = reload(&lab, folder.path(), &ours(OURS).replace("a secret of", "another secret of"));
    assert!(said.contains("ike b: changed, its SAs are deleted"), "{said}");
    wait_until(PATIENCE, || deleted(&charon) > before).unwrap_or_else(|error| panic!("{error}"));
    assert!(ask(&lab, folder.path(), "show secgw ike detail").contains("b-tunnel-1: #1, DOWN"));
    reload(&lab, folder.path(), &ours(OURS));
    comes_up(&lab, &secgw, &charon, "with its secret again");
    charon.kill(&mut lab);
    charon.restart(&mut lab).expect("it starts again");
    comes_up(&lab, &secgw, &charon, "after the death of charon");
    lab.kill(secgw.process, Signal::KILL);
    secgw = Secgw::start(&mut lab, folder.path());
    comes_up(&lab, &secgw, &charon, "after the death of the gateway");
    assert!(counted(&lab, "sealed") > 4000);
    assert_eq!(counted(&lab, "clear"), 0);
    lab.kill(secgw.process, Signal::TERM);
    let said = secgw.said();
    assert!(said.contains("sp out, line 1, ike b: ") && said.contains("dropped no-key: "), "{said}");
    wait_until(PATIENCE, || charon.log().contains("received DELETE for IKE_SA"))
        .unwrap_or_else(|error| panic!("our end is told: {error}\n{}", charon.log()));
}
