//! Answers branches: limits ── request ── secret ── decision ── commit, saved ── answer.

use super::grant::{Decision, Refusal, decide};
use super::message::{Granted, Refused, Request as Asked, VERSION};
use super::token;
use crate::clock::now;
use crate::daemon::{Daemon, Outcome};
use crate::limiter::{Limiter, Rate};
use crate::listen::Answering;
use crate::local::Local;
use crate::place::Place;
use crate::reply::{json, retry_after};
use crate::source::Source;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use base64ct::{Base64, Encoding};
use config::Settings;
use crypto::PublicKey;
use gateway::api::connections::Deadline;
use gateway::api::model::{Commit, InForce, Saved, Via};
use gateway::api::saving::{self, NotSaved, Saving};
use gateway::api::server::whole;
use gateway::https::wire::Token;
use hyper::Request;
use hyper::body::{Bytes, Incoming};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Where branches ask.
pub(super) const PLACE: &str = "/v1/enroll";
/// Bytes of a request.
const LONGEST: usize = 1024;
/// Requests of a source: 10 at once, then one in 10 s. A branch sends one.
const REQUESTS: Rate = Rate { burst: 10.0, per_second: 0.1 };
/// Sources that are remembered.
const SOURCES: usize = 4096;
/// How long the answer to a wrong secret is held back.
const WRONG_DELAY: Duration = Duration::from_millis(500);
/// Commits that are tried when others change the same meanwhile.
const TRIES: usize = 3;
/// When to ask again while a commit must be confirmed, or the daemon does not answer.
const LATER: Duration = Duration::from_secs(10);

const UNCONFIRMED: &str = "a commit at head office waits to be confirmed";

/// The state that all requests share.
pub(crate) struct Enrolling {
    daemon: Daemon,
    local: Arc<dyn Local>,
    /// Hashes of secrets by branch.
    hashes: Mutex<Arc<BTreeMap<String, [u8; 32]>>>,
    requests: Mutex<Limiter<Source>>,
    /// One branch joins after the other.
    one: tokio::sync::Mutex<()>,
    /// How long saving is tried.
    patience: Duration,
}

/// Why a request is refused.
enum Denied {
    /// For good, or until a person at head office has done something.
    Refused(StatusCode, Refused),
    /// It may be sent again.
    Later(String),
}

impl Enrolling {
    pub(crate) fn new(place: &Place, local: Arc<dyn Local>) -> Self {
        Self {
            daemon: Daemon::new(place.api.clone()),
            local,
            hashes: Mutex::default(),
            requests: Mutex::new(Limiter::new(REQUESTS, SOURCES)),
            one: tokio::sync::Mutex::default(),
            patience: saving::PATIENCE,
        }
    }

    /// The tokens that count from now on; one whose hash cannot be read does not.
    pub(crate) fn set_serving(&self, tokens: &[Token]) {
        let hash = |text: &str| Base64::decode_vec(text).ok()?.try_into().ok();
        let hashes = tokens.iter().filter_map(|token| Some((token.branch.clone(), hash(&token.hash)?)));
        *self.hashes.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(hashes.collect());
    }

    /// Whether this is the hash of the secret of a branch. A branch that does not exist takes as long.
    fn is_right(&self, branch: &str, hash: &[u8; 32]) -> bool {
        let hashes = Arc::clone(&self.hashes.lock().unwrap_or_else(PoisonError::into_inner));
        let known = hashes.get(branch);
        let is_equal = known.unwrap_or(&[0; 32]).ct_eq(hash);
        bool::from(is_equal) && known.is_some()
    }

    async fn respond(&self, body: Bytes, source: Source, deadline: &Deadline) -> Result<Granted, Denied> {
        let (asked, key) = read(&body)?;
        drop(body);
        let secret = Base64::decode_vec(asked.secret.as_str()).map(Zeroizing::new);
        let hash = token::hash(&secret.map_err(|_| malformed())?);
        if !self.is_right(&asked.branch, &hash) {
            tracing::warn!("enrollment: {source} sends a token that is not known");
            tokio::time::sleep(WRONG_DELAY).await;
            let error = "this token is not known here: another one was made since, or the branch was retired";
            let fix = "at head office: postern enroll list, and postern enroll create BRANCH".to_owned();
            return Err(Denied::Refused(StatusCode::FORBIDDEN, Refused { error: error.to_owned(), fix }));
        }
        // Until here it may have to make room for others.
        deadline.suspend();
        let _one = self.one.lock().await;
        let granted = self.join(&asked.branch, (&hash, &key)).await?;
        tracing::info!("enrollment: branch {} has joined from {source}", asked.branch);
        Ok(granted)
    }

    /// Puts the branch in force, and saves the configuration.
    async fn join(&self, branch: &str, with: (&[u8; 32], &PublicKey)) -> Result<Granted, Denied> {
        let later = |refused: crate::daemon::Refused| Denied::Later(refused.error);
        for _ in 0..TRIES {
            let in_force = self.daemon.in_force().await.map_err(later)?;
            // It would be undone together with that.
            if in_force.confirm.is_some() {
                return Err(Denied::Later(UNCONFIRMED.to_owned()));
            }
            let settings = settings(&in_force)?;
            let decided = decide(&settings, branch, with, now());
            drop(settings);
            let (edits, granted) = match decided {
                Ok(Decision::Commit(edits, granted)) => (edits, granted),
                Ok(Decision::Again(granted)) => {
                    self.save().await?;
                    return Ok(granted);
                }
                Err(refusal) => return Err(refused(&refusal, branch)),
            };
            let base = in_force.revision;
            let commit = Commit {
                base,
                edits: edits.iter().map(|edit| edit.as_str().into()).collect(),
                comment: Some(format!("branch {branch} joined")),
                user: "enrollment".to_owned(),
                via: Via::Api,
                ..Commit::default()
            };
            match self.daemon.commit(&commit).await {
                Ok(Outcome::Committed(_)) => {
                    self.save().await?;
                    return Ok(granted);
                }
                Ok(Outcome::Conflict) => {}
                Err(error) => {
                    // It may be wrong only together with what others have committed since.
                    if self.daemon.in_force().await.map_err(later)?.revision == base {
                        return Err(not_taken(error, branch));
                    }
                }
            }
        }
        Err(Denied::Later("the configuration of head office is being changed".to_owned()))
    }

    /// Saves what is in force, until nothing is left to save: others change it and write the file too. A branch hears that it has
    /// joined only then, as a restart of the daemon ends all that is not saved.
    async fn save(&self) -> Result<(), Denied> {
        let mut saving = Saving::new(self.patience);
        loop {
            let in_force = self.daemon.in_force().await.map_err(|refused| Denied::Later(refused.error))?;
            if !saving.is_due(&in_force).map_err(not_saved)? {
                return Ok(());
            }
            if saving.note(self.write(in_force).await) {
                tokio::time::sleep(saving::PAUSE).await;
            }
        }
    }

    /// Writes the file from what is in force.
    async fn write(&self, in_force: InForce) -> Result<(), String> {
        let (local, revision) = (Arc::clone(&self.local), in_force.revision);
        let written = tokio::task::spawn_blocking(move || local.save(&in_force, &in_force.file)).await;
        let hash = written.map_err(|error| error.to_string())??;
        self.daemon.saved(&Saved { hash, revision }).await.map_err(|refused| refused.error)
    }
}

fn not_saved(why: NotSaved) -> Denied {
    let error = match why {
        NotSaved::Unconfirmed => UNCONFIRMED,
        NotSaved::Failed(why) => {
            tracing::error!("enrollment: a peer is in force, but the configuration is not saved: {why}");
            "head office cannot save its configuration"
        }
    };
    Denied::Later(error.to_owned())
}

/// A request with its public key.
fn read(body: &[u8]) -> Result<(Asked, PublicKey), Denied> {
    let asked: Asked = serde_json::from_slice(body).map_err(|_| malformed())?;
    if asked.version != VERSION {
        let error = format!("head office speaks version {VERSION}, and the branch version {}", asked.version);
        let fix = "install the same version of Postern on both".to_owned();
        return Err(Denied::Refused(StatusCode::BAD_REQUEST, Refused { error, fix }));
    }
    let key = Base64::decode_vec(&asked.public_key).ok().and_then(|key| key.try_into().ok());
    Ok((asked, PublicKey(key.ok_or_else(malformed)?)))
}

fn malformed() -> Denied {
    let (error, fix) = ("the request is no request of postern join", "postern join TOKEN");
    Denied::Refused(StatusCode::BAD_REQUEST, Refused { error: error.to_owned(), fix: fix.to_owned() })
}

/// What the daemon says of a commit, which may be wrong for good: only head office hears what of its configuration is in the way.
fn not_taken(error: crate::daemon::Refused, branch: &str) -> Denied {
    if error.status != StatusCode::BAD_REQUEST {
        return Denied::Later(error.error);
    }
    tracing::error!("enrollment: branch {branch} cannot join: {}", error.error);
    let fix = "at head office: journalctl -u postern says why".to_owned();
    let error = format!("its configuration has no room for branch {branch}");
    Denied::Refused(StatusCode::CONFLICT, Refused { error, fix })
}

fn refused(refusal: &Refusal, branch: &str) -> Denied {
    let (status, refused) = refusal.answer(branch);
    tracing::warn!("enrollment: branch {branch} cannot join: {}", refused.error);
    Denied::Refused(status, refused)
}

fn settings(in_force: &InForce) -> Result<Settings, Denied> {
    let read = config::parse(in_force.text.as_str()).and_then(|tree| Settings::new(&tree));
    let wrong = |_| Denied::Later("head office cannot read its own configuration".to_owned());
    read.map(|(settings, _)| settings).map_err(wrong)
}

impl Answering for Enrolling {
    const NAME: &'static str = "enrollment";

    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        source: Source,
        deadline: Deadline,
        _: Duration,
    ) -> Response {
        let taken = {
            let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            requests.take(&source, Instant::now())
        };
        if let Err(wait) = taken {
            let error = "this address has asked too often".to_owned();
            let fix = format!("wait {} seconds", wait.as_secs() + 1);
            return retry_after(said(StatusCode::TOO_MANY_REQUESTS, &Refused { error, fix }), wait);
        }
        let (head, body) = request.into_parts();
        if head.method != Method::POST || head.uri.path() != PLACE {
            let (error, fix) = ("branches join here, and nothing else".to_owned(), "postern join TOKEN");
            return said(StatusCode::NOT_FOUND, &Refused { error, fix: fix.to_owned() });
        }
        let outcome = match whole(body, LONGEST).await {
            Ok(body) => self.respond(body, source, &deadline).await,
            Err(_) => Err(malformed()),
        };
        match outcome {
            Ok(granted) => said(StatusCode::OK, &granted),
            Err(Denied::Refused(status, refused)) => said(status, &refused),
            Err(Denied::Later(error)) => {
                tracing::warn!("enrollment: {source} cannot join yet: {error}");
                let fix = "type the same command again, later".to_owned();
                retry_after(said(StatusCode::SERVICE_UNAVAILABLE, &Refused { error, fix }), LATER)
            }
        }
    }

    fn not_allowed(why: &str) -> Response {
        let fix = "at head office: set service enrollment allow-client address ADDRESS".to_owned();
        said(StatusCode::FORBIDDEN, &Refused { error: why.to_owned(), fix })
    }
}

fn said(status: StatusCode, answer: &impl serde::Serialize) -> Response {
    json(status, serde_json::to_vec(answer).unwrap_or_default())
}

#[cfg(test)]
#[path = "serve/tests.rs"]
mod tests;
