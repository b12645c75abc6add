//! What a client of OpenVPN of ours does at `a`, with a server at `b` that is ours or OpenVPN itself.

use crate::openvpn_ends::{CLIENT_END, Program, SERVER_END, configuration, path, start, write_keys};
use crate::support::{PATIENCE, sites_and, skip};
use lab::{Lab, Process, wait_until};
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;

/// Two ends, each with lines of its own beside the usual ones.
pub struct Client {
    pub lab: Lab,
    pub files: TempDir,
    pub interfaces: [String; 2],
    processes: [Option<Process>; 2],
}

impl Client {
    /// Two sites; without root or OpenVPN, says that the test is skipped.
    pub fn sites(server: Program) -> Option<Self> {
        if server == Program::Stock && !lab::has_program("/usr/sbin/openvpn") {
            skip("needs openvpn");
            return None;
        }
        let lab = sites_and(&["c"])?;
        let files = tempfile::tempdir().expect("a directory");
        write_keys(&files);
        let interfaces = [lab.interface("oc"), lab.interface("os")];
        Some(Self { lab, files, interfaces, processes: [None; 2] })
    }

    /// Starts an end with these lines.
    pub fn start(&mut self, program: Program, end: usize, lines: &str) {
        self.start_with(program, end, |text| text + lines);
    }

    /// Starts an end with the usual lines, changed.
    pub fn start_with(&mut self, program: Program, end: usize, change: impl FnOnce(String) -> String) {
        // A time of renewal: without one, the first remote is a port at which no server answers.
        let text = change(configuration(&self.files, end, &self.interfaces[end], Some(3600)));
        self.processes[end] = Some(start(&mut self.lab, &self.files, program, end, &text));
    }

    /// Writes a file, and returns its path.
    pub fn write(&self, name: &str, text: &str, mode: u32) -> String {
        let path = path(&self.files, name);
        std::fs::write(&path, text).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("ours");
        path.to_string_lossy().into_owned()
    }

    pub fn log(&self, end: usize) -> String {
        std::fs::read_to_string(path(&self.files, &format!("{end}.log"))).unwrap_or_default()
    }

    pub fn logs(&self) -> String {
        format!("client:\n{}\nserver:\n{}", self.log(CLIENT_END), self.log(SERVER_END))
    }

    /// Waits until something is so.
    pub fn wait(&self, what: &str, condition: impl FnMut(&Self) -> bool) {
        let mut condition = condition;
        let done = wait_until(PATIENCE, || condition(self));
        assert!(done.is_ok(), "{what}\n{}", self.logs());
    }

    pub fn wait_for_log(&self, end: usize, text: &str) {
        self.wait(text, |it| it.log(end).contains(text));
    }

    /// Whether an address answers at `a`.
    pub fn reaches(&self, address: &str) -> bool {
        self.lab.run("a", "ping", &["-c", "1", "-W", "1", address]).is_ok()
    }

    pub fn kill(&mut self, end: usize, signal: Signal) {
        if let Some(process) = self.processes[end].take() {
            self.lab.kill(process, signal);
        }
    }

    /// The exit status of the client, once it has ended.
    pub fn status(&mut self) -> Option<i32> {
        let process = self.processes[CLIENT_END]?;
        let mut status = None;
        let _ = wait_until(PATIENCE, || {
            status = self.lab.ended(process);
            status.is_some()
        });
        status.and_then(|it| it.code())
    }
}

/// A client with a password gets a token, renews its keys with it, and ends when it is refused. Nothing secret is in its log.
pub fn passwords() {
    let Some(mut client) = Client::sites(Program::Stock) else { return };
    let check = "#!/bin/sh\n[ \"$username\" = anna ] && [ \"$password\" = s3cret-one ]\n";
    let verify = client.write("verify.sh", check, 0o755);
    let server = format!(
        "auth-user-pass-verify {verify} via-env\nscript-security 3\nauth-gen-token 3600\nreneg-sec 8\nhand-window 4\n\
         verify-client-cert none\nusername-as-common-name\n"
    );
    client.start(Program::Stock, SERVER_END, &server);
    let file = client.write("login", "anna\ns3cret-one\n", 0o600);
    client.start(Program::Ours, CLIENT_END, &format!("auth-user-pass {file}\n"));
    client.wait("connected", |it| it.reaches("10.9.0.1"));
    client.wait_for_log(SERVER_END, "auth-token authentication succeeded for username 'anna'");
    assert!(client.reaches("10.9.0.1"), "{}", client.logs());
    client.kill(CLIENT_END, Signal::TERM);
    let log = client.log(CLIENT_END);
    assert!(!log.contains("s3cret-one") && !log.contains("SESS_ID"), "{log}");
    let file = client.write("login", "anna\nanother\n", 0o600);
    client.start(Program::Ours, CLIENT_END, &format!("auth-user-pass {file}\n"));
    assert_eq!(client.status(), Some(1), "{}", client.logs());
    let log = client.log(CLIENT_END);
    assert!(log.contains("refused the authentication") && log.contains("fix: see the user name"), "{log}");
    client.start(Program::Ours, CLIENT_END, &format!("auth-user-pass {file}\nauth-retry nointeract\n"));
    let refusals = |it: &Client| it.log(CLIENT_END).matches("has ended: the server refused").count();
    client.wait("tried again", |it| refusals(it) >= 4);
    client.kill(CLIENT_END, Signal::TERM);
}

/// An address that `b` has beside its own: with the default route of `a` by way of `b`, it is somewhere in the internet.
pub const FAR: &str = "198.51.100.7";
/// The same for IPv6.
pub const FAR_V6: &str = "2001:db8:7::7";

impl Client {
    /// Gives `a` a default route, and `b` an address behind it.
    pub fn connect_to_the_internet(&self) {
        for (site, arguments) in [
            ("a", "route add default via 192.168.77.2"),
            ("a", "-6 route add default via fd77::2"),
            ("b", "address add 198.51.100.7/32 dev lo"),
            ("b", "address add 2001:db8:7::7/128 dev lo"),
        ] {
            self.lab.ip(site, arguments).expect("root may");
        }
    }

    /// Whether packets to an address go into the tunnel.
    pub fn is_inside(&self, address: &str) -> bool {
        let interface = &self.interfaces[CLIENT_END];
        self.lab.ip("a", &format!("route get {address}")).is_ok_and(|it| it.contains(interface))
    }

    /// What `a` has in the kernel, but for times and what the kernel itself adds a moment later.
    pub fn kernel(&self) -> String {
        let parts =
            ["rule", "-6 rule", "route show table all", "-6 route show table all proto static", "address"];
        let shown = parts.map(|part| self.lab.ip("a", part).expect("it is there"));
        let lines = shown
            .iter()
            .flat_map(|text| text.lines())
            .filter(|line| !line.contains("valid_lft") && !line.contains("fe80"));
        lines.map(|line| line.to_owned() + "\n").collect()
    }

    /// The packets of a far address that have crossed the link in clear, as `b` counts them.
    pub fn count_clear(&self) {
        let rules = format!(
            "table inet clear {{\nchain in {{\ntype filter hook prerouting priority -300\n\
             iifname outside ip daddr {FAR} counter\niifname outside ip6 daddr {FAR_V6} counter\n}}\n}}"
        );
        self.lab.run("b", "nft", &[&rules]).expect("nftables is there");
    }

    pub fn clear_packets(&self) -> u64 {
        let listed = self.lab.run("b", "nft", &["list", "table", "inet", "clear"]).expect("it is there");
        let counts = listed.split("packets ").skip(1);
        counts.filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok()).sum()
    }
}

/// Everything goes through the tunnel, and nothing in clear while the server is dead; then all is as before.
pub fn redirects(server: Program) {
    let Some(mut client) = Client::sites(server) else { return };
    client.connect_to_the_internet();
    client.lab.run("a", "sysctl", &["-qw", "net.ipv4.conf.all.rp_filter=1"]).expect("root may");
    assert!(client.reaches(FAR) && client.reaches(FAR_V6), "without a tunnel");
    client.count_clear();
    let before = client.kernel();
    client.start(server, SERVER_END, "push \"redirect-gateway def1 ipv6\"\n");
    client.start(Program::Ours, CLIENT_END, "");
    client.wait("inside", |it| it.is_inside(FAR) && it.is_inside(FAR_V6) && it.reaches("10.9.0.1"));
    assert!(client.reaches(FAR) && client.reaches(FAR_V6), "{}\n{}", client.logs(), client.kernel());
    assert!(client.reaches("192.168.77.2"), "a network of this machine stays near");
    let counted = client.clear_packets();
    client.kill(SERVER_END, Signal::KILL);
    let ended = |it: &Client| it.log(CLIENT_END).contains("has ended: nothing was received");
    for _ in 0..4 {
        assert!(!client.reaches(FAR) && !client.reaches(FAR_V6), "there is no server");
    }
    client.wait("the session ends", ended);
    assert!(!client.reaches(FAR) && !client.reaches(FAR_V6), "while it tries to connect again");
    // A network that comes and goes: the default route with it.
    client.lab.ip("a", "route replace default via 192.168.77.2 metric 7").expect("root may");
    assert!(!client.reaches(FAR));
    client.lab.ip("a", "route delete default via 192.168.77.2 metric 7").expect("it is there");
    assert_eq!(client.clear_packets(), counted, "{}", client.kernel());
    client.start(server, SERVER_END, "push \"redirect-gateway def1 ipv6\"\n");
    client.wait("again", |it| it.reaches("10.9.0.1"));
    assert!(client.reaches(FAR) && client.reaches(FAR_V6), "{}", client.logs());
    assert_eq!(client.clear_packets(), counted);
    client.kill(CLIENT_END, Signal::TERM);
    assert_eq!(client.kernel(), before);
    assert!(client.reaches(FAR) && client.reaches(FAR_V6), "in clear again");
}

/// Routes in all their forms, from the file and from the server, with filters; the next server changes only what differs.
pub fn routes(server: Program) {
    let Some(mut client) = Client::sites(server) else { return };
    client.connect_to_the_internet();
    let pushed = "push \"route 192.168.0.0 255.255.0.0\"\npush \"route 10.50.0.0 255.255.0.0\"\n\
         push \"route 10.60.0.0 255.255.0.0\"\npush \"route-ipv6 fd50::/32\"\npush \"block-outside-dns\"\n";
    client.start(server, SERVER_END, pushed);
    let own = "pull-filter accept \"route 10.50.\"\npull-filter ignore \"route 10.\"\nroute-metric 9\n\
         route 10.50.7.0 255.255.255.0 net_gateway\nroute 10.70.0.0 255.255.0.0 vpn_gateway 5\n\
         route remote_host 255.255.255.255 net_gateway\n";
    client.start(Program::Ours, CLIENT_END, own);
    client.wait("routes", |it| {
        it.is_inside("10.50.0.1") && it.is_inside("10.70.0.1") && it.is_inside("fd50::1")
    });
    assert!(client.reaches("10.9.0.1"), "{}", client.logs());
    for outside in ["10.60.0.1", "10.50.7.1", "192.168.77.2"] {
        assert!(!client.is_inside(outside), "{outside}: {}", client.kernel());
    }
    assert!(client.is_inside("192.168.5.1"), "the server is cut out of a route that would have it");
    let kernel = client.kernel();
    assert!(kernel.contains("10.70.0.0/16") && kernel.contains("metric 5"), "{kernel}");
    assert!(client.log(CLIENT_END).contains("block-outside-dns has no effect on Linux"));
    client.kill(SERVER_END, Signal::KILL);
    client.start(
        server,
        SERVER_END,
        "push \"route 10.51.0.0 255.255.0.0\"\npush \"route 10.50.0.0 255.255.0.0\"\n",
    );
    client.wait("other routes", |it| !it.is_inside("192.168.5.1") && it.is_inside("10.70.0.1"));
    assert!(client.is_inside("10.50.0.1") && !client.is_inside("10.51.0.1"), "{}", client.kernel());
    client.kill(CLIENT_END, Signal::TERM);
    client.start(Program::Ours, CLIENT_END, "pull-filter reject \"route 10.51\"\n");
    client.wait_for_log(CLIENT_END, "pull-filter rejects the server's option");
    client.kill(CLIENT_END, Signal::TERM);
    client.start(Program::Ours, CLIENT_END, "route-nopull\nroute 10.80.0.0 255.255.0.0\n");
    client.wait("only its own", |it| it.is_inside("10.80.0.1") && it.reaches("10.9.0.1"));
    assert!(!client.is_inside("10.50.0.1"), "{}", client.kernel());
}

/// What a hostile server pushes takes nothing that is not its own, and does not end the client's session.
pub fn hostile_server(server: Program) {
    let Some(mut client) = Client::sites(server) else { return };
    let routes: String = (0..1200)
        .map(|it| format!("push \"route 10.{}.{}.0 255.255.255.0\"\n", 100 + it / 256, it % 256))
        .collect();
    let options = "push \"route 192.168.77.2 255.255.255.255\"\npush \"route 192.168.77.0 255.255.255.0\"\n\
         push \"dhcp-option DNS $(touch$IFS/tmp/x)\"\npush \"dhcp-option DOMAIN a;b\"\npush \"tun-mtu 65000\"\n";
    client.start(server, SERVER_END, &(routes + options));
    client.start(Program::Ours, CLIENT_END, "");
    client.wait("many routes", |it| it.is_inside("10.104.175.1") && it.reaches("10.9.0.1"));
    assert!(!client.is_inside("192.168.77.2"), "{}", client.kernel());
    client.kill(SERVER_END, Signal::KILL);
    client.start(server, SERVER_END, "push \"route 10.0.0.0 255.0.0.0 vpn_gateway 4294967296\"\n");
    assert_eq!(client.status(), Some(1), "{}", client.logs());
    let log = client.log(CLIENT_END);
    assert!(log.contains("4294967296\" is not served") && log.contains("would leave in clear"), "{log}");
}

/// Name servers are set while a client is connected, and put back after its end, even if it was killed.
pub fn name_servers(server: Program) {
    let Some(mut client) = Client::sites(server) else { return };
    // What `ip netns exec` shows as /etc/resolv.conf.
    let folder = std::path::Path::new("/etc/netns").join(client.lab.namespace("a"));
    std::fs::create_dir_all(&folder).expect("root may");
    let file = folder.join("resolv.conf");
    let before = "nameserver 192.0.2.53\n";
    std::fs::write(&file, before).expect("ours");
    let read = || std::fs::read_to_string(&file).unwrap_or_default();
    let pushed = "push \"dhcp-option DNS 10.9.0.1\"\npush \"dhcp-option DOMAIN corp.example\"\n\
         push \"dhcp-option DOMAIN $(reboot)\"\n";
    client.start(server, SERVER_END, pushed);
    for signal in [Signal::TERM, Signal::KILL] {
        client.start(Program::Ours, CLIENT_END, "");
        client.wait("set", |_| read().contains("\nnameserver 10.9.0.1\nsearch corp.example\n"));
        assert!(!read().contains("192.0.2.53") && !read().contains("reboot"), "{}", read());
        client.kill(CLIENT_END, signal);
        client.wait("put back", |_| read() == before);
    }
    client.start(Program::Ours, CLIENT_END, "dns-updown disable\n");
    client.wait("connected", |it| it.reaches("10.9.0.1"));
    assert_eq!(read(), before);
    client.kill(CLIENT_END, Signal::TERM);
    std::fs::remove_dir_all(&folder).expect("ours");
}

/// A name that has another address later is found there, at the next attempt to connect.
pub fn follows_a_name(server: Program) {
    let Some(mut client) = Client::sites(server) else { return };
    // What `ip netns exec` shows as /etc/hosts.
    let folder = std::path::Path::new("/etc/netns").join(client.lab.namespace("a"));
    std::fs::create_dir_all(&folder).expect("root may");
    let hosts = folder.join("hosts");
    std::fs::write(&hosts, "192.168.77.66 vpn.example\n").expect("ours");
    client.lab.ip("b", "address add 192.168.77.3/24 dev outside").expect("it is free");
    client.start(server, SERVER_END, "local 192.168.77.3\n");
    let text = configuration(&client.files, CLIENT_END, &client.interfaces[CLIENT_END], Some(3600));
    let text = text.replace("remote 192.168.77.2 1194", "remote vpn.example 1194\nhand-window 2");
    client.processes[CLIENT_END] =
        Some(start(&mut client.lab, &client.files, Program::Ours, CLIENT_END, &text));
    client.wait_for_log(CLIENT_END, "with server 192.168.77.66:1194 has ended");
    std::fs::write(&hosts, "192.168.77.3 vpn.example\n").expect("ours");
    client.wait("connected", |it| it.reaches("10.9.0.1"));
    assert!(client.log(CLIENT_END).contains("connected with server 192.168.77.3:1194"), "{}", client.logs());
    client.kill(CLIENT_END, Signal::TERM);
    std::fs::remove_dir_all(&folder).expect("ours");
}
