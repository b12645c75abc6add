//! The streams of test frames, spread over the policies of the device's file: each policy that protects gets some, and so each SA.

use bench::Outcome;
use bench::rfc2544::{Family, Protocol, Stream};
use config::secgw::settings::{self, Action, Direction, Policy, Ports, Settings};
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Candidates for the frames of a policy, beyond which others take all of them.
const TRIES: usize = 64;
/// The most addresses of a network that streams use.
const HOSTS: u32 = 1 << 16;

/// The test frames, of which the policies see these fields.
pub(super) struct Frames {
    pub(super) addresses: [IpAddr; 2],
    pub(super) protocol: Protocol,
    pub(super) both: bool,
    pub(super) in_memory: bool,
    /// Streams in each direction.
    pub(super) streams: usize,
}

/// The streams from a port.
pub(super) struct Covered {
    pub(super) streams: Vec<Stream>,
    /// By stream: the line of its policy, and the SPI there. Empty if no policy decides.
    pub(super) by_stream: Vec<(u32, u32)>,
    /// Policies that are not tested, and why.
    pub(super) notes: Vec<String>,
}

impl Frames {
    fn family(&self) -> Family {
        Family::of(self.addresses[0])
    }

    /// The streams from a port, for policies of this direction. `part`: only every second policy, beginning with this one.
    pub(super) fn covered(
        &self,
        settings: &Settings,
        from: usize,
        direction: Direction,
        part: Option<usize>,
    ) -> Outcome<Covered> {
        let policies: Vec<&Policy> =
            settings.policies_of(settings::Family::of(self.addresses[0]), direction).collect();
        let base = Stream::between(self.addresses[from], self.addresses[1 - from]);
        if policies.is_empty() {
            let streams = (0..self.streams).map(|number| base.neighbour(number)).collect();
            return Ok(Covered { streams, by_stream: Vec::new(), notes: Vec::new() });
        }
        if self.streams == 1 {
            return self.single(&policies, base, direction);
        }
        self.spread(&policies, base, direction, part)
    }

    /// The one stream between the addresses of the ports.
    fn single(&self, policies: &[&Policy], stream: Stream, direction: Direction) -> Outcome<Covered> {
        let Stream { source, destination, .. } = stream;
        let found = self.decide(policies, &stream).map(|policy| (policy.line, policy.action));
        let by_stream = match found {
            Some((line, Action::Protect(spi))) => vec![(line, spi)],
            // The device may have reasons of its own, such as --single-sa.
            _ if direction == Direction::Outbound => Vec::new(),
            Some((line, _)) => {
                return Err(format!(
                    "line {line}: no SA for frames from {source} to {destination}\n  fix: --addresses of a policy that says protect"
                )
                .into());
            }
            None => {
                return Err(format!(
                    "no policy for frames from {source} to {destination}\n  fix: --addresses of a policy"
                )
                .into());
            }
        };
        Ok(Covered { streams: vec![stream], by_stream, notes: Vec::new() })
    }

    /// Several streams, the same number for each policy.
    fn spread(
        &self,
        policies: &[&Policy],
        base: Stream,
        direction: Direction,
        part: Option<usize>,
    ) -> Outcome<Covered> {
        let number = self.protocol.number(self.family());
        let wanted = policies.iter().filter(|it| it.protocol.contains(number));
        let wanted = wanted.filter_map(|&policy| match policy.action {
            Action::Protect(spi) => Some((policy, spi)),
            _ => None,
        });
        let wanted: Vec<(&Policy, u32)> = match part {
            Some(first) => wanted.skip(first).step_by(2).collect(),
            None => wanted.collect(),
        };
        let (way, count) = (direction.word(), wanted.len());
        if count == 0 {
            let family = settings::Family::of(self.addresses[0]).word();
            return Err(format!(
                "no line sp {family} {way} says protect for these frames\n  fix: another --protocol, or --streams 1"
            )
            .into());
        }
        if self.streams < count {
            return Err(format!(
                "--streams {}, and {count} lines sp {way} say protect for these frames\n  fix: --streams {count}, or more",
                self.streams
            )
            .into());
        }
        let streams_of = |policy: &Policy, most: usize| -> Vec<Stream> {
            let candidates = (0..TRIES.max(4 * most)).map(|number| self.candidate(policy, base, number));
            let is_its =
                |stream: &Stream| self.decide(policies, stream).is_some_and(|it| it.line == policy.line);
            candidates.filter(is_its).take(most).collect()
        };
        let (tested, hidden): (Vec<_>, Vec<_>) =
            wanted.into_iter().partition(|(policy, _)| !streams_of(policy, 1).is_empty());
        let note = |(policy, _): &(&Policy, u32)| {
            format!("line {} is not tested: other policies take its frames", policy.line)
        };
        let notes = hidden.iter().map(note).collect();
        let each = self.streams.div_ceil(tested.len().max(1));
        let of_policies: Vec<(u32, u32, Vec<Stream>)> =
            tested.iter().map(|(policy, spi)| (policy.line, *spi, streams_of(policy, each))).collect();
        if of_policies.is_empty() {
            return Err(
                format!("no frame would meet a line sp {way} that says protect\n  fix: --streams 1").into()
            );
        }
        let nth = |number: usize| {
            let (line, spi, streams) = &of_policies[number % of_policies.len()];
            (streams[number / of_policies.len() % streams.len()], (*line, *spi))
        };
        let (streams, by_stream) = (0..self.streams).map(nth).unzip();
        Ok(Covered { streams, by_stream, notes })
    }

    /// Stream `number` of a policy: addresses next to those of the ports where they fit, and its usual ports.
    fn candidate(&self, policy: &Policy, base: Stream, number: usize) -> Stream {
        let near = base.neighbour(number);
        let source = address(policy.source, near.source, number);
        let destination = address(policy.destination, near.destination, number);
        let is_single = |net: IpNet| net.prefix_len() == net.max_prefix_len();
        let step = if is_single(policy.source) && is_single(policy.destination) { number } else { 0 };
        let usual = self.protocol.ports();
        let ports = [port(policy.source_ports, usual[0], step), port(policy.destination_ports, usual[1], 0)];
        let ports = (self.protocol.has_ports() && ports != usual).then_some(ports);
        Stream { source, destination, ports }
    }

    /// The policy that takes the frames of a stream: the one with the highest priority.
    fn decide<'a>(&self, policies: &[&'a Policy], stream: &Stream) -> Option<&'a Policy> {
        policies.iter().copied().filter(|policy| self.matches(policy, stream)).max_by_key(|it| it.priority)
    }

    fn matches(&self, policy: &Policy, stream: &Stream) -> bool {
        let family = self.family();
        let [source_port, destination_port] =
            stream.ports.unwrap_or_else(|| self.protocol.first_words(family));
        policy.source.contains(&stream.source)
            && policy.destination.contains(&stream.destination)
            && policy.protocol.contains(self.protocol.number(family))
            && policy.source_ports.contains(source_port)
            && policy.destination_ports.contains(destination_port)
    }
}

/// The address `number` of a network: this one if it is there, else a host of it.
fn address(net: IpNet, near: IpAddr, number: usize) -> IpAddr {
    if net.contains(&near) {
        return near;
    }
    let bits = u32::from(net.max_prefix_len() - net.prefix_len());
    let hosts = if bits < 16 { 1 << bits } else { HOSTS };
    // Neither the network itself, nor its router, nor its broadcast address.
    let host = if hosts > 4 { 2 + number as u32 % (hosts - 3) } else { number as u32 % hosts };
    match net.network() {
        IpAddr::V4(first) => Ipv4Addr::from(u32::from(first) + host).into(),
        IpAddr::V6(first) => Ipv6Addr::from(u128::from(first) + u128::from(host)).into(),
    }
}

/// A port of a range: the usual one if it is there, else the first; `step` ports further if there are so many.
fn port(range: Ports, usual: u16, step: usize) -> u16 {
    let first = if range.contains(usual) { usual } else { range.low };
    let count = usize::from(range.high.saturating_sub(first)) + 1;
    first + (step % count) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::secgw::{self, Context};

    fn frames(protocol: Protocol, is_v6: bool, streams: usize) -> Frames {
        let addresses = if is_v6 { ["2001:2::2", "2001:2:0:8000::2"] } else { ["198.18.0.2", "198.19.0.2"] };
        let addresses = addresses.map(|it| it.parse().expect("literal"));
        Frames { addresses, protocol, both: true, in_memory: false, streams }
    }

    fn settings(lines: &str) -> Settings {
        let loaded = secgw::read(lines.as_bytes(), &Context::default());
        assert_eq!(loaded.settings.policies.len(), lines.lines().count(), "{:?}", loaded.findings);
        loaded.settings
    }

    const ALL_PORTS: &str = "sport 0:65535 dport 0:65535";

    #[test]
    fn each_policy_gets_streams_that_no_other_policy_takes() {
        let lines = format!(
            "sp ipv4 out esp protect 5 pri 1 dst 198.19.0.0/16 {ALL_PORTS}\n\
             sp ipv4 out esp protect 6 pri 2 dst 10.1.0.0/24 sport 100:200 dport 7:7\n\
             sp ipv4 out esp protect 7 pri 3 src 10.2.0.1/32 dst 10.2.0.2/32 {ALL_PORTS}\n\
             sp ipv4 out esp discard pri 4 dst 198.19.1.0/24 {ALL_PORTS}\n\
             sp ipv4 out esp protect 8 pri 1 dst 10.1.0.0/25 sport 150:150 dport 7:7\n\
             sp ipv6 out esp protect 9 pri 1 dst 2001:2::/32 {ALL_PORTS}\n"
        );
        let (settings, frames) = (settings(&lines), frames(Protocol::Udp, false, 12));
        let covered = frames.covered(&settings, 0, Direction::Outbound, None).expect("there are policies");
        assert_eq!(covered.notes, ["line 5 is not tested: other policies take its frames"]);
        assert_eq!(covered.streams.len(), 12);
        let spis: Vec<u32> = covered.by_stream.iter().map(|it| it.1).collect();
        assert_eq!(spis, [5, 6, 7].repeat(4));
        let distinct: std::collections::HashSet<String> =
            covered.streams.iter().map(|it| format!("{it:?}")).collect();
        assert_eq!(distinct.len(), 12, "{:?}", covered.streams);
        let policies: Vec<&Policy> =
            settings.policies_of(settings::Family::V4, Direction::Outbound).collect();
        for (stream, (line, _)) in covered.streams.iter().zip(&covered.by_stream) {
            assert_eq!(frames.decide(&policies, stream).map(|it| it.line), Some(*line), "{stream:?}");
        }
        assert_eq!(covered.streams[0], Stream::between(frames.addresses[0], frames.addresses[1]));
        assert_eq!(covered.streams[1].ports, Some([100, 7]));
        assert_eq!(covered.streams[1].destination, IpAddr::from([10, 1, 0, 2]));
        let six = Frames { ..self::frames(Protocol::Icmp, true, 300) };
        let covered = six.covered(&settings, 0, Direction::Outbound, None).expect("there is a policy");
        assert!(covered.by_stream.iter().all(|it| it.1 == 9) && covered.streams[299].ports.is_none());
    }

    #[test]
    fn too_few_streams_and_policies_without_frames_are_refused() {
        let lines = format!(
            "sp ipv4 in esp protect 5 pri 1 dst 10.1.0.0/24 proto 6:255 {ALL_PORTS}\n\
             sp ipv4 in esp protect 6 pri 1 dst 10.2.0.0/24 proto 6:255 {ALL_PORTS}\n\
             sp ipv4 in esp protect 7 pri 1 dst 10.3.0.0/24 proto 6:255 {ALL_PORTS}\n"
        );
        let settings = settings(&lines);
        let error = |frames: Frames| {
            let covered = frames.covered(&settings, 1, Direction::Inbound, None);
            covered.err().map(|error| error.to_string()).unwrap_or_default()
        };
        let few = error(frames(Protocol::Tcp, false, 2));
        assert!(few.contains("3 lines sp in say protect") && few.contains("fix: --streams 3"), "{few}");
        let none = error(frames(Protocol::Udp, false, 4));
        assert!(none.contains("no line sp ipv4 in says protect"), "{none}");
        let single = error(frames(Protocol::Tcp, false, 1));
        assert!(single.contains("no policy for frames from 198.19.0.2 to 198.18.0.2"), "{single}");
        // Both directions share the policies.
        let frames = frames(Protocol::Tcp, false, 2);
        let part = |first| {
            let covered =
                frames.covered(&settings, 0, Direction::Inbound, Some(first)).expect("two policies");
            covered.by_stream.iter().map(|it| it.1).collect::<Vec<_>>()
        };
        assert_eq!([part(0), part(1)], [vec![5, 7], vec![6, 6]]);
    }
}
