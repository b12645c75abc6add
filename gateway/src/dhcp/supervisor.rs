//! Starts a client for each interface, and starts it again when it ends. A thread stands by each, as long as it is wanted.
//!
//! ```text
//! order ──> thread ──> udhcpc ──> event ──> line of JSON on its standard output ──> checked ──> Report
//!             ╰── it ended: pause, and again
//! ```

use super::lease::{Lease, VARIABLES};
use super::model::{Client, Event, Orders, Report};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The pause before a client is started again that has ended.
const PAUSE: Duration = Duration::from_secs(3);
/// The same if its lease was refused, as RFC 2131 3.1 has it after a DHCPDECLINE: the server gives the same again.
const PAUSE_AFTER_REFUSAL: Duration = Duration::from_secs(10);
/// How long a client may take to give its address back.
const PATIENCE: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(20);
/// The longest order, and the longest line that a client says.
const LONGEST: u64 = 256 << 10;
const LONGEST_LINE: u64 = 64 << 10;
/// Where the program may be, and what to do if it is not.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
const PROGRAM: &str = "udhcpc";
/// What is wrong where the program is missing, and what to do about it.
pub const MISSING: &str = "udhcpc is not installed\n  fix: apt-get install udhcpc";

/// What udhcpc says, with the options of the server: a line of the callback.
#[derive(serde::Serialize, serde::Deserialize)]
struct Said {
    event: String,
    variables: BTreeMap<String, String>,
}

/// The path of the client, if it is installed.
pub fn program() -> Option<String> {
    let paths = FOLDERS.iter().map(|folder| format!("{folder}/{PROGRAM}"));
    paths.into_iter().find(|path| std::fs::exists(path).unwrap_or(false))
}

/// What udhcpc calls at an event: says what there is in the environment as a line of JSON. A line is written at once.
pub fn say(event: &str, variable: impl Fn(&str) -> Option<String>, to: &mut impl Write) -> io::Result<()> {
    let variables = VARIABLES.iter().filter_map(|name| Some(((*name).to_owned(), variable(name)?)));
    let said = Said { event: event.to_owned(), variables: variables.collect() };
    let mut line = serde_json::to_vec(&said)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// Makes a command that becomes udhcpc with these arguments, and has it call [`say`] at events.
pub type Start = fn(&[String]) -> Command;

/// A client that is wanted.
struct Running {
    client: Client,
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_ended: bool,
    /// What the client has got is refused: it was killed.
    is_refused: bool,
    child: Option<Child>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the client: with [`Signal::TERM`] it gives its address back to the server, with [`Signal::KILL`] it keeps it.
    fn end(&self, signal: Signal) {
        let mut state = self.lock();
        state.is_ended = true;
        state.signal(signal);
        self.changed.notify_all();
    }

    /// Ends the client, which starts again after a pause: it would keep a lease that is refused until that expires.
    fn refuse(&self) {
        let mut state = self.lock();
        state.is_refused = true;
        state.signal(Signal::KILL);
    }
}

impl State {
    fn signal(&self, signal: Signal) {
        if let Some(child) = &self.child {
            let _ = kill_process(Pid::from_child(child), signal);
        }
    }
}

/// Runs clients as the daemon orders, until it ends. What they have got is not given back then: the next daemon takes it over.
/// The error is that of a socket that cannot be written to, or of an order that cannot be read.
pub fn serve(socket: &UnixStream, start_client: Start) -> io::Result<()> {
    let reports = Reports(Arc::new(Mutex::new(socket.try_clone()?)));
    let mut requests = BufReader::new(socket);
    let mut running = Clients { running: BTreeMap::new(), start_client, reports: reports.clone() };
    reports.send(&Report::Started);
    loop {
        let mut line = Vec::new();
        let read = (&mut requests).take(LONGEST).read_until(b'\n', &mut line);
        if read.is_err() || line.is_empty() {
            break;
        }
        let orders: Orders = serde_json::from_slice(&line)?;
        let number = orders.number;
        running.carry_out(orders)?;
        reports.send(&Report::Done(number));
    }
    running.end(|_| true, Signal::KILL);
    Ok(())
}

/// Where reports go; a daemon that has ended is noticed by the next order.
#[derive(Clone)]
struct Reports(Arc<Mutex<UnixStream>>);

impl Reports {
    fn send(&self, report: &Report) {
        let Ok(mut line) = serde_json::to_vec(report) else { return };
        line.push(b'\n');
        let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line);
    }
}

/// The clients that run, by their interfaces.
struct Clients {
    running: BTreeMap<String, Running>,
    start_client: Start,
    reports: Reports,
}

impl Clients {
    fn carry_out(&mut self, Orders { clients, refused, .. }: Orders) -> io::Result<()> {
        let wanted: BTreeMap<String, Client> =
            clients.into_iter().filter(is_acceptable).map(|it| (it.interface.clone(), it)).collect();
        for name in refused {
            if let Some(of) = self.running.get(&name) {
                of.shared.refuse();
            }
        }
        self.end(|client| !wanted.contains_key(&client.interface), Signal::TERM);
        // The address stays in use.
        self.end(|client| wanted.get(&client.interface) != Some(client), Signal::KILL);
        for (name, client) in wanted {
            if let Entry::Vacant(free) = self.running.entry(name) {
                free.insert(start(client, self.start_client, self.reports.clone())?);
            }
        }
        Ok(())
    }

    /// Ends these clients, and waits for it.
    fn end(&mut self, is_meant: impl Fn(&Client) -> bool, signal: Signal) {
        let (ended, kept) =
            std::mem::take(&mut self.running).into_iter().partition(|(_, of)| is_meant(&of.client));
        self.running = kept;
        let ended: BTreeMap<String, Running> = ended;
        for of in ended.values() {
            of.shared.end(signal);
        }
        let started = Instant::now();
        for of in ended.into_values() {
            while !of.thread.is_finished() && started.elapsed() < PATIENCE {
                thread::sleep(POLL);
            }
            of.shared.end(Signal::KILL);
            let _ = of.thread.join();
        }
    }
}

/// Whether an order can be one of the daemon's: its values are arguments of a program.
fn is_acceptable(client: &Client) -> bool {
    let is_name = |byte: u8| byte.is_ascii_graphic() && byte != b'/';
    let interface = &client.interface;
    let texts = [&client.client_id, &client.host_name, &client.vendor_class_id];
    (1..=15).contains(&interface.len())
        && !interface.starts_with('-')
        && interface.bytes().all(is_name)
        && texts.iter().all(|text| text.as_ref().is_none_or(|text| (1..=255).contains(&text.len())))
}

fn start(client: Client, start_client: Start, reports: Reports) -> io::Result<Running> {
    let shared = Arc::new(Shared::default());
    let stand_by = StandBy { client: client.clone(), start_client, reports, shared: Arc::clone(&shared) };
    let thread = thread::Builder::new().name(client.interface.clone()).spawn(move || stand_by.run())?;
    Ok(Running { client, shared, thread })
}

/// Starts a client again and again.
struct StandBy {
    client: Client,
    start_client: Start,
    reports: Reports,
    shared: Arc<Shared>,
}

impl StandBy {
    fn run(self) {
        loop {
            let pause = self.run_once().unwrap_or_else(|error| {
                self.report(Event::Failed(error));
                PAUSE
            });
            let state = self.shared.lock();
            let waited = self.shared.changed.wait_timeout_while(state, pause, |state| !state.is_ended);
            if waited.is_ok_and(|(state, _)| state.is_ended) {
                return;
            }
        }
    }

    /// Runs a client until it ends; the pause before it starts again, or why it does not run.
    fn run_once(&self) -> Result<Duration, String> {
        let Some(program) = program() else { return Err(MISSING.to_owned()) };
        let failed = |error: io::Error| format!("{program}: {error}");
        let output = {
            let mut state = self.shared.lock();
            if state.is_ended {
                return Ok(PAUSE);
            }
            state.is_refused = false;
            let mut command = (self.start_client)(&arguments(&program, &self.client));
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().map_err(failed)?;
            let output = (child.stdout.take(), child.stderr.take());
            state.child = Some(child);
            output
        };
        let (Some(output), Some(errors)) = output else { return Ok(PAUSE) };
        let told = thread::spawn(move || last_line(errors));
        let mut lines = BufReader::new(output);
        let mut line = Vec::new();
        let mut is_bound = false;
        while (&mut lines).take(LONGEST_LINE).read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
            if let Ok(said) = serde_json::from_slice(&line) {
                self.hear(&said, &mut is_bound);
            }
            line.clear();
        }
        let told = told.join().unwrap_or_default();
        let child = self.shared.lock().child.take();
        let status = child.map(|mut child| child.wait()).transpose().map_err(failed)?;
        let state = self.shared.lock();
        if state.is_ended || state.is_refused {
            return Ok(PAUSE_AFTER_REFUSAL);
        }
        drop(state);
        let status = status.map_or_else(String::new, |status| status.to_string());
        Err(format!("the DHCP client has ended ({status}), and is started again: {told}"))
    }

    fn hear(&self, Said { event, variables }: &Said, is_bound: &mut bool) {
        match event.as_str() {
            "bound" | "renew" => {
                *is_bound = true;
                match Lease::new(variables) {
                    Ok(lease) => self.report(Event::Bound(lease)),
                    Err(unusable) => {
                        self.report(Event::Unusable(unusable.to_string()));
                        self.shared.refuse();
                    }
                }
            }
            "deconfig" if *is_bound => self.report(Event::Lost("the lease has ended".to_owned())),
            "leasefail" => self.report(Event::Unanswered),
            "nak" => self.report(Event::Lost("the server takes the address back".to_owned())),
            // The first one comes at the start: an earlier client's address may still be right.
            _ => {}
        }
    }

    fn report(&self, event: Event) {
        // What is not wanted any more is not told.
        if !self.shared.lock().is_ended {
            self.reports.send(&Report::Client(self.client.interface.clone(), event));
        }
    }
}

/// The last of what a client says of itself.
fn last_line(errors: impl Read) -> String {
    let mut last = String::new();
    let mut lines = BufReader::new(errors);
    let mut line = Vec::new();
    while (&mut lines).take(LONGEST_LINE).read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        let text = String::from_utf8_lossy(&line);
        tracing::debug!("{}", text.trim());
        last = text.trim().chars().take(200).collect();
        line.clear();
    }
    last
}

/// The command line of udhcpc.
fn arguments(program: &str, client: &Client) -> Vec<String> {
    // In the foreground, with a pause of 10 s between attempts of 4 packets. It gives the address back when it is ended.
    let fixed = [program, "-f", "-R", "-t", "4", "-T", "3", "-A", "10", "-i", &client.interface];
    let mut all: Vec<String> = fixed.map(str::to_owned).to_vec();
    let mut add = |words: [&str; 2]| all.extend(words.map(str::to_owned));
    if let Some(name) = &client.host_name {
        add(["-x", &format!("hostname:{name}")]);
    }
    if let Some(id) = &client.client_id {
        let hex: String = id.bytes().map(|byte| format!("{byte:02x}")).collect();
        add(["-x", &format!("0x3d:{hex}")]);
    }
    if let Some(class) = &client.vendor_class_id {
        add(["-V", class]);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_words_of_their_own() {
        let client = Client {
            interface: "eth0".to_owned(),
            client_id: Some("a;b".to_owned()),
            host_name: Some("router".to_owned()),
            vendor_class_id: Some("a box $(reboot)".to_owned()),
        };
        let all = arguments("/sbin/udhcpc", &client);
        let end = ["-x", "hostname:router", "-x", "0x3d:613b62", "-V", "a box $(reboot)"];
        assert!(all.ends_with(&end.map(str::to_owned)), "{all:?}");
        assert!(is_acceptable(&client));
        for interface in ["", "-s", "a/b", "0123456789abcdef", "a b"] {
            assert!(
                !is_acceptable(&Client { interface: interface.to_owned(), ..client.clone() }),
                "{interface}"
            );
        }
    }

    #[test]
    fn what_a_server_says_is_one_line_whatever_it_is() {
        let mut line = Vec::new();
        let variable = |name: &str| (name == "domain").then(|| "a\n\"}\u{1b}".to_owned());
        say("bound", variable, &mut line).expect("memory");
        assert_eq!(line.split(|byte| *byte == b'\n').count(), 2, "a line and its end");
        let said: Said = serde_json::from_slice(&line).expect("JSON");
        assert_eq!((said.event.as_str(), said.variables["domain"].as_str()), ("bound", "a\n\"}\u{1b}"));
    }
}
