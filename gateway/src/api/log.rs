//! The last lines that the daemon has logged, and those that come.
//!
//! ```text
//! GET /v1/log    GET /v1/log/AFTER    GET /v1/local/log?subsystem=NAME&peer=NAME&trace=true
//! ```
//! The last one is a stream of JSON objects, one a line, until the client goes. With `trace` it also has the debug events of the peer, whatever
//! the level of the log is. They go to this client only, and the trace ends with it.

use super::Shown;
use super::model::Log;
use super::server::{misplaced, problem};
use super::stream;
use crate::log::kept::{self, Wanted};
use crate::log::{Subsystem, Trace};
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

/// Clients that follow at once.
pub(super) const MOST: usize = 8;
/// How many of the lines that are known are sent first.
const FEW: usize = 10;
/// How often new lines are looked for.
const OFTEN: Duration = Duration::from_millis(100);
/// After so many looks without a line an empty one is sent: a client that has gone is noticed.
const QUIET: u32 = 20;
/// How long a client may read nothing.
const STALLED: Duration = Duration::from_secs(60);

pub(super) async fn all() -> Json<Log> {
    later(0)
}

pub(super) async fn after(number: Result<Path<u64>, PathRejection>) -> Result<Json<Log>, Response> {
    let Path(number) = number.map_err(|rejection| misplaced(&rejection))?;
    Ok(later(number))
}

fn later(number: u64) -> Json<Log> {
    Json(Log { lines: kept::after(number, &Wanted::default()).0 })
}

/// What a client follows.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Asked {
    subsystem: Option<String>,
    peer: Option<String>,
    trace: bool,
}

impl Asked {
    /// Which lines it wants, and what is traced for it; or why it cannot have them, and what to ask for.
    fn wanted(self) -> Result<(Wanted, Option<Trace>), (String, String)> {
        let named = |name: String| {
            let names = || Subsystem::ALL.map(Subsystem::name).join(", ");
            Subsystem::named(&name)
                .ok_or_else(|| (format!("{name} is no subsystem"), format!("one of {}", names())))
        };
        let subsystem = self.subsystem.map(named).transpose()?;
        let trace = match (self.trace, subsystem, &self.peer) {
            (false, ..) => None,
            (true, Some(Subsystem::OpenVpn), _) => {
                let why = "OpenVPN logs no debug events by peer: there is nothing to trace";
                return Err((why.to_owned(), "ask without trace".to_owned()));
            }
            (true, Some(subsystem), Some(peer)) => Some(Trace::begin(subsystem, peer)),
            (true, ..) => {
                return Err(("a trace is of one peer".to_owned(), "name subsystem and peer".to_owned()));
            }
        };
        Ok((Wanted { subsystem, peer: self.peer, traced: trace.is_some() }, trace))
    }
}

pub(super) async fn follow(
    State(shown): State<Shown>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Response, Response> {
    let Query(asked) = asked.map_err(|rejection| {
        problem(StatusCode::BAD_REQUEST, rejection.body_text(), "ask for subsystem, peer and trace")
    })?;
    let permit = Arc::clone(&shown.followers).try_acquire_owned().map_err(|_| {
        let why = format!("{MOST} clients follow the log already");
        problem(StatusCode::TOO_MANY_REQUESTS, why, "end one of them")
    })?;
    let (wanted, trace) = asked.wanted().map_err(|(why, fix)| problem(StatusCode::BAD_REQUEST, why, fix))?;
    let (sender, receiver) = mpsc::channel(1);
    let (answer, at_work) = stream::answer("application/jsonl", receiver);
    tokio::spawn(async move {
        send(&sender, &wanted).await;
        drop((permit, trace, at_work));
    });
    Ok(answer)
}

/// Sends lines until the client goes, or does not read.
async fn send(sender: &mpsc::Sender<Bytes>, wanted: &Wanted) {
    let (mut lines, mut last) = kept::after(0, wanted);
    lines.drain(..lines.len().saturating_sub(FEW));
    let mut quiet = QUIET;
    loop {
        if !lines.is_empty() || quiet >= QUIET {
            let json = |line| serde_json::to_string(line).unwrap_or_default() + "\n";
            let text: String = lines.iter().map(json).collect();
            let chunk = if text.is_empty() { Bytes::from_static(b"\n") } else { text.into() };
            if !matches!(timeout(STALLED, sender.send(chunk)).await, Ok(Ok(()))) {
                return;
            }
            quiet = 0;
        }
        tokio::select! {
            () = sender.closed() => return,
            () = sleep(OFTEN) => quiet += 1,
        }
        (lines, last) = kept::after(last, wanted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_of_one_peer_of_a_protocol_that_has_traces() {
        let refused = |subsystem: Option<&str>, peer: Option<&str>| {
            let (subsystem, peer) = (subsystem.map(str::to_owned), peer.map(str::to_owned));
            Asked { subsystem, peer, trace: true }.wanted().map(|_| ()).expect_err("refused").0
        };
        assert_eq!(refused(Some("ipsec"), None), "a trace is of one peer");
        assert_eq!(refused(None, Some("berlin")), "a trace is of one peer");
        assert!(refused(Some("openvpn"), Some("berlin")).contains("nothing to trace"));
        let plain = Asked { subsystem: Some("openvpn".to_owned()), ..Asked::default() };
        assert!(plain.wanted().is_ok_and(|(wanted, trace)| trace.is_none() && !wanted.traced));
    }
}
