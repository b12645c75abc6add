//! Who has logged in: random names of sessions, which browsers send as a cookie.
//!
//! Their hashes are kept in a file, so that an open page goes on when the daemon is restarted. They count only with the token under
//! which they began: the file has a salted hash of what the daemon derives from it.

use axum::http::{HeaderMap, header};
use crypto::random::System;
use crypto::{SecretBytes, hash::sha256};
use disk::{Folder, Wanted};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::path::Path;

/// Seconds for which a session is valid.
pub(super) const LIFETIME: u64 = 12 * 3600;
/// Sessions at once: with one more, the oldest ends.
const MOST: usize = 64;
/// The name of the cookie.
pub(super) const COOKIE: &str = "postern_session";
const BYTES: usize = 32;
const FILE: &str = "sessions.json";
/// Bytes of the file.
const LONGEST: u64 = 64 << 10;

/// A session: the hash of its name, and when it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Session {
    hash: [u8; 32],
    begun: u64,
}

impl Session {
    fn is_valid(&self, now: u64) -> bool {
        // A session from the future is from before the clock was set back.
        now.abs_diff(self.begun) < LIFETIME
    }
}

/// The sessions, the oldest first. Only hashes are kept: what is looked for is compared without its bytes telling how long.
#[derive(Clone, Default)]
pub(super) struct Sessions {
    open: VecDeque<Session>,
    /// Of the token, with which they count.
    token: Vec<u8>,
}

/// What the file has.
#[derive(Serialize, Deserialize)]
struct Kept {
    salt: [u8; 32],
    token: [u8; 32],
    open: VecDeque<Session>,
}

impl Sessions {
    /// Those that are kept in a folder for this token; none if it is another one.
    pub(super) fn kept(folder: &Path, token: &[u8]) -> Self {
        let read = || {
            let (json, _) = Folder::open(folder).ok()?.read(OsStr::new(FILE), LONGEST).ok()?;
            let kept: Kept = serde_json::from_slice(&json).ok()?;
            (kept.open.len() <= MOST && sha256(&[&kept.salt, token]) == kept.token).then_some(kept.open)
        };
        Self { open: read().unwrap_or_default(), token: token.to_vec() }
    }

    /// Whether they count with this token.
    pub(super) fn are_of(&self, token: &[u8]) -> bool {
        self.token == token
    }

    /// Keeps them in a folder.
    pub(super) fn keep(&self, folder: &Path) -> io::Result<()> {
        let random = SecretBytes::random(BYTES, &mut System::default());
        let salt: [u8; 32] = random.expose().try_into().map_err(io::Error::other)?;
        let kept = Kept { salt, token: sha256(&[&salt, &self.token]), open: self.open.clone() };
        Folder::make(folder, 0o700)?.write(OsStr::new(FILE), &Wanted::private(&serde_json::to_vec(&kept)?))
    }

    /// Begins a session; what the browser gets.
    pub(super) fn begin(&mut self, now: u64) -> String {
        let secret = SecretBytes::random(BYTES, &mut System::default());
        let name = base16ct::lower::encode_string(secret.expose());
        self.open.retain(|session| session.is_valid(now));
        while self.open.len() >= MOST {
            self.open.pop_front();
        }
        self.open.push_back(Session { hash: sha256(&[name.as_bytes()]), begun: now });
        name
    }

    /// The session of a request.
    pub(super) fn of(&self, headers: &HeaderMap, now: u64) -> Option<Session> {
        names(headers).find_map(|name| {
            let asked = sha256(&[name.as_bytes()]);
            self.open.iter().find(|session| session.hash == asked && session.is_valid(now)).copied()
        })
    }

    /// Whether a session has not ended.
    pub(super) fn has(&self, session: &Session, now: u64) -> bool {
        session.is_valid(now) && self.open.contains(session)
    }

    /// Ends the session of a request.
    pub(super) fn end(&mut self, headers: &HeaderMap) {
        for name in names(headers) {
            let asked = sha256(&[name.as_bytes()]);
            self.open.retain(|session| session.hash != asked);
        }
    }

    /// Ends all.
    pub(super) fn end_all(&mut self) {
        self.open.clear();
    }
}

/// The sessions that a request names.
fn names(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = values.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(name, _)| *name == COOKIE).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    const NOW: u64 = 1_800_000_000;

    fn cookie(name: &str) -> HeaderMap {
        let value = HeaderValue::from_str(&format!("other=1; {COOKIE}={name}")).expect("text");
        HeaderMap::from_iter([(header::COOKIE, value)])
    }

    #[test]
    fn a_session_lasts_its_time_and_ends_when_asked() {
        let mut sessions = Sessions::default();
        let name = sessions.begin(NOW);
        let is = |sessions: &Sessions, name: &str, now| sessions.of(&cookie(name), now).is_some();
        assert!(is(&sessions, &name, NOW) && is(&sessions, &name, NOW - 60) && !is(&sessions, "guess", NOW));
        assert!(sessions.of(&HeaderMap::new(), NOW).is_none() && !is(&sessions, &name, NOW + LIFETIME));
        sessions.end(&cookie("guess"));
        let session = sessions.of(&cookie(&name), NOW).expect("it goes on");
        sessions.end(&cookie(&name));
        assert!(!is(&sessions, &name, NOW) && !sessions.has(&session, NOW));
    }

    #[test]
    fn sessions_are_bounded_and_the_oldest_ends() {
        let mut sessions = Sessions::default();
        let first = sessions.begin(NOW);
        let names: Vec<String> = (0..MOST).map(|_| sessions.begin(NOW)).collect();
        let is = |name: &String| sessions.of(&cookie(name), NOW).is_some();
        assert!(!is(&first) && names.iter().all(is));
    }

    #[test]
    fn sessions_are_kept_for_the_same_token_and_no_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("page");
        let mut sessions = Sessions::kept(&folder, b"token");
        let name = sessions.begin(NOW);
        sessions.keep(&folder).expect("written");
        let has = |token: &[u8]| Sessions::kept(&folder, token).of(&cookie(&name), NOW).is_some();
        assert!(has(b"token") && !has(b"another") && !has(b""));
        let text = std::fs::read_to_string(folder.join(FILE)).expect("there");
        assert!(!text.contains(&name), "only the hash is kept: {text}");
        for broken in ["", "{}", "[", &text[..text.len() / 2]] {
            std::fs::write(folder.join(FILE), broken).expect("ours");
            assert!(!has(b"token"), "{broken}");
        }
    }
}
