//! What a client of OpenVPN of ours does at `a`, with a server at `b` that is ours or OpenVPN itself.

use crate::openvpn_ends::{CLIENT_END, Program, SERVER_END, configuration, path, start, write_keys};
use crate::support::{PATIENCE, sites_and, skip};
use lab::{Lab, Process, wait_until};
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;

/// Two ends, each with lines of its own beside the usual ones.
pub struct Client {
    pub lab: Lab,
    files: TempDir,
    interfaces: [String; 2],
    processes: [Option<Process>; 2],
}

impl Client {
    /// Two sites; without root or OpenVPN, says that the test is skipped.
    pub fn sites(server: Program) -> Option<Self> {
        if server == Program::Stock && !lab::has_program("/usr/sbin/openvpn") {
            skip("needs openvpn");
            return None;
        }
        let lab = sites_and(&["c"])?;
        let files = tempfile::tempdir().expect("a directory");
        write_keys(&files);
        let interfaces = [lab.interface("oc"), lab.interface("os")];
        Some(Self { lab, files, interfaces, processes: [None; 2] })
    }

    /// Starts an end with these lines.
    pub fn start(&mut self, program: Program, end: usize, lines: &str) {
        // A time of renewal: without one, the first remote is a port at which no server answers.
        let text = configuration(&self.files, end, &self.interfaces[end], Some(3600)) + lines;
        self.processes[end] = Some(start(&mut self.lab, &self.files, program, end, &text));
    }

    /// Writes a file, and returns its path.
    pub fn write(&self, name: &str, text: &str, mode: u32) -> String {
        let path = path(&self.files, name);
        std::fs::write(&path, text).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("ours");
        path.to_string_lossy().into_owned()
    }

    pub fn log(&self, end: usize) -> String {
        std::fs::read_to_string(path(&self.files, &format!("{end}.log"))).unwrap_or_default()
    }

    pub fn logs(&self) -> String {
        format!("client:\n{}\nserver:\n{}", self.log(CLIENT_END), self.log(SERVER_END))
    }

    /// Waits until something is so.
    pub fn wait(&self, what: &str, condition: impl FnMut(&Self) -> bool) {
        let mut condition = condition;
        let done = wait_until(PATIENCE, || condition(self));
        assert!(done.is_ok(), "{what}\n{}", self.logs());
    }

    pub fn wait_for_log(&self, end: usize, text: &str) {
        self.wait(text, |it| it.log(end).contains(text));
    }

    /// Whether an address answers at `a`.
    pub fn reaches(&self, address: &str) -> bool {
        self.lab.run("a", "ping", &["-c", "1", "-W", "1", address]).is_ok()
    }

    pub fn kill(&mut self, end: usize, signal: Signal) {
        if let Some(process) = self.processes[end].take() {
            self.lab.kill(process, signal);
        }
    }

    /// The exit status of the client, once it has ended.
    pub fn status(&mut self) -> Option<i32> {
        let process = self.processes[CLIENT_END]?;
        let mut status = None;
        let _ = wait_until(PATIENCE, || {
            status = self.lab.ended(process);
            status.is_some()
        });
        status.and_then(|it| it.code())
    }
}

/// A client with a password gets a token, renews its keys with it, and ends when it is refused. Nothing secret is in its log.
pub fn passwords() {
    let Some(mut client) = Client::sites(Program::Stock) else { return };
    let check = "#!/bin/sh\n[ \"$username\" = anna ] && [ \"$password\" = s3cret-one ]\n";
    let verify = client.write("verify.sh", check, 0o755);
    let server = format!(
        "auth-user-pass-verify {verify} via-env\nscript-security 3\nauth-gen-token 3600\nreneg-sec 8\n\
         verify-client-cert none\nusername-as-common-name\n"
    );
    client.start(Program::Stock, SERVER_END, &server);
    let file = client.write("login", "anna\ns3cret-one\n", 0o600);
    client.start(Program::Ours, CLIENT_END, &format!("auth-user-pass {file}\n"));
    client.wait("connected", |it| it.reaches("10.9.0.1"));
    client.wait_for_log(SERVER_END, "auth-token authentication succeeded for username 'anna'");
    assert!(client.reaches("10.9.0.1"), "{}", client.logs());
    client.kill(CLIENT_END, Signal::TERM);
    let log = client.log(CLIENT_END);
    assert!(!log.contains("s3cret-one") && !log.contains("SESS_ID"), "{log}");
    let file = client.write("login", "anna\nanother\n", 0o600);
    client.start(Program::Ours, CLIENT_END, &format!("auth-user-pass {file}\n"));
    assert_eq!(client.status(), Some(1), "{}", client.logs());
    let log = client.log(CLIENT_END);
    assert!(log.contains("refused the authentication") && log.contains("fix: see the user name"), "{log}");
    client.start(Program::Ours, CLIENT_END, &format!("auth-user-pass {file}\nauth-retry nointeract\n"));
    let refusals = |it: &Client| it.log(CLIENT_END).matches("has ended: the server refused").count();
    client.wait("tried again", |it| refusals(it) >= 4);
    client.kill(CLIENT_END, Signal::TERM);
}
