//! A client in `interfaces openvpn` of the daemon at `a`, with a server of ours at `b`.

use crate::openvpn_client_ends::{Client, FAR, FAR_V6};
use crate::openvpn_ends::{CLIENT_END, Program, SERVER_END};
use crate::openvpn_tree::body;
use crate::support::{PATIENCE, postern};
use lab::postern::Postern;
use lab::wait_until;
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// A network that the server pushes, beside the default route.
const PUSHED: &str = "10.50.0.1";

struct Tree {
    client: Client,
    postern: Postern,
}

impl Tree {
    fn new() -> Option<Self> {
        let mut client = Client::sites(Program::Ours)?;
        "vtun0".clone_into(&mut client.interfaces[CLIENT_END]);
        let postern = Postern::new(&client.lab, "a", postern()).expect("a folder");
        Some(Self { client, postern })
    }

    /// The configuration: vtun0 with these lines beside the usual ones.
    fn write(&self, more: &[&str]) {
        let key = |name: &str| body(&self.client.files, name);
        let pki = format!(
            "set pki ca ca certificate {}\nset pki certificate client certificate {}\n\
             set pki certificate client private key {}\nset pki openvpn shared-secret tc key {}\n",
            key("ca.pem"),
            key("client.pem"),
            key("client.key"),
            key("static.key"),
        );
        let usual = [
            "mode client",
            "remote-host 192.168.77.2",
            "hash sha256",
            "tls ca-certificate ca",
            "tls certificate client",
            "tls crypt-key tc",
        ];
        let lines = usual.iter().chain(more).map(|line| format!("set interfaces openvpn vtun0 {line}\n"));
        self.postern.write(&(pki + &lines.collect::<String>()));
    }

    fn start(&mut self) {
        let Self { client, postern } = self;
        postern.start(&mut client.lab, "info", PATIENCE).unwrap_or_else(|error| panic!("{error}"));
    }

    fn kill(&mut self) {
        self.client.lab.kill(self.postern.process.take().expect("it runs"), Signal::KILL);
    }

    fn reload(&self) {
        let before = self.postern.logged().len();
        self.postern.signal(Signal::HUP);
        let told = || self.postern.logged()[before..].contains("in force");
        assert!(wait_until(PATIENCE, told).is_ok(), "{}", self.logs());
    }

    fn logs(&self) -> String {
        format!("{}\n{}\n{}", self.postern.logged(), self.client.logs(), self.client.kernel())
    }

    fn start_server(&mut self, lines: &str) {
        self.client.start(Program::Ours, SERVER_END, lines);
    }

    fn wait_until_inside(&self) {
        let inside = || {
            let reaches = |address| self.client.is_inside(address) && self.client.reaches(address);
            reaches(FAR) && reaches(FAR_V6)
        };
        assert!(wait_until(PATIENCE, inside).is_ok(), "{}", self.logs());
    }

    /// Nothing that was in the tunnel leaves, inside or outside.
    fn is_closed(&self, when: &str) {
        for address in [FAR, FAR_V6] {
            assert!(!self.client.reaches(address), "{when}: {address}\n{}", self.logs());
        }
        let leaves = |address: &str| {
            let route = self.client.lab.ip("a", &format!("route get {address}"));
            route.is_ok_and(|route| route.contains("outside"))
        };
        assert!(!leaves(FAR) && !leaves(PUSHED), "{when}: {}", self.logs());
        assert_eq!(self.client.clear_packets(), 0, "{when}: {}", self.logs());
    }

    /// Sends to a far address all the time, whatever answers.
    fn send_always(&mut self) {
        for address in [FAR, FAR_V6] {
            let mut command = self.client.lab.command("a", "ping");
            command.args(["-q", "-i", "0.02", address]);
            let silent = || Stdio::null();
            self.client.lab.start(command.stdout(silent()).stderr(silent())).expect("it starts");
        }
    }
}

/// The name servers of `a`: what `ip netns exec` shows as /etc/resolv.conf.
struct Names(PathBuf);

impl Names {
    const BEFORE: &str = "192.0.2.53";

    fn new(tree: &Tree) -> Self {
        let folder = Path::new("/etc/netns").join(tree.client.lab.namespace("a"));
        std::fs::create_dir_all(&folder).expect("root may");
        std::fs::write(folder.join("resolv.conf"), format!("nameserver {}\n", Self::BEFORE)).expect("ours");
        Self(folder)
    }

    /// Waits until this is the only one.
    fn wait_for(&self, server: &str, tree: &Tree) {
        let named = || {
            let text = std::fs::read_to_string(self.0.join("resolv.conf")).unwrap_or_default();
            let servers: Vec<&str> =
                text.lines().filter_map(|line| line.strip_prefix("nameserver ")).collect();
            servers == [server]
        };
        assert!(wait_until(PATIENCE, named).is_ok(), "{server}: {}", tree.logs());
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_a_client_of_the_daemon_redirects_never_leaves_in_clear() {
    let Some(mut tree) = Tree::new() else { return };
    tree.client.connect_to_the_internet();
    tree.client.lab.run("a", "sysctl", &["-qw", "net.ipv4.conf.all.rp_filter=1"]).expect("root may");
    let before = tree.client.kernel();
    let names = Names::new(&tree);
    let pushes = "push \"redirect-gateway def1 ipv6\"\npush \"route 10.50.0.0 255.255.0.0\"\n\
         push \"dhcp-option DNS 10.9.0.1\"\n";
    tree.start_server(pushes);
    tree.write(&[]);
    tree.start();
    tree.wait_until_inside();
    names.wait_for("10.9.0.1", &tree);
    tree.client.count_clear();
    tree.send_always();
    // A commit that makes the interface again, while the server answers, and when it is dead.
    tree.write(&["keep-alive interval 2"]);
    tree.reload();
    tree.wait_until_inside();
    names.wait_for("10.9.0.1", &tree);
    tree.client.kill(SERVER_END, Signal::KILL);
    tree.write(&["keep-alive interval 3", "openvpn-option 'mark 7'"]);
    tree.reload();
    tree.is_closed("after a commit");
    // A daemon that is killed, and the next one, which no server answers.
    names.wait_for(Names::BEFORE, &tree);
    tree.kill();
    tree.is_closed("without a daemon");
    tree.start();
    tree.is_closed("after a restart");
    tree.start_server(pushes);
    tree.wait_until_inside();
    names.wait_for("10.9.0.1", &tree);
    assert_eq!(tree.client.clear_packets(), 0, "{}", tree.logs());
    // The default route of the configuration needs no server that has ever answered.
    tree.kill();
    names.wait_for(Names::BEFORE, &tree);
    tree.client.kill(SERVER_END, Signal::KILL);
    let open = |tree: &Tree| {
        let mut command = tree.client.lab.command("a", postern());
        let opened = command.arg("open").arg("--api").arg(&tree.postern.socket).output().expect("it runs");
        assert!(opened.status.success(), "{opened:?}");
    };
    open(&tree);
    assert!(tree.client.reaches(FAR) && tree.client.reaches(FAR_V6), "{}", tree.logs());
    assert!(tree.client.clear_packets() > 0, "packets in clear are counted");
    tree.write(&["replace-default-route", "openvpn-option 'redirect-gateway ipv6'"]);
    tree.start();
    tree.client.lab.run("b", "nft", &["delete", "table", "inet", "clear"]).expect("it is there");
    tree.client.count_clear();
    tree.is_closed("before a server has answered");
    tree.kill();
    tree.is_closed("without a daemon that was ever connected");
    tree.start();
    tree.start_server("");
    tree.wait_until_inside();
    assert_eq!(tree.client.clear_packets(), 0, "{}", tree.logs());
    // Without the interface, all is as before.
    tree.postern.write("set system allow-empty\n");
    tree.reload();
    assert_eq!(tree.client.kernel(), before);
    assert!(tree.client.reaches(FAR) && tree.client.reaches(FAR_V6), "{}", tree.logs());
}
