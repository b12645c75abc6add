//! A client of ours with a server of OpenVPN 2.6.

use crate::openvpn_client_ends::passwords;

#[test]
fn our_client_has_a_password_and_then_a_token() {
    passwords();
}
