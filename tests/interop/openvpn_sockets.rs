//! The sockets of our server, with clients of OpenVPN 2.6.

use crate::openvpn_ends::{
    CLIENT_END, INTERFACES, OTHER_END, Program, SERVER, SERVER_END, SITES, configuration, path, start,
    write_keys,
};
use crate::support::{PATIENCE, sites_and, skip, tcp_arrives_whole};
use lab::{Lab, wait_until};
use tempfile::TempDir;

/// How often the clients renew their keys.
const RENEGOTIATE_SECONDS: u64 = 10;

fn log(files: &TempDir, end: usize) -> String {
    std::fs::read_to_string(path(files, &format!("{end}.log"))).unwrap_or_default()
}

fn logs(files: &TempDir) -> String {
    [SERVER_END, CLIENT_END, OTHER_END].map(|end| log(files, end)).concat()
}

/// Sites with the clients at `a` and `c`, the server's addresses, and all keys.
fn scene() -> Option<(Lab, TempDir)> {
    if !lab::has_program("/usr/sbin/openvpn") {
        skip("needs openvpn");
        return None;
    }
    let lab = sites_and(&["c"])?;
    lab.connect(("c", "outside", "192.168.78.1/24"), ("b", "further", "192.168.78.2/24"))
        .expect("veth exists");
    let files = tempfile::tempdir().expect("a directory");
    write_keys(&files);
    Some((lab, files))
}

/// The inside address of a client, once it reaches the server.
fn address_of(lab: &Lab, end: usize, files: &TempDir) -> String {
    let reaches = || lab.run(SITES[end], "ping", &["-c", "1", "-W", "1", SERVER]).is_ok();
    assert!(wait_until(PATIENCE, reaches).is_ok(), "{}", logs(files));
    let shown = lab.ip(SITES[end], &format!("-4 -o address show dev {}", lab.interface(INTERFACES[end])));
    let shown = shown.expect("it is there");
    let found = shown.split_whitespace().find_map(|word| word.strip_suffix("/24"));
    found.expect("an address").to_owned()
}

/// A client without `float` takes packets from no other address and port than those it sends to.
#[test]
fn stock_clients_at_two_ports_and_two_addresses_renew_keys_and_lose_nothing() {
    let Some((mut lab, files)) = scene() else { return };
    let server = "local 192.168.77.2 1194 udp\nlocal 192.168.77.2 1294 udp\nlocal 192.168.78.2 1194 udp\n\
                  local fd77::2 1194 udp\nlocal fd77::2 1294 udp\nlocal 192.168.77.2 443 tcp\n";
    // The first client is at another port than the first, the other one at another address; each says to which socket.
    let remotes = [(CLIENT_END, "remote 192.168.77.2 1294"), (OTHER_END, "remote 192.168.78.2 1194")];
    let configuration = |lab: &Lab, end: usize| {
        configuration(&files, end, &lab.interface(INTERFACES[end]), Some(RENEGOTIATE_SECONDS))
    };
    let text = configuration(&lab, SERVER_END) + server;
    start(&mut lab, &files, Program::Ours, SERVER_END, &text);
    for (end, remote) in remotes {
        let text: String = configuration(&lab, end)
            .lines()
            .map(|line| if line.starts_with("remote ") { remote } else { line })
            .map(|line| format!("{line}\n"))
            .collect();
        start(&mut lab, &files, Program::Stock, end, &text);
    }
    let addresses = remotes.map(|(end, _)| address_of(&lab, end, &files));
    let ping = |from: &str| {
        lab.run(from, "ping", &["-q", "-i", "0.02", "-W", "2", "-c", "1750", SERVER])
            .unwrap_or_else(|error| format!("{error}"))
    };
    let reports = std::thread::scope(|scope| {
        let both = remotes.map(|(end, _)| scope.spawn(move || ping(SITES[end])));
        both.map(|report| report.join().expect("it ends"))
    });
    for ((end, _), report) in remotes.iter().zip(&reports) {
        assert!(report.contains(" 0% packet loss"), "{report}\n{}", logs(&files));
        let keys = log(&files, *end).matches("Outgoing Data Channel: Cipher 'AES-256-GCM'").count();
        assert!(keys >= 3, "{keys} keys\n{}", logs(&files));
    }
    for ((end, _), address) in remotes.iter().zip(&addresses) {
        for (from, to, address) in [(SITES[*end], "b", SERVER), ("b", SITES[*end], address.as_str())] {
            tcp_arrives_whole(&lab, from, to, address, 4 << 20)
                .unwrap_or_else(|error| panic!("{error}\n{}", logs(&files)));
        }
    }
    let shown = lab.run("b", "ss", &["-Hlun"]).expect("it runs");
    for socket in
        ["192.168.77.2:1194", "192.168.77.2:1294", "192.168.78.2:1194", "[fd77::2]:1194", "[fd77::2]:1294"]
    {
        assert!(shown.contains(socket), "{shown}");
    }
}

/// A web server over TLS at a port of loopback, which serves the files of a folder.
const WEB_SERVER: &str = "
import functools, http.server, ssl, sys
folder, certificate, key = sys.argv[1:]
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
server = http.server.ThreadingHTTPServer(('127.0.0.1', 8443), handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
server.serve_forever()
";

fn names(folder: &std::path::Path) -> Vec<String> {
    let found = std::fs::read_dir(folder).expect("it is there");
    found.map(|it| it.expect("readable").file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_web_server_and_a_stock_client_share_a_port() {
    let Some((mut lab, files)) = scene() else { return };
    let [pages, origins] = ["pages", "origins"].map(|name| path(&files, name));
    for folder in [&pages, &origins] {
        std::fs::create_dir(folder).expect("made");
    }
    let page: Vec<u8> =
        (0..3_000_000u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(pages.join("page"), &page).expect("written");
    let [server, certificate, key] = ["web.log", "server.pem", "server.key"].map(|name| path(&files, name));
    let output = std::fs::File::create(&server).expect("created");
    let mut web = lab.command("b", "python3");
    web.args(["-c", WEB_SERVER]).args([&pages, &certificate, &key]).stderr(output);
    lab.start(&mut web).expect("it starts");
    let share = format!("local 192.168.77.2 443 tcp\nport-share 127.0.0.1 8443 {}\n", origins.display());
    for (end, program, own) in [
        (SERVER_END, Program::Ours, share.as_str()),
        (CLIENT_END, Program::Stock, "remote 192.168.77.2 443 tcp\n"),
    ] {
        let text = configuration(&files, end, &lab.interface(INTERFACES[end]), Some(RENEGOTIATE_SECONDS));
        let text: String = text
            .lines()
            .filter(|line| !line.starts_with("remote "))
            .map(|line| format!("{line}\n"))
            .collect();
        start(&mut lab, &files, program, end, &(text + own));
        if end == CLIENT_END {
            continue;
        }
        // Before any client of OpenVPN, and below beside one.
        loads(&lab, &files, &page);
        let raw = lab.enter("a", || std::net::TcpStream::connect("192.168.77.2:443")).expect("entered");
        let mut raw = raw.expect("it listens");
        std::io::Write::write_all(&mut raw, b"\x16\x03").expect("open");
        let client = format!("[AF_INET]{}", raw.local_addr().expect("connected"));
        let told = || {
            names(&origins).iter().any(|name| {
                name.starts_with("[AF_INET]127.0.0.1:")
                    && std::fs::read_to_string(origins.join(name)).is_ok_and(|it| it == client)
            })
        };
        assert!(wait_until(PATIENCE, told).is_ok(), "{:?}\n{}", names(&origins), logs(&files));
        drop(raw);
        let is_gone = || names(&origins).is_empty();
        assert!(wait_until(PATIENCE, is_gone).is_ok(), "{:?}", names(&origins));
    }
    let address = address_of(&lab, CLIENT_END, &files);
    loads(&lab, &files, &page);
    tcp_arrives_whole(&lab, "b", "a", &address, 4 << 20)
        .unwrap_or_else(|error| panic!("{error}\n{}", logs(&files)));
}

/// The page comes whole over the port of OpenVPN.
fn loads(lab: &Lab, files: &TempDir, page: &[u8]) {
    let copy = path(files, "copy");
    let arguments =
        ["-sSk", "--max-time", "30", "-o", &copy.to_string_lossy(), "https://192.168.77.2:443/page"];
    let mut told = String::new();
    let loaded = wait_until(PATIENCE, || match lab.run("a", "curl", &arguments) {
        Ok(_) => std::fs::read(&copy).is_ok_and(|copy| copy == page),
        Err(error) => {
            told = error.to_string();
            false
        }
    });
    let log = std::fs::read_to_string(path(files, "web.log")).unwrap_or_default();
    assert!(loaded.is_ok(), "{told}\n{log}\n{}", logs(files));
}
