//! A client of OpenVPN of ours, with a server of ours.

use crate::openvpn_client_ends::{hostile_server, name_servers, redirects, routes};
use crate::openvpn_ends::Program;

#[test]
fn everything_goes_through_the_tunnel_of_a_client_and_nothing_in_clear() {
    redirects(Program::Ours);
}

#[test]
fn routes_of_a_client_lead_where_its_file_and_its_server_say() {
    routes(Program::Ours);
}

#[test]
fn a_hostile_server_takes_nothing_but_what_is_its_own() {
    hostile_server(Program::Ours);
}

#[test]
fn name_servers_are_set_while_a_client_is_connected_and_put_back() {
    name_servers(Program::Ours);
}
