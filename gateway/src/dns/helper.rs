//! The process that sets name servers: it knows what may be set, makes every byte of files and command lines itself, and puts
//! everything back when the daemon is gone.

use super::resolv_conf::{Folder, NAMED, text};
use super::{Answer, Request};
use crate::child::end_of;
use crate::host::netlink::Netlink;
use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long a program may take: less than the end of the daemon waits for the former name servers.
const LIMIT: Duration = Duration::from_secs(3);
/// The longest request.
const LONGEST: u64 = 64 << 10;
/// Where programs of the system are.
const FOLDERS: [&str; 4] = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"];
/// It is there while systemd-resolved runs.
const RESOLVED: &str = "run/systemd/resolve/io.systemd.Resolve";
/// Where the kernel lists interfaces.
const INTERFACES: &str = "sys/class/net";

/// A machine, or for tests a folder like one.
pub struct Helper {
    root: PathBuf,
    /// Whether an interface is that of a tunnel, whose name servers count before those of others.
    is_tunnel: fn(&str) -> bool,
    /// What was set for each interface, to be taken back.
    set: BTreeMap<String, (Way, Request)>,
    /// What waits until the only file has no others.
    waiting: BTreeMap<String, Request>,
}

/// Who is told about name servers.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Way {
    Resolved(PathBuf),
    Resolvconf(PathBuf),
    File,
}

impl Helper {
    /// Puts back what processes have left that were killed: their interfaces are gone.
    pub fn start(root: PathBuf, is_tunnel: fn(&str) -> bool) -> Self {
        let helper = Self { root, is_tunnel, set: BTreeMap::new(), waiting: BTreeMap::new() };
        let folder = helper.folder();
        for interface in folder.interfaces() {
            if helper.root.join(INTERFACES).join(&interface).exists() {
                continue;
            }
            match folder.put_back(&interface) {
                Ok(true) => tracing::info!("{NAMED} is put back without the name servers of {interface}"),
                Ok(false) => {}
                Err(error) => tracing::warn!("{NAMED}: {error}"),
            }
        }
        helper
    }

    /// Serves a daemon until it ends.
    pub fn serve(mut self, requests: impl io::Read, mut answers: impl Write) -> io::Result<()> {
        let mut requests = io::BufReader::new(requests);
        loop {
            let mut line = Vec::new();
            // A daemon that was killed before it read an answer leaves an error, and no end of the stream.
            let read = io::Read::take(&mut requests, LONGEST).read_until(b'\n', &mut line);
            if read.is_err() || !line.ends_with(b"\n") {
                break;
            }
            let answer = match serde_json::from_slice::<Request>(&line) {
                Ok(request) if request.is_acceptable() => self.set(request),
                _ => Err("the request is malformed".to_owned()),
            };
            let answer = answer.map_or_else(Answer::Failed, Answer::Done);
            let mut line = serde_json::to_vec(&answer)?;
            line.push(b'\n');
            // The daemon may be gone: then the next read says so.
            let _ = answers.write_all(&line);
        }
        for interface in self.set.keys().cloned().collect::<Vec<_>>() {
            self.take_back(&interface);
        }
        Ok(())
    }

    fn folder(&self) -> Folder {
        Folder(self.root.join("etc"))
    }

    pub(super) fn set(&mut self, request: Request) -> Result<String, String> {
        let Some(way) = self.way(&request).filter(|_| !request.is_empty()) else {
            self.waiting.remove(&request.interface);
            self.take_back(&request.interface);
            if request.is_empty() {
                return self.next().unwrap_or_else(|| Ok("as they were before".to_owned()));
            }
            return Err(
                "only systemd-resolved has servers for some domains, with a port, or over TLS".to_owned()
            );
        };
        let is_tunnel = (self.is_tunnel)(&request.interface);
        let is_there = self.root.join(INTERFACES).join(&request.interface).exists();
        if request.interface == "lo" || !is_tunnel && !is_there {
            return Err(format!("{} is no interface with name servers", request.interface));
        }
        // systemd-resolved keeps what a request does not name; the others replace all.
        let is_kept = matches!(way, Way::Resolved(_));
        if self.set.get(&request.interface).is_some_and(|(before, _)| is_kept || *before != way) {
            self.take_back(&request.interface);
        }
        let mut others = self.set.values().filter(|(_, of)| of.interface != request.interface);
        let other =
            others.find(|(before, _)| way == Way::File && *before == way).map(|(_, other)| other.clone());
        if let Some(other) = other.as_ref().filter(|other| is_tunnel && !(self.is_tunnel)(&other.interface)) {
            self.take_back(&other.interface);
            self.waiting.insert(other.interface.clone(), other.clone());
        } else if let Some(other) = other {
            if !is_tunnel {
                let said = format!("{NAMED} has those of {}: these wait", other.interface);
                self.waiting.insert(request.interface.clone(), request);
                return Ok(said);
            }
            return Err(format!(
                "{NAMED} has those of {}: only systemd-resolved and resolvconf keep those of several",
                other.interface
            ));
        }
        // What fails halfway is taken back too.
        self.set.insert(request.interface.clone(), (way.clone(), request.clone()));
        match &way {
            Way::Resolved(program) => resolved(program, &request, is_tunnel)?,
            Way::Resolvconf(program) => {
                let name = format!("{}.postern", request.interface);
                run(program, &["-a", &name], Some(&text(&request)))?;
            }
            Way::File => {
                let folder = self.folder();
                folder.set(&request).map_err(|error| format!("{NAMED}: {error}"))?;
            }
        }
        let servers: Vec<String> = request.servers.iter().map(|server| request.server(*server)).collect();
        let how = match &way {
            Way::Resolved(_) => "systemd-resolved",
            Way::Resolvconf(_) => "resolvconf",
            Way::File => "/etc/resolv.conf",
        };
        let told = format!(
            "{} by {how}",
            if servers.is_empty() { "search domains".to_owned() } else { servers.join(", ") }
        );
        Ok(told)
    }

    /// Sets what has waited for the file, if anything has.
    fn next(&mut self) -> Option<Result<String, String>> {
        if self.set.values().any(|(way, _)| *way == Way::File) {
            return None;
        }
        let (_, request) = self.waiting.pop_first()?;
        Some(self.set(request))
    }

    /// How a request is carried out; `None` if nothing here can do it.
    fn way(&self, request: &Request) -> Option<Way> {
        if let Some(program) = self.program("resolvectl").filter(|_| self.root.join(RESOLVED).exists()) {
            return Some(Way::Resolved(program));
        }
        let is_plain = request.domains.is_empty()
            && !request.over_tls
            && request.servers.iter().all(|(_, port)| port.is_none_or(|port| port == 53));
        is_plain.then(|| self.program("resolvconf").map_or(Way::File, Way::Resolvconf))
    }

    fn program(&self, name: &str) -> Option<PathBuf> {
        let at = |folder: &&str| self.root.join(folder.trim_start_matches('/')).join(name);
        FOLDERS.iter().map(at).find(|path| path.exists())
    }

    fn take_back(&mut self, interface: &str) {
        let Some((way, request)) = self.set.remove(interface) else { return };
        let done = match way {
            // It forgets an interface that is gone.
            Way::Resolved(program) => {
                let _ = run(&program, &["revert", &request.interface], None);
                Ok(())
            }
            Way::Resolvconf(program) => {
                run(&program, &["-d", &format!("{}.postern", request.interface)], None)
            }
            Way::File => {
                self.folder().put_back(&request.interface).map(|_| ()).map_err(|error| error.to_string())
            }
        };
        if let Err(error) = done {
            tracing::warn!("name servers are not put back: {error}");
        }
    }
}

/// Whether the kernel has such an interface, of the kind that is made for tunnels.
pub fn is_tunnel(interface: &str) -> bool {
    let kind = Netlink::open().ok().and_then(|mut netlink| netlink.link_kind(interface).ok()?);
    kind.as_deref() == Some("tun")
}

/// Tells systemd-resolved, resolvectl(1). Each domain of an interface also leads the names in it to the servers of that interface. So
/// one that is no tunnel gets none: its servers answer what no tunnel is for.
fn resolved(program: &Path, request: &Request, is_tunnel: bool) -> Result<(), String> {
    let interface = request.interface.as_str();
    let servers: Vec<String> = request.servers.iter().map(|server| request.server(*server)).collect();
    if !servers.is_empty() {
        run(program, &of("dns", interface, &servers), None)?;
    }
    if is_tunnel {
        let mut domains = request.search.clone();
        domains.extend(request.domains.iter().map(|domain| format!("~{domain}")));
        if request.domains.is_empty() && !servers.is_empty() {
            // All names: otherwise other links would be asked too.
            domains.push("~.".to_owned());
        }
        run(program, &of("domain", interface, &domains), None)?;
    } else {
        run(program, &["default-route", interface, "yes"], None)?;
    }
    if request.over_tls {
        run(program, &["dnsovertls", interface, "yes"], None)?;
    }
    if let Some(mode) = &request.dnssec {
        run(program, &["dnssec", interface, mode], None)?;
    }
    Ok(())
}

fn of<'a>(verb: &'a str, interface: &'a str, values: &'a [String]) -> Vec<&'a str> {
    [verb, interface].into_iter().chain(values.iter().map(String::as_str)).collect()
}

/// Runs a program with a text as its input, for no longer than [`LIMIT`].
fn run(program: &Path, arguments: &[&str], input: Option<&str>) -> Result<(), String> {
    let failed = |error: io::Error| format!("{}: {error}", program.display());
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("PATH", FOLDERS.join(":"));
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().map_err(failed)?;
    if let (Some(input), Some(mut pipe)) = (input, child.stdin.take()) {
        // It fits a pipe, so a program that reads nothing does not hold it up.
        pipe.write_all(input.as_bytes()).map_err(failed)?;
    }
    let ended = match end_of(&mut child, LIMIT).map_err(failed)? {
        Some(status) if status.success() => return Ok(()),
        Some(status) => status.to_string(),
        None => format!("it did not end within {} seconds", LIMIT.as_secs()),
    };
    Err(format!("{} {}: {ended}", program.display(), arguments.join(" ")))
}
