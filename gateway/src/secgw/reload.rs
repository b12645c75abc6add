//! A file that is read again: new tables are built off the workers, and take the place of the old ones between two bursts.
//!
//! ```text
//! keys and peers are loaded ──> new inbound SAs ──> tables are exchanged ──> removed inbound SAs ──> peers of IKE
//! ```
//! Inbound SAs are in one table that stays, as IKE has its own there. Policies decide which of them a packet may have come under.

use super::ike::PeerChange;
use super::plan::Plan;
use super::statistics::{Origin, Statistics};
use super::tables::{Installed, SecgwTables, TablesError};
use crate::ipsec::handle::IkeHandle;
use crate::ipsec::peer_error::PeerError;
use crypto::engine::Engine;
use packet::DropReason;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// How often it is looked whether a worker still uses tables.
const LOOK: Duration = Duration::from_millis(1);
/// Looks until counters are left behind: a worker ends a burst within microseconds.
const LOOKS: usize = 5_000;

/// Why a file cannot be put in force. All stays as it was.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// There are no tables for it.
    #[error(transparent)]
    Tables(#[from] TablesError),
    /// The settings of a peer of IKE cannot be used now.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// A number of a peer of IKE is not used again.
    #[error("policies have named more than 65,534 peers of IKE\n  fix: end the program, and start it again")]
    TooManyPeers,
}

/// Changes what the workers of a gateway use.
#[derive(Clone)]
pub struct Control {
    statistics: Arc<Statistics>,
    engine: Arc<dyn Engine>,
    ike: Option<IkeHandle>,
}

impl ReloadError {
    /// The error as one of `file`, with its line.
    pub fn in_file(&self, file: &str) -> String {
        match self {
            Self::Tables(TablesError::UsedKey { line, .. }) => format!("{file}:{line}: error: {self}"),
            _ => self.to_string(),
        }
    }
}

impl Control {
    /// Of the gateway with these statistics, whose keys an engine has loaded.
    pub fn new(statistics: Arc<Statistics>, engine: Arc<dyn Engine>, file: &str) -> Self {
        *statistics.lock() = Origin { file: file.to_owned(), reloads: 0 };
        Self { statistics, engine, ike: None }
    }

    /// The same, with a thread of IKE.
    #[must_use]
    pub fn with_ike(self, ike: Option<IkeHandle>) -> Self {
        Self { ike, ..self }
    }

    /// See [`Statistics::news`].
    pub fn news(&self) -> Vec<String> {
        self.statistics.news()
    }

    /// The tables that are in force.
    pub(super) fn tables(&self) -> Arc<SecgwTables> {
        self.statistics.tables.load_full()
    }

    /// Puts the policies, SAs, routes and neighbours of a plan in the place of those before. SAs that are the same go on, and so do the
    /// counters of policies that are the same. Peers of IKE that are the same keep their SAs. Returns what has changed, in sentences.
    ///
    /// # Errors
    /// See [`ReloadError`].
    pub fn replace(&self, plan: &Plan) -> Result<Vec<String>, ReloadError> {
        let mut origin = self.statistics.lock();
        let before = self.statistics.tables.load_full();
        let (after, arriving) = SecgwTables::after(&before, plan, &*self.engine)?;
        let after = Arc::new(after);
        if after.ike_peers.len() >= usize::from(u16::MAX) {
            return Err(ReloadError::TooManyPeers);
        }
        let peers = PeerChange::between(&before.ike, &after)?;
        let mut changes = changes(&before, &after);
        changes.extend(peers.sentences());
        after.begin(Some(&before));
        for session in arriving {
            after.sessions.install_shared(session);
        }
        self.statistics.tables.store(Arc::clone(&after));
        for _ in 0..LOOKS {
            if Arc::strong_count(&before) == 1 {
                break;
            }
            std::thread::sleep(LOOK);
        }
        after.policies_out.inherit(&before.policies_out);
        after.policies_in.inherit(&before.policies_in);
        after.retire_others(&before);
        // Otherwise their keys count as those of SAs that are there.
        if Arc::strong_count(&before) == 1 {
            after.end_others(&before);
        }
        if let Some(ike) = &self.ike {
            peers.carry_out(ike);
        }
        let kept: HashSet<_> = after.sas.iter().map(|sa| sa.peer.id).collect();
        for sa in before.sas.iter().filter(|sa| !kept.contains(&sa.peer.id)) {
            for &reason in DropReason::ALL {
                self.statistics.gone.count(reason, sa.drops.read(reason) as usize);
            }
        }
        origin.reloads += 1;
        Ok(changes)
    }
}

/// What is different, in sentences.
fn changes(before: &SecgwTables, after: &SecgwTables) -> Vec<String> {
    let missing = |mark: &str, here: &SecgwTables, there: &SecgwTables| -> Vec<String> {
        let there: HashSet<_> = there.sas.iter().map(|sa| sa.peer.id).collect();
        let missing = here.sas.iter().filter(|sa| !there.contains(&sa.peer.id));
        let said = |sa: &Installed| format!("{mark} sa {} {} {}", sa.direction.word(), sa.spi, sa.algorithms);
        missing.map(said).collect()
    };
    let mut changes = missing("-", before, after);
    changes.extend(missing("+", after, before));
    for (what, old, new) in [
        ("sp out", before.policies_out.identities(), after.policies_out.identities()),
        ("sp in", before.policies_in.identities(), after.policies_in.identities()),
        ("rt", before.lines.clone(), after.lines.clone()),
        ("neigh", neighbours(before), neighbours(after)),
    ] {
        let different = |here: &[String], there: &[String]| {
            let there: HashSet<&String> = there.iter().collect();
            here.iter().filter(|line| !there.contains(line)).count()
        };
        let (removed, added) = (different(&old, &new), different(&new, &old));
        if removed + added > 0 {
            changes.push(format!("{what}: {added} lines added, {removed} removed"));
        } else if old != new {
            changes.push(format!("{what}: the same lines in another order or number"));
        }
    }
    changes
}

fn neighbours(tables: &SecgwTables) -> Vec<String> {
    tables.neighbours.iter().enumerate().map(|line| format!("{line:?}")).collect()
}
