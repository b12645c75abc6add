//! Passwords of clients, compared with a file of hashes (`auth-user-pass-hashes`).
//!
//! ```text
//! file ──> Users: a hash a name ──────────────┐ again when the file changes
//! control thread ──> Passwords::ask(name) ──> queue, by source ──> at most 2 threads ──> is it right?
//! ```
//! A wrong password of a known name costs as much as one of an unknown name. While the file cannot be used, nobody is admitted.

mod checks;
mod queue;
mod users;

pub use users::{FileError, Users};

use crate::openvpn::scripts::{Answer, Outcome};
use checks::Checks;
use queue::Full;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use zeroize::Zeroizing;

/// A file of hashes, as it was read at the start.
#[derive(Clone, Debug)]
pub struct HashFile {
    /// Its name, for the log.
    pub name: String,
    /// What is in it.
    pub users: Users,
}

/// The users of now, and the threads that check their passwords.
pub(super) struct Passwords {
    name: String,
    /// None while the file cannot be used.
    users: Option<Arc<Users>>,
    /// Which reading of the file this is: a check of another one is made again.
    pub(super) reading: u64,
    /// Why the file cannot be used, as it was logged.
    told: Option<String>,
    checks: Checks,
}

/// Why no password is checked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unchecked {
    /// The file cannot be used.
    NoFile,
    /// Too many wait, of this source or of all.
    TooMany,
}

/// A password that is to be checked.
pub(super) struct Attempt {
    /// Where it comes from.
    pub(super) source: IpAddr,
    /// The name of the user.
    pub(super) user: String,
    /// The password.
    pub(super) password: Zeroizing<String>,
    /// After this time it need not be checked any more.
    pub(super) longest: Duration,
}

impl Passwords {
    /// Starts the threads.
    pub(super) fn start(interface: &str, file: HashFile) -> Self {
        let HashFile { name, users } = file;
        let checks = Checks::start(interface);
        Self { name, users: Some(Arc::new(users)), reading: 0, told: None, checks }
    }

    /// Checks a password. `answer` is called on another thread, unless the attempt is too old by then.
    pub(super) fn ask(
        &self,
        attempt: Attempt,
        answer: impl FnOnce(bool) + Send + 'static,
    ) -> Result<(), Unchecked> {
        let users = self.users.as_ref().ok_or(Unchecked::NoFile)?;
        self.checks.ask(Arc::clone(users), attempt, Box::new(answer)).map_err(|Full| Unchecked::TooMany)
    }

    /// Whether there is a user of this name, whose token may stand for the password.
    pub(super) fn knows(&self, user: &str) -> Result<bool, Unchecked> {
        self.users.as_ref().map(|users| users.has(user)).ok_or(Unchecked::NoFile)
    }

    /// The file was looked at.
    pub(super) fn read_again(&mut self, answer: &Answer) {
        let read = match &answer.outcome {
            Outcome::Ended(0) => {
                let bytes = answer.files.first().map(Vec::as_slice).unwrap_or_default();
                Users::read(&self.name, bytes).map_err(|error| error.to_string())
            }
            Outcome::Failed(reason) => Err(reason.clone()),
            // It is as it was.
            Outcome::Ended(_) | Outcome::Deferred => return,
        };
        self.reading += 1;
        match read {
            Ok(users) => {
                if self.told.take().is_some() {
                    tracing::info!("auth-user-pass-hashes: {} is used again", self.name);
                }
                self.users = Some(Arc::new(users));
            }
            Err(error) => {
                self.users = None;
                if self.told.as_ref() != Some(&error) {
                    tracing::warn!("auth-user-pass-hashes: all passwords are refused: {error}");
                    self.told = Some(error);
                }
            }
        }
    }
}
