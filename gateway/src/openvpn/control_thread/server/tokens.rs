//! Tokens of clients: checked in place of passwords, given after them, renewed while a client is connected.

use super::ServerSide;
use super::deciding::{Deciding, Refused};
use crate::openvpn::tokens::{State, Token};
use tunnel::openvpn::Outbox;
use tunnel::openvpn::action::SessionNumber;
use tunnel::{Now, Time};

/// The token of a client that is connected.
pub(super) struct TokenOf {
    token: Token,
    user: String,
    /// When the client gets a renewed one, if that is before its keys are renewed.
    pub(super) renew_at: Option<Time>,
}

impl ServerSide {
    /// Checks the password, if it is a token; returns whether nobody else is asked about it.
    pub(super) fn check_token(&self, now: Now, deciding: &mut Deciding) -> Result<bool, Refused> {
        // A token stands for a password that was checked.
        let Some(tokens) = self.access.tokens.as_ref().filter(|_| self.asks_password()) else {
            return Ok(false);
        };
        let credentials = &deciding.request.credentials;
        let (state, token) = tokens.check(&credentials.password, &credentials.user, now.wall);
        deciding.token = token;
        if tokens.is_external {
            deciding.environment.set("session_state", state.name());
            if let Some(token) = token {
                deciding.environment.set("session_id", token.id());
            }
            return Ok(false);
        }
        match state {
            State::Initial => Ok(false),
            State::Authenticated => self.still_known(&credentials.user).map(|()| true),
            // The client asks the user again.
            State::Expired => Err(Refused::Told("SESSION: token expired".to_owned())),
            State::Invalid => Err(Refused::Told("SESSION: token invalid".to_owned())),
        }
    }

    /// A token ends with the user in the file of hashes.
    fn still_known(&self, user: &str) -> Result<(), Refused> {
        let Some(passwords) = &self.passwords else { return Ok(()) };
        if passwords.knows(user)? { Ok(()) } else { Err(Refused::Told("SESSION: token invalid".to_owned())) }
    }

    /// The token of a client that is admitted, and the option that tells it.
    pub(super) fn token_for(&mut self, now: Now, deciding: &Deciding) -> Option<(TokenOf, String)> {
        let tokens = self.access.tokens.as_ref().filter(|_| self.asks_password())?;
        let credentials = &deciding.request.credentials;
        if credentials.user.is_empty() {
            return None;
        }
        let token = deciding.token.unwrap_or_else(|| Token::first(now.wall, &mut *self.random));
        let told = format!("auth-token {}", *tokens.text(token, &credentials.user, now.wall));
        let renew_at = tokens.interval().map(|interval| now.monotonic + interval);
        Some((TokenOf { token, user: credentials.user.clone(), renew_at }, told))
    }

    /// Gives renewed tokens to clients whose keys are not renewed as often.
    pub(super) fn renew_tokens(&mut self, now: Now, out: &mut Outbox) {
        let Some(tokens) = self.access.tokens.as_ref() else { return };
        let mut due: Vec<(SessionNumber, String)> = Vec::new();
        for (session, admitted) in &mut self.admitted {
            let Some(of) = admitted.token.as_mut() else { continue };
            if of.renew_at.is_some_and(|at| now.monotonic >= at) {
                of.renew_at = tokens.interval().map(|interval| now.monotonic + interval);
                due.push((*session, format!("auth-token {}", *tokens.text(of.token, &of.user, now.wall))));
            }
        }
        for (session, option) in due {
            self.core.send_options(now, session, &[option], out);
        }
    }
}
