//! Traps of policies: what matches nothing or everything, and what another policy hides.

use crate::secgw::finding::Finding;
use crate::secgw::settings::{Direction, Family, Policy, Ports, Protocol, Settings};

/// ICMP, IGMP, ESP and others have no ports: the first four bytes behind the IP header are compared in place of them.
const ICMP: [u8; 2] = [1, 58];

/// The most pairs of policies that are reported.
const MOST_PAIRS: usize = 100;

pub(super) fn lint(settings: &Settings, findings: &mut Vec<Finding>) {
    for policy in &settings.policies {
        ports(policy, findings);
        protocol(policy, findings);
        host_bits(policy, findings);
    }
    for direction in Direction::ALL {
        for family in Family::ALL {
            let mut policies: Vec<&Policy> = settings.policies_of(family, direction).collect();
            if policies.is_empty() {
                findings.push(in_clear(family, direction));
            }
            pairs(&mut policies, findings);
        }
    }
}

fn ports(policy: &Policy, findings: &mut Vec<Finding>) {
    let (source, destination) = (policy.source_ports, policy.destination_ports);
    let zero = Ports::default();
    for (word, range) in [("sport", source), ("dport", destination)] {
        if range.low > range.high {
            let text = format!(
                "{word} {}:{} ends before it begins: Postern matches no packet, the table of ipsec-secgw is undefined",
                range.low, range.high
            );
            findings.push(Finding::warning(
                policy.line,
                "port-order",
                text,
                format!("write {word} {}:{}", range.high, range.high),
            ));
        }
    }
    let zeros: Vec<&str> = [("sport", source), ("dport", destination)]
        .into_iter()
        .filter(|(_, range)| *range == zero)
        .map(|(word, _)| word)
        .collect();
    if !zeros.is_empty() {
        let text =
            format!("{} 0:0 matches only port 0, and so does a policy without it", zeros.join(" and "));
        let fix: Vec<String> = zeros.iter().map(|word| format!("{word} 0:65535")).collect();
        findings.push(Finding::warning(
            policy.line,
            "ports-zero",
            text,
            format!("write {} for all ports", fix.join(" ")),
        ));
    } else if policy.protocol.mask == u8::MAX
        && ICMP.contains(&policy.protocol.value)
        && (source, destination) != (Ports::ALL, Ports::ALL)
    {
        let text = "ICMP has no ports: sport is compared with its type and code, dport with its checksum";
        findings.push(Finding::warning(policy.line, "icmp-ports", text, "write sport 0:65535 dport 0:65535"));
    }
}

fn protocol(policy: &Policy, findings: &mut Vec<Finding>) {
    let Protocol { value, mask } = policy.protocol;
    if mask == u8::MAX || (value, mask) == (0, 0) {
        return;
    }
    let text = if mask == 0 {
        format!("proto {value}:0 matches every protocol: the second number is a mask")
    } else {
        let all: Vec<u8> = (0..=u8::MAX).filter(|&number| policy.protocol.contains(number)).collect();
        let shown: Vec<String> = all.iter().take(4).map(u8::to_string).collect();
        let more = if all.len() > shown.len() {
            format!(" and {} more", all.len() - shown.len())
        } else {
            String::new()
        };
        format!("proto {value}:{mask} is a number and a mask: it matches {}{more}", shown.join(", "))
    };
    let fix = format!("write proto {value}:255 for {value} alone, one line for each protocol");
    findings.push(Finding::warning(policy.line, "protocol-mask", text, fix));
}

fn host_bits(policy: &Policy, findings: &mut Vec<Finding>) {
    for (word, network) in [("src", policy.source), ("dst", policy.destination)] {
        // Without a length the address is reported already.
        if network.prefix_len() > 0 && network.addr() != network.network() {
            let text = format!("{word} {network} has bits behind its prefix, which are ignored");
            findings.push(Finding::note(
                policy.line,
                "host-bits",
                text,
                format!("write {word} {}", network.trunc()),
            ));
        }
    }
}

fn in_clear(family: Family, direction: Direction) -> Finding {
    let (name, word) = (family.name(), direction.word());
    let text = format!("no {name} policy for {word}: every {name} packet in that direction passes in clear");
    let fix = format!(
        "write sp {} {word} esp discard pri 1 sport 0:65535 dport 0:65535 to drop them",
        family.word()
    );
    Finding::warning(None, "no-policy", text, fix)
}

/// Policies that never match, and policies of equal priority that contradict each other.
fn pairs(policies: &mut [&Policy], findings: &mut Vec<Finding>) {
    policies.sort_by_key(|policy| std::cmp::Reverse(policy.priority));
    let mut reported = 0;
    for (index, policy) in policies.iter().enumerate() {
        if reported >= MOST_PAIRS {
            return;
        }
        let (above, equal) = policies[..index]
            .split_at(policies[..index].partition_point(|other| other.priority > policy.priority));
        let finding = if let Some(other) = above.iter().find(|other| covers(other, policy)) {
            let text = format!(
                "the policy never matches: that of line {} has a higher priority and takes all its packets",
                other.line
            );
            Finding::warning(policy.line, "shadowed", text, "raise its pri above the other one, or delete it")
        } else if let Some(other) = equal.iter().find(|other| covers(other, policy) && covers(policy, other))
        {
            if other.action == policy.action {
                let text = format!("the policy is the same as that of line {}", other.line);
                Finding::note(policy.line, "duplicate-policy", text, "delete one of them")
            } else {
                contradiction(policy, other)
            }
        } else if let Some(other) =
            equal.iter().find(|other| other.action != policy.action && overlap(other, policy))
        {
            contradiction(policy, other)
        } else {
            continue;
        };
        findings.push(finding);
        reported += 1;
    }
}

fn contradiction(policy: &Policy, other: &Policy) -> Finding {
    let text = format!(
        "packets may match this policy and that of line {}, which does something else and has the same priority",
        other.line
    );
    Finding::warning(policy.line, "equal-priority", text, "give the one that is to win a larger pri")
}

/// Whether each packet of the second policy is one of the first.
fn covers(first: &Policy, second: &Policy) -> bool {
    first.source.contains(&second.source)
        && first.destination.contains(&second.destination)
        && first.protocol.covers(second.protocol)
        && first.source_ports.covers(second.source_ports)
        && first.destination_ports.covers(second.destination_ports)
}

/// Whether a packet may match both.
fn overlap(first: &Policy, second: &Policy) -> bool {
    let meet = |a: &ipnet::IpNet, b: &ipnet::IpNet| a.contains(b) || b.contains(a);
    let ports = |a: Ports, b: Ports| a.low.max(b.low) <= a.high.min(b.high);
    let common = first.protocol.mask & second.protocol.mask;
    meet(&first.source, &second.source)
        && meet(&first.destination, &second.destination)
        && first.protocol.value & common == second.protocol.value & common
        && ports(first.source_ports, second.source_ports)
        && ports(first.destination_ports, second.destination_ports)
}
