//! Programs run by a process at the other end of a socket, which is a thread here.

use super::*;
use crossbeam_channel::{Receiver, unbounded};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Instant;
use tempfile::TempDir;

const LONG: Duration = Duration::from_secs(20);

struct Fixture {
    scripts: Scripts,
    folder: TempDir,
}

/// One program, a shell script, for one hook.
fn with(hook: Hook, script: &str) -> Fixture {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("script");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("ours");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("ours");
    let program = Program { path, arguments: vec!["first".to_owned()], owner: None };
    let programs = Programs {
        by_hook: [(hook, program)].into(),
        folder: folder.path().to_owned(),
        temporary: folder.path().to_owned(),
        certificates: None,
        environment: vec![("SITE".to_owned(), "berlin".to_owned())],
    };
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    thread::spawn(move || process::serve(theirs, |_| Ok(())));
    Fixture { scripts: Scripts::start(ours, &programs).expect("threads"), folder }
}

impl Fixture {
    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    fn run(&self, request: &Request) -> Receiver<Answer> {
        let (send, receive) = unbounded();
        self.scripts.run(request, move |answer| _ = send.send(answer));
        receive
    }

    /// All files but those of the test.
    fn left_over(&self) -> usize {
        let files = std::fs::read_dir(self.folder.path()).expect("ours");
        files.filter(|file| file.as_ref().is_ok_and(|it| it.path().extension().is_some())).count()
    }
}

fn request(hook: Hook) -> Request {
    Request::new(hook, Environment::default(), LONG)
}

#[test]
fn a_program_gets_arguments_environment_and_files_and_no_shell_sees_them() {
    let fixture = with(
        Hook::LearnAddress,
        "printf '%s|' \"$@\" \"$common_name\" \"$SITE\" \"$script_type\" > got; cat \"$4\" > \"$out\"; exit 3",
    );
    let mut request = request(Hook::LearnAddress);
    request.arguments = vec!["$(touch bad)".to_owned(), "a b".to_owned()];
    request.environment.set("common_name", "`touch bad`;\nx=1");
    let content = zeroize::Zeroizing::new(b"secret".to_vec());
    request.files = vec![
        TemporaryFile { is_argument: true, content, ..TemporaryFile::default() },
        TemporaryFile { variable: "out".to_owned(), ..TemporaryFile::default() },
    ];
    let answer = fixture.scripts.run_and_wait(&request);
    assert_eq!((&answer.outcome, answer.text(1).as_str()), (&Outcome::Ended(3), "secret"));
    let got = fixture.text("got");
    let expected = "first|$(touch bad)|a b|";
    assert!(got.starts_with(expected) && got.ends_with("|`touch bad`;_x=1|berlin|learn-address|"), "{got}");
    assert!(!fixture.folder.path().join("bad").exists());
    assert_eq!(fixture.left_over(), 0);
}

#[test]
fn a_request_sets_no_variable_that_the_loader_or_a_shell_reads() {
    let fixture = with(Hook::Up, "/usr/bin/env | /usr/bin/sort > got");
    let mut request = request(Hook::Up);
    for name in ["PATH", "LD_PRELOAD", "BASH_ENV", "ENV", "IV_VER", "UV_ID", "X509_0_CN", "common_name"] {
        request.environment.set(name, "asked");
    }
    let content = zeroize::Zeroizing::new(b"touch bad".to_vec());
    request.files =
        vec![TemporaryFile { variable: "BASH_ENV".to_owned(), content, ..TemporaryFile::default() }];
    assert!(fixture.scripts.run_and_wait(&request).is_success());
    let got = fixture.text("got");
    let asked: Vec<&str> = got.lines().filter_map(|line| line.strip_suffix("=asked")).collect();
    assert_eq!(asked, ["IV_VER", "UV_ID", "X509_0_CN", "common_name"]);
    assert!(!got.contains("BASH_ENV"), "{got}");
}

#[test]
fn only_programs_that_were_named_at_the_start_are_run() {
    let fixture = with(Hook::Up, "exit 0");
    assert!(fixture.scripts.has(Hook::Up) && !fixture.scripts.has(Hook::Down));
    let refused = fixture.scripts.run_and_wait(&request(Hook::Down));
    assert!(matches!(refused.outcome, Outcome::Failed(_)));
    assert!(!Scripts::default().has(Hook::Up));
}

#[test]
fn a_slow_program_delays_no_other_and_is_killed_with_its_children_at_its_deadline() {
    let fixture = with(
        Hook::ClientConnect,
        "[ \"$slow\" ] || exit 0; (sleep 2; touch late) & while :; do sleep 1; done",
    );
    let mut slow = request(Hook::ClientConnect);
    slow.environment.set("slow", "1");
    slow.deadline = Duration::from_millis(500);
    let began = Instant::now();
    let slow: Vec<Receiver<Answer>> = (0..8).map(|_| fixture.run(&slow)).collect();
    let quick = fixture.scripts.run_and_wait(&request(Hook::ClientConnect));
    assert!(quick.is_success() && slow[0].try_recv().is_err());
    for answer in slow {
        let outcome = answer.recv_timeout(LONG).expect("an answer").outcome;
        assert!(matches!(&outcome, Outcome::Failed(reason) if reason.contains("killed")), "{outcome:?}");
    }
    thread::sleep(Duration::from_secs(3).saturating_sub(began.elapsed()));
    assert!(!fixture.folder.path().join("late").exists(), "its children are killed too");
}

#[test]
fn requests_of_one_line_run_in_order() {
    let fixture = with(Hook::LearnAddress, "[ \"$2\" = 0 ] && sleep 0.3; echo \"$2\" >> order");
    let answers: Vec<Receiver<Answer>> = (0..5)
        .map(|number| {
            let mut request = request(Hook::LearnAddress);
            request.arguments = vec![number.to_string()];
            request.line = 9;
            fixture.run(&request)
        })
        .collect();
    fixture.scripts.finish(LONG);
    assert!(answers.iter().all(|answer| answer.try_recv().is_ok_and(|it| it.is_success())));
    assert_eq!(fixture.text("order"), "0\n1\n2\n3\n4\n");
}

#[test]
fn a_program_may_answer_later_in_a_file() {
    let fixture =
        with(Hook::AuthUserPassVerify, "(sleep 0.4; printf \"$answer\" > \"$auth_control_file\") & exit 2");
    let secret = zeroize::Zeroizing::new(b"anna\nsecret\n".to_vec());
    for (text, expected) in [("1", Outcome::Ended(0)), ("0", Outcome::Ended(1))] {
        let mut request = request(Hook::AuthUserPassVerify);
        request.environment.set("answer", text);
        request.files =
            vec![TemporaryFile { variable: "auth_control_file".to_owned(), ..TemporaryFile::default() }];
        let content = secret.clone();
        request.files.push(TemporaryFile { is_argument: true, content, ..TemporaryFile::default() });
        request.deferral = Deferral::ByStatus(0);
        let answers = fixture.run(&request);
        let answer = || answers.recv_timeout(LONG).expect("an answer");
        let first = answer();
        assert_eq!((first.outcome, &first.files[1]), (Outcome::Deferred, &Vec::new()));
        // The password is gone while the answer is awaited.
        assert_eq!(fixture.left_over(), 1);
        let last = answer();
        assert_eq!((last.outcome, &last.files[1]), (expected, &Vec::new()));
    }
    let mut never = request(Hook::AuthUserPassVerify);
    never.files = vec![TemporaryFile::default()];
    (never.deferral, never.deadline) = (Deferral::ByStatus(0), Duration::from_millis(300));
    let outcome = fixture.scripts.run_and_wait(&never).outcome;
    assert!(matches!(&outcome, Outcome::Failed(reason) if reason.contains("in time")), "{outcome:?}");
    assert_eq!(fixture.left_over(), 0);
}

#[test]
fn a_deferred_answer_has_the_time_that_the_program_asks_for() {
    let script = "echo 10 > \"$auth_pending_file\"; echo webauth >> \"$auth_pending_file\"\n\
                  (sleep 1.5; printf 1 > \"$auth_control_file\") & exit 2";
    let fixture = with(Hook::AuthUserPassVerify, script);
    for (longest, is_there) in [(LONG, true), (Duration::from_millis(10), false)] {
        let mut request = request(Hook::AuthUserPassVerify);
        let named = |name: &str| TemporaryFile { variable: name.to_owned(), ..TemporaryFile::default() };
        request.files = ["auth_control_file", "auth_pending_file"].map(named).into();
        (request.deferral, request.pending) = (Deferral::ByStatus(0), Some((1, longest)));
        request.deadline = Duration::from_millis(700);
        assert_eq!(fixture.scripts.run_and_wait(&request).is_success(), is_there);
    }
}

#[test]
fn programs_are_killed_when_the_daemon_has_ended_and_requests_fail_when_the_process_has() {
    let fixture = with(Hook::Up, "echo $$ > pid; sleep 60");
    let answer = fixture.run(&request(Hook::Up));
    let pid = loop {
        if let Ok(pid) = fixture.text("pid").trim().parse::<u32>() {
            break pid;
        }
        thread::sleep(Duration::from_millis(10));
    };
    let Fixture { scripts, folder } = fixture;
    drop(scripts);
    let until = Instant::now() + LONG;
    while std::path::Path::new(&format!("/proc/{pid}")).exists() {
        assert!(Instant::now() < until, "it runs on");
        thread::sleep(Duration::from_millis(10));
    }
    drop((answer, folder));
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    let programs = Programs {
        by_hook: [(Hook::Up, Program { path: "/bin/true".into(), arguments: Vec::new(), owner: None })]
            .into(),
        ..Programs::default()
    };
    let scripts = Scripts::start(ours, &programs).expect("threads");
    drop(theirs);
    assert!(matches!(scripts.run_and_wait(&request(Hook::Up)).outcome, Outcome::Failed(_)));
}
