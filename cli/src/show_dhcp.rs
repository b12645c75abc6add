//! `postern show dhcp client leases`: what interfaces have got by DHCP.

use crate::Failure;
use crate::answer::Answer;
use crate::request::Request;
use ::bench::report::table;
use gateway::dhcp::model::{Leases, OfInterface};

/// All of them.
pub(crate) fn leases(request: &Request) -> Result<Answer, Failure> {
    let answers: Vec<Leases> = request.ask()?;
    let leases = answers.into_iter().flat_map(|answer| answer.leases).collect();
    Ok(Answer::new(Leases { leases }, text))
}

fn text(leases: &Leases) -> String {
    if leases.leases.is_empty() {
        return "no interface gets its address by DHCP\n  to have one: set interfaces ethernet eth0 address dhcp\n"
            .to_owned();
    }
    let rows: Vec<Vec<String>> = leases.leases.iter().map(row).collect();
    let heads = ["Interface", "Address", "Router", "Name servers", "Domain", "Server", "Remaining"];
    let problems = leases.leases.iter().filter_map(|of| {
        let problem = of.problem.as_ref()?;
        Some(format!("{}: {problem}\n", of.interface))
    });
    table(&heads, &rows) + &problems.collect::<String>()
}

fn row(of: &OfInterface) -> Vec<String> {
    let none = || "-".to_owned();
    let Some(lease) = &of.lease else {
        return [vec![of.interface.clone()], vec![none(); 6]].concat();
    };
    let servers: Vec<String> = lease.name_servers.iter().map(ToString::to_string).collect();
    vec![
        of.interface.clone(),
        lease.address.to_string(),
        lease.router.map_or_else(none, |it| it.to_string()),
        if servers.is_empty() { none() } else { servers.join(",") },
        lease.domain.clone().unwrap_or_else(none),
        lease.server.map_or_else(none, |it| it.to_string()),
        of.remaining_seconds.map_or_else(none, |seconds| format!("{seconds} s")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway::dhcp::lease::Lease;

    #[test]
    fn leases_and_problems_are_lines() {
        let lease = Lease {
            address: "192.0.2.7/24".parse().expect("literal"),
            router: "192.0.2.1".parse().ok(),
            name_servers: vec!["9.9.9.9".parse().expect("literal")],
            domain: None,
            server: None,
            seconds: 3600,
        };
        let bound = OfInterface {
            interface: "eth0".to_owned(),
            lease: Some(lease),
            remaining_seconds: Some(1800),
            problem: None,
        };
        let lost = OfInterface {
            interface: "eth1".to_owned(),
            problem: Some("no server answers".to_owned()),
            ..OfInterface::default()
        };
        let shown = text(&Leases { leases: vec![bound, lost] });
        let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(
            lines.contains(&vec!["eth0", "192.0.2.7/24", "192.0.2.1", "9.9.9.9", "-", "-", "1800", "s"]),
            "{shown}"
        );
        assert!(shown.contains("eth1: no server answers"), "{shown}");
        assert!(text(&Leases::default()).contains("address dhcp"));
    }
}
