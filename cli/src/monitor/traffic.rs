//! `postern monitor traffic`: the packets of an interface. Those of a tunnel come from the daemon, which knows their peers and why it
//! drops some; those of another interface, and those that a filter selects, from tcpdump.
//!
//! ```text
//! daemon ── pcapng ──> blocks ──> file, pipe, lines of text or of JSON
//! ```

mod blocks;
mod lines;

use super::{Lines, encoded, follow_program};
use crate::answer::{Answer, Form};
use crate::client::{Next, Stream};
use crate::request::Request;
use crate::{Failure, Outcome, client};
use blocks::{Blocks, Item};
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};

/// The options of the command.
pub(crate) const WRITE: &str = "write";
pub(crate) const COUNT: &str = "count";
pub(crate) const SNAPLEN: &str = "snaplen";
pub(crate) const ONLY: &str = "only";

/// What was asked for.
struct Asked {
    interface: String,
    peer: Option<String>,
    drops: bool,
    only_drops: bool,
    filter: Option<String>,
    write: Option<String>,
    count: Option<u64>,
    snaplen: Option<u64>,
}

/// Shows the packets that are carried.
pub(crate) fn follow(request: &Request) -> Result<Answer, Failure> {
    shown(request, false)
}

/// Shows those that are dropped, too.
pub(crate) fn follow_with_drops(request: &Request) -> Result<Answer, Failure> {
    shown(request, true)
}

fn shown(request: &Request, drops: bool) -> Result<Answer, Failure> {
    let value = |name: &str| request.value(name).map(str::to_owned);
    let number = |name: &'static str| {
        let wrong = |text: &str| format!("--{name} {text}: not a number\n  fix: --{name} 100");
        request.value(name).map(|text| text.parse::<u64>().map_err(|_| wrong(text))).transpose()
    };
    let asked = Asked {
        interface: value("NAME").unwrap_or_default(),
        peer: value("PEER"),
        drops,
        only_drops: request.has(ONLY),
        filter: value("FILTER"),
        write: value(WRITE),
        count: number(COUNT)?,
        snaplen: number(SNAPLEN)?,
    };
    if asked.is_to_standard_output() && std::io::stdout().is_terminal() {
        return Err("pcapng is not for a terminal\n  fix: add | tshark -r -, or --write FILE".into());
    }
    let api = request.api().map(Path::to_owned);
    Ok(Answer::going(move |out, form| asked.follow(api.as_deref(), out, form)))
}

impl Asked {
    fn is_to_standard_output(&self) -> bool {
        self.write.as_deref() == Some("-")
    }

    fn follow(&self, api: Option<&Path>, out: &mut dyn Write, form: Form) -> Outcome {
        if self.filter.is_some() {
            return self.tcpdump(out, form);
        }
        // One daemon at most has the interface.
        match client::streams(api, &self.question()).map(|mut streams| streams.pop()) {
            Ok(Some(stream)) => self.capture(stream, out, form),
            // A tunnel of the kernel, a network card, or no daemon: tcpdump needs none.
            Ok(None) | Err(_) if !self.drops && self.peer.is_none() && !self.is_tunnel(api) => {
                self.tcpdump(out, form)
            }
            Ok(None) => {
                let name = &self.interface;
                Err(format!("no daemon has the tunnel interface {name}\n  fix: postern show interfaces")
                    .into())
            }
            Err(error) => Err(error),
        }
    }

    /// Whether a daemon has the interface, even if it refuses a capture.
    fn is_tunnel(&self, api: Option<&Path>) -> bool {
        let asked = client::ask_each::<gateway::api::model::Workers>(api, "/v1/workers").unwrap_or_default();
        asked.iter().flat_map(|(_, found)| &found.workers).any(|worker| worker.interface == self.interface)
    }

    fn question(&self) -> String {
        let which = match (self.only_drops, self.drops) {
            (true, _) => "dropped",
            (false, true) => "all",
            (false, false) => "carried",
        };
        let mut question = format!("/v1/local/capture/{}?which={which}", encoded(&self.interface));
        if let Some(peer) = &self.peer {
            question.extend(["&peer=", &encoded(peer)]);
        }
        if let Some(snaplen) = self.snaplen {
            question.extend(["&snap_length=", &snaplen.to_string()]);
        }
        question
    }

    fn capture(&self, mut stream: Stream, out: &mut dyn Write, form: Form) -> Outcome {
        let mut file = self.file()?;
        let (mut blocks, mut packets, mut lost) = (Blocks::default(), 0, 0);
        let is_pcapng = self.write.is_some();
        let ended = loop {
            let chunk = match stream.next() {
                Next::Chunk(chunk) => chunk,
                Next::Ended => {
                    break Some(
                        "the daemon ended the capture: the interface is gone, or the daemon has stopped",
                    );
                }
                Next::Interrupted => break None,
            };
            let to: &mut dyn Write = file.as_mut().map_or(&mut *out, |file| file);
            let flow = blocks.add(&chunk, |raw, item| -> Result<ControlFlow<()>, Failure> {
                match &item {
                    Item::Packet(_) => packets += 1,
                    Item::Lost(now) => lost = *now,
                    Item::Other => {}
                }
                match item {
                    _ if is_pcapng => to.write_all(raw)?,
                    Item::Packet(packet) if form.json => writeln!(to, "{}", lines::json(&packet))?,
                    Item::Packet(packet) => writeln!(to, "{}", lines::text(&packet))?,
                    _ => {}
                }
                let is_enough = self.count.is_some_and(|count| packets >= count);
                Ok(if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
            to.flush()?;
            if flow.is_break() {
                break None;
            }
        };
        eprintln!("{}", told(packets, lost));
        ended.map_or(Ok(()), |why| Err(why.into()))
    }

    /// The file to write to, unless that is standard output.
    fn file(&self) -> Result<Option<File>, Failure> {
        let path = self.write.as_deref().filter(|path| *path != "-");
        path.map(|path| create(Path::new(path))).transpose()
    }

    fn tcpdump(&self, out: &mut dyn Write, form: Form) -> Outcome {
        let mut command = Command::new("tcpdump");
        command.args(["-n", "-l", "-i", &self.interface]);
        command.args(self.count.map(|count| format!("-c{count}")));
        command.args(self.snaplen.map(|snaplen| format!("-s{snaplen}")));
        // It would follow links, and keep the mode of a file.
        command.args(self.write.iter().flat_map(|_| ["-w", "-"]));
        command.arg("--").args(&self.filter);
        let missing = |error| Failure::from(format!("tcpdump: {error}\n  fix: apt-get install tcpdump"));
        if self.write.is_none() {
            return follow_program(command, &mut Lines::new(out, form), missing);
        }
        if let Some(file) = self.file()? {
            command.stdout(file);
        }
        let status = command.stdin(Stdio::null()).status().map_err(missing)?;
        if status.success() { Ok(()) } else { Err(format!("tcpdump: {status}").into()) }
    }
}

/// What is told at the end.
fn told(packets: u64, lost: u64) -> String {
    let lost = match lost {
        0 => "none lost".to_owned(),
        lost => {
            format!("{lost} lost, as they came faster than they were read: name a peer, or lower --snaplen")
        }
    };
    format!("{packets} packets captured, {lost}")
}

/// Makes a file that only its owner may read, or empties one of this user: it has what the tunnel protects. Root may write it in a folder of
/// another user, whose links must not lead elsewhere.
fn create(path: &Path) -> Result<File, Failure> {
    disk::private_output(path).map_err(|error| {
        let path = path.display();
        format!("{path}: {error}\n  fix: name a new file in a folder that can be written, or a pipe: --write - | ...").into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_names_what_is_wanted_whatever_the_peer_is_called() {
        let asked = |drops, only_drops, peer: Option<&str>| {
            let (interface, peer) = ("wg0".to_owned(), peer.map(str::to_owned));
            let (filter, write, count, snaplen) = (None, None, None, Some(96));
            Asked { interface, peer, drops, only_drops, filter, write, count, snaplen }.question()
        };
        assert_eq!(asked(false, false, None), "/v1/local/capture/wg0?which=carried&snap_length=96");
        assert_eq!(
            asked(true, false, Some("a b&c/é")),
            "/v1/local/capture/wg0?which=all&peer=a%20b%26c%2F%C3%A9&snap_length=96"
        );
        assert_eq!(asked(true, true, None), "/v1/local/capture/wg0?which=dropped&snap_length=96");
    }

    #[test]
    fn a_file_is_of_this_user_alone_and_is_reached_by_no_link_of_another() {
        use std::fs::{self, Permissions};
        use std::os::unix::fs::{PermissionsExt, chown, symlink};
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let mode = |name: &str| fs::metadata(at(name)).expect("there").permissions().mode() & 0o777;
        create(&at("new")).expect("it is made");
        fs::write(at("old"), "of before").expect("ours");
        fs::set_permissions(at("old"), Permissions::from_mode(0o666)).expect("ours");
        create(&at("old")).expect("it is ours");
        assert_eq!((mode("new"), mode("old")), (0o600, 0o600));
        assert!(fs::read(at("old")).expect("there").is_empty());
        fs::write(at("shadow"), "precious").expect("ours");
        fs::hard_link(at("shadow"), at("hard")).expect("ours");
        symlink(at("shadow"), at("soft")).expect("ours");
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).expect("ours");
        for link in ["hard", "soft"] {
            let error = create(&at(link)).expect_err("another user may have made it").to_string();
            assert!(error.contains("fix: name a new file"), "{error}");
        }
        assert_eq!(fs::read(at("shadow")).expect("there"), b"precious");
        // Only root can give a file away.
        fs::write(at("theirs"), "precious").expect("ours");
        if chown(at("theirs"), Some(65_534), None).is_ok() {
            let error = create(&at("theirs")).expect_err("it is not ours").to_string();
            assert!(error.contains("belongs to another user"), "{error}");
            assert_eq!(fs::read(at("theirs")).expect("there"), b"precious");
        }
    }

    #[test]
    fn losses_are_told_with_what_to_do() {
        assert_eq!(told(3, 0), "3 packets captured, none lost");
        assert!(told(3, 9).starts_with("3 packets captured, 9 lost, as they came faster"));
    }
}
