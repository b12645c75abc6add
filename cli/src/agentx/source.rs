//! The objects of the sub-agent: facts of the daemon, which it asks as any client does.

use crate::Failure;
use gateway::api::client::exchange;
use gateway::facts::model::Facts;
use gateway::health::model::Health;
use gateway::snmp::changes::{Changes, Trap};
use gateway::snmp::mib::{Mib, Numbers};
use http_body_util::Full;
use hyper::Request;
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// How long the daemon may take: snmpd waits for longer.
const PATIENCE: Duration = Duration::from_secs(3);

/// The objects, and where they come from.
pub(super) struct Source {
    api: PathBuf,
    runtime: Runtime,
    numbers: Numbers,
    changes: Changes,
    mib: Mib,
    read_at: Option<Instant>,
    /// Whether the daemon did not answer the last time.
    is_silent: bool,
}

impl Source {
    /// Asks the daemon of a socket.
    pub(super) fn new(api: PathBuf) -> Result<Self, Failure> {
        Ok(Self {
            api,
            runtime: Builder::new_current_thread().enable_all().build()?,
            numbers: Numbers::default(),
            changes: Changes::default(),
            mib: Mib::default(),
            read_at: None,
            is_silent: false,
        })
    }

    /// The objects as they were read last.
    pub(super) fn mib(&self) -> &Mib {
        &self.mib
    }

    /// Reads the facts, if they are older than that. What has changed since the last time comes as traps.
    pub(super) fn refresh(&mut self, oldest: Duration) -> Vec<Trap> {
        if self.read_at.is_some_and(|at| at.elapsed() < oldest) {
            return Vec::new();
        }
        let read =
            self.ask::<Facts>("/v1/facts").and_then(|facts| Ok((facts, self.ask::<Health>("/v1/health")?)));
        self.read_at = Some(Instant::now());
        match read {
            Ok((facts, health)) => {
                self.is_silent = false;
                let numbered = self.numbers.assign(&facts.tunnels);
                self.mib = Mib::new(&facts, &health, &numbered);
                self.changes.look(&facts, &health, &numbered)
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_silent, true) {
                    tracing::warn!("{}: {error}", self.api.display());
                }
                // What is not known is not answered: old counters would look as if nothing moved.
                self.mib = Mib::default();
                Vec::new()
            }
        }
    }

    fn ask<T: DeserializeOwned>(&self, place: &str) -> Result<T, Failure> {
        let request = Request::get(place).header("host", "postern").body(Full::default())?;
        let asked = async { timeout(PATIENCE, exchange(&self.api, request)).await };
        let answer = self.runtime.block_on(asked).map_err(|_| "the daemon does not answer")??;
        if !answer.status().is_success() {
            return Err(format!("the daemon answers {}", answer.status()).into());
        }
        Ok(serde_json::from_slice(answer.body())?)
    }
}
