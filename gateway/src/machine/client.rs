//! The daemon's end of the socket to its helper.

use super::request::{Answer, LONGEST, Owner, Verb, Wire};
use config::settings::Machine;
use config::settings::machine::Part;
use std::io;
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

/// How long the helper may take: it restarts services.
const PATIENCE: Duration = Duration::from_secs(150);

/// Where a helper is reached.
#[derive(Debug)]
pub enum Connection {
    /// By this socket, of a process that was started with the daemon.
    Inherited(StdStream),
    /// At this path, where systemd starts one for each connection.
    Listens(PathBuf),
    /// Nowhere: it is not wanted.
    Off,
}

/// What to do about a helper that is not there.
const FIX: &str = "start the daemon as root, or: systemctl enable --now postern-machine.socket";

/// Asks the helper.
pub struct Client {
    connection: Connection,
    stream: Option<BufReader<UnixStream>>,
    /// The configuration file of the daemon.
    owner: String,
}

/// Why the helper did not answer, with what to do.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("settings of the machine are switched off\n  fix: start the daemon without --no-machine")]
    Off,
    #[error("nothing here may change settings of the machine: {}: {error}\n  fix: {FIX}", path.display())]
    Absent { path: PathBuf, error: io::Error },
    #[error(
        "the process that changes settings of the machine has ended: {0}\n  fix: systemctl restart postern"
    )]
    Ended(io::Error),
}

impl Client {
    /// Asks by this connection, for the daemon of a configuration file.
    pub fn new(connection: Connection, file: &Path) -> Self {
        // The helper refuses what is no path.
        let owner = Owner::of(file).map_or_else(|_| String::new(), |owner| owner.as_str().to_owned());
        Self { connection, stream: None, owner }
    }

    /// Sends a request, and waits for the answer.
    pub async fn ask(&mut self, verb: Verb, part: Part, machine: &Machine) -> Result<Answer, ClientError> {
        let wire = Wire {
            verb,
            part: part.to_string(),
            lines: machine.lines(part).to_owned(),
            owner: self.owner.clone(),
        };
        let mut line = serde_json::to_vec(&wire).map_err(|error| ClientError::Ended(error.into()))?;
        line.push(b'\n');
        if line.len() > LONGEST {
            let error = format!("{part}: more than {LONGEST} bytes");
            return Ok(Answer { refused: Some(error), ..Answer::default() });
        }
        let stream = self.stream().await?;
        let answered = match tokio::time::timeout(PATIENCE, converse(stream, &line)).await {
            Ok(answered) => answered,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        answered.map_err(|error| {
            // What comes later would be taken for the next answer.
            if let (Some(_), Connection::Inherited(stream)) = (self.stream.take(), &self.connection) {
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
            ClientError::Ended(error)
        })
    }

    async fn stream(&mut self) -> Result<&mut BufReader<UnixStream>, ClientError> {
        if self.stream.is_none() {
            let stream = match &self.connection {
                Connection::Off => return Err(ClientError::Off),
                Connection::Inherited(stream) => stream.try_clone().and_then(UnixStream::from_std),
                Connection::Listens(path) => {
                    let found = UnixStream::connect(path).await;
                    let absent = |error| ClientError::Absent { path: path.clone(), error };
                    Ok(found.map_err(absent)?)
                }
            };
            self.stream = Some(BufReader::new(stream.map_err(ClientError::Ended)?));
        }
        Ok(self.stream.as_mut().expect("made above"))
    }
}

async fn converse(stream: &mut BufReader<UnixStream>, line: &[u8]) -> io::Result<Answer> {
    stream.get_mut().write_all(line).await?;
    let mut answer = Vec::new();
    if stream.read_until(b'\n', &mut answer).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&answer)?)
}
