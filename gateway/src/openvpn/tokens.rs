//! Tokens in place of passwords (`auth-gen-token`), in OpenVPN's form, so that servers with one secret take each other's.
//!
//! ```text
//! SESS_ID_AT_ base64( session 12 | made 8 | renewed 8 | HMAC-SHA256 32 of user name, session, made, renewed )
//! ```

use base64ct::{Base64, Encoding};
use crypto::prf::Prf;
use crypto::{Random, SecretBytes};
use std::time::Duration;
use zeroize::Zeroizing;

const PREFIX: &str = "SESS_ID_AT_";
const SESSION: usize = 12;
const TAG: usize = 32;
const LENGTH: usize = SESSION + 8 + 8 + TAG;

/// Which tokens are made and accepted.
pub struct Tokens {
    key: SecretBytes,
    /// `None` without limit.
    lifetime: Option<Duration>,
    /// A token that was not renewed for twice this time has expired.
    renewal: Option<Duration>,
    /// Clients get a renewed one after this time, beside those with new keys.
    interval: Option<Duration>,
    /// Whether programs are asked about tokens too (`external-auth`).
    pub(crate) is_external: bool,
}

/// A token that a client has sent, or the first one that it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    session: [u8; SESSION],
    /// Seconds since 1970.
    made: u64,
}

/// What is known about the password of a client, by OpenVPN's names (`session_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It is no token.
    Initial,
    Authenticated,
    Expired,
    Invalid,
}

impl State {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Initial => "Initial",
            Self::Authenticated => "Authenticated",
            Self::Expired => "Expired",
            Self::Invalid => "Invalid",
        }
    }
}

impl Tokens {
    /// `key`: the secret for the HMAC.
    pub fn new(
        key: SecretBytes,
        lifetime: Option<Duration>,
        renewal: Option<Duration>,
        interval: Option<Duration>,
        is_external: bool,
    ) -> Self {
        Self { key, lifetime, renewal, interval, is_external }
    }

    /// How often a client gets a new one.
    pub(crate) fn interval(&self) -> Option<Duration> {
        self.interval
    }

    /// The text of a token that is renewed now.
    pub(crate) fn text(&self, token: Token, user: &str, now: Duration) -> Zeroizing<String> {
        let (made, renewed) = (token.made.to_be_bytes(), now.as_secs().to_be_bytes());
        let tag = self.tag(user, &token.session, made, renewed);
        let bytes = Zeroizing::new([&token.session[..], &made, &renewed, tag.expose()].concat());
        Zeroizing::new(format!("{PREFIX}{}", Base64::encode_string(&bytes)))
    }

    /// Checks a password, which may be a token.
    pub(crate) fn check(&self, password: &str, user: &str, now: Duration) -> (State, Option<Token>) {
        let Some(text) = password.strip_prefix(PREFIX) else { return (State::Initial, None) };
        let bytes = Zeroizing::new(Base64::decode_vec(text).unwrap_or_default());
        if bytes.len() != LENGTH {
            return (State::Invalid, None);
        }
        let (session, rest) = bytes.split_first_chunk::<SESSION>().expect("the length was checked");
        let (made, rest) = rest.split_first_chunk::<8>().expect("the length was checked");
        let (renewed, tag) = rest.split_first_chunk::<8>().expect("the length was checked");
        // In constant time.
        if self.tag(user, session, *made, *renewed) != SecretBytes::new(tag.to_vec()) {
            return (State::Invalid, None);
        }
        let token = Token { session: *session, made: u64::from_be_bytes(*made) };
        let [made, renewed] = [*made, *renewed].map(|at| Duration::from_secs(u64::from_be_bytes(at)));
        let is_over = |at: Duration, longest: Option<Duration>| {
            longest.is_some_and(|longest| now.saturating_sub(at) > longest)
        };
        let is_expired = is_over(made, self.lifetime) || is_over(renewed, self.renewal.map(|time| time * 2));
        (if is_expired { State::Expired } else { State::Authenticated }, Some(token))
    }

    fn tag(&self, user: &str, session: &[u8; SESSION], made: [u8; 8], renewed: [u8; 8]) -> SecretBytes {
        Prf::HmacSha256.compute(self.key.expose(), &[user.as_bytes(), session, &made, &renewed])
    }
}

impl Token {
    /// A token for a client that has none.
    pub(crate) fn first(now: Duration, random: &mut dyn Random) -> Self {
        let mut session = [0; SESSION];
        random.fill(&mut session);
        Self { session, made: now.as_secs() }
    }

    /// The variable `session_id`.
    pub(crate) fn id(&self) -> String {
        Base64::encode_string(&self.session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::random::System;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    fn tokens(lifetime: u64, renewal: u64) -> Tokens {
        let time = |seconds| (seconds != 0).then(|| Duration::from_secs(seconds));
        Tokens::new(SecretBytes::new(vec![7; 32]), time(lifetime), time(renewal), None, false)
    }

    #[test]
    fn a_token_is_for_one_user_and_one_secret_and_has_an_end() {
        let tokens = tokens(100, 30);
        let token = Token::first(NOW, &mut System::default());
        let text = tokens.text(token, "anna", NOW);
        let state = |user, seconds| tokens.check(&text, user, NOW + Duration::from_secs(seconds)).0;
        assert_eq!(text.len(), PREFIX.len() + 80);
        assert_eq!((state("anna", 60), state("anna", 61)), (State::Authenticated, State::Expired));
        assert_eq!((state("berta", 1), state("", 1)), (State::Invalid, State::Invalid));
        let other = Tokens::new(SecretBytes::new(vec![8; 32]), None, None, None, false);
        assert_eq!(other.check(&text, "anna", NOW).0, State::Invalid);
        // Renewed again and again, until its lifetime ends.
        let renewed = tokens.text(token, "anna", NOW + Duration::from_secs(90));
        let state = |seconds| tokens.check(&renewed, "anna", NOW + Duration::from_secs(seconds)).0;
        assert_eq!((state(100), state(101)), (State::Authenticated, State::Expired));
        assert_eq!(tokens.check(&renewed, "anna", NOW).1, Some(token));
    }

    #[test]
    fn changed_tokens_are_invalid_and_passwords_are_none() {
        let tokens = tokens(0, 0);
        let text = tokens.text(Token::first(NOW, &mut System::default()), "anna", NOW);
        for index in PREFIX.len()..text.len() {
            let mut changed = text.as_bytes().to_vec();
            changed[index] = if changed[index] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).expect("ASCII");
            assert_eq!(tokens.check(&changed, "anna", NOW).0, State::Invalid, "{index}");
            assert_ne!(tokens.check(&text[..index], "anna", NOW).0, State::Authenticated);
        }
        assert_eq!(tokens.check("secret", "anna", NOW), (State::Initial, None));
    }
}
