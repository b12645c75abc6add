//! The questions about a client, in order, and what their answers mean.

use super::deciding::{Answered, Deciding, Decision, Question, Refused};
use super::{ServerSide, line_of, shown, variables};
use crate::openvpn::client_file;
use crate::openvpn::control_thread::Command;
use crate::openvpn::pool::Lease;
use crate::openvpn::scripts::{
    self, Answer, Deferral, Environment, Hook, Outcome, Request as Run, TemporaryFile,
};
use crate::openvpn::settings::{ClientOverride, PasswordWay};
use tunnel::Now;
use tunnel::openvpn::Outbox;
use tunnel::openvpn::action::SessionNumber;
use tunnel::openvpn::peer_info::proto;
use tunnel::openvpn::wrap::v2::Metadata;
use zeroize::Zeroizing;

/// The longest user name that stands for a common name, as in OpenVPN.
pub(super) const LONGEST_NAME: usize = 64;
/// The number of the file with the reason of a refusal, among those of `auth-user-pass-verify`.
const REASON: usize = 2;
/// The same for a request to wait for the user.
const PENDING: u8 = 1;

/// How it goes on.
pub(super) enum Progress {
    /// With this question.
    Go(Question),
    /// When the answer comes.
    Wait,
}

use Progress::{Go, Wait};

type Next = Result<Progress, Refused>;

impl ServerSide {
    /// Asks the question that is next.
    pub(super) fn ask(
        &mut self,
        now: Now,
        session: SessionNumber,
        deciding: &mut Deciding,
        out: &mut Outbox,
    ) -> Next {
        match deciding.question {
            Question::Key => self.ask_about_key(now, session, deciding),
            Question::Certificate(depth) => Ok(self.ask_about_certificate(now, session, deciding, depth)),
            // A site has no clients: all packets are for its only peer.
            _ if self.site.is_some() => {
                deciding.prefixes = super::everything();
                Ok(Go(Question::Nothing))
            }
            Question::Management => self.ask_management(now, session, deciding),
            Question::Password if self.passwords.is_some() => self.check_password(now, session, deciding),
            Question::Password => Ok(self.ask_about_password(now, session, deciding)),
            Question::Name => self.name(session, deciding),
            Question::File => self.ask_for_file(now, session, deciding),
            Question::Addresses => self.assign(now, session, deciding, out),
            Question::Connect => Ok(self.ask_at_connect(now, session, deciding)),
            Question::Offer => self.offer(now, session, deciding, out),
            Question::Address(number) => Ok(self.ask_about_address(now, session, deciding, number)),
            Question::Nothing => Ok(Wait),
        }
    }

    /// Takes the answer to the question that was asked.
    pub(super) fn take_answer(
        &mut self,
        now: Now,
        session: SessionNumber,
        deciding: &mut Deciding,
        answered: Answered,
        out: &mut Outbox,
    ) -> Next {
        let answer = match answered {
            Answered::Management(Decision::Accept(lines)) => {
                deciding.management = Some(lines);
                return Ok(Go(Question::Password));
            }
            Answered::Management(Decision::Refuse { reason, told }) => {
                return Err(Refused::Denied(reason, told));
            }
            Answered::Password(is_right) => return self.password_checked(deciding, is_right),
            Answered::Program(answer) => answer,
        };
        if answer.outcome == Outcome::Deferred {
            self.deferred(now, session, deciding, &answer, out);
            return Ok(Wait);
        }
        match deciding.question {
            Question::Key => {
                failure("tls-crypt-v2-verify", &answer)?;
                Ok(Go(Question::Certificate(deciding.subjects.len())))
            }
            Question::Certificate(depth) => {
                failure("tls-verify", &answer)?;
                Ok(Go(depth.checked_sub(1).map_or(Question::Management, Question::Certificate)))
            }
            Question::Password => password_answer(&answer),
            Question::File => self.file_answer(deciding, &answer),
            Question::Connect => {
                failure("client-connect", &answer)?;
                deciding.is_announced = true;
                let own = client_file::read("client-connect", &answer.text(0)).map_err(Refused::Program)?;
                deciding.own.add(own);
                Ok(Go(Question::Offer))
            }
            Question::Address(number) => {
                if let Err(refused) = failure("learn-address", &answer) {
                    let prefix = deciding.prefixes.remove(number);
                    tracing::warn!("{} does not get {prefix}: {refused}", deciding.name);
                    return Ok(Go(Question::Address(number)));
                }
                deciding.learned.push(deciding.prefixes[number]);
                Ok(Go(Question::Address(number + 1)))
            }
            other => Ok(Go(other)),
        }
    }

    /// Runs a program whose answer is awaited.
    fn run(&mut self, session: SessionNumber, deciding: &mut Deciding, run: &Run) -> Progress {
        self.ticket += 1;
        let (ticket, own) = (self.ticket, self.own.clone());
        deciding.ticket = ticket;
        deciding.run = self.scripts.run(run, move |answer| {
            // The control thread may have ended.
            let _ = own.send(Command::Answered { session, ticket, answer });
        });
        Wait
    }

    /// OpenVPN asks before the TLS handshake; here a program delays nothing, and is asked after it.
    fn ask_about_key(&mut self, now: Now, session: SessionNumber, deciding: &mut Deciding) -> Next {
        if !self.scripts.has(Hook::TlsCryptV2Verify) {
            return Ok(Go(Question::Certificate(deciding.subjects.len())));
        }
        let (kind, value) =
            deciding.request.key_metadata.as_ref().map(Metadata::parts).ok_or(Refused::NoMetadata)?;
        // No other variables, as in OpenVPN.
        let mut run =
            Run::new(Hook::TlsCryptV2Verify, Environment::default(), deciding.until - now.monotonic);
        run.environment.set("metadata_type", kind);
        let variable = "metadata_file".to_owned();
        run.files = vec![TemporaryFile { variable, content: value.into(), ..TemporaryFile::default() }];
        Ok(self.run(session, deciding, &run))
    }

    fn ask_about_certificate(
        &mut self,
        now: Now,
        session: SessionNumber,
        deciding: &mut Deciding,
        depth: usize,
    ) -> Progress {
        if !self.scripts.has(Hook::TlsVerify) {
            return Go(Question::Management);
        }
        let Some(subject) = deciding.subjects.get(depth).cloned() else {
            return Go(depth.checked_sub(1).map_or(Question::Management, Question::Certificate));
        };
        let mut run = prepare(now, deciding, Hook::TlsVerify);
        run.arguments = vec![depth.to_string(), subject];
        if let Some(certificate) = deciding.chain.get(depth) {
            let text = crypto::pem::write("CERTIFICATE", certificate.to_der());
            let content = text.as_bytes().to_vec().into();
            let variable = "peer_cert".to_owned();
            run.files = vec![TemporaryFile { variable, content, ..TemporaryFile::default() }];
        }
        self.run(session, deciding, &run)
    }

    fn ask_management(&mut self, now: Now, session: SessionNumber, deciding: &mut Deciding) -> Next {
        let credentials = &deciding.request.credentials;
        let has_password = !credentials.user.is_empty() || !credentials.password.is_empty();
        if self.asks_password() && !has_password && !self.access.is_password_optional {
            return Err(Refused::NoPassword);
        }
        if self.check_token(now, deciding)? {
            return Ok(Go(Question::Name));
        }
        if !self.access.asks_management {
            return Ok(Go(Question::Password));
        }
        self.ticket += 1;
        deciding.ticket = self.ticket;
        self.tell_asked(session, deciding);
        Ok(Wait)
    }

    /// Whether passwords are checked.
    pub(super) fn asks_password(&self) -> bool {
        self.access.asks_management || self.passwords.is_some() || self.scripts.has(Hook::AuthUserPassVerify)
    }

    fn ask_about_password(&mut self, now: Now, session: SessionNumber, deciding: &mut Deciding) -> Progress {
        if !self.scripts.has(Hook::AuthUserPassVerify) {
            return Go(Question::Name);
        }
        let mut run = prepare(now, deciding, Hook::AuthUserPassVerify);
        let credentials = &deciding.request.credentials;
        let named = |name: &str| TemporaryFile { variable: name.to_owned(), ..TemporaryFile::default() };
        run.files = ["auth_control_file", "auth_pending_file", "auth_failed_reason_file"].map(named).into();
        run.deferral = Deferral::ByStatus(0);
        run.pending = Some((PENDING, self.access.longest_pending));
        match self.access.password_way {
            PasswordWay::Environment => run.environment.set("password", &*credentials.password),
            PasswordWay::File => {
                let [user, password] = [&credentials.user, &*credentials.password]
                    .map(|text| Zeroizing::new(scripts::environment::printable(text)));
                let content = Zeroizing::new(format!("{}\n{}\n", *user, *password).into_bytes());
                run.files.push(TemporaryFile { is_argument: true, content, ..TemporaryFile::default() });
            }
        }
        self.run(session, deciding, &run)
    }

    /// The program answers later; it may have asked for more time, and for a message to the user.
    fn deferred(
        &mut self,
        now: Now,
        session: SessionNumber,
        deciding: &mut Deciding,
        answer: &Answer,
        out: &mut Outbox,
    ) {
        if deciding.question != Question::Password {
            return;
        }
        let text = answer.text(PENDING.into());
        let mut lines = text.lines().skip(1);
        let (Some(wait), Some(_)) = (answer.seconds(PENDING.into()), lines.next()) else { return };
        let wait = wait.min(self.access.longest_pending);
        deciding.until = deciding.until.max(now.monotonic + wait);
        let extra = lines.next().unwrap_or_default();
        self.numbers.challenged(session);
        deciding.challenge = deciding.run;
        self.core.tell_pending(now, session, deciding.request.key_id, wait, extra, out);
    }

    /// Runs `client-crresponse` about the answer to a challenge of `auth-user-pass-verify`. The verdict comes in the files of the
    /// latter; an exit status other than 0 refuses the client.
    pub(super) fn ask_about_response(&self, now: Now, session: SessionNumber, text: &str) {
        let Some(deciding) = self.deciding.get(&session) else { return };
        let is_awaited = deciding.question == Question::Password && deciding.challenge == deciding.run;
        if !is_awaited || deciding.challenge == 0 || !self.scripts.has(Hook::ClientResponse) {
            return;
        }
        let mut run = prepare(now, deciding, Hook::ClientResponse);
        run.answers = deciding.challenge;
        variables::authenticated(&mut run.environment, deciding.request.address);
        let content = Zeroizing::new(format!("{text}\n").into_bytes());
        run.files = vec![TemporaryFile { is_argument: true, content, ..TemporaryFile::default() }];
        let (ticket, own) = (deciding.ticket, self.own.clone());
        self.scripts.run(&run, move |mut answer| {
            if let Err(refused) = failure("client-crresponse", &answer) {
                answer.outcome = Outcome::Failed(refused.to_string());
                // The control thread may have ended.
                let _ = own.send(Command::Answered { session, ticket, answer });
            }
        });
    }

    /// Which name the client has, and is to keep.
    fn name(&mut self, session: SessionNumber, deciding: &mut Deciding) -> Next {
        let user = &deciding.request.credentials.user;
        if self.access.uses_user_name && !(user.is_empty() && self.access.is_password_optional) {
            if user.is_empty() || user.len() > LONGEST_NAME {
                return Err(Refused::BadName);
            }
            deciding.name.clone_from(user);
            deciding.environment.set("common_name", user);
        }
        if deciding.request.is_renewal {
            return match self.common_name(session) {
                Some(before) if before == deciding.name => Ok(Go(Question::Nothing)),
                before => Err(Refused::OtherName(before.unwrap_or_default().to_owned())),
            };
        }
        if !deciding.request.info.has(proto::DATA_V2) {
            return Err(Refused::NoPeerId);
        }
        if self.access.requires_exporter && !deciding.request.info.has(proto::TLS_EXPORT) {
            return Err(Refused::NoExporter);
        }
        variables::authenticated(&mut deciding.environment, deciding.request.address);
        Ok(Go(Question::File))
    }

    fn ask_for_file(&mut self, now: Now, session: SessionNumber, deciding: &mut Deciding) -> Next {
        if let Some(own) = self.network.clients.get(&deciding.name) {
            deciding.own = own.clone();
            return Ok(Go(Question::Addresses));
        }
        if self.scripts.has(Hook::ClientFile) {
            let mut run = prepare(now, deciding, Hook::ClientFile);
            run.arguments = vec![client_file::name_of(&deciding.name)];
            return Ok(self.run(session, deciding, &run));
        }
        if self.network.requires_override {
            return Err(Refused::NoSettings(deciding.name.clone()));
        }
        Ok(Go(Question::Addresses))
    }

    fn file_answer(&self, deciding: &mut Deciding, answer: &Answer) -> Next {
        let (name, is_required) = (&deciding.name, self.network.requires_override);
        let is_own = match answer.outcome {
            Outcome::Ended(scripts::OWN_FILE) => true,
            Outcome::Ended(scripts::DEFAULT_FILE) => false,
            Outcome::Ended(_) if is_required => return Err(Refused::NoSettings(name.clone())),
            Outcome::Ended(_) => return Ok(Go(Question::Addresses)),
            _ => return failure("client-config-dir", answer).map(|()| Go(Question::Addresses)),
        };
        if is_required && !is_own {
            return Err(Refused::NoSettings(name.clone()));
        }
        let file = if is_own { name.as_str() } else { "DEFAULT" };
        deciding.own = client_file::read(file, &answer.text(0)).map_err(Refused::Program)?;
        Ok(Go(Question::Addresses))
    }

    fn assign(
        &mut self,
        now: Now,
        session: SessionNumber,
        deciding: &mut Deciding,
        out: &mut Outbox,
    ) -> Next {
        let ClientOverride { v4, v6, is_disabled, .. } = deciding.own;
        if is_disabled {
            return Err(Refused::Disabled);
        }
        if !self.network.duplicate_names
            && self.end_others(now, session, &deciding.name, out)
            && let Some(wait) = self.ask_again(session, deciding)
        {
            return Ok(wait);
        }
        let needs_pool =
            self.network.v4.is_some() && v4.is_none() || self.network.v6.is_some() && v6.is_none();
        let is_used = |prefix| self.admitted.values().any(|admitted| admitted.prefixes.contains(&prefix));
        let pool =
            if needs_pool { self.pool.assign(session, &deciding.name, is_used)? } else { Lease::default() };
        deciding.lease = Lease { v4: v4.or(pool.v4), v6: v6.or(pool.v6) };
        self.addressed(now, deciding);
        Ok(Go(Question::Connect))
    }

    /// Asks the same question once more, when the ends of other sessions are carried out: programs are told about these before
    /// they are asked about the new one.
    fn ask_again(&mut self, session: SessionNumber, deciding: &mut Deciding) -> Option<Progress> {
        if deciding.again == Some(deciding.question) {
            return None;
        }
        deciding.again = Some(deciding.question);
        self.ticket += 1;
        let ticket = self.ticket;
        deciding.ticket = ticket;
        let answer = Answer { outcome: Outcome::Ended(0), files: Vec::new() };
        // Sessions that have ended are carried out before the next command is read.
        self.own.send(Command::Answered { session, ticket, answer }).ok()?;
        Some(Wait)
    }

    fn ask_at_connect(&mut self, now: Now, session: SessionNumber, deciding: &mut Deciding) -> Progress {
        if !self.scripts.has(Hook::ClientConnect) {
            return Go(Question::Offer);
        }
        let mut run = prepare(now, deciding, Hook::ClientConnect);
        let named = |name: &str| TemporaryFile { variable: name.to_owned(), ..TemporaryFile::default() };
        let [mut options, deferred] =
            ["client_connect_config_file", "client_connect_deferred_file"].map(named);
        options.is_argument = true;
        run.files = vec![options, deferred];
        run.deferral = Deferral::ByFile(1);
        run.line = line_of(&deciding.name);
        self.run(session, deciding, &run)
    }

    /// Chooses the addresses and options of the client, when all programs have accepted it.
    fn offer(&mut self, now: Now, session: SessionNumber, deciding: &mut Deciding, out: &mut Outbox) -> Next {
        if let Some(lines) = deciding.management.take() {
            deciding.own.add(client_file::read("client-auth", &lines).map_err(Refused::Program)?);
        }
        let own = &deciding.own;
        if own.is_disabled {
            return Err(Refused::Disabled);
        }
        let lease = Lease { v4: own.v4.or(deciding.lease.v4), v6: own.v6.or(deciding.lease.v6) };
        if let (Some(constraint), Some(address)) = (self.access.constraint, lease.v4)
            && !constraint.contains(&address)
        {
            return Err(Refused::Program(format!(
                "{address} is not in {constraint}, of ifconfig-push-constraint"
            )));
        }
        if own.behind.len() > self.access.max_routes {
            let (name, most) = (&deciding.name, self.access.max_routes);
            tracing::warn!("{name}: only {most} networks behind it are used: max-routes-per-client");
        }
        let behind = own.behind.iter().take(self.access.max_routes);
        deciding.prefixes = lease.prefixes().chain(behind.copied()).collect();
        deciding.lease = lease;
        if self.end_holders(now, session, &lease, out)
            && let Some(wait) = self.ask_again(session, deciding)
        {
            return Ok(wait);
        }
        self.addressed(now, deciding);
        Ok(Go(Question::Address(0)))
    }

    fn ask_about_address(
        &mut self,
        now: Now,
        session: SessionNumber,
        deciding: &mut Deciding,
        number: usize,
    ) -> Progress {
        if !self.scripts.has(Hook::LearnAddress) {
            return Go(Question::Nothing);
        }
        let Some(&prefix) = deciding.prefixes.get(number) else { return Go(Question::Nothing) };
        let is_known = self.admitted.values().any(|admitted| admitted.learned.contains(&prefix));
        let mut run = prepare(now, deciding, Hook::LearnAddress);
        let operation = if is_known { "update" } else { "add" };
        run.arguments = vec![operation.to_owned(), shown(prefix), client_file::word(&deciding.name)];
        run.line = line_of(&prefix);
        self.run(session, deciding, &run)
    }
}

fn prepare(now: Now, deciding: &Deciding, hook: Hook) -> Run {
    Run::new(hook, deciding.environment.clone(), deciding.until - now.monotonic)
}

fn password_answer(answer: &Answer) -> Next {
    match failure("auth-user-pass-verify", answer) {
        Ok(()) => Ok(Go(Question::Name)),
        Err(refused) => {
            let reason = answer.text(REASON);
            let reason = reason.lines().next().unwrap_or_default().trim();
            Err(if reason.is_empty() { refused } else { Refused::Told(reason.to_owned()) })
        }
    }
}

/// An answer that refuses.
fn failure(directive: &str, answer: &Answer) -> Result<(), Refused> {
    match &answer.outcome {
        Outcome::Ended(0) | Outcome::Deferred => Ok(()),
        Outcome::Ended(status) => Err(Refused::Program(format!("{directive}: exit status {status}"))),
        Outcome::Failed(reason) => Err(Refused::Program(format!("{directive}: {reason}"))),
    }
}
