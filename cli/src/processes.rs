//! The commands that stay: gateways, and the processes that the daemon starts beside itself.
//!
//! Their command lines are parsed alone. The tree of all commands takes a megabyte of each process for as long as it runs, and seven run
//! on a router.

#[cfg(feature = "https")]
use crate::https;
#[cfg(feature = "secgw")]
use crate::secgw;
use crate::{Verb, agentx, alerter, archiver, code, dhcp, dns, machine, run, wireguard};
#[cfg(feature = "openvpn")]
use crate::{openvpn, pid_file, scripts};
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;

#[derive(Subcommand)]
pub(crate) enum Process {
    /// Run the gateway from a configuration file
    Run(run::Arguments),
    /// Serve one WireGuard interface, to be configured with wg and wg-quick
    Wireguard(wireguard::Arguments),
    /// Serve one OpenVPN interface from OpenVPN's own files, as server, client or site
    #[cfg(feature = "openvpn")]
    Openvpn(openvpn::Arguments),
    /// Run the IPsec gateway of DPDK's ipsec-secgw from its files and command line, or check them
    #[cfg(feature = "secgw")]
    Secgw(secgw::Arguments),
    /// Answer SNMP for the running daemon, as a sub-agent of snmpd (AgentX)
    Agentx(agentx::Arguments),
    /// Tell receivers of alerts for a daemon, which sends them by the socket that is the standard input
    #[command(hide = true)]
    Alerter(alerter::Arguments),
    /// Copy revisions to the locations of commit-archive, for a daemon
    #[command(hide = true)]
    Archiver(archiver::Arguments),
    /// Change settings of the machine for a daemon, which asks by the socket that is the standard input
    #[command(hide = true)]
    MachineHelper(machine::Arguments),
    /// Serve the API over HTTPS for a daemon, which sends orders by the socket that is the standard input
    #[cfg(feature = "https")]
    #[command(hide = true)]
    HttpsServer(https::Arguments),
    /// Run the programs of OpenVPN's files for a daemon, which sends requests by the socket that is the standard input
    #[cfg(feature = "openvpn")]
    #[command(hide = true)]
    ScriptRunner(scripts::Arguments),
    /// Run DHCP clients for a daemon, which sends orders by the socket that is the standard input
    #[command(hide = true)]
    DhcpClients(dhcp::Supervisor),
    /// Become a DHCP client
    #[command(hide = true)]
    DhcpClient(dhcp::Client),
    /// Set name servers for a client of OpenVPN; it is started by that, and has its socket as standard input
    #[command(hide = true)]
    NameServers(dns::Arguments),
    /// Write the pid file of an OpenVPN interface when it says so; it is started by that, and has its socket as standard input
    #[cfg(feature = "openvpn")]
    #[command(hide = true)]
    PidFile(pid_file::Arguments),
}

/// The command line of one of them.
#[derive(Parser)]
#[command(name = "postern", max_term_width = 110)]
struct Line {
    #[command(subcommand)]
    process: Process,
}

/// The process that a command line names, unless it names none.
pub(crate) fn find(line: &[OsString]) -> Option<Result<Verb, clap::Error>> {
    let is_one = line.get(1).and_then(|word| word.to_str()).is_some_and(Process::has_subcommand);
    is_one.then(|| Line::try_parse_from(line).map(|line| Verb::Process(line.process)))
}

impl Process {
    /// Runs it to its end.
    pub(crate) fn run(self) -> ExitCode {
        code(match self {
            Self::Run(arguments) => run::run(arguments),
            Self::Wireguard(arguments) => wireguard::run(arguments),
            #[cfg(feature = "openvpn")]
            Self::Openvpn(arguments) => openvpn::run(arguments),
            #[cfg(feature = "secgw")]
            Self::Secgw(arguments) => return crate::ended(secgw::run(arguments)),
            Self::Agentx(arguments) => agentx::run(arguments),
            Self::Alerter(arguments) => alerter::serve(arguments),
            Self::Archiver(arguments) => archiver::serve(&arguments),
            Self::MachineHelper(arguments) => machine::serve(arguments),
            #[cfg(feature = "https")]
            Self::HttpsServer(arguments) => https::run(arguments),
            #[cfg(feature = "openvpn")]
            Self::ScriptRunner(arguments) => scripts::serve(&arguments),
            Self::DhcpClients(arguments) => dhcp::serve(&arguments),
            Self::DhcpClient(arguments) => dhcp::become_client(&arguments),
            Self::NameServers(arguments) => dns::serve(arguments),
            #[cfg(feature = "openvpn")]
            Self::PidFile(arguments) => pid_file::serve(&arguments),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(words: &str) -> Option<Result<Verb, clap::Error>> {
        let line: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        find(&line)
    }

    #[test]
    fn what_stays_is_parsed_alone_and_all_else_is_not() {
        let is_run = |found| matches!(found, Some(Ok(Verb::Process(Process::Run(_)))));
        assert!(is_run(found("postern run --config a.conf --no-machine")));
        assert!(matches!(found("postern agentx"), Some(Ok(Verb::Process(Process::Agentx(_))))));
        for other in ["postern", "postern status", "postern --help", "postern runs", "postern help run"] {
            assert!(found(other).is_none(), "{other}");
        }
    }

    #[test]
    fn wrong_words_are_refused_with_the_usage() {
        let refused = |words| found(words).and_then(Result::err).expect("it is refused").to_string();
        assert!(refused("postern run --frob").contains("Usage: postern run"));
        assert!(refused("postern wireguard").contains("Usage: postern wireguard"));
        assert!(refused("postern run --help").contains("--open-at-exit"));
    }
}
