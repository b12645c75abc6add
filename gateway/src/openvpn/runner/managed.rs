//! An interface and the management interface: what is told, and what is asked.

use super::{Answer, Runner};
use crate::openvpn::control_thread::{Chosen, Decision, Report, Stage, Victim};
use crate::openvpn::management::line::RemoteChoice;
use crate::openvpn::management::{Board, ClientKey, told};
use crate::openvpn::names::Name;
use crate::openvpn::scripts::Environment;
use crate::openvpn::scripts::environment::printable;
use crate::openvpn::settings::Remote;
use crate::resolver;
use crate::rights::Rights;
use config::openvpn::settings::AuthRetry;
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use zeroize::Zeroizing;

/// What the management interface is told about the tunnel.
pub(super) struct Managed {
    board: Arc<Board>,
    /// Whether it is told when the tunnel is up and down.
    tells_up_down: bool,
    /// The name of the interface.
    name: String,
    /// The variables of the tunnel.
    tunnel: Environment,
    is_up: bool,
    addresses: Vec<IpAddr>,
    server: Option<SocketAddr>,
    /// The server that is asked about.
    asked: Option<Remote>,
}

impl Managed {
    /// `addresses`: of a server; a client gets them later.
    pub(super) fn new<'a>(
        (board, tells_up_down): (Arc<Board>, bool),
        name: &str,
        addresses: impl Iterator<Item = &'a IpNet>,
    ) -> Self {
        let (tunnel, is_up, server, asked) = (Environment::default(), false, None, None);
        let mut own = Self {
            board,
            tells_up_down,
            name: name.to_owned(),
            tunnel,
            is_up,
            addresses: Vec::new(),
            server,
            asked,
        };
        own.assigned(addresses);
        own
    }

    /// The interface has these addresses.
    pub(super) fn assigned<'a>(&mut self, addresses: impl Iterator<Item = &'a IpNet>) {
        let mut environment = Environment::default();
        environment.set("dev", &self.name);
        environment.set("dev_type", "tun");
        self.addresses.clear();
        for prefix in addresses {
            self.addresses.push(prefix.addr());
            match prefix {
                IpNet::V4(prefix) => {
                    environment.set("ifconfig_local", prefix.addr());
                    environment.set("ifconfig_netmask", prefix.netmask());
                }
                IpNet::V6(prefix) => {
                    environment.set("ifconfig_ipv6_local", prefix.addr());
                    environment.set("ifconfig_ipv6_netbits", prefix.prefix_len());
                }
            }
        }
        let (v4, v6) = self.own();
        if self.server.is_some() {
            self.board.state("ASSIGN_IP", &format!(",{v4},,,,{v6}"));
        }
        self.down();
        self.tunnel = environment;
    }

    /// The tunnel can be used.
    pub(super) fn connected(&mut self) {
        self.is_up = true;
        self.tell_tunnel("UP");
        let ((v4, v6), server) =
            (self.own(), self.server.map(|it| (it.ip().to_canonical().to_string(), it.port())));
        let (address, port) = server.map_or_else(Default::default, |(ip, port)| (ip, port.to_string()));
        self.board.state("CONNECTED", &format!("SUCCESS,{v4},{address},{port},,{v6}"));
    }

    /// Another attempt follows.
    pub(super) fn reconnects(&mut self, reason: &str) {
        self.board.state("RECONNECTING", &format!("{reason},,,,,"));
    }

    /// The tunnel ends, if it was up.
    pub(super) fn down(&mut self) {
        if std::mem::take(&mut self.is_up) {
            self.tell_tunnel("DOWN");
        }
    }

    /// The interface ends.
    pub(super) fn end(mut self) {
        self.down();
        self.board.interface_ended();
    }

    fn tell_tunnel(&self, what: &str) {
        if !self.tells_up_down {
            return;
        }
        let lines: String =
            self.tunnel.iter().map(|(name, value)| format!(">UPDOWN:ENV,{name}={value}\n")).collect();
        self.board.tell(Zeroizing::new(format!(">UPDOWN:{what}\n{lines}>UPDOWN:ENV,END\n")));
    }

    /// The addresses of the tunnel: that of IPv4 or nothing in its place, that of IPv6 with a comma.
    fn own(&self) -> (String, String) {
        let of = |v4: bool| self.addresses.iter().find(|it| it.is_ipv4() == v4).map(IpAddr::to_string);
        (of(true).unwrap_or_default(), of(false).map_or_else(String::new, |v6| format!(",{v6}")))
    }
}

impl Runner {
    /// What the control thread has told about.
    pub(super) fn tell_management(&mut self, report: Report) {
        let Some(managed) = &mut self.managed else { return };
        let board = &managed.board;
        match report {
            Report::Client(event) => board.tell(told(&event)),
            Report::Stage(stage) => match stage {
                Stage::Waiting(server) => {
                    managed.server = Some(server);
                    board.state("WAIT", ",,,,,");
                }
                Stage::Authenticating => board.state("AUTH", ",,,,,"),
                Stage::Configuring => board.state("GET_CONFIG", ",,,,,"),
                Stage::Pending(None) => board.state("AUTH_PENDING", ",,,,,"),
                Stage::Pending(Some(wait)) => {
                    board.state("AUTH_PENDING", &format!("timeout {},,,,,", wait.as_secs()));
                }
            },
            Report::Holds if board.holds() => board.wait(0),
            Report::Holds => self.interface.leave_hold(),
            Report::Connects(remote) => {
                managed.asked = Some(remote);
                let named = self.names.iter().flatten().find(|name| {
                    name.is_tcp == remote.is_tcp && name.addresses().any(|address| address == remote.address)
                });
                let text = named.map_or_else(|| by_address(remote), entry);
                managed.board.ask_remote(&text);
            }
            Report::Failed(reason) => {
                let reason = if reason.is_empty() { reason } else { format!(" ['{}']", printable(&reason)) };
                board.tell(Zeroizing::new(format!(">PASSWORD:Verification Failed: 'Auth'{reason}\n")));
            }
            Report::Token(token) => {
                let token = Zeroizing::new(printable(&token));
                // With its room from the start.
                board.tell(Zeroizing::new([">PASSWORD:Auth-Token:", token.as_str(), "\n"].concat()));
            }
            Report::Info(text) => board.tell(Zeroizing::new(format!(">INFOMSG:{}\n", printable(&text)))),
            Report::Echo(text) => board.echo(&text),
            _ => {}
        }
    }

    /// Whether this is a client.
    pub fn is_client(&self) -> bool {
        !self.has_clients
    }

    /// Ends sessions of clients; how many, or `None` on a client.
    pub async fn kill(&self, victim: Victim, told: &str) -> Option<usize> {
        if !self.has_clients {
            return None;
        }
        Some(self.interface.kill(victim, printable(told)).await)
    }

    /// Decides about a client; whether it was asked about, or `None` on a client.
    pub async fn decide(&self, key: ClientKey, decision: Decision) -> Option<bool> {
        if !self.has_clients {
            return None;
        }
        Some(self.interface.decide(key.client, key.key, decision).await)
    }

    /// Tells a client that its user is needed.
    pub async fn pending(&self, key: ClientKey, text: String, wait: Duration) -> Option<bool> {
        if !self.has_clients {
            return None;
        }
        Some(self.interface.pending(key.client, key.key, text, wait).await)
    }

    /// Answers a challenge of the server; `None` on a server.
    pub async fn respond(&self, text: &str) -> Option<bool> {
        if self.has_clients {
            return None;
        }
        Some(self.interface.respond(printable(text)).await)
    }

    /// The servers of a client, as the files name them.
    pub fn remotes(&self) -> Option<Vec<String>> {
        let names = self.names.as_ref().filter(|_| !self.has_clients)?;
        Some(names.iter().map(entry).collect())
    }

    /// Takes the answer to the question for the next server; whether it was asked, or `None` on a server.
    pub fn answer_remote(&mut self, choice: RemoteChoice) -> Option<bool> {
        let managed = self.managed.as_mut().filter(|_| !self.has_clients)?;
        let Some(asked) = managed.asked.take().filter(|_| managed.board.remote_answered()) else {
            return Some(false);
        };
        match choice {
            RemoteChoice::Accept => self.interface.choose(Chosen::Next),
            RemoteChoice::Skip(count) => self.interface.choose(Chosen::Skip(count)),
            RemoteChoice::Other(host, port) => {
                let Remote { is_tcp, timeout, connection, .. } = asked;
                let (only_v4, known) = (None, Vec::new());
                let has_random_label = false;
                let mut name =
                    Name { host, port, is_tcp, connection, timeout, only_v4, has_random_label, known };
                let answer = self.answer.clone();
                // Name servers may be slow.
                std::thread::spawn(move || {
                    Rights::None.keep();
                    if let Err(error) = name.look_up(resolver::addresses) {
                        tracing::warn!("remote MOD {}: {error}", name.host);
                    }
                    let address = name.addresses().next();
                    let _ = answer.send(Answer::Other(address.map(|address| Remote {
                        address,
                        is_tcp,
                        timeout,
                        connection,
                    })));
                });
            }
        }
        Some(true)
    }

    /// What a client does when its password is refused, from now on.
    pub fn set_auth_retry(&self, retry: AuthRetry) {
        self.interface.set_auth_retry(retry);
    }

    /// Forgets passwords that the user has entered.
    pub fn forget_passwords(&self) {
        self.interface.forget_passwords();
    }

    /// Attempts to connect wait no more.
    pub fn leave_hold(&self) {
        self.interface.leave_hold();
    }
}

/// A server as it is asked about: host, port and protocol.
fn entry(name: &Name) -> String {
    format!("{},{},{}", name.host, name.port, protocol(name.is_tcp))
}

fn by_address(Remote { address, is_tcp, .. }: Remote) -> String {
    format!("{},{},{}", address.ip(), address.port(), protocol(is_tcp))
}

fn protocol(is_tcp: bool) -> &'static str {
    if is_tcp { "tcp-client" } else { "udp" }
}
