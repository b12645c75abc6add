//! A line of a client of the management interface, as a command.

use super::{ClientKey, Signal};
use crate::openvpn::control_thread::Victim;
use crate::openvpn::status::Format;
use config::openvpn::settings::AuthRetry;
use zeroize::Zeroizing;

/// The longest line that is read.
pub const LONGEST: usize = 4096;
/// The most words of a line: no command has more.
const WORDS: usize = 8;

/// What a command shows and follows of a history: `state`, `log`, `echo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Whether new entries are told from now on.
    pub follow: Option<bool>,
    /// How many entries are shown, if any.
    pub count: Option<usize>,
}

/// An answer to the question about the next server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteChoice {
    /// It is used.
    Accept,
    /// So many servers are left out.
    Skip(u32),
    /// This one is used in its place.
    Other(String, u16),
}

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of commands")]
pub enum Command {
    Nothing,
    Help,
    /// With or without a version of the client.
    Version(bool),
    Pid,
    Status(Option<Format>),
    State(Shown),
    Log(Shown),
    Echo(Shown),
    /// Seconds.
    ByteCount(u32),
    /// `kill`, and `client-kill` with what the client is told.
    Kill(Victim, Option<String>),
    /// Lines of the client's settings follow, up to `END`.
    ClientAuth(ClientKey),
    /// `client-auth-nt`
    ClientAuthAlone(ClientKey),
    /// With the reasons for the log and for the client.
    ClientDeny(ClientKey, String, Option<String>),
    /// With a text for the client and seconds.
    ClientPending(ClientKey, String, u32),
    /// `cr-response`
    Respond(String),
    Hold,
    SetHold(bool),
    Release,
    Signal(Signal),
    LoadStats,
    Verb(Option<u8>),
    Mute(Option<u32>),
    AuthRetry(Option<AuthRetry>),
    Forget,
    /// The type of the question, and the user name.
    User(String, String),
    /// The same with the password.
    Password(String, Zeroizing<String>),
    Remote(RemoteChoice),
    RemoteCount,
    /// The first one, and the one after the last.
    RemoteEntries(usize, usize),
    /// Lines.
    Test(u32),
    /// The level.
    EnvironmentFilter(u32),
    Exit,
}

type Word = Zeroizing<String>;

/// The words behind the name of a command.
struct Arguments<'a> {
    name: &'a str,
    words: &'a [Word],
}

impl Arguments<'_> {
    fn get(&self, index: usize) -> Option<&str> {
        self.words.get(index).map(|word| word.as_str())
    }

    /// That there are so many.
    fn need(&self, count: usize) -> Result<(), String> {
        let plural = if count == 1 { "" } else { "s" };
        let text = format!("the '{}' command requires {count} parameter{plural}", self.name);
        if self.words.len() < count { Err(text) } else { Ok(()) }
    }

    /// A text, or nothing if it is not there.
    fn text(&self, index: usize) -> String {
        self.get(index).unwrap_or_default().to_owned()
    }

    /// A number; others count as 0, as in OpenVPN.
    fn number(&self, index: usize) -> u32 {
        self.get(index).and_then(|word| word.parse().ok()).unwrap_or(0)
    }

    /// CID and KID.
    fn client(&self) -> Result<ClientKey, String> {
        let client = self.get(0).and_then(|word| word.parse().ok()).ok_or("cannot parse CID")?;
        let key = self.get(1).and_then(|word| word.parse().ok()).ok_or("cannot parse KID")?;
        Ok(ClientKey { client, key })
    }

    fn shown(&self) -> Result<Shown, String> {
        if self.words.is_empty() {
            return Err(format!("the '{}' command requires at least 1 parameter", self.name));
        }
        let mut shown = Shown { follow: None, count: None };
        for (index, word) in self.words.iter().take(2).enumerate() {
            match word.as_str() {
                "on" if index == 0 => shown.follow = Some(true),
                "off" if index == 0 => shown.follow = Some(false),
                "all" => shown.count = Some(usize::MAX),
                number => {
                    let name = self.name;
                    let wrong =
                        || format!("{name} parameter must be 'on' or 'off' or some number n or 'all'");
                    shown.count = Some(number.parse().map_err(|_| wrong())?);
                }
            }
        }
        Ok(shown)
    }
}

/// Reads a line. The error is the answer of OpenVPN, without `ERROR:`.
pub fn parse(line: &str) -> Result<Command, String> {
    let words = words(line)?;
    let Some((name, words)) = words.split_first() else { return Ok(Command::Nothing) };
    let given = Arguments { name, words };
    Ok(match name.as_str() {
        "help" => Command::Help,
        "version" => Command::Version(!words.is_empty()),
        "pid" => Command::Pid,
        "status" => Command::Status(given.get(0).map(format).transpose()?),
        // Alone it shows the last one.
        "state" if words.is_empty() => Command::State(Shown { follow: None, count: Some(1) }),
        "state" => Command::State(given.shown()?),
        "log" => Command::Log(given.shown()?),
        "echo" => Command::Echo(given.shown()?),
        "load-stats" => Command::LoadStats,
        "forget-passwords" => Command::Forget,
        "remote-entry-count" => Command::RemoteCount,
        "verb" => Command::Verb(given.get(0).map(verbosity).transpose()?),
        "mute" => Command::Mute(given.get(0).map(limit).transpose()?),
        "auth-retry" => Command::AuthRetry(given.get(0).map(auth_retry).transpose()?),
        "hold" => match given.get(0) {
            None => Command::Hold,
            Some("on") => Command::SetHold(true),
            Some("off") => Command::SetHold(false),
            Some("release") => Command::Release,
            Some(_) => return Err("bad hold command parameter".to_owned()),
        },
        "exit" | "quit" => Command::Exit,
        _ => return with_arguments(&given),
    })
}

/// Commands that need arguments.
fn with_arguments(given: &Arguments<'_>) -> Result<Command, String> {
    let needed = match given.name {
        "bytecount" | "kill" | "client-kill" | "cr-response" | "signal" | "remote" | "remote-entry-get"
        | "test" => 1,
        "client-auth" | "client-auth-nt" | "username" | "password" | "needok" | "needstr" => 2,
        "client-deny" => 3,
        "client-pending-auth" => 4,
        _ => 0,
    };
    given.need(needed)?;
    Ok(match given.name {
        "bytecount" => Command::ByteCount(given.number(0)),
        "kill" => Command::Kill(victim(&given.text(0)), None),
        "client-kill" => {
            let client = given.get(0).and_then(|word| word.parse().ok()).ok_or("cannot parse CID")?;
            Command::Kill(Victim::Client(client), Some(given.get(1).unwrap_or("RESTART").to_owned()))
        }
        "client-auth" => Command::ClientAuth(given.client()?),
        "client-auth-nt" => Command::ClientAuthAlone(given.client()?),
        "client-deny" => Command::ClientDeny(given.client()?, given.text(2), given.get(3).map(str::to_owned)),
        "client-pending-auth" => Command::ClientPending(given.client()?, given.text(2), given.number(3)),
        "cr-response" => Command::Respond(given.text(0)),
        "signal" => Command::Signal(signal(&given.text(0))?),
        "username" => Command::User(given.text(0), given.text(1)),
        "password" => Command::Password(given.text(0), given.words[1].clone()),
        "remote" => Command::Remote(remote(given)?),
        "remote-entry-get" => entries(given)?,
        "test" => Command::Test(given.number(0)),
        "env-filter" => Command::EnvironmentFilter(given.number(0)),
        other => return Err(refused(other).to_owned()),
    })
}

/// Why a command of OpenVPN is refused here.
fn refused(name: &str) -> &'static str {
    match name {
        "needok" => "no needok-confirmation is currently needed at this time",
        "needstr" => "no needstr-string is currently needed at this time",
        "net" => "The 'net' command is not supported by the current daemon mode",
        "proxy" => "The 'proxy' command is not supported: connections by a proxy are not served",
        "pkcs11-id-count" | "pkcs11-id-get" => "PKCS#11 tokens are not served: the private key is in a file",
        "rsa-sig" | "pk-sig" => "The command is not available: the private key is in a file",
        "certificate" => "The certificate command is not currently available",
        "client-pf" => "packet filters of clients are not served: OpenVPN 2.6 has none",
        _ => "unknown command, enter 'help' for more options",
    }
}

fn format(word: &str) -> Result<Format, String> {
    let format = word.parse().ok().and_then(Format::numbered);
    format.ok_or_else(|| "bad status format version number".to_owned())
}

fn verbosity(word: &str) -> Result<u8, String> {
    let verbosity = word.parse().ok().filter(|verbosity| *verbosity <= 15);
    verbosity.ok_or_else(|| "verb level is out of range".to_owned())
}

fn limit(word: &str) -> Result<u32, String> {
    word.parse().map_err(|_| "mute level is out of range".to_owned())
}

fn auth_retry(word: &str) -> Result<AuthRetry, String> {
    match word {
        "none" => Ok(AuthRetry::None),
        "nointeract" => Ok(AuthRetry::NoInteract),
        "interact" => Ok(AuthRetry::Interact),
        _ => Err("bad auth-retry parameter".to_owned()),
    }
}

fn signal(name: &str) -> Result<Signal, String> {
    match name {
        "SIGHUP" => Ok(Signal::Hangup),
        "SIGTERM" => Ok(Signal::Terminate),
        "SIGUSR1" => Ok(Signal::User1),
        "SIGUSR2" => Ok(Signal::User2),
        _ => Err(format!("signal '{name}' is not a known signal type")),
    }
}

/// A name, or an address as the status shows it.
fn victim(word: &str) -> Victim {
    let (is_tcp, address) = match word.split_once(':') {
        Some(("udp" | "udp4" | "udp6", address)) => (Some(false), address),
        Some(("tcp" | "tcp-server" | "tcp4-server" | "tcp6-server", address)) => (Some(true), address),
        _ => (None, word),
    };
    match address.parse() {
        Ok(socket) => Victim::Address { socket, is_tcp },
        Err(_) => Victim::Name(word.to_owned()),
    }
}

fn remote(given: &Arguments<'_>) -> Result<RemoteChoice, String> {
    match given.get(0) {
        Some("ACCEPT") => Ok(RemoteChoice::Accept),
        Some("SKIP") => match given.get(1).map_or(Ok(1), str::parse) {
            Ok(count) if count > 0 => Ok(RemoteChoice::Skip(count)),
            _ => Err("remote SKIP requires a number above 0".to_owned()),
        },
        Some("MOD") => {
            let port = given.get(2).and_then(|port| port.parse().ok()).filter(|port| *port != 0);
            let host = given.get(1).filter(|host| !host.is_empty());
            let both = host.zip(port).ok_or("remote MOD requires a host and a port")?;
            Ok(RemoteChoice::Other(both.0.to_owned(), both.1))
        }
        _ => Err("remote parameter must be ACCEPT, MOD or SKIP".to_owned()),
    }
}

fn entries(given: &Arguments<'_>) -> Result<Command, String> {
    if given.get(0) == Some("all") {
        return Ok(Command::RemoteEntries(0, usize::MAX));
    }
    let wrong = "remote-entry-get parameters must be all, or one or two numbers";
    let first: usize = given.get(0).and_then(|word| word.parse().ok()).ok_or(wrong)?;
    let end = match given.get(1) {
        Some(word) => word.parse().map_err(|_| wrong)?,
        None => first.saturating_add(1),
    };
    Ok(Command::RemoteEntries(first, end))
}

/// The words of a line, with the quotes of OpenVPN's files. One may be a password: no copy of it is left behind.
fn words(line: &str) -> Result<Vec<Word>, String> {
    if line.len() > LONGEST {
        return Err("the line is too long".to_owned());
    }
    let mut words = Vec::new();
    let mut letters = line.trim().chars().peekable();
    while letters.peek().is_some() {
        let mut word = Zeroizing::new(String::with_capacity(line.len()));
        let mut quote = None;
        while let Some(letter) = letters.next() {
            match (letter, quote) {
                ('\\', None | Some('"')) => {
                    word.push(letters.next().ok_or("the line ends with a backslash")?);
                }
                ('"' | '\'', None) => quote = Some(letter),
                (letter, Some(own)) if letter == own => quote = None,
                (letter, None) if letter.is_whitespace() => break,
                (letter, _) => word.push(letter),
            }
        }
        if let Some(quote) = quote {
            return Err(format!("Options error: No closing quotation ({quote})"));
        }
        while letters.next_if(|letter| letter.is_whitespace()).is_some() {}
        words.push(word);
        if words.len() > WORDS {
            return Err("too many words".to_owned());
        }
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_as_openvpn_reads_them() {
        let all = Shown { follow: Some(true), count: Some(usize::MAX) };
        let key = ClientKey { client: 3, key: 1 };
        let socket = ([192, 0, 2, 1], 40).into();
        for (line, expected) in [
            ("", Command::Nothing),
            ("status", Command::Status(None)),
            ("status 3", Command::Status(Some(Format::Tabs))),
            ("pid 3 unused words", Command::Pid),
            ("state", Command::State(Shown { follow: None, count: Some(1) })),
            ("state on all", Command::State(all)),
            ("  log on all ", Command::Log(all)),
            ("echo 5", Command::Echo(Shown { follow: None, count: Some(5) })),
            ("bytecount x", Command::ByteCount(0)),
            ("kill \"two words\"", Command::Kill(Victim::Name("two words".to_owned()), None)),
            ("kill 192.0.2.1:40", Command::Kill(Victim::Address { socket, is_tcp: None }, None)),
            ("kill udp4:192.0.2.1:40", Command::Kill(Victim::Address { socket, is_tcp: Some(false) }, None)),
            (
                "kill tcp4-server:192.0.2.1:40",
                Command::Kill(Victim::Address { socket, is_tcp: Some(true) }, None),
            ),
            ("kill tcp:anna", Command::Kill(Victim::Name("tcp:anna".to_owned()), None)),
            ("client-kill 3", Command::Kill(Victim::Client(3), Some("RESTART".to_owned()))),
            ("client-auth 3 1", Command::ClientAuth(key)),
            ("client-auth-nt 3 1", Command::ClientAuthAlone(key)),
            ("client-deny 3 1 no", Command::ClientDeny(key, "no".to_owned(), None)),
            (
                "client-deny 3 1 'a b' \"c \\\"d\\\"\"",
                Command::ClientDeny(key, "a b".to_owned(), Some("c \"d\"".to_owned())),
            ),
            ("client-pending-auth 3 1 X 60", Command::ClientPending(key, "X".to_owned(), 60)),
            ("client-auth-nt 3 999", Command::ClientAuthAlone(ClientKey { client: 3, key: 999 })),
            ("cr-response SGk=", Command::Respond("SGk=".to_owned())),
            ("hold release", Command::Release),
            ("signal SIGUSR2", Command::Signal(Signal::User2)),
            ("verb 4", Command::Verb(Some(4))),
            ("mute", Command::Mute(None)),
            ("auth-retry interact", Command::AuthRetry(Some(AuthRetry::Interact))),
            ("username \"Auth\" anna", Command::User("Auth".to_owned(), "anna".to_owned())),
            ("password Auth a\\ b", Command::Password("Auth".to_owned(), Zeroizing::new("a b".to_owned()))),
            ("remote ACCEPT", Command::Remote(RemoteChoice::Accept)),
            ("remote SKIP 2", Command::Remote(RemoteChoice::Skip(2))),
            (
                "remote MOD vpn.example 1194",
                Command::Remote(RemoteChoice::Other("vpn.example".to_owned(), 1194)),
            ),
            ("remote-entry-get all", Command::RemoteEntries(0, usize::MAX)),
            ("remote-entry-get 1 3", Command::RemoteEntries(1, 3)),
            ("test 2", Command::Test(2)),
            ("quit", Command::Exit),
        ] {
            assert_eq!(parse(line), Ok(expected), "{line}");
        }
    }

    #[test]
    fn what_is_not_served_has_a_reason() {
        for (line, reason) in [
            ("status 9", "bad status format version number"),
            ("log", "the 'log' command requires at least 1 parameter"),
            ("log x", "log parameter must be 'on' or 'off' or some number n or 'all'"),
            ("kill", "the 'kill' command requires 1 parameter"),
            ("client-kill x", "cannot parse CID"),
            ("client-auth 1", "the 'client-auth' command requires 2 parameters"),
            ("client-deny 0 x y", "cannot parse KID"),
            ("client-pending-auth 0 0 x", "the 'client-pending-auth' command requires 4 parameters"),
            ("hold foo", "bad hold command parameter"),
            ("verb 16", "verb level is out of range"),
            ("mute -1", "mute level is out of range"),
            ("auth-retry foo", "bad auth-retry parameter"),
            ("signal FOO", "signal 'FOO' is not a known signal type"),
            ("remote SKIP 0", "remote SKIP requires a number above 0"),
            ("remote MOD vpn.example", "remote MOD requires a host and a port"),
            ("remote-entry-get x", "remote-entry-get parameters must be all, or one or two numbers"),
            ("needok a b", "no needok-confirmation is currently needed at this time"),
            ("needstr a", "the 'needstr' command requires 2 parameters"),
            ("proxy NONE", "The 'proxy' command is not supported: connections by a proxy are not served"),
            ("pkcs11-id-count", "PKCS#11 tokens are not served: the private key is in a file"),
            ("net", "The 'net' command is not supported by the current daemon mode"),
            ("nosuch", "unknown command, enter 'help' for more options"),
            ("kill \"open", "Options error: No closing quotation (\")"),
            ("kill x\\", "the line ends with a backslash"),
        ] {
            assert_eq!(parse(line), Err(reason.to_owned()), "{line}");
        }
        assert!(parse(&"a ".repeat(20)).is_err() && parse(&"a".repeat(LONGEST + 1)).is_err());
    }
}
