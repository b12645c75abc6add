//! With strongSwan.

use crate::support::{answers, lab, skip};
use bench::lab::Lab;
use bench::strongswan::StrongSwan;

/// Two sites with a link between them, and an address inside each.
fn sites() -> Option<Lab> {
    if let Some(package) = StrongSwan::missing() {
        skip(&format!("needs strongSwan, of which {package} is not installed"));
        return None;
    }
    let lab = lab(&["a", "b"])?;
    lab.connect(("a", "outside", "192.168.77.1/24"), ("b", "outside", "192.168.77.2/24"))
        .expect("veth exists");
    for (site, inside) in [("a", "10.1.0.1/24"), ("b", "10.2.0.1/24")] {
        lab.ip(site, &format!("address add {inside} dev lo")).expect("an address");
    }
    Some(lab)
}

/// A swanctl.conf for the site at the other end of the link.
fn swanctl(proposals: [&str; 2]) -> String {
    let [ike, esp] = proposals;
    format!(
        "connections {{ site {{\n version = 2\n local_addrs = 192.168.77.2\n remote_addrs = 192.168.77.1\n\
         proposals = {ike}\n encap = yes\n\
         local {{ auth = psk\n id = 192.168.77.2\n }}\n remote {{ auth = psk\n id = 192.168.77.1\n }}\n\
         children {{ net {{ local_ts = 10.2.0.0/24\n remote_ts = 10.1.0.0/24\n esp_proposals = {esp}\n }} }}\n }} }}\n\
         secrets {{ ike-site {{ secret = \"a secret of both sites\"\n }} }}\n"
    )
}
