//! Settings for tests.

use config::Settings;

const OURS: &str = "YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=";
const B: &str = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=";
/// The key of a peer that [`wireguard`] does not set.
pub(crate) const C: &str = "TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0=";

/// The interface `wg0` with a peer `b`, whose `allowed-ips` and all else are in these lines.
pub(crate) fn wireguard(lines: &[&str]) -> Settings {
    wireguard_with(lines, "")
}

/// The same, with more than this interface.
pub(crate) fn wireguard_with(lines: &[&str], more: &str) -> Settings {
    let mut text = format!(
        "set interfaces wireguard wg0 address 10.1.0.1/24\n\
         set interfaces wireguard wg0 private-key {OURS}\n\
         set interfaces wireguard wg0 peer b public-key {B}\n"
    );
    text.extend(lines.iter().map(|line| format!("set interfaces wireguard wg0 {line}\n")));
    text.push_str(more);
    Settings::new(&config::parse(&text).expect("right")).expect("right").0
}
