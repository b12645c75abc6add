//! An interface with its addresses and routes, until it is gone: what a program serves that has one interface and no daemon.

use super::control_thread::Report;
use super::interface::Interface;
use super::settings::{Role, Settings};
use crate::host::netlink::{LinkChange, NetlinkError};
use crate::host::wants::Wants;
use crate::host::{self, Host};
use crate::service::View;
use crate::tunnel_interface::{Counters, InterfaceError, Options, Removed};
use axum::Router;
use crypto::Engine;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::mpsc;

/// The main routing table (linux/rtnetlink.h).
const MAIN: u32 = 254;

/// Why an interface could not be served.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The interface could not be made.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The kernel refused addresses or routes.
    #[error(transparent)]
    Network(#[from] NetlinkError),
}

/// A served interface.
pub struct Runner {
    interface: Arc<Interface>,
    host: Host,
    wants: Wants,
    /// Routes of a client's own configuration.
    routes: Vec<IpNet>,
    removed: mpsc::UnboundedReceiver<Removed>,
    reports: mpsc::UnboundedReceiver<Report>,
}

/// What the API shows: the counters of the interface.
struct Shown(Arc<Interface>);

impl View for Shown {
    fn interfaces(&self) -> Vec<Arc<dyn Counters>> {
        vec![Arc::clone(&self.0) as Arc<dyn Counters>]
    }

    fn routes(&self) -> Router {
        Router::new()
    }
}

/// What the kernel is to have for a server; a client's server says that later.
fn own(settings: &Settings) -> Wants {
    let Role::Server(server) = &settings.role else { return Wants::default() };
    wants(server.network.own(), server.network.routes.iter().copied())
}

fn wants(addresses: impl IntoIterator<Item = IpNet>, routes: impl IntoIterator<Item = IpNet>) -> Wants {
    let routes: BTreeSet<(IpNet, u32)> = routes.into_iter().map(|route| (route, MAIN)).collect();
    Wants { addresses: addresses.into_iter().collect(), routes, ..Wants::default() }
}

impl Runner {
    /// Makes the interface, and puts it up.
    pub fn start(
        name: &str,
        settings: Settings,
        engine: Arc<dyn Engine>,
        options: Options,
    ) -> Result<Self, RunError> {
        let (events, removed) = mpsc::unbounded_channel();
        let (report, reports) = mpsc::unbounded_channel();
        let (wants, mtu) = (own(&settings), settings.mtu);
        let routes = match &settings.role {
            Role::Client(client) => client.routes.clone(),
            Role::Server(_) => Vec::new(),
        };
        let host = Host::start(BTreeMap::new())?;
        let interface = Arc::new(Interface::create(name, settings, engine, options, events, report)?);
        set_mtu(name, mtu)?;
        host::change_link(name, &[LinkChange { up: Some(true), ..LinkChange::default() }])?;
        host.set(name, Some(wants.clone()))?;
        Ok(Self { interface, host, wants, routes, removed, reports })
    }

    /// What the API shows.
    pub fn view(&self) -> Arc<dyn View> {
        Arc::new(Shown(Arc::clone(&self.interface)))
    }

    /// Serves until another program deletes the interface.
    pub async fn run(&mut self) {
        loop {
            tokio::select! {
                _ = self.removed.recv() => return,
                Some(Report::Configured(network)) = self.reports.recv() => {
                    let name = self.interface.name();
                    let mtu = network.mtu.map_or(Ok(()), |mtu| set_mtu(name, mtu));
                    let wants = wants(network.addresses, network.routes.into_iter().chain(self.routes.iter().copied()));
                    let changed = self.host.change(name, &self.wants, &wants);
                    self.wants = wants;
                    if let Err(error) = mtu.and(changed) {
                        tracing::error!("interface {name}: {error}");
                    }
                }
            }
        }
    }

    /// Tells the peers, and removes the interface with all that it has in the kernel.
    pub fn end(self) {
        let Self { interface, host, .. } = self;
        drop(interface);
        host.end(true);
    }
}

fn set_mtu(name: &str, mtu: u32) -> Result<(), NetlinkError> {
    host::change_link(name, &[LinkChange { mtu: Some(mtu), ..LinkChange::default() }])
}
