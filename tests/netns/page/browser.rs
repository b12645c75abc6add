//! The page in a real Chromium: it is followed, a tunnel dies, the daemon is restarted, and nothing is wrong with how it is built.

use super::{PLACE, TOKEN, served};
use crate::support::{PATIENCE, skip, tcp_arrives_whole, unavailable};
use lab::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/netns/page/browser.py");

/// The rules of axe-core, if all that the script needs is here.
fn axe() -> Option<PathBuf> {
    let axe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.peers/axe.min.js");
    let programs = ["/usr/bin/chromium", "/usr/bin/chromedriver", "/usr/lib/python3/dist-packages/selenium"];
    if let Some(missing) = programs.iter().find(|program| !Path::new(program).exists()) {
        skip(&format!("{missing} is missing: make setup"));
        return None;
    }
    if !axe.exists() {
        // make setup fetches it by npm, which it does not install.
        unavailable("axe-core is missing: install npm, then make setup");
        return None;
    }
    Some(axe)
}

/// The script, which tells what it sees and waits for what happens.
struct Browser {
    process: Child,
    said: Lines<BufReader<ChildStdout>>,
    goes_on: ChildStdin,
}

impl Browser {
    /// Waits until it says so.
    fn says(&mut self, what: &str) {
        let line = self.said.next().and_then(Result::ok);
        assert_eq!(line.as_deref(), Some(what), "the script has failed: see above");
    }

    fn go_on(&mut self) {
        self.goes_on.write_all(b"\n").expect("it waits");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The script ends its browser, whatever happens.
        let process = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw).expect("it is a process");
        let _ = kill_process(process, Signal::TERM);
        drop(self.process.wait());
    }
}

#[test]
fn chromium_follows_a_tunnel_that_dies_and_a_daemon_that_is_restarted() {
    let Some(axe) = axe() else { return };
    let Some((mut router, other)) = served(&[]) else { return };
    let mut command = router.lab.command("a", "/usr/bin/python3");
    command.arg(SCRIPT).args([PLACE, TOKEN]).arg(axe).args(std::env::var_os("PICTURES"));
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("Python runs");
    let (said, goes_on) = (process.stdout.take().expect("piped"), process.stdin.take().expect("piped"));
    let mut browser = Browser { process, said: BufReader::new(said).lines(), goes_on };

    browser.says("LIVE");
    browser.go_on();
    // Traffic until it has seen the rate, the graph and the views of a tunnel that is up.
    let lab = &router.lab;
    std::thread::scope(|scope| {
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            while is_done.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                tcp_arrives_whole(lab, "a", "b", "10.66.0.2", 2 << 20).expect("the tunnel carries");
            }
        });
        // The traffic ends also if this panics.
        let _done = done;
        browser.says("WATCHES");
    });
    let died = other.process.expect("it was started");
    other.signal(Signal::KILL);
    wait_until(PATIENCE, || router.lab.ended(died).is_some()).expect("it ends");
    browser.go_on();
    let lab = &router.lab;
    std::thread::scope(|scope| {
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            // Without traffic nobody misses it.
            while is_done.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                drop(lab.run("a", "ping", &["-c", "1", "-W", "1", "10.66.0.2"]));
            }
        });
        let _done = done;
        browser.says("STOP");
    });
    router.site.signal(Signal::TERM);
    router.ended();
    browser.go_on();
    browser.says("START");
    router.start();
    browser.go_on();
    browser.says("DONE");
}
