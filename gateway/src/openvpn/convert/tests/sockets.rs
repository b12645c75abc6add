//! Where sockets are bound.

use super::*;
use crate::openvpn::settings::PortShare;
use port::udp::UdpBinding;
use port::{MtuDiscovery, SocketOptions};
use std::net::Ipv4Addr;

#[test]
fn sockets_are_bound_where_local_says_and_with_the_options_that_are_written() {
    let udp = |line: &str| served(&format!("{SERVER}\n{line}\n"), &[]).udp;
    let all = UdpBinding::default();
    assert_eq!(udp(""), all);
    // An IPv6 socket of OpenVPN takes IPv4, too.
    assert_eq!((udp("proto udp6"), udp("local ::")), (all.clone(), all.clone()));
    let v6 = UdpBinding { v4: None, ..all.clone() };
    assert_eq!((udp("proto udp6\nbind ipv6only"), udp("local ::\nbind ipv6only")), (v6.clone(), v6));
    assert_eq!((udp("proto udp4").v6, udp("proto udp6\nlocal ::1").v4), (None, None));
    let own = UdpBinding { v4: Some([192, 0, 2, 7].into()), v6: None, ..all.clone() };
    assert_eq!(udp("local 192.0.2.7"), own);
    let both = UdpBinding { v6: "2001:db8::7".parse().ok(), ..own };
    assert_eq!(udp("local 192.0.2.7\nlocal 2001:db8::7"), both);
    let lines = "mark 7\nbind-dev blue\nmtu-disc yes\nsndbuf 100000\nrcvbuf 0";
    let options = SocketOptions {
        fwmark: 7,
        device: Some("blue".to_owned()),
        buffers: [Some(100_000), None],
        mtu_discovery: Some(MtuDiscovery::Always),
    };
    assert_eq!(udp(lines).options, options);
    let tcp =
        SERVER.replace("proto udp", "proto tcp").replace("explicit-exit-notify", "# explicit-exit-notify");
    let tcp = |line: &str| served(&format!("{tcp}\n{line}\n"), &[]).tcp.expect("it is TCP");
    assert_eq!(tcp(lines).options, options);
    let listen = tcp("local 192.0.2.7 443\nlocal 192.0.2.8\nlocal 2001:db8::7 993").listen;
    let known = ["192.0.2.7:443", "192.0.2.8:1194", "[2001:db8::7]:993"];
    assert_eq!(listen, known.map(|it| it.parse().expect("literal")));
    let client = served(&format!("{CLIENT}\nproto tcp-client\nlocal 192.0.2.9\n"), &[]);
    assert_eq!(client.tcp.map(|tcp| tcp.local), Some(vec!["192.0.2.9:0".parse().expect("literal")]));
    let timeouts: Vec<Remote> = super::client(&format!("{CLIENT}\nserver-poll-timeout 4\n")).remotes;
    assert!(timeouts.iter().all(|remote| remote.timeout == Duration::from_secs(4)), "{timeouts:?}");
}

#[test]
fn sockets_that_a_server_cannot_have_are_refused() {
    let many: String = (0..17).map(|number| format!("local 192.0.2.7 {} udp\n", 2000 + number)).collect();
    for line in [&many, "local lost.example"] {
        let told = plan(&format!("{SERVER}\n{line}\n"), &[]).err().unwrap_or_default().concat();
        assert!(told.contains("local: ") && told.contains("fix: "), "{line}: {told}");
    }
}

#[test]
fn a_server_has_several_ports_and_addresses_in_udp() {
    let udp = |lines: &str| {
        let settings = served(&format!("{SERVER}\n{lines}\n"), &[]);
        (settings.port, settings.udp)
    };
    let lines = "local 192.0.2.7 1195 udp\nlocal 192.0.2.8 1195 udp\nlocal 2001:db8::7 1195 udp\nlocal 2001:db8::7 53 udp";
    let (port, binding) = udp(lines);
    assert_eq!(
        (port, binding.v4, binding.v6),
        (1195, Some([192, 0, 2, 7].into()), "2001:db8::7".parse().ok())
    );
    let further = ["192.0.2.8:1195", "[2001:db8::7]:53"].map(|it| it.parse().expect("literal"));
    assert_eq!(binding.further, further);
    // Each version of IP; and an address that * has on that port already.
    let (port, binding) =
        udp("local * 1194 udp\nlocal * 53 udp\nlocal 192.0.2.7 53 udp\nlocal 192.0.2.7 54 udp");
    assert_eq!((port, binding.v4), (1194, Some(Ipv4Addr::UNSPECIFIED)));
    let further = ["[::]:53", "0.0.0.0:53", "192.0.2.7:54"].map(|it| it.parse().expect("literal"));
    assert_eq!(binding.further, further);
}

#[test]
fn a_server_has_ports_in_udp_and_in_tcp() {
    let lines =
        "local 192.0.2.7 1194 udp\nlocal * 443 tcp4\nlocal 2001:db8::7 993 tcp\nlocal 192.0.2.7 1194 tcp";
    let settings = served(&format!("{SERVER}\n{lines}\n"), &[]);
    let own = UdpBinding { v4: Some([192, 0, 2, 7].into()), v6: None, ..UdpBinding::default() };
    assert_eq!((settings.port, settings.udp), (1194, own));
    let tcp = settings.tcp.expect("three lines say TCP");
    let known = ["0.0.0.0:443", "[2001:db8::7]:993", "192.0.2.7:1194"];
    assert_eq!(tcp.listen, known.map(|it| it.parse().expect("literal")));
    assert!(tcp.has_udp);
}

#[test]
fn another_server_shares_the_ports_of_tcp_alone() {
    let shares = |lines: &str| served(&format!("{SERVER}\n{lines}\n"), &[]).tcp.expect("a port of TCP").share;
    let server = "127.0.0.1:8443".parse().expect("literal");
    let both = "local * 1194 udp\nlocal * 443 tcp";
    assert_eq!(
        shares(&format!("{both}\nport-share localhost 8443")),
        Some(PortShare { server, folder: None })
    );
    let folder = Some("/run/origins".into());
    let with_folder = shares(&format!("{both}\nport-share 127.0.0.1 8443 /run/origins"));
    assert_eq!(with_folder, Some(PortShare { server, folder }));
    assert_eq!(shares(both), None);
}
