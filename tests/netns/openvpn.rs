//! OpenVPN with ourselves at both ends.

use crate::openvpn_ends::{Program, end_to_end, renewals};

#[test]
fn ours_with_ours_carries_data_and_survives_the_death_of_either_end() {
    end_to_end([Program::Ours; 2]);
}

#[test]
fn ours_with_ours_loses_nothing_when_keys_are_renewed() {
    renewals([Program::Ours; 2]);
}
