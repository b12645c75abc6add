//! Who has logged in: random names of sessions, which browsers send as a cookie.

use axum::http::{HeaderMap, header};
use crypto::random::System;
use crypto::{SecretBytes, hash::sha256};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long a session is valid.
pub(super) const LIFETIME: Duration = Duration::from_secs(12 * 3600);
/// Sessions at once: with one more, the oldest ends.
const MOST: usize = 64;
/// The name of the cookie.
pub(super) const COOKIE: &str = "postern_session";
const BYTES: usize = 32;

/// The sessions, the oldest first. Only hashes are kept: what is looked for is compared without its bytes telling how long.
#[derive(Default)]
pub(super) struct Sessions(VecDeque<([u8; 32], Instant)>);

impl Sessions {
    /// Begins a session; what the browser gets.
    pub(super) fn begin(&mut self, now: Instant) -> String {
        let secret = SecretBytes::random(BYTES, &mut System::default());
        let name = base16ct::lower::encode_string(secret.expose());
        while self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back((sha256(&[name.as_bytes()]), now));
        name
    }

    /// Whether a request belongs to a session.
    pub(super) fn has(&self, headers: &HeaderMap, now: Instant) -> bool {
        names(headers).any(|name| {
            let asked = sha256(&[name.as_bytes()]);
            self.0
                .iter()
                .any(|(hash, begun)| *hash == asked && now.saturating_duration_since(*begun) < LIFETIME)
        })
    }

    /// Ends the session of a request.
    pub(super) fn end(&mut self, headers: &HeaderMap) {
        for name in names(headers) {
            let asked = sha256(&[name.as_bytes()]);
            self.0.retain(|(hash, _)| *hash != asked);
        }
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

    fn cookie(name: &str) -> HeaderMap {
        let value = HeaderValue::from_str(&format!("other=1; {COOKIE}={name}")).expect("text");
        HeaderMap::from_iter([(header::COOKIE, value)])
    }

    #[test]
    fn a_session_lasts_its_time_and_ends_when_asked() {
        let (mut sessions, now) = (Sessions::default(), Instant::now());
        let name = sessions.begin(now);
        assert!(sessions.has(&cookie(&name), now) && !sessions.has(&cookie("guess"), now));
        assert!(!sessions.has(&HeaderMap::new(), now) && !sessions.has(&cookie(&name), now + LIFETIME));
        sessions.end(&cookie("guess"));
        assert!(sessions.has(&cookie(&name), now));
        sessions.end(&cookie(&name));
        assert!(!sessions.has(&cookie(&name), now));
    }

    #[test]
    fn sessions_are_bounded_and_the_oldest_ends() {
        let (mut sessions, now) = (Sessions::default(), Instant::now());
        let first = sessions.begin(now);
        let names: Vec<String> = (0..MOST).map(|_| sessions.begin(now)).collect();
        assert!(!sessions.has(&cookie(&first), now) && names.iter().all(|it| sessions.has(&cookie(it), now)));
    }
}
