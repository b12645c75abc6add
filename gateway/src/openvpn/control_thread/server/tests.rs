//! Decisions about clients, with programs that are run. The core has no sessions: the tests call the server as the core would.

mod hashes;
mod topologies;

use super::*;
use crate::openvpn::control_thread::ClientEvent;
use crate::openvpn::convert::tests::{SERVER, server};
use crate::openvpn::options::Own;
use crate::openvpn::scripts::{Answer, Outcome, Program, Programs, process};
use crate::openvpn::tokens::Tokens;
use crossbeam_channel::{Receiver, unbounded};
use crypto::engine::aws_lc::AwsLc;
use crypto::random::System;
use rcgen::{CertificateParams, DnType, KeyPair};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use tempfile::TempDir;
use tunnel::openvpn::action::Request;
use tunnel::openvpn::key_method::Credentials;
use tunnel::openvpn::name_fields::NameFields;
use tunnel::openvpn::peer_info::PeerInfo;

const LONG: Duration = Duration::from_secs(20);

struct Bed {
    side: ServerSide,
    commands: Receiver<Command>,
    reports: mpsc::UnboundedReceiver<Report>,
    folder: TempDir,
}

fn now() -> Now {
    Now { monotonic: Time::from_nanoseconds(1_000_000_000), wall: Duration::from_secs(1_800_000_000) }
}

/// What a client sends: its port tells its programs apart.
fn request(name: &str, port: SessionNumber) -> Request {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.serial_number = Some(rcgen::SerialNumber::from(77));
    let key = KeyPair::generate().expect("a key");
    Request {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, u16::try_from(port).expect("small"))),
        key_id: 0,
        certificates: vec![params.self_signed(&key).expect("a certificate").der().clone()],
        credentials: Credentials::default(),
        info: PeerInfo::parse("IV_PROTO=2\n"),
        is_renewal: false,
        key_metadata: None,
    }
}

impl Bed {
    /// A server that runs one shell script for all of these.
    fn new(hooks: &[Hook], script: &str, change: impl FnOnce(&mut ServerSettings)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("script");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("ours");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("ours");
        let program = Program { path, arguments: Vec::new(), owner: None };
        let programs = Programs {
            by_hook: hooks.iter().map(|hook| (*hook, program.clone())).collect(),
            folder: folder.path().to_owned(),
            temporary: folder.path().to_owned(),
            certificates: Some(folder.path().to_owned()),
            environment: Vec::new(),
        };
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        std::thread::spawn(move || process::serve(theirs, |_| Ok(())));
        let scripts = Scripts::start(ours, &programs).expect("threads");
        let (own, commands) = unbounded();
        let (reports, other) = mpsc::unbounded_channel();
        let mut settings = server(SERVER, &[]);
        change(&mut settings);
        let answers = Answers { scripts, own, reports };
        let side = ServerSide::new("tun0", settings, answers, Arc::new(AwsLc), Box::new(System::default()));
        Self { side, commands, reports: other, folder }
    }

    fn decide(&mut self, session: SessionNumber, request: Request) {
        self.side.decide(now(), session, request, &mut Outbox::new());
    }

    fn close(&mut self, session: SessionNumber) {
        self.side.closed(now(), session, [0, 0]);
    }

    /// Takes answers until the client is admitted or refused.
    fn settle(&mut self, session: SessionNumber) {
        while self.side.deciding.contains_key(&session) {
            let command = self.commands.recv_timeout(LONG).expect("an answer");
            let (session, ticket, answered) = match command {
                Command::Answered { session, ticket, answer } => (session, ticket, Answered::Program(answer)),
                Command::Checked { session, ticket, is_right } => {
                    (session, ticket, Answered::Password(is_right))
                }
                _ => continue,
            };
            self.side.answered(now(), session, ticket, answered, &mut Outbox::new());
        }
    }

    /// What the script has written, when all programs have ended.
    fn told(&self) -> String {
        self.side.scripts.finish(LONG);
        std::fs::read_to_string(self.folder.path().join("told")).unwrap_or_default()
    }
}

/// A script that writes when it is called, and about which client.
const TELLS: &str = "echo \"$script_type $untrusted_port\" >> told";

#[test]
fn the_end_of_the_earlier_session_is_told_before_the_new_one_is_asked_about() {
    let mut bed = Bed::new(&[Hook::ClientConnect, Hook::ClientDisconnect], TELLS, |_| {});
    bed.decide(1, request("anna", 1));
    bed.settle(1);
    bed.decide(2, request("anna", 2));
    // The core has said that the first session is closed.
    bed.close(1);
    bed.settle(2);
    assert!(bed.side.admitted.contains_key(&2));
    assert_eq!(bed.told(), "client-connect 1\nclient-disconnect 1\nclient-connect 2\n");
}

#[test]
fn programs_about_the_interface_of_a_site_are_told_its_peer_alone() {
    let site = Site { own: Own::default(), follows: true, names: Vec::new() };
    let mut bed = Bed::new(&[], TELLS, |settings| settings.site = Some(site));
    bed.decide(1, request("there", 5000));
    let about = bed.side.about_site(1, "192.0.2.7:5000".parse().expect("literal"));
    for (name, value) in [("common_name", "there"), ("trusted_ip", "192.0.2.7"), ("trusted_port", "5000")] {
        assert_eq!(about.value(name), Some(value));
    }
    assert!(about.value("X509_0_CN").is_some() && about.value("dev").is_none());
}

#[test]
fn a_client_that_is_revoked_while_programs_are_asked_is_refused() {
    let mut bed = Bed::new(&[Hook::ClientConnect], TELLS, |settings| settings.access.renew = None);
    bed.decide(1, request("anna", 1));
    let answer = Answer { outcome: Outcome::Ended(0), files: vec![b"77\n".to_vec(), b"signature".to_vec()] };
    bed.side.revocations(now(), &answer, &mut Outbox::new());
    bed.settle(1);
    assert!(bed.side.admitted.is_empty());
}

#[test]
fn a_certificate_that_tls_accepted_before_the_list_was_read_again_is_checked_again() {
    let renew = |settings: &mut ServerSettings| {
        let mut check = tunnel::openvpn::verify::PeerCheck::new(tunnel::openvpn::wrap::Role::Client);
        check.add_fingerprint([0; 32]);
        let (tls, check) = (settings.core.tls.clone(), Arc::new(check));
        settings.access.renew = Some(Box::new(move |_| Ok((tls.clone(), Arc::clone(&check)))));
    };
    let mut bed = Bed::new(&[], TELLS, renew);
    let answer = Answer { outcome: Outcome::Ended(0), files: vec![Vec::new(), b"signature".to_vec()] };
    bed.side.revocations(now(), &answer, &mut Outbox::new());
    bed.decide(1, request("anna", 1));
    assert!(bed.side.admitted.is_empty());
}

#[test]
fn a_user_name_that_nothing_has_checked_gets_no_token() {
    for (hooks, expected) in [(&[][..], false), (&[Hook::AuthUserPassVerify][..], true)] {
        let mut bed = Bed::new(hooks, TELLS, |settings| {
            let key = crypto::SecretBytes::new(vec![7; 32]);
            settings.access.tokens = Some(Tokens::new(key, None, None, None, false));
        });
        let mut request = request("anna", 1);
        request.credentials = Credentials { user: "root".to_owned(), password: "secret".to_owned().into() };
        bed.decide(1, request);
        bed.settle(1);
        assert_eq!(bed.side.admitted[&1].token.is_some(), expected);
    }
}

#[test]
fn a_common_name_has_one_line() {
    let mut bed = Bed::new(&[], TELLS, |_| {});
    bed.decide(1, request("anna\nclient bob is gone", 1));
    assert_eq!(bed.side.common_name(1), Some("anna_client bob is gone"));
}

#[test]
fn the_name_of_a_client_is_made_of_the_fields_of_its_certificate() {
    let mut bed = Bed::new(&[Hook::ClientConnect], "echo $common_name >> told", |settings| {
        let fields = ["CN".to_owned(), "serialNumber".to_owned()];
        settings.access.name_fields = NameFields::new(&fields).expect("they are known");
    });
    bed.decide(1, request("anna", 1));
    bed.settle(1);
    assert_eq!((bed.side.common_name(1), bed.told()), (Some("anna_0x4D"), "anna_0x4D\n".to_owned()));
    // A client that is refused has the same name in the history.
    let mut history = crate::openvpn::control_thread::history::History::default();
    history.asked(2, &request("bert", 2), bed.side.name_fields());
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 2)).into();
    let cause = tunnel::openvpn::Cause::RefusedByUs("it is disabled".to_owned());
    history.closed(2, address, false, &cause, Duration::ZERO);
    assert_eq!(history.all()[0].common_name.as_deref(), Some("bert_0x4D"));
}

#[test]
fn what_programs_were_told_is_taken_back_when_a_session_ends_while_it_is_decided() {
    let hooks = [Hook::ClientConnect, Hook::ClientDisconnect, Hook::LearnAddress];
    let mut bed = Bed::new(&hooks, "echo \"$script_type $1\" >> told", |settings| settings.network.v6 = None);
    bed.decide(1, request("anna", 1));
    bed.close(1);
    let told = bed.told();
    assert!(told.ends_with("client-disconnect \n") && told.starts_with("client-connect "), "{told}");
    assert_eq!(told.lines().count(), 2, "{told}");
    std::fs::remove_file(bed.folder.path().join("told")).expect("ours");
    bed.decide(2, request("bert", 2));
    // The session ends when client-connect has let it in, and its address is asked about.
    while bed.side.deciding[&2].question != Question::Address(0) {
        let command = bed.commands.recv_timeout(LONG).expect("an answer");
        if let Command::Answered { session, ticket, answer } = command {
            let answered = Answered::Program(answer);
            bed.side.answered(now(), session, ticket, answered, &mut Outbox::new());
        }
    }
    bed.side.give_up(now(), 2, &mut Outbox::new());
    let told = bed.told();
    let count = |what: &str| told.lines().filter(|line| *line == what).count();
    assert_eq!((count("learn-address add"), count("learn-address delete")), (1, 1), "{told}");
    assert_eq!(count("client-disconnect "), 1, "{told}");
}

#[test]
fn a_client_that_client_connect_refuses_is_not_disconnected() {
    let hooks = [Hook::ClientConnect, Hook::ClientDisconnect];
    let mut bed = Bed::new(&hooks, &format!("{TELLS}; exit 1"), |_| {});
    bed.decide(1, request("anna", 1));
    bed.settle(1);
    assert_eq!(bed.told(), "client-connect 1\n");
}

#[test]
fn of_two_sessions_of_one_name_that_are_decided_at_once_the_later_is_admitted() {
    let hooks = [Hook::ClientConnect, Hook::ClientDisconnect];
    let mut bed = Bed::new(&hooks, &format!("sleep 0.1; {TELLS}"), |_| {});
    bed.decide(1, request("anna", 1));
    bed.decide(2, request("anna", 2));
    bed.settle(2);
    bed.settle(1);
    assert_eq!(bed.side.sessions_of("anna"), [2]);
    assert_eq!(bed.told(), "client-connect 1\nclient-disconnect 1\nclient-connect 2\n");
}

#[test]
fn only_certificates_that_signed_the_one_below_are_told_to_programs() {
    let params = |name: &str| {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params
    };
    let authority = |name: &str| {
        let mut params = params(name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        rcgen::CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("valid")
    };
    let (real, forged) = (authority("CA"), authority("CA"));
    let key = KeyPair::generate().expect("a key");
    let own = params("anna").signed_by(&key, &real).expect("valid").der().clone();
    for (trusted, between, expected) in [
        (&real, None, true),
        (&forged, None, false),
        (&forged, Some(&forged), false),
        (&forged, Some(&real), true),
    ] {
        let read = |it: &rcgen::CertifiedIssuer<'_, KeyPair>| {
            crypto::pki::Certificate::from_der(it.der()).expect("valid")
        };
        let bed = Bed::new(&[], TELLS, |settings| settings.access.authorities = vec![read(trusted)]);
        let mut request = request("anna", 1);
        request.certificates = vec![own.clone()];
        request.certificates.extend(between.map(|it| it.der().clone()));
        let chain = variables::chain(&request.certificates, &bed.side.access.authorities);
        let environment = bed.side.about(&request, &chain);
        assert!(environment.value("tls_id_0").is_some());
        assert_eq!(environment.value("tls_id_1").is_some(), expected);
    }
}

#[test]
fn programs_see_the_certificate_and_decide_about_the_metadata_of_a_key() {
    let script = "if [ \"$script_type\" = tls-verify ]; then head -n 1 \"$peer_cert\" >> told; exit 0; fi\n\
        text=$(cat \"$metadata_file\"); echo \"$metadata_type $text|$common_name\" >> told; [ \"$text\" = good ]";
    let exports = |settings: &mut ServerSettings| settings.access.exports_certificates = true;
    let mut bed = Bed::new(&[Hook::TlsCryptV2Verify, Hook::TlsVerify], script, exports);
    let metadata = |text: &[u8]| Some(tunnel::openvpn::wrap::v2::Metadata::User(text.to_vec()));
    for (session, key_metadata) in [(1, metadata(b"good")), (2, metadata(b"bad")), (3, None)] {
        bed.decide(session, Request { key_metadata, ..request("anna", session) });
        bed.settle(session);
        assert_eq!(bed.side.admitted.contains_key(&session), session == 1);
    }
    assert_eq!(bed.told(), "0 good|\n-----BEGIN CERTIFICATE-----\n0 bad|\n");
}

#[test]
fn clients_without_exported_keys_are_refused_if_these_are_forced() {
    let mut bed = Bed::new(&[], TELLS, |settings| settings.access.requires_exporter = true);
    for (session, info) in [(1, "IV_PROTO=2\n"), (2, "IV_PROTO=10\n")] {
        bed.decide(session, Request { info: PeerInfo::parse(info), ..request("anna", session) });
        assert_eq!(bed.side.admitted.contains_key(&session), session == 2);
    }
}

#[test]
fn one_answer_to_each_challenge_is_told_to_the_management_interface() {
    let mut bed = Bed::new(&[], TELLS, |settings| settings.access.asks_management = true);
    let mut request = request("anna", 1);
    request.credentials = Credentials { user: "anna".to_owned(), password: "any".to_owned().into() };
    bed.side.take_response(now(), 1, "before the question");
    bed.decide(1, request);
    let told = |bed: &mut Bed| {
        let reports = std::iter::from_fn(|| bed.reports.try_recv().ok());
        let texts = reports.filter_map(|report| match report {
            Report::Client(ClientEvent::Response { text, .. }) => Some(text),
            _ => None,
        });
        texts.collect::<Vec<String>>()
    };
    // A record of TLS has room for more than a thousand.
    (0..1365).for_each(|_| bed.side.take_response(now(), 1, "123456"));
    assert_eq!(told(&mut bed), ["123456"]);
    let wait = Duration::from_secs(30);
    assert!(bed.side.take_pending(now(), 0, 0, "CR_TEXT:E:PIN", wait, &mut Outbox::new()));
    (0..2).for_each(|_| bed.side.take_response(now(), 1, "again"));
    assert_eq!(told(&mut bed), ["again"]);
    let accept = Decision::Accept(String::new());
    assert!(bed.side.take_decision(now(), 0, 0, accept, &mut Outbox::new()));
    bed.side.take_response(now(), 1, "after the verdict");
    assert_eq!(told(&mut bed), Vec::<String>::new());
}

#[test]
fn a_late_verdict_does_not_count_for_another_question_about_the_same_key() {
    let mut bed = Bed::new(&[], TELLS, |settings| settings.access.asks_management = true);
    let with_password = |is_renewal| Request {
        credentials: Credentials { user: "anna".to_owned(), password: "any".to_owned().into() },
        is_renewal,
        ..request("anna", 1)
    };
    let accept = |bed: &mut Bed, key| {
        bed.side.take_decision(now(), 0, key, Decision::Accept(String::new()), &mut Outbox::new())
    };
    bed.decide(1, with_password(false));
    assert!(accept(&mut bed, 0));
    // After seven renewals a key of the protocol has the number of an earlier one.
    bed.decide(1, with_password(true));
    assert!(!accept(&mut bed, 0) && !accept(&mut bed, 2) && accept(&mut bed, 1));
    let keys = std::iter::from_fn(|| bed.reports.try_recv().ok()).filter_map(|report| match report {
        Report::Client(ClientEvent::Asked { key, .. }) => Some(key),
        _ => None,
    });
    assert_eq!(keys.collect::<Vec<u64>>(), [0, 1]);
}

#[test]
fn the_answer_to_a_challenge_is_checked_by_a_program_that_may_answer_at_once_later_or_not() {
    let script = "if [ $script_type = user-pass-verify ]; then\n\
        printf '30\\ncrtext\\nCR_TEXT:R,E:PIN\\n' > $auth_pending_file; exit 2; fi\n\
        echo \"$script_type $username $trusted_port $(cat $1)\" >> told\n\
        case $(cat $1) in right) printf 1 > $auth_control_file;; wrong) exit 1;;\n\
        late) (echo come later > $auth_failed_reason_file; printf 0 > $auth_control_file) & esac";
    let mut bed = Bed::new(&[Hook::AuthUserPassVerify, Hook::ClientResponse], script, |_| {});
    for (session, text) in [(1, "right"), (2, "wrong"), (3, "late")] {
        let name = format!("client{session}");
        let mut request = request(&name, session);
        request.credentials = Credentials { user: name, password: "any".to_owned().into() };
        bed.side.take_response(now(), session, "before the question");
        bed.decide(session, request);
        let command = bed.commands.recv_timeout(LONG).expect("it is deferred");
        let Command::Answered { ticket, answer, .. } = command else { panic!("an answer") };
        assert_eq!(answer.outcome, Outcome::Deferred);
        bed.side.take_response(now(), session, "before the challenge");
        let answered = Answered::Program(answer);
        bed.side.answered(now(), session, ticket, answered, &mut Outbox::new());
        (0..3).for_each(|_| bed.side.take_response(now(), session, text));
        bed.settle(session);
        assert_eq!(bed.side.admitted.contains_key(&session), text == "right", "{text}");
    }
    let expected = [(1, "right"), (2, "wrong"), (3, "late")]
        .map(|(session, text)| format!("client-crresponse client{session} {session} {text}\n"));
    assert_eq!(bed.told(), expected.concat());
}
