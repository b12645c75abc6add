//! OpenVPN with ourselves at both ends.

use crate::openvpn_ends::{Program, end_to_end, moves, renewals, two_clients};

#[test]
fn ours_with_ours_carries_data_and_survives_the_death_of_either_end() {
    end_to_end([Program::Ours; 2]);
}

#[test]
fn ours_with_ours_loses_nothing_when_keys_are_renewed() {
    renewals([Program::Ours; 2]);
}

#[test]
fn a_client_of_ours_that_moves_keeps_its_session() {
    moves(Program::Ours);
}

#[test]
fn clients_of_ours_reach_each_other_from_their_own_addresses() {
    two_clients(Program::Ours);
}
