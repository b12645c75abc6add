//! The daemon's end of the socket to its helper: a task beside the daemon's loop, which asks one question after the other. A
//! program that restarts slowly keeps the helper waiting, and not the daemon.

use super::request::{Answer, LONGEST, Owner, Verb, Wire};
use config::settings::Machine;
use config::settings::machine::Part;
use std::io;
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};

/// How long the helper may take: it restarts services, each of which may take a minute, and waits for a helper of another
/// connection. One that is given up cannot be asked again.
const PATIENCE: Duration = Duration::from_secs(600);

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
    /// None where there is to be no helper.
    questions: Option<mpsc::UnboundedSender<Question>>,
}

/// What the helper answers, or why it does not.
pub(super) type Answered = Result<Answer, ClientError>;
/// An answer that may take long. A question whose receiver was dropped is not sent, unless it was begun.
pub(super) type Awaited = oneshot::Receiver<Answered>;

struct Question {
    verb: Verb,
    part: Part,
    machine: Arc<Machine>,
    answer: oneshot::Sender<Answered>,
}

/// The conversation with the helper.
struct Talk {
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
    /// Asks by this connection, for the daemon of a configuration file. The task ends with the runtime that this is called in.
    pub fn new(connection: Connection, file: &Path) -> Self {
        if matches!(connection, Connection::Off) {
            return Self { questions: None };
        }
        // The helper refuses what is no path.
        let owner = Owner::of(file).map_or_else(|_| String::new(), |owner| owner.as_str().to_owned());
        let (questions, asked) = mpsc::unbounded_channel();
        tokio::spawn(Talk { connection, stream: None, owner }.go_on(asked));
        Self { questions: Some(questions) }
    }

    /// Asks, once all earlier questions are answered.
    pub(super) fn ask(&self, verb: Verb, part: Part, machine: &Arc<Machine>) -> Awaited {
        let (answer, awaited) = oneshot::channel();
        match &self.questions {
            Some(questions) => {
                // It fails with the task, and then the answer does too.
                let _ = questions.send(Question { verb, part, machine: Arc::clone(machine), answer });
            }
            None => _ = answer.send(Err(ClientError::Off)),
        }
        awaited
    }
}

impl Talk {
    async fn go_on(mut self, mut questions: mpsc::UnboundedReceiver<Question>) {
        while let Some(Question { verb, part, machine, answer }) = questions.recv().await {
            if !answer.is_closed() {
                let _ = answer.send(self.ask(verb, part, &machine).await);
            }
        }
    }

    /// Sends a request, and waits for the answer.
    async fn ask(&mut self, verb: Verb, part: Part, machine: &Machine) -> Answered {
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
