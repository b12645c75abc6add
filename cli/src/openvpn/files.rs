//! The files and the command line of OpenVPN, read at the start and again at SIGHUP.

use crate::Failure;
use crate::terminal::{Echo, Terminal};
use config::import::{Disk, Files};
use config::openvpn::{Refusal, load};
use config::text::Text;
use gateway::openvpn::convert::{Plan, Sources, WRONG_PASSWORD, convert};
use gateway::rights::Rights;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;
use zeroize::Zeroizing;

/// A command line, without the name of the program, and the password of the private key, once it was asked for.
#[derive(Clone)]
pub(super) struct Directives(Vec<String>, Arc<Mutex<Option<Zeroizing<Vec<u8>>>>>);

/// What was read, and the files that it was read from.
pub(super) struct Read {
    pub(super) plan: Plan,
    pub(super) files: BTreeSet<PathBuf>,
}

/// The files are refused for the password of the private key.
#[derive(Debug)]
pub(super) struct WrongPassword(String);

impl fmt::Display for WrongPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongPassword {}

/// Files of this machine; notes which were read.
struct Noted {
    disk: Disk,
    paths: RefCell<BTreeSet<PathBuf>>,
}

impl Noted {
    fn new() -> Self {
        Self { disk: Disk { root: PathBuf::from("/") }, paths: RefCell::default() }
    }
}

impl Files for Noted {
    fn read(&self, path: &Path) -> io::Result<Text> {
        self.paths.borrow_mut().insert(path.to_owned());
        self.disk.read(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.disk.list(directory)
    }
}

impl Directives {
    pub(super) fn new(directives: Vec<String>) -> Self {
        Self(directives, Arc::default())
    }

    /// Whether the process is to leave its caller.
    pub(super) fn is_daemon(&self) -> Result<bool, Failure> {
        load(&self.0, &Noted::new())
            .map(|loaded| loaded.settings.process.is_daemon)
            .map_err(|found| listed(&found))
    }

    /// What is to be served; else all that is refused.
    pub(super) fn read(&self) -> Result<Read, Failure> {
        let files = Noted::new();
        let key_password = |is_asked_there| self.key_password(is_asked_there);
        let sources = Sources { files: &files, resolve: &resolve, key_password: &key_password };
        let plan = load(&self.0, &files).and_then(|loaded| convert(loaded, &sources));
        let plan = plan.map_err(|refusals| {
            let is_wrong = |refusal: &Refusal| refusal.reason == WRONG_PASSWORD;
            if refusals.iter().any(is_wrong) {
                Failure::from(WrongPassword(listed(&refusals).to_string()))
            } else {
                listed(&refusals)
            }
        })?;
        if plan.forgets_key_password {
            self.forget_key_password();
        }
        Ok(Read { plan, files: files.paths.into_inner() })
    }

    /// The password of the private key, if it was asked for; else it is asked for at the terminal, unless the management interface does that.
    /// The files are read again without it, when the process may have left the terminal.
    fn key_password(&self, is_asked_there: bool) -> Result<Option<Zeroizing<Vec<u8>>>, String> {
        let mut known = self.known();
        if known.is_none() && !is_asked_there {
            let fix = "write askpass FILE, with the password on the first line";
            let answer = Terminal::open("the password of the private key", fix)
                .and_then(|mut terminal| terminal.ask("Password of the private key: ", Echo::Off))
                .map_err(|error| error.to_string())?;
            *known = Some(answer);
        }
        Ok(known.clone())
    }

    /// The management interface was told the password of the private key.
    pub(super) fn set_key_password(&self, password: &str) {
        *self.known() = Some(Zeroizing::new(password.as_bytes().to_vec()));
    }

    /// Erases it: it is asked for when it is needed again.
    pub(super) fn forget_key_password(&self) {
        *self.known() = None;
    }

    fn known(&self) -> MutexGuard<'_, Option<Zeroizing<Vec<u8>>>> {
        self.1.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same in a thread of its own, which keeps the right to read what only root may read, if the process has it.
    pub(super) async fn read_apart(&self) -> Result<Plan, Failure> {
        let (give, take) = oneshot::channel();
        let own = self.clone();
        std::thread::Builder::new().name("configuration".to_owned()).spawn(move || {
            Rights::Files.keep();
            // The receiver is gone only when the process is about to end.
            let _ = give.send(own.read());
        })?;
        let read = take.await.map_err(|_| "the thread that reads the files has ended")?;
        Ok(read?.plan)
    }
}

fn listed(refusals: &[Refusal]) -> Failure {
    let lines: Vec<String> = refusals.iter().map(Refusal::to_string).collect();
    lines.join("\n").into()
}

fn resolve(host: &str) -> io::Result<Vec<IpAddr>> {
    Ok((host, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
}
