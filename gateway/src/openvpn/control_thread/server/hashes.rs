//! The question about a password, answered by the file of hashes.

use super::ServerSide;
use super::deciding::{Deciding, Question, Refused};
use super::questions::{LONGEST_NAME, Progress};
use crate::openvpn::control_thread::Command;
use crate::openvpn::passwords::Attempt;
use crate::openvpn::scripts::environment::printable;
use tunnel::Now;
use tunnel::openvpn::action::SessionNumber;

impl ServerSide {
    /// Has a password compared, on another thread.
    pub(super) fn check_password(
        &mut self,
        now: Now,
        session: SessionNumber,
        deciding: &mut Deciding,
    ) -> Result<Progress, Refused> {
        let Some(passwords) = &self.passwords else { return Err(Refused::NoHashes) };
        let request = &deciding.request;
        let credentials = &request.credentials;
        if credentials.user.is_empty() && credentials.password.is_empty() {
            // It may have none, or it was refused before: then its certificate alone stands for it.
            let has_certificate = !request.certificates.is_empty();
            return if has_certificate { Ok(Progress::Go(Question::Name)) } else { Err(Refused::NoPassword) };
        }
        if credentials.user.is_empty() || credentials.user.len() > LONGEST_NAME {
            return Err(Refused::BadName);
        }
        self.ticket += 1;
        let (ticket, own) = (self.ticket, self.own.clone());
        let attempt = Attempt {
            source: request.address.ip(),
            user: credentials.user.clone(),
            password: credentials.password.clone(),
            longest: deciding.until - now.monotonic,
        };
        passwords.ask(attempt, move |is_right| {
            // The control thread may have ended.
            let _ = own.send(Command::Checked { session, ticket, is_right });
        })?;
        deciding.ticket = ticket;
        deciding.reading = passwords.reading;
        Ok(Progress::Wait)
    }

    /// The password was compared.
    pub(super) fn password_checked(&self, deciding: &Deciding, is_right: bool) -> Result<Progress, Refused> {
        // The user may have another password by now, or none.
        if self.passwords.as_ref().is_some_and(|passwords| passwords.reading != deciding.reading) {
            return Ok(Progress::Go(Question::Password));
        }
        if is_right {
            return Ok(Progress::Go(Question::Name));
        }
        Err(Refused::WrongPassword(printable(&deciding.request.credentials.user)))
    }
}
