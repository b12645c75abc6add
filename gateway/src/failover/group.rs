//! Which tunnel of a group is used: at once another one if it fails, and the preferred one again once that is up for a while.

use crate::facts::model::{State, Tunnel};
use crate::path::model::State as PathState;
use config::settings::{FailoverGroup, FailoverMember};
use std::time::Duration;

/// A group with what is known of its tunnels.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) settings: FailoverGroup,
    /// The place of the tunnel that is used, in the list of members.
    pub(super) active: usize,
    /// For each member, in the order of the list.
    pub(super) seen: Vec<Seen>,
    /// How often another tunnel was taken.
    pub(super) switches: u64,
}

/// What is known of a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) state: State,
    /// Since when it is up.
    pub(super) since: Option<Duration>,
}

impl Group {
    /// A group of whose tunnels nothing is known. What was used `before` still is, if it is a member.
    pub(super) fn new(settings: FailoverGroup, before: Option<&Self>) -> Self {
        let known = |member: &FailoverMember| {
            let before = before?;
            let same = |it: &FailoverMember| (&it.interface, &it.peer) == (&member.interface, &member.peer);
            Some((before, before.settings.members.iter().position(same)?))
        };
        let mut seen = Vec::new();
        let mut active = 0;
        for (place, member) in settings.members.iter().enumerate() {
            let found = known(member);
            seen.push(found.map_or_else(Seen::default, |(before, was)| before.seen[was]));
            if found.is_some_and(|(before, was)| before.active == was) {
                active = place;
            }
        }
        Self { settings, active, seen, switches: before.map_or(0, |before| before.switches) }
    }

    /// The member that is used; none if all are disabled.
    pub(super) fn used(&self) -> Option<&FailoverMember> {
        self.settings.members.get(self.active)
    }

    /// Looks at the tunnels; whether another one is used from now on.
    pub(super) fn look(&mut self, tunnels: &[Tunnel], now: Duration) -> bool {
        for (member, seen) in self.settings.members.iter().zip(&mut self.seen) {
            seen.state = state(member, tunnels);
            seen.since = (seen.state == State::Up).then(|| seen.since.unwrap_or(now));
        }
        let Some(used) = self.seen.get(self.active) else { return false };
        let is_held =
            |seen: &Seen| seen.since.is_some_and(|since| now.saturating_sub(since) >= self.settings.hold);
        let next = match used.state {
            State::Down => self.seen.iter().position(|seen| seen.state == State::Up),
            State::Up => self.seen[..self.active].iter().position(is_held),
            // It may be that nobody calls.
            State::Waiting => self.seen.iter().position(is_held),
        };
        let Some(next) = next.filter(|next| *next != self.active) else { return false };
        (self.active, self.switches) = (next, self.switches + 1);
        true
    }
}

/// Whether a tunnel carries packets: not if a part of it is down, or if probes to its peer have no answer. Those may be of another tunnel of the
/// peer, whose networks do not move.
fn state(member: &FailoverMember, tunnels: &[Tunnel]) -> State {
    let of_peer = || {
        let is_of = |it: &&Tunnel| (&it.interface, &it.peer) == (&member.interface, &member.peer);
        tunnels.iter().filter(is_of)
    };
    if of_peer().filter_map(|it| it.path.as_ref()).any(|path| path.state == PathState::Silent) {
        return State::Down;
    }
    let is_part = |it: &&Tunnel| it.tunnel.is_none_or(|number| member.tunnels.contains(&number));
    // A peer that is not there is down. Down is the last of the states.
    of_peer().filter(is_part).map(|it| it.state).max().unwrap_or(State::Down)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::model::Path;

    fn member(number: u32, interface: &str, tunnels: &[u32]) -> FailoverMember {
        FailoverMember {
            number,
            interface: interface.to_owned(),
            peer: "hq".to_owned(),
            tunnels: tunnels.iter().copied().collect(),
        }
    }

    fn group() -> Group {
        let members = vec![member(10, "wg0", &[]), member(20, "ipsec0", &[4, 5]), member(30, "vtun0", &[])];
        let settings = FailoverGroup { members, hold: Duration::from_secs(10), ..FailoverGroup::default() };
        Group::new(settings, None)
    }

    fn tunnel(interface: &str, number: Option<u32>, state: State) -> Tunnel {
        Tunnel {
            interface: interface.to_owned(),
            peer: "hq".to_owned(),
            tunnel: number,
            state,
            ..Tunnel::default()
        }
    }

    fn all(wireguard: State, ipsec: [State; 2], openvpn: State) -> Vec<Tunnel> {
        vec![
            tunnel("wg0", None, wireguard),
            tunnel("ipsec0", Some(4), ipsec[0]),
            tunnel("ipsec0", Some(5), ipsec[1]),
            tunnel("ipsec0", Some(6), State::Down),
            tunnel("vtun0", None, openvpn),
        ]
    }

    #[test]
    fn the_first_that_is_up_is_used_and_the_preferred_one_again_after_a_while() {
        use State::{Down, Up, Waiting};
        let mut group = group();
        let mut used = |tunnels: &[Tunnel], seconds| {
            group.look(tunnels, Duration::from_secs(seconds));
            group.used().map(|member| member.number)
        };
        // Nothing is known of it yet.
        assert_eq!(used(&all(Waiting, [Up, Up], Up), 0), Some(10));
        assert_eq!(used(&all(Down, [Up, Waiting], Up), 1), Some(30), "a part of IPsec is not up");
        assert_eq!(used(&all(Down, [Up, Up], Up), 2), Some(30), "not at once");
        assert_eq!(used(&all(Down, [Up, Up], Up), 12), Some(20));
        assert_eq!(used(&all(Up, [Up, Up], Up), 13), Some(20));
        assert_eq!(used(&all(Down, [Up, Up], Up), 20), Some(20));
        assert_eq!(used(&all(Up, [Up, Up], Up), 25), Some(20), "its time begins again");
        assert_eq!(used(&all(Up, [Down, Up], Up), 27), Some(10), "not after a while if what is used fails");
        assert_eq!(used(&all(Down, [Down, Down], Down), 28), Some(10), "there is nothing better");
        assert_eq!(used(&all(Waiting, [Up, Up], Up), 40), Some(10), "silence is no failure at once");
        assert_eq!(used(&all(Waiting, [Up, Up], Up), 51), Some(20), "nobody calls");
        assert_eq!(used(&[], 52), Some(20));
        assert_eq!(group.switches, 4);
    }

    #[test]
    fn a_tunnel_whose_probes_have_no_answer_is_down() {
        let mut tunnels = all(State::Up, [State::Up; 2], State::Up);
        tunnels[0].path = Some(Box::new(Path { state: PathState::Answers, ..Path::default() }));
        assert_eq!(state(&member(10, "wg0", &[]), &tunnels), State::Up);
        tunnels[0].path = Some(Box::new(Path { state: PathState::Silent, ..Path::default() }));
        assert_eq!(state(&member(10, "wg0", &[]), &tunnels), State::Down);
        let ipsec = member(20, "ipsec0", &[4, 5]);
        assert_eq!(state(&ipsec, &tunnels), State::Up);
        tunnels[3].path = tunnels[0].path.clone();
        assert_eq!(state(&ipsec, &tunnels), State::Down, "a tunnel for probes alone");
    }

    #[test]
    fn what_is_used_stays_so_when_the_group_changes() {
        let mut before = group();
        before.look(&all(State::Down, [State::Up; 2], State::Up), Duration::from_secs(1));
        assert_eq!(before.used().map(|it| it.number), Some(20));
        let mut settings = before.settings.clone();
        settings.members.remove(0);
        let after = Group::new(settings.clone(), Some(&before));
        assert_eq!(after.used().map(|it| it.number), Some(20));
        assert_eq!(after.seen[0].since, Some(Duration::from_secs(1)));
        settings.members.remove(0);
        assert_eq!(Group::new(settings.clone(), Some(&before)).used().map(|it| it.number), Some(30));
        settings.members.clear();
        let mut empty = Group::new(settings, Some(&before));
        assert!(empty.used().is_none() && !empty.look(&[], Duration::ZERO));
    }
}
