//! The question for a user name and a password, or for the password of the private key, until the client of the management interface has answered it.

use crate::openvpn::login::{Credentials, Question};
use crate::openvpn::scripts::environment::printable;
use std::sync::mpsc::Sender;
use zeroize::Zeroizing;

/// The types of questions, as the client names them.
const LOGIN: &str = "Auth";
const KEY: &str = "Private Key";

/// A question, and what has been answered of it.
pub(super) struct Query {
    kind: &'static str,
    user: Option<String>,
    password: Option<Zeroizing<String>>,
    asks_user: bool,
    text: String,
    /// The thread that waits for the answer.
    waiting: Sender<Credentials>,
}

impl Query {
    pub(super) fn new(question: &Question, waiting: Sender<Credentials>) -> Self {
        // The answer to a challenge comes within the password.
        let user = question.user.clone().filter(|_| question.challenge.is_none());
        let asks_user = user.is_none();
        let what = if asks_user { "username/password" } else { "password" };
        // Programs take a question of the server (CRV1) from its refusal, and write the answer in its form.
        let own = question.challenge.as_ref().filter(|_| question.state.is_none());
        let challenge =
            own.map(|(text, is_shown)| format!(" SC:{},{}", u8::from(*is_shown), printable(text)));
        let text = format!(">PASSWORD:Need '{LOGIN}' {what}{}\n", challenge.unwrap_or_default());
        Self { kind: LOGIN, user, password: None, asks_user, text, waiting }
    }

    /// The question for the password of the private key; the answer has no user name.
    pub(super) fn of_key(waiting: Sender<Credentials>) -> Self {
        let text = format!(">PASSWORD:Need '{KEY}' password\n");
        Self { kind: KEY, user: Some(String::new()), password: None, asks_user: false, text, waiting }
    }

    /// The message of the question.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Another question follows; whether it is the same. Then what was answered of it counts, for the thread of `next`.
    pub(super) fn goes_on(&mut self, next: &mut Self) -> bool {
        let is_same = self.text == next.text;
        if is_same {
            std::mem::swap(&mut self.waiting, &mut next.waiting);
        }
        is_same
    }

    /// Takes the user name; whether it is asked for.
    pub(super) fn take_user(&mut self, kind: &str, user: &str) -> bool {
        let is_asked = kind == self.kind && self.asks_user;
        if is_asked {
            self.user = Some(user.to_owned());
        }
        is_asked
    }

    /// Takes the password; whether it is asked for.
    pub(super) fn take_password(&mut self, kind: &str, password: &Zeroizing<String>) -> bool {
        let is_asked = kind == self.kind;
        if is_asked {
            self.password = Some(password.clone());
        }
        is_asked
    }

    /// Whether all was answered; the thread has the answer then.
    pub(super) fn is_complete(&self) -> bool {
        let (Some(user), Some(password)) = (&self.user, &self.password) else { return false };
        // The process may be about to end.
        let _ = self.waiting.send(Credentials { user: user.clone(), password: password.clone() });
        true
    }
}
