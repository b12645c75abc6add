//! User name and password of a client: what a key method message says, and what follows when the server refuses it.
//!
//! ```text
//! file, terminal, token of the server ──> credentials ──> key method message
//! AUTH_FAILED ──> CRV1: the user answers a question; with a token: once more without; TEMP: later; else as auth-retry says
//! ```

use base64ct::{Base64, Encoding};
use config::openvpn::settings::AuthRetry;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
pub use tunnel::openvpn::key_method::Credentials;
use zeroize::Zeroizing;

/// Asks the user. It may wait for long, so it has a thread of its own; the error says what to do.
pub type Prompt = Arc<dyn Fn(&Question) -> Result<Credentials, String> + Send + Sync>;

/// The longest time that a server can make its clients wait (`AUTH_FAILED,TEMP[backoff N]`).
const MAX_BACKOFF: Duration = Duration::from_secs(3600);

/// Where user name and password come from.
#[derive(Clone, Default)]
pub struct LoginSettings {
    /// A file, an inline block, or what the user has answered.
    pub credentials: Option<Credentials>,
    /// Whether the user is asked for a part of them.
    pub question: Option<Question>,
    /// Whether the answer is erased when the session has ended (`auth-nocache`).
    pub forget: bool,
    /// What follows when the server refuses them (`auth-retry`).
    pub retry: AuthRetry,
    /// Asks the user.
    pub prompt: Option<Prompt>,
}

/// What the user is asked for.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Question {
    /// The user name, if it is known.
    pub user: Option<String>,
    /// The password, if it is known.
    pub password: Option<Zeroizing<String>>,
    /// The text of `static-challenge` or of a question of the server, and whether the answer is shown.
    pub challenge: Option<(String, bool)>,
    /// The state of a question of the server (`CRV1`), whose answer is the password.
    pub state: Option<String>,
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Question({:?}, {:?}, ..)", self.user, self.challenge)
    }
}

impl Question {
    /// The answers, as they are sent: the response to a static challenge is a part of the password.
    pub fn credentials(
        &self,
        user: String,
        password: &Zeroizing<String>,
        response: Option<&str>,
    ) -> Credentials {
        let password = match (&self.state, response) {
            (Some(state), response) => {
                Zeroizing::new(format!("CRV1::{state}::{}", response.unwrap_or_default()))
            }
            (None, None) => password.clone(),
            (None, Some(response)) => {
                let parts = [password.as_bytes(), response.as_bytes()];
                let [password, response] = parts.map(|bytes| Zeroizing::new(Base64::encode_string(bytes)));
                Zeroizing::new(format!("SCRV1:{}:{}", *password, *response))
            }
        };
        Credentials { user, password }
    }
}

/// What follows after the server has refused us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another attempt: with the same server unless `advance`, and after `wait` if the server has set it.
    Retry {
        /// Whether the next server is tried.
        advance: bool,
        /// How long to wait.
        wait: Option<Duration>,
    },
    /// The user is asked again, and the same server is tried.
    Ask,
    /// The program ends.
    End,
}

/// User name, password and token of a client.
pub struct Login {
    settings: LoginSettings,
    token: Option<Credentials>,
    asked: Asked,
}

/// A question of the server, which is answered once.
#[derive(Default)]
enum Asked {
    #[default]
    Nothing,
    Question(Question),
    Answered(Credentials),
}

impl Login {
    /// Without a token.
    pub fn new(settings: LoginSettings) -> Self {
        Self { settings, token: None, asked: Asked::Nothing }
    }

    /// What the next key method message says; the question to the user if that is not known.
    pub fn credentials(&self) -> Result<Credentials, Question> {
        match &self.asked {
            Asked::Question(question) => return Err(question.clone()),
            Asked::Answered(credentials) => return Ok(credentials.clone()),
            Asked::Nothing => {}
        }
        let known = self.token.as_ref().or(self.settings.credentials.as_ref());
        match (known, &self.settings.question) {
            (Some(known), _) => Ok(known.clone()),
            (None, Some(question)) => Err(question.clone()),
            (None, None) => Ok(Credentials::default()),
        }
    }

    /// Whether there is a password to send or to ask for.
    pub fn has_password(&self) -> bool {
        self.settings.credentials.is_some() || self.settings.question.is_some()
    }

    /// The user has answered.
    pub fn answered(&mut self, credentials: Credentials) {
        if let Asked::Question(_) = self.asked {
            self.asked = Asked::Answered(credentials);
            return;
        }
        self.settings.credentials = Some(credentials);
    }

    /// Takes the token of a push reply; returns whether there is one.
    pub fn take_pushed<'a>(&mut self, options: impl IntoIterator<Item = &'a str>) -> bool {
        let mut found = false;
        let before = self.credentials().unwrap_or_default();
        let mut token =
            self.token.clone().unwrap_or(Credentials { password: Zeroizing::default(), ..before });
        for option in options {
            if let Some(text) = option.strip_prefix("auth-token ") {
                token.password = Zeroizing::new(text.trim().to_owned());
                found = true;
            } else if let Some(text) = option.strip_prefix("auth-token-user ") {
                // Base64, since a name may have a comma.
                let name =
                    Base64::decode_vec(text.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
                token.user = name.unwrap_or(token.user);
            }
        }
        if found {
            self.asked = Asked::Nothing;
            self.token = Some(token);
            self.forget();
        }
        found
    }

    /// What follows when the server refuses the password, from now on.
    pub fn set_retry(&mut self, retry: AuthRetry) {
        self.settings.retry = retry;
    }

    /// Forgets the token, and the password if the user can be asked again.
    pub fn forget_all(&mut self) {
        self.token = None;
        if self.settings.question.is_some() {
            self.settings.credentials = None;
        }
    }

    /// The session has ended.
    pub fn ended(&mut self) {
        if let Asked::Answered(_) = self.asked {
            self.asked = Asked::Nothing;
        }
        self.forget();
    }

    fn forget(&mut self) {
        // What is in a file cannot be read again: the process has given up the right to it.
        if self.settings.forget && self.settings.question.is_some() {
            self.settings.credentials = None;
        }
    }

    /// The server has refused us with this reason.
    pub fn refused(&mut self, reason: &str) -> Next {
        if let Some(flags) = temporary(reason) {
            return flags;
        }
        self.asked = Asked::Nothing;
        if let Some(question) = dynamic(reason).filter(|_| self.settings.prompt.is_some()) {
            self.asked = Asked::Question(question);
            return Next::Ask;
        }
        if self.token.take().is_some() {
            return Next::Retry { advance: false, wait: None };
        }
        match self.settings.retry {
            AuthRetry::None => Next::End,
            AuthRetry::NoInteract => Next::Retry { advance: false, wait: None },
            AuthRetry::Interact if self.settings.prompt.is_none() => Next::End,
            AuthRetry::Interact => {
                // A password of a file was refused too: the user writes another one.
                self.settings.question.get_or_insert_default();
                self.settings.credentials = None;
                Next::Ask
            }
        }
    }
}

/// `TEMP[backoff SECONDS,advance no|addr|remote]:REASON`; `None` if the refusal is not temporary.
fn temporary(reason: &str) -> Option<Next> {
    let rest = reason.strip_prefix("TEMP")?;
    let flags = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')).map_or("", |(flags, _)| flags);
    let (mut advance, mut wait) = (true, None);
    for flag in flags.split(',') {
        match flag.trim().split_once(' ') {
            Some(("backoff", seconds)) => {
                wait = seconds.parse().ok().map(|it| Duration::from_secs(it).min(MAX_BACKOFF));
            }
            Some(("advance", how)) => advance = how != "no",
            _ => {}
        }
    }
    Some(Next::Retry { advance, wait })
}

/// `CRV1:FLAGS:STATE:USER:TEXT`, with the user name in Base64: the server asks the user a question.
fn dynamic(reason: &str) -> Option<Question> {
    let mut fields = reason.strip_prefix("CRV1:")?.splitn(4, ':');
    let [flags, state, user, text] = [(); 4].map(|()| fields.next());
    let user = Base64::decode_vec(user?).ok().and_then(|bytes| String::from_utf8(bytes).ok())?;
    let is_shown = flags?.split(',').any(|flag| flag == "E");
    Some(Question {
        user: Some(user),
        // The answer takes its place.
        password: Some(Zeroizing::default()),
        challenge: Some((text?.to_owned(), is_shown)),
        state: Some(state?.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(user: &str, password: &str) -> Credentials {
        Credentials { user: user.to_owned(), password: Zeroizing::new(password.to_owned()) }
    }

    fn login(retry: AuthRetry) -> Login {
        let credentials = Some(known("anna", "secret"));
        Login::new(LoginSettings { credentials, retry, ..LoginSettings::default() })
    }

    #[test]
    fn a_token_takes_the_place_of_the_password_until_it_is_refused() {
        let mut login = login(AuthRetry::None);
        assert!(!login.take_pushed(["ping 10", "auth-token-user YmVydGE="]), "no token, no other name");
        assert!(login.take_pushed(["auth-token SESS_ID_1", "auth-token-user YmVydGE="]));
        assert_eq!(login.credentials(), Ok(known("berta", "SESS_ID_1")));
        assert!(login.take_pushed(["auth-token SESS_ID_2"]));
        assert_eq!(login.credentials(), Ok(known("berta", "SESS_ID_2")), "the name stays");
        assert_eq!(login.refused("SESSION:expired"), Next::Retry { advance: false, wait: None });
        assert_eq!(login.credentials(), Ok(known("anna", "secret")));
        assert_eq!(login.refused(""), Next::End);
    }

    #[test]
    fn a_temporary_refusal_says_when_and_where_to_try_again() {
        let mut login = login(AuthRetry::None);
        assert_eq!(login.refused("TEMP"), Next::Retry { advance: true, wait: None });
        let wait = Some(Duration::from_secs(42));
        assert_eq!(login.refused("TEMP[backoff 42,advance no]:later"), Next::Retry { advance: false, wait });
        let wait = Some(MAX_BACKOFF);
        assert_eq!(login.refused("TEMP[backoff 99999999,x y]"), Next::Retry { advance: true, wait });
        assert_eq!(login.refused("TEMP[backoff 99"), Next::Retry { advance: true, wait: None });
    }

    #[test]
    fn a_typed_password_is_forgotten_if_it_is_not_to_be_kept() {
        let question = Some(Question { user: Some("anna".to_owned()), ..Question::default() });
        let settings = LoginSettings { question: question.clone(), forget: true, ..LoginSettings::default() };
        let mut login = Login::new(settings);
        assert_eq!(login.credentials().err(), question);
        login.answered(known("anna", "typed"));
        assert_eq!(login.credentials(), Ok(known("anna", "typed")), "while the session lasts");
        login.ended();
        assert!(login.credentials().is_err());
        login.answered(known("anna", "typed"));
        assert!(login.take_pushed(["auth-token T"]));
        login.ended();
        assert_eq!(login.credentials(), Ok(known("anna", "T")));
        assert!(login.settings.credentials.is_none());
    }

    #[test]
    fn a_question_of_the_server_is_answered_once() {
        let mut login = login(AuthRetry::None);
        let refusal = "CRV1:R,E:state-1:YW5uYQ==:Code of token: 7";
        assert_eq!(login.refused(refusal), Next::End, "there is no terminal");
        login.settings.prompt = Some(Arc::new(|_| Err(String::new())));
        assert_eq!(login.refused(refusal), Next::Ask);
        let question = login.credentials().expect_err("it is not answered");
        assert_eq!(question.challenge, Some(("Code of token: 7".to_owned(), true)));
        let answer = question.credentials("anna".to_owned(), &Zeroizing::default(), Some("123456"));
        assert_eq!(answer, known("anna", "CRV1::state-1::123456"));
        login.answered(answer.clone());
        assert_eq!(login.credentials(), Ok(answer));
        login.ended();
        assert_eq!(login.credentials(), Ok(known("anna", "secret")));
        assert_eq!(login.refused("CRV1:R:state:no base64:Code"), Next::End);
        assert_eq!(login.refused("CRV1:R:state"), Next::End);
    }

    #[test]
    fn a_refused_password_is_asked_for_again_only_with_a_terminal() {
        let mut login = login(AuthRetry::Interact);
        assert_eq!(login.refused("wrong"), Next::End);
        login.settings.prompt = Some(Arc::new(|_| Err(String::new())));
        assert_eq!(login.refused("wrong"), Next::Ask);
        assert_eq!(login.credentials().err(), Some(Question::default()));
    }

    #[test]
    fn the_response_to_a_static_challenge_is_a_part_of_the_password() {
        let question = Question::default();
        let password = Zeroizing::new("secret".to_owned());
        let sent = question.credentials("anna".to_owned(), &password, Some("123456"));
        assert_eq!(&*sent.password, "SCRV1:c2VjcmV0:MTIzNDU2");
        assert!(!format!("{:?}", Question { password: Some(password), ..question }).contains("secret"));
    }
}
