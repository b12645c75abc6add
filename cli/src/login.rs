//! The user name and the password of an OpenVPN client, asked for at the terminal.

use crate::Failure;
use crate::terminal::{Echo, Terminal};
use gateway::openvpn::login::{Credentials, LoginSettings, Question};
use gateway::openvpn::settings::{Role, Settings};
use std::sync::Arc;
use zeroize::Zeroizing;

const FIX: &str =
    "write auth-user-pass FILE, with the user name on the first line and the password on the second";

/// Asks for what the configuration leaves to the user. Questions that come later are asked at the same terminal.
pub(crate) fn ask(settings: &mut Settings) -> Result<(), Failure> {
    let Role::Client(client) = &mut settings.role else { return Ok(()) };
    let LoginSettings { credentials, question, prompt, .. } = &mut client.login;
    if let Some(question) = question {
        *credentials = Some(answer(question)?);
    }
    // A service has no terminal: then it ends where it would have asked again.
    if Terminal::open("", "").is_ok() {
        *prompt = Some(Arc::new(|question| answer(question).map_err(|error| error.to_string())));
    }
    Ok(())
}

fn answer(question: &Question) -> Result<Credentials, Failure> {
    let mut terminal = Terminal::open("the user name and the password", FIX)?;
    let mut text = |prompt: &str, echo| -> Result<Zeroizing<String>, Failure> {
        let bytes = terminal.ask(prompt, echo)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| "what was typed is not UTF-8")?;
        Ok(Zeroizing::new(text.to_owned()))
    };
    let user = match &question.user {
        Some(user) => user.clone(),
        None => text("User name: ", Echo::On)?.to_string(),
    };
    let password = match &question.password {
        Some(password) => password.clone(),
        None => text(&format!("Password of {user}: "), Echo::Off)?,
    };
    let response = match &question.challenge {
        Some((challenge, is_shown)) => {
            let echo = if *is_shown { Echo::On } else { Echo::Off };
            Some(text(&format!("{challenge}: "), echo)?)
        }
        None => None,
    };
    Ok(question.credentials(user, &password, response.as_deref().map(String::as_str)))
}
