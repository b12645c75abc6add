//! Decisions about clients by a file of hashes of passwords.

use super::*;
use crate::openvpn::passwords::{HashFile, Users};

/// `htpasswd -nbB -C 5 anna "Hello world!"`
const ANNA: &str = "anna:$2y$05$uWaclRAwv79iwo34Bt0lF.W2Ga09F7BynQGQlVFzukfun.8xgNhPi\n";
/// `htpasswd -nb5 berta secret`
const BERTA: &str = "berta:$6$knAl7avipyRWCdPV$/LPtu9Mdk9HoDXSqyTmbv255RAh3XKWkdCFoWOjZewB88LP.arIXdTZx.et8hN/NjzNxIfjRTPHAASul3h/.Q1\n";

fn bed(change: impl FnOnce(&mut ServerSettings)) -> Bed {
    bed_with(&[], TELLS, change)
}

fn bed_with(hooks: &[Hook], script: &str, change: impl FnOnce(&mut ServerSettings)) -> Bed {
    Bed::new(hooks, script, |settings| {
        let users = Users::read("users", ANNA.as_bytes()).expect("right");
        settings.access.hashes = Some(HashFile { name: "users".to_owned(), users });
        change(settings);
    })
}

fn login(session: SessionNumber, user: &str, password: &str) -> Request {
    let credentials = Credentials { user: user.to_owned(), password: password.to_owned().into() };
    Request { credentials, ..request("certificate", session) }
}

impl Bed {
    fn admits(&mut self, session: SessionNumber, request: Request) -> bool {
        self.decide(session, request);
        self.settle(session);
        self.side.admitted.contains_key(&session)
    }

    /// What the process for files has read.
    fn read(&mut self, text: &str) {
        let files = vec![text.as_bytes().to_vec(), b"signature".to_vec()];
        self.side.hashes(&Answer { outcome: Outcome::Ended(0), files });
    }

    /// Has the file looked at, at this time.
    fn look(&mut self, seconds: u64) {
        let monotonic = now().monotonic + Duration::from_secs(seconds);
        self.side.look_at_files(Now { monotonic, ..now() });
        let Command::PasswordHashes(answer) = self.commands.recv_timeout(LONG).expect("an answer") else {
            panic!("nothing else is asked")
        };
        self.side.hashes(&answer);
    }

    fn fail_to_read(&mut self) {
        self.side.hashes(&Answer { outcome: Outcome::Failed("users: denied".to_owned()), files: Vec::new() });
    }
}

#[test]
fn users_of_the_file_are_admitted_with_their_passwords() {
    let mut bed = bed(|settings| settings.access.uses_user_name = true);
    assert!(bed.admits(1, login(1, "anna", "Hello world!")));
    assert_eq!(bed.side.common_name(1), Some("anna"));
    for (session, user, password) in
        [(2, "anna", "wrong"), (3, "carla", "Hello world!"), (4, "anna", ""), (5, "", "")]
    {
        assert!(!bed.admits(session, login(session, user, password)), "{user} {password}");
    }
    let long = "a".repeat(4000);
    assert!(!bed.admits(6, login(6, &long, "Hello world!")));
    // New keys need the password too.
    assert!(bed.admits(1, Request { is_renewal: true, ..login(1, "anna", "Hello world!") }));
}

#[test]
fn a_client_without_a_password_needs_a_certificate_even_if_passwords_are_optional() {
    let mut bed = bed(|settings| settings.access.is_password_optional = true);
    assert!(bed.admits(1, login(1, "", "")));
    assert!(!bed.admits(2, Request { certificates: Vec::new(), ..login(2, "", "") }));
    assert!(!bed.admits(3, login(3, "anna", "")));
    let without = Request { certificates: Vec::new(), ..login(4, "anna", "Hello world!") };
    assert!(bed.admits(4, without));
}

#[test]
fn a_file_that_cannot_be_used_admits_nobody_until_it_is_right_again() {
    let mut bed = bed(|settings| settings.network.duplicate_names = true);
    bed.read(&format!("{ANNA}{BERTA}"));
    assert!(bed.admits(1, login(1, "berta", "secret")), "read again");
    bed.read(BERTA);
    assert!(!bed.admits(2, login(2, "anna", "Hello world!")), "no user any more");
    for (session, broken) in [(3, "berta\n"), (4, "")] {
        bed.read(broken);
        assert!(!bed.admits(session, login(session, "berta", "secret")), "{broken}");
    }
    bed.read(BERTA);
    assert!(bed.admits(5, login(5, "berta", "secret")));
    bed.fail_to_read();
    assert!(bed.side.files.hashes.is_empty(), "the same file is read again");
    assert!(!bed.admits(6, login(6, "berta", "secret")));
    bed.read(BERTA);
    assert!(bed.admits(7, login(7, "berta", "secret")));
}

#[test]
fn the_process_for_files_reads_the_file_when_it_has_changed() {
    // The first line of the script is a comment of the file.
    let mut bed = bed_with(&[Hook::PasswordHashes], BERTA, |_| {});
    bed.look(0);
    assert!(!bed.admits(1, login(1, "anna", "Hello world!")));
    assert!(bed.admits(2, login(2, "berta", "secret")));
    let reading = |bed: &Bed| bed.side.passwords.as_ref().expect("there").reading;
    bed.look(10);
    assert_eq!(reading(&bed), 1, "it is as it was");
    let path = bed.folder.path().join("script");
    std::fs::remove_file(&path).expect("ours");
    bed.look(20);
    assert!(!bed.admits(3, login(3, "berta", "secret")));
    std::fs::write(&path, ANNA).expect("ours");
    bed.look(30);
    assert!(bed.admits(4, login(4, "anna", "Hello world!")));
}

#[test]
fn a_password_that_was_compared_with_an_older_file_is_compared_again() {
    let mut bed = bed(|_| {});
    bed.decide(1, login(1, "anna", "Hello world!"));
    bed.read(BERTA);
    bed.settle(1);
    assert!(bed.side.admitted.is_empty());
}

#[test]
fn a_token_stands_for_the_password_while_the_user_is_in_the_file() {
    let tokens = || Tokens::new(crypto::SecretBytes::new(vec![7; 32]), None, None, None, false);
    let mut bed = bed(|settings| {
        settings.access.tokens = Some(tokens());
        settings.network.duplicate_names = true;
    });
    assert!(bed.admits(1, login(1, "anna", "Hello world!")));
    assert!(bed.side.admitted[&1].token.is_some());
    let token = crate::openvpn::tokens::Token::first(now().wall, &mut System::default());
    let text = tokens().text(token, "anna", now().wall);
    assert!(bed.admits(2, login(2, "anna", &text)));
    bed.read(BERTA);
    assert!(!bed.admits(3, login(3, "anna", &text)), "she is removed");
    bed.fail_to_read();
    assert!(!bed.admits(4, login(4, "anna", &text)));
}
