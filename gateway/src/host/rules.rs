//! Policy rules, in their order.
//!
//! ```text
//! 0      lookup local                             the kernel's
//! 220    not fwmark 220 lookup 220                networks behind IPsec peers
//! 221    fwmark 220 goto 225                      IPsec tunnels for everything: not our own outer packets,
//! 222    from OURS lookup 221                     all that is from the networks of our side,
//! 223    from ::/1 goto 225, from 8000::/1 ...    (IPv6: that was from elsewhere)
//! 224    iif lo lookup 222                        and what this machine sends from whichever address fits
//! 225    nop
//! 32500  lookup main suppress_prefixlength 0      what has a route of its own, other than the default route
//!        not fwmark M lookup main suppress_...    the same, of one client of OpenVPN
//! 32501  not fwmark MARK lookup MARK              everything else, into the tunnel of WireGuard or OpenVPN
//! 32766  lookup main                              the kernel's
//! ```

use super::netlink::Rule;
use std::collections::BTreeSet;

/// Without it, reverse path filtering drops the answers to marked packets.
const SRC_VALID_MARK: &str = "/proc/sys/net/ipv4/conf/all/src_valid_mark";

/// A setting of the kernel that some rules need.
#[derive(Default)]
pub struct ValidMark {
    /// The value before we set it; unknown if an earlier daemon has set it, which then stays.
    before: Option<String>,
}

impl ValidMark {
    /// Sets it if one of these rules needs it, or puts it back.
    pub fn set(&mut self, rules: &BTreeSet<Rule>) {
        let wanted = rules.iter().any(|rule| rule.needs_valid_mark());
        match (wanted, &self.before) {
            (true, None) => {
                self.before = std::fs::read_to_string(SRC_VALID_MARK).ok();
                let _ = std::fs::write(SRC_VALID_MARK, "1");
            }
            (false, Some(before)) => {
                let _ = std::fs::write(SRC_VALID_MARK, before.trim());
                self.before = None;
            }
            _ => {}
        }
    }
}
