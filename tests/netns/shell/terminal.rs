//! The command line at a real terminal.

use crate::support::{PATIENCE, postern};
use crate::transactions::Router;
use lab::wait_until;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

/// A terminal with a program in it.
struct Terminal {
    keyboard: File,
    screen: Arc<Mutex<String>>,
    /// How much of the screen was looked at.
    seen: usize,
    child: Child,
    home: tempfile::TempDir,
}

impl Terminal {
    fn new(router: &Router, words: &[&str], columns: u16) -> Self {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
        grantpt(&keyboard).and_then(|()| unlockpt(&keyboard)).expect("it is ours");
        let name = ptsname(&keyboard, Vec::new()).expect("a name").into_string().expect("text");
        tcsetwinsize(&keyboard, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })
            .expect("a size");
        let open = || File::options().read(true).write(true).open(&name).expect("it is there");
        let home = tempfile::tempdir().expect("a folder");
        // The terminal of a session of its own, as a login has it.
        let child = Command::new("setsid")
            .args(["--ctty", "--wait"])
            .arg(postern())
            .args(words)
            .arg("--api")
            .arg(&router.site.socket)
            .env("HOME", home.path())
            .env("TERM", "xterm")
            .env("XDG_RUNTIME_DIR", home.path())
            .env_remove("SUDO_USER")
            .current_dir(home.path())
            .stdin(open())
            .stdout(open())
            .stderr(open())
            .spawn()
            .expect("setsid is there");
        let screen = Arc::new(Mutex::new(String::new()));
        let mut output = File::from(keyboard.try_clone().expect("a descriptor"));
        let shown = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                shown.lock().expect("whole").push_str(&String::from_utf8_lossy(&bytes[..length]));
            }
        });
        Self { keyboard: keyboard.into(), screen, seen: 0, child, home }
    }

    fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("it reads");
    }

    /// Waits until a text is shown behind what was looked at already; returns all up to it.
    fn shows(&mut self, text: &str) -> String {
        let screen = || self.screen.lock().expect("whole").clone();
        let found = || screen()[self.seen..].find(text);
        wait_until(PATIENCE, || found().is_some())
            .unwrap_or_else(|error| panic!("{text:?}: {error}\n{}", screen()));
        let end = self.seen + found().expect("it is there") + text.len();
        let shown = screen()[self.seen..end].to_owned();
        self.seen = end;
        shown
    }

    /// Types a line, and waits for a text.
    fn line(&mut self, line: &str, text: &str) -> String {
        self.types(&format!("{line}\r"));
        self.shows(text)
    }

    fn ends(&mut self) {
        wait_until(PATIENCE, || self.child.try_wait().is_ok_and(|status| status.is_some()))
            .unwrap_or_else(|error| panic!("{error}\n{}", self.screen.lock().expect("whole")));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn prompts_levels_and_completion_are_those_of_a_router() {
    let Some(router) = Router::new() else { return };
    let mut terminal = Terminal::new(&router, &["shell"], 80);
    terminal.shows(":~$ ");
    terminal.line("configure", "[edit]\r\n");
    terminal.shows("# ");
    // TAB completes what only one word begins with, and lists several.
    terminal.types("ed\tint\twire\twg0\r");
    terminal.shows("[edit interfaces wireguard wg0]\r\n");
    terminal.shows("# ");
    terminal.types("set mtu ?");
    let list = terminal.shows("<68-");
    assert!(list.contains("Possible completions:"), "{list}");
    // The line stays, to be continued.
    terminal.shows("set mtu ");
    terminal.line("1300", "[edit interfaces wireguard wg0]");
    terminal.line("compare", "+mtu 1300");
    terminal.line("set description 'Büro ?'", "[edit interfaces");
    terminal.line("show descr", "\"Büro ?\"");
    terminal.line("set mtu 1", "Value validation failed");
    terminal.line("exit", "[edit]");
    terminal.line("exit", "Cannot exit: configuration modified.");
    terminal.line("commit", "[edit]");
    terminal.line("run show configuration commands | match mtu", "wg0 mtu 1300");
    assert_eq!(router.mtu(), 1300);
    terminal.line("exit", "have not been saved");
    terminal.shows(":~$ ");
    terminal.line("echo it is $((40 + 2))", "it is 42");
    terminal.shows("$ ");
    terminal.types("\u{4}");
    terminal.ends();
}

#[test]
fn control_c_drops_a_line_and_ends_a_program_but_not_the_command_line() {
    let Some(router) = Router::new() else { return };
    let mut terminal = Terminal::new(&router, &["shell"], 80);
    terminal.shows("$ ");
    terminal.types("show configuration commands\u{3}");
    terminal.shows("$ ");
    terminal.line("echo started; sleep 600; echo sur''vived", "started\r\n");
    terminal.types("\u{3}");
    terminal.shows("$ ");
    terminal.line("configure", "[edit]");
    terminal.shows("# ");
    terminal.line("set interfaces wireguard wg0 mtu 1300", "[edit]");
    terminal.shows("# ");
    terminal.types("\u{4}");
    terminal.shows("Cannot exit");
    terminal.line("exit discard", "$ ");
    terminal.line("exit", "exit");
    terminal.ends();
    let shown = terminal.screen.lock().expect("whole").clone();
    assert!(!shown.contains("survived"), "{shown}");
}

#[test]
fn secrets_are_not_kept_and_the_history_is_private() {
    let Some(router) = Router::new() else { return };
    let mut terminal = Terminal::new(&router, &["configure"], 80);
    terminal.shows("# ");
    terminal.line("set vpn ipsec authentication psk a secret OpenSesame", "[edit]");
    terminal.line("edit vpn ipsec authentication psk a", "psk a]");
    terminal.line("set secret OpenBarley", "psk a]");
    terminal.line("show", "secret ********");
    terminal.line("top", "[edit]");
    terminal.line("exit discard", "exit discard");
    terminal.ends();
    let file = terminal.home.path().join(".postern_history");
    let kept = std::fs::read_to_string(&file).expect("it was written");
    assert!(kept.contains("edit vpn ipsec authentication psk a\n") && !kept.contains("Open"), "{kept}");
    assert_eq!(mode(&file), 0o600);
}

#[test]
fn a_signal_that_ends_the_shell_leaves_the_history_and_no_files() {
    let Some(router) = Router::new() else { return };
    // Under nohup, the shell goes on after a hangup, as it should.
    let signals = if ignores_hangups() { &["TERM"][..] } else { &["TERM", "HUP"] };
    for signal in signals {
        let mut terminal = Terminal::new(&router, &["shell"], 80);
        terminal.shows("$ ");
        terminal.line("show version kernel", "$ ");
        // bash is a child of the shell.
        terminal.types(&format!("kill -{signal} $PPID\r"));
        terminal.ends();
        let kept =
            std::fs::read_to_string(terminal.home.path().join(".postern_history")).expect("it was written");
        assert!(kept.contains("show version kernel\n") && kept.contains("$PPID"), "{kept}");
        let left = std::fs::read_dir(terminal.home.path()).expect("it is there").count();
        assert_eq!(left, 1, "only the history");
    }
}

/// Whether this process, and so all that it starts, ignores SIGHUP (proc(5)).
fn ignores_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("it is there");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("the kernel tells it");
    u64::from_str_radix(ignored.trim(), 16).expect("hexadecimal") & 1 != 0
}

fn mode(file: &Path) -> u32 {
    std::fs::metadata(file).expect("it is there").mode() & 0o777
}

#[test]
fn lines_that_are_pasted_and_narrow_windows_work() {
    let Some(router) = Router::new() else { return };
    let mut terminal = Terminal::new(&router, &["configure"], 40);
    terminal.shows("# ");
    terminal.types("set interfaces wireguard wg0 ?");
    terminal.shows("Possible completions:");
    let list = terminal.shows("Description");
    let longest = list.lines().map(|line| line.trim_end().chars().count()).max();
    assert!(longest <= Some(40), "{list}");
    terminal.shows("[edit]");
    terminal.shows("# ");
    terminal.types("\u{3}");
    terminal.shows("[edit]");
    terminal.shows("# ");
    // As terminals mark what is pasted.
    terminal.types(
        "\u{1b}[200~set interfaces wireguard wg0 mtu 1300\nset interfaces wireguard wg0 description office\n\u{1b}[201~\r",
    );
    terminal.shows("[edit]");
    terminal.line("compare | count", "\n3\r\n");
    terminal.line("commit", "[edit]");
    terminal.line("exit discard", "exit discard");
    terminal.ends();
    assert_eq!(router.mtu(), 1300);
}
