//! What clients and programs are told in each topology.

use super::*;
use crate::openvpn::settings::PointToPoint;

/// The options of the first client about its addresses, and what `client-connect` sees of them.
fn told(line: Option<PointToPoint>, pool: [u8; 2]) -> (Vec<String>, String) {
    let script = "echo \"$ifconfig_pool_remote_ip $ifconfig_pool_local_ip $ifconfig_pool_netmask\" >> told";
    let mut bed = Bed::new(&[Hook::ClientConnect], script, |settings| {
        let network = &mut settings.network;
        (network.line, network.v6) = (line, None);
        network.pool = Some((Ipv4Addr::new(10, 8, 0, pool[0]), Ipv4Addr::new(10, 8, 0, pool[1])));
    });
    bed.decide(1, request("anna", 1));
    let deciding = bed.side.deciding.get(&1).expect("client-connect is asked");
    let mut options = bed.side.options(deciding);
    options
        .retain(|option| ["topology", "route-gateway", "ifconfig"].iter().any(|it| option.starts_with(it)));
    bed.settle(1);
    (options, bed.told())
}

#[test]
fn clients_see_a_network_or_a_line_to_one_other_end() {
    let expected = ["topology subnet", "route-gateway 10.8.0.1", "ifconfig 10.8.0.2 255.255.255.0"];
    assert_eq!(told(None, [2, 254]).0, expected);
    let (options, seen) = told(Some(PointToPoint::Net30), [4, 251]);
    assert_eq!(options, ["topology net30", "ifconfig 10.8.0.6 10.8.0.5"]);
    assert_eq!(seen, "10.8.0.6 10.8.0.5 \n");
    let (options, seen) = told(Some(PointToPoint::Single), [4, 251]);
    assert_eq!(options, ["topology p2p", "ifconfig 10.8.0.4 10.8.0.1"]);
    assert_eq!(seen, "10.8.0.4 10.8.0.1 \n");
}
