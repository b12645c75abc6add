//! Files that a server reads again and writes: the revocation list, and the addresses that clients had.

use super::{NOTICE, ServerSide, line_of};
use crate::openvpn::control_thread::Command;
use crate::openvpn::scripts::{Answer, Environment, Hook, Outcome, Request as Run, Scripts, TemporaryFile};
use rustls_pki_types::UnixTime;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tunnel::openvpn::Outbox;
use tunnel::openvpn::action::{Request, SessionNumber};
use tunnel::openvpn::verify::{PeerCheck, Refusal};
use tunnel::{Now, Time};
use zeroize::Zeroizing;

/// How often the revocation list is looked at.
const LOOKED_AT: Duration = Duration::from_secs(2);
/// Addresses are written this long after a change, together with other changes.
const WRITTEN: Duration = Duration::from_secs(1);

/// When files are read and written.
pub(super) struct FileWatch {
    look_at: Option<Time>,
    /// What the process for files has told of the last state of the revocation list.
    signature: String,
    /// The same of the file of hashes of passwords.
    pub(super) hashes: String,
    /// Serial numbers in decimal, of a directory.
    revoked: BTreeSet<String>,
    /// The check with the last file of revocation lists, if there was another one than at the start.
    check: Option<Arc<PeerCheck>>,
    has_leases: bool,
    write_at: Option<Time>,
}

impl FileWatch {
    pub(super) fn new(scripts: &Scripts) -> Self {
        Self {
            look_at: (scripts.has(Hook::Revocations) || scripts.has(Hook::PasswordHashes))
                .then(|| Time::from_nanoseconds(0)),
            signature: String::new(),
            hashes: String::new(),
            revoked: BTreeSet::new(),
            check: None,
            has_leases: scripts.has(Hook::Leases),
            write_at: None,
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.look_at.into_iter().chain(self.write_at).min()
    }

    /// The serial number of a client, if a file in the directory of `crl-verify` has it as its name.
    pub(super) fn revoked<'a>(&self, client: &'a Environment) -> Option<&'a str> {
        client.value("tls_serial_0").filter(|serial| self.revoked.contains(*serial))
    }

    /// Checks a client's certificates, of which TLS may have seen the last ones before the list was read again.
    pub(super) fn check(&self, now: Now, request: &Request) -> Result<(), Refusal> {
        let Some((check, (own, between))) = self.check.as_ref().zip(request.certificates.split_first())
        else {
            return Ok(());
        };
        check.check(own, between, UnixTime::since_unix_epoch(now.wall))
    }

    /// A client has other addresses than before.
    pub(super) fn leases_changed(&mut self, now: Time) {
        if self.has_leases {
            self.write_at = self.write_at.or(Some(now + WRITTEN));
        }
    }
}

impl ServerSide {
    /// Asks the process for files, when it is time.
    pub(super) fn look_at_files(&mut self, now: Now) {
        let is_due = |at: Option<Time>| at.is_some_and(|at| now.monotonic >= at);
        if is_due(self.files.look_at) {
            self.files.look_at = Some(now.monotonic + LOOKED_AT);
            self.look_at(Hook::Revocations, &self.files.signature, Command::Revocations);
            self.look_at(Hook::PasswordHashes, &self.files.hashes, Command::PasswordHashes);
        }
        if is_due(self.files.write_at) {
            self.write_leases();
        }
    }

    fn look_at(&self, hook: Hook, signature: &str, command: fn(Answer) -> Command) {
        if !self.scripts.has(hook) {
            return;
        }
        let mut run = Run::new(hook, Environment::default(), NOTICE);
        run.arguments = vec![signature.to_owned()];
        run.line = line_of(hook.directive());
        let own = self.own.clone();
        // The control thread may have ended.
        self.scripts.run(&run, move |answer| _ = own.send(command(answer)));
    }

    /// The file of hashes of passwords was looked at.
    pub(in super::super) fn hashes(&mut self, answer: &Answer) {
        match &answer.outcome {
            Outcome::Ended(0) => self.files.hashes = answer.text(1),
            // The same file may be readable again.
            Outcome::Failed(_) => self.files.hashes.clear(),
            _ => return,
        }
        if let Some(passwords) = &mut self.passwords {
            passwords.read_again(answer);
        }
    }

    /// Writes the addresses that clients had.
    pub(super) fn write_leases(&mut self) {
        self.files.write_at = None;
        let mut run = Run::new(Hook::Leases, Environment::default(), NOTICE);
        run.line = line_of("ifconfig-pool-persist");
        let content = Zeroizing::new(self.pool.leases().into_bytes());
        run.files = vec![TemporaryFile { content, ..TemporaryFile::default() }];
        self.scripts.tell(&run);
    }

    /// The revocation list has changed: clients that it names end now.
    pub(in super::super) fn revocations(&mut self, now: Now, answer: &Answer, out: &mut Outbox) {
        match &answer.outcome {
            Outcome::Ended(0) => {}
            Outcome::Failed(reason) => return tracing::error!("crl-verify: {reason}"),
            _ => return,
        }
        self.files.signature = answer.text(1);
        let Some(renew) = &self.access.renew else {
            self.files.revoked = answer.text(0).lines().map(str::to_owned).collect();
            return self.end_revoked(now, out);
        };
        match renew(answer.files.first().map(Vec::as_slice).unwrap_or_default()) {
            Ok((tls, check)) => {
                self.core.set_tls(tls);
                self.core.check_again(now, &check, out);
                self.files.check = Some(check);
            }
            // The old list still counts.
            Err(error) => tracing::error!("crl-verify: the list is not used: {error}"),
        }
    }

    fn end_revoked(&mut self, now: Now, out: &mut Outbox) {
        let revoked = self.admitted.iter().filter(|(_, it)| self.files.revoked(&it.environment).is_some());
        let revoked: Vec<SessionNumber> = revoked.map(|(session, _)| *session).collect();
        for session in revoked {
            tracing::info!("{}: its certificate is revoked", self.name_of(session));
            self.core.disconnect(now, session, "RESTART", out);
        }
    }

    /// The thread ends: waits for programs and files.
    pub(in super::super) fn finish(&mut self) {
        if self.files.write_at.is_some() {
            self.write_leases();
        }
        self.scripts.finish(NOTICE / 6);
    }
}
