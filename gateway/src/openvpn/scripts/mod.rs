//! Programs that OpenVPN's files name: run by a process of their own, asked for by the daemon, which may start none.
//!
//! ```text
//! control thread ──> Scripts::run(Request) ──> socket ──> runner: one child a request, killed at its deadline
//!     callback <── Answer: exit status, files <── socket ──┘
//! ```
//! The process is started while the program still has its rights, and is told which programs there are. A request names a
//! [`Hook`], never a program. Values from the network are in the environment, in files, or in arguments as OpenVPN passes them;
//! no shell sees them. A request never blocks another one, unless both have the same line.

pub mod addressing;
pub mod environment;
mod files;
mod handle;
pub mod process;
mod running;
pub(crate) mod served;
#[cfg(test)]
mod tests;
mod wire;

pub use environment::Environment;
pub use handle::Scripts;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// When a program is run: one program each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the directives of OpenVPN have these names")]
pub enum Hook {
    Up,
    Down,
    RouteUp,
    RoutePreDown,
    IpChange,
    DnsUpDown,
    ClientConnect,
    ClientDisconnect,
    ClientResponse,
    LearnAddress,
    TlsVerify,
    TlsCryptV2Verify,
    AuthUserPassVerify,
    /// No program: the file of a client, in the directory that stands for the program. The argument is its name.
    ClientFile,
    /// No program: the revocation list, or the names in its directory. The argument is the second file of the last answer; exit
    /// status 1 stands for no change.
    Revocations,
    /// No program: the file of addresses, which is replaced by the first file of the request.
    Leases,
    /// No program: the file of users and hashes of their passwords, as [`Hook::Revocations`].
    PasswordHashes,
}

/// The exit status of [`Hook::ClientFile`] if the client has a file.
pub const OWN_FILE: i32 = 0;
/// The same if there is the file for clients without one.
pub const DEFAULT_FILE: i32 = 1;
/// The same if there is neither.
pub const NO_FILE: i32 = 2;

impl Hook {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::Up,
        Self::Down,
        Self::RouteUp,
        Self::RoutePreDown,
        Self::IpChange,
        Self::DnsUpDown,
        Self::ClientConnect,
        Self::ClientDisconnect,
        Self::ClientResponse,
        Self::LearnAddress,
        Self::TlsVerify,
        Self::TlsCryptV2Verify,
        Self::AuthUserPassVerify,
        Self::ClientFile,
        Self::Revocations,
        Self::Leases,
        Self::PasswordHashes,
    ];

    /// The directive that names the program; also `script_type` in its environment, with underscores.
    pub fn directive(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::RouteUp => "route-up",
            Self::RoutePreDown => "route-pre-down",
            Self::IpChange => "ipchange",
            Self::DnsUpDown => "dns-updown",
            Self::ClientConnect => "client-connect",
            Self::ClientDisconnect => "client-disconnect",
            Self::ClientResponse => "client-crresponse",
            Self::LearnAddress => "learn-address",
            Self::TlsVerify => "tls-verify",
            Self::TlsCryptV2Verify => "tls-crypt-v2-verify",
            Self::AuthUserPassVerify => "auth-user-pass-verify",
            Self::ClientFile => "client-config-dir",
            Self::Revocations => "crl-verify",
            Self::Leases => "ifconfig-pool-persist",
            Self::PasswordHashes => "auth-user-pass-hashes",
        }
    }

    /// The value of `script_type`.
    pub fn script_type(self) -> String {
        match self {
            // OpenVPN's own name.
            Self::AuthUserPassVerify => "user-pass-verify".to_owned(),
            other => other.directive().to_owned(),
        }
    }

    fn number(self) -> u8 {
        self as u8
    }

    fn of(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// A program with its first arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The program.
    pub path: PathBuf,
    /// Arguments before those of the hook.
    pub arguments: Vec<String>,
    /// The user and the group that it runs as; those of the process that starts it, if none.
    pub owner: Option<(u32, u32)>,
}

/// The programs of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Programs {
    /// By when they are run.
    pub by_hook: BTreeMap<Hook, Program>,
    /// The working directory.
    pub folder: PathBuf,
    /// Where temporary files are made (`tmp-dir`).
    pub temporary: PathBuf,
    /// Where those of `tls-verify` are made (`tls-export-cert`), if elsewhere.
    pub certificates: Option<PathBuf>,
    /// Variables of each environment (`setenv`).
    pub environment: Vec<(String, String)>,
}

/// The deferral of an answer: the program has ended, and another process of its answers later, in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deferral {
    /// It cannot be deferred.
    #[default]
    None,
    /// Exit status 2 defers: this file of the request has `0` or `1` later.
    ByStatus(u8),
    /// `2` in this file of the request defers: it has `0` or `1` later.
    ByFile(u8),
}

/// A temporary file for one run, with mode 0600.
#[derive(Clone, Default)]
pub struct TemporaryFile {
    /// The variable that has its path; none if it is empty.
    pub variable: String,
    /// Whether its path is the last argument.
    pub is_argument: bool,
    /// What is in it at first.
    pub content: zeroize::Zeroizing<Vec<u8>>,
}

// It may have a password.
impl fmt::Debug for TemporaryFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TemporaryFile({}, {}, {} bytes)", self.variable, self.is_argument, self.content.len())
    }
}

/// A run of a program.
#[derive(Clone, Debug)]
pub struct Request {
    /// Which program.
    pub hook: Hook,
    /// Arguments after those of the configuration.
    pub arguments: Vec<String>,
    /// Its environment, to which `script_type` and the values of `setenv` are added.
    pub environment: Environment,
    /// Files. The answer has the contents of each file that is empty at first. A file with contents is removed when the program
    /// ends.
    pub files: Vec<TemporaryFile>,
    /// How it can answer later.
    pub deferral: Deferral,
    /// It is killed after this time, with its process group. Without a line, the time that it waits counts too.
    pub deadline: Duration,
    /// A deferred answer has more time, if the program asks for it: the number of a file whose first line says how many seconds,
    /// and the longest time.
    pub pending: Option<(u8, Duration)>,
    /// Requests with the same line run one after the other; 0 waits for none.
    pub line: u64,
    /// The number of a request that is answered later: this program gets the same files, and may answer it. 0 for none.
    pub answers: u64,
}

impl Request {
    /// A run without arguments and files.
    pub fn new(hook: Hook, environment: Environment, deadline: Duration) -> Self {
        let (arguments, files) = (Vec::new(), Vec::new());
        let (deferral, pending) = (Deferral::None, None);
        Self { hook, arguments, environment, files, deferral, deadline, pending, line: 0, answers: 0 }
    }
}

/// How a run went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The program ended with this exit status.
    Ended(i32),
    /// The program ended, and answers later; another answer follows.
    Deferred,
    /// It did not run, or was killed. The reason is for the log.
    Failed(String),
}

/// What comes back from a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// How it went.
    pub outcome: Outcome,
    /// The contents of the files of the request, in order.
    pub files: Vec<Vec<u8>>,
}

impl Answer {
    fn failed(reason: impl Into<String>) -> Self {
        Self { outcome: Outcome::Failed(reason.into()), files: Vec::new() }
    }

    /// Whether the program ended with exit status 0.
    pub fn is_success(&self) -> bool {
        self.outcome == Outcome::Ended(0)
    }

    /// The seconds that a program asks for, in the first line of a file.
    pub fn seconds(&self, file: usize) -> Option<Duration> {
        let text = self.text(file);
        text.lines().next()?.trim().parse().ok().map(Duration::from_secs)
    }

    /// A file of the request as text.
    pub fn text(&self, file: usize) -> String {
        self.files.get(file).map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
    }
}
