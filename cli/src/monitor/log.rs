//! `postern monitor log ipsec|wireguard|openvpn`: what the daemon logs of one part of it, or of one peer, as it comes.

use super::encoded;
use crate::answer::{Answer, Form};
use crate::client::{self, Next, Stream};
use crate::request::Request;
use crate::{Failure, Outcome};
use gateway::api::model::LogLine;
use gateway::log::Subsystem;
use std::io::Write;
use std::path::Path;

/// The option that adds debug events of one peer.
pub(crate) const TRACE: &str = "trace";

/// Follows the log of a subsystem.
pub(crate) fn follow(request: &Request, subsystem: Subsystem) -> Answer {
    let mut question = format!("/v1/local/log?subsystem={}", subsystem.name());
    if let Some(peer) = request.value("PEER") {
        let trace = request.has(TRACE).to_string();
        question.extend(["&peer=", &encoded(peer), "&trace=", &trace]);
    }
    let api = request.api().map(Path::to_owned);
    Answer::going(move |out, form| print(open(api.as_deref(), &question)?, out, form))
}

/// The stream of the only daemon.
fn open(api: Option<&Path>, question: &str) -> Result<Stream, Failure> {
    let mut streams = client::streams(api, question)?;
    match (streams.pop(), streams.is_empty()) {
        (Some(stream), true) => Ok(stream),
        (Some(_), false) => Err("several daemons run here\n  fix: name one with --api SOCKET".into()),
        (None, _) if client::is_any_daemon_here() => {
            Err("the daemon is of another version\n  fix: restart it".into())
        }
        (None, _) => Err(client::no_daemon().into()),
    }
}

fn print(mut stream: Stream, out: &mut dyn Write, form: Form) -> Outcome {
    let mut rest = Vec::new();
    loop {
        let chunk = match stream.next() {
            Next::Chunk(chunk) => chunk,
            Next::Ended => return Err("the daemon has stopped\n  fix: systemctl status postern".into()),
            Next::Interrupted => return Ok(()),
        };
        rest.extend_from_slice(&chunk);
        for line in whole_lines(&mut rest) {
            if form.json {
                writeln!(out, "{line}")?;
            } else {
                writeln!(out, "{}", serde_json::from_str::<LogLine>(&line)?.text)?;
            }
        }
        out.flush()?;
    }
}

/// Takes the lines that have an end, without empty ones.
pub(crate) fn whole_lines(bytes: &mut Vec<u8>) -> Vec<String> {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let whole: Vec<u8> = bytes.drain(..end).collect();
    String::from_utf8_lossy(&whole).lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_when_they_are_whole() {
        let mut bytes = b"\n{\"a\":1}\n\n{\"b\"".to_vec();
        assert_eq!((whole_lines(&mut bytes), bytes), (vec!["{\"a\":1}".to_owned()], b"{\"b\"".to_vec()));
    }
}
