//! What the management interface asks of the loop of the process.

use super::signals::Asked;
use super::{log, process};
use crate::{Failure, Outcome, service_user};
use config::openvpn::settings::{AuthRetry, Management, Process};
use gateway::openvpn::login::LoginSettings;
use gateway::openvpn::management::{Ask, Board, Listener, Signal};
use gateway::openvpn::runner::Runner;
use gateway::openvpn::scripts::environment::printable;
use gateway::openvpn::status::Format;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use zeroize::Zeroizing;

/// How long the end of the process waits for a client that reads slowly.
const TOLD: Duration = Duration::from_secs(1);

/// What the loop does next.
pub(super) enum Next {
    /// Nothing.
    Nothing,
    /// What a signal asks for.
    Signal(Asked),
    /// Leave the hold.
    Release,
}

/// The management interface of a process.
pub(super) struct Managed {
    pub(super) board: Arc<Board>,
    /// Requests; none without the interface.
    asks: Option<mpsc::Receiver<Ask>>,
    /// What a client does when its password is refused.
    retry: AuthRetry,
    /// What the files said at the start.
    settings: Option<Management>,
}

/// The board of a process. Without a management interface it keeps little.
pub(super) fn board(management: Option<&Management>) -> Arc<Board> {
    let lines = management.map_or(1, |management| management.log_lines);
    Arc::new(Board::new(lines, management.is_some_and(|management| management.hold)))
}

/// Binds the socket while the process may.
pub(super) fn bind(management: Option<&Management>, process: &Process) -> Result<Option<Listener>, Failure> {
    let Some(management) = management else { return Ok(None) };
    let allowed = service_user::ids(management.user.as_deref(), management.group.as_deref())?;
    let owner = process::next_user(process)?.map(|user| user.uid());
    Ok(Some(Listener::bind(management, allowed, owner)?))
}

/// The user of a client is asked at the management interface.
pub(super) fn ask_there(board: &Arc<Board>, login: &mut LoginSettings) {
    let board = Arc::clone(board);
    login.prompt = Some(Arc::new(move |question| board.ask_password(question)));
}

/// The process ends: the client is told why, if it reads that.
pub(super) async fn finish(board: &Board, outcome: &Outcome) {
    if let Err(error) = outcome {
        let text = error.to_string();
        let reason = text.lines().next().unwrap_or_default();
        board.tell(Zeroizing::new(format!(">FATAL:{}\n", printable(reason))));
    }
    let _ = tokio::time::timeout(TOLD, board.told()).await;
}

impl Managed {
    /// Serves clients from now on.
    pub(super) fn new(
        board: Arc<Board>,
        listener: Option<Listener>,
        settings: Option<Management>,
        login: &LoginSettings,
    ) -> Result<Self, Failure> {
        let asks = listener.map(|listener| listener.serve(Arc::clone(&board))).transpose()?;
        Ok(Self { board, asks, retry: login.retry, settings })
    }

    /// What an interface tells, and whether it tells about the tunnel; none without a management interface.
    pub(super) fn told(&self) -> Option<(Arc<Board>, bool)> {
        self.settings.as_ref().map(|settings| (Arc::clone(&self.board), settings.up_down))
    }

    /// Tells what another reading of the files does not change: the socket may need rights that the process has given up.
    pub(super) fn compare(&self, now: Option<&Management>) {
        let place = |it: Option<&Management>| it.map(|it| (it.address.clone(), it.connects));
        if place(now) != place(self.settings.as_ref()) {
            tracing::warn!(
                "management: the address has changed\n  fix: stop the process, and start it again"
            );
        }
    }

    /// What follows a wrong password.
    pub(super) fn retry(&self) -> AuthRetry {
        self.retry
    }

    /// The next request; never without a management interface.
    pub(super) async fn next(&mut self) -> Ask {
        if let Some(asks) = &mut self.asks
            && let Some(ask) = asks.recv().await
        {
            return ask;
        }
        std::future::pending().await
    }

    /// Answers a request. `runner`: the interface, unless the process waits for `hold release`. A client that has left has no
    /// receiver of its answer.
    pub(super) async fn answer(&mut self, ask: Ask, runner: Option<&mut Runner>, format: Format) -> Next {
        match (ask, runner) {
            (Ask::Signal(signal), _) => return Next::Signal(asked(signal)),
            (Ask::Release, runner) => {
                if self.board.release()
                    && let Some(runner) = runner
                {
                    runner.leave_hold();
                }
                return Next::Release;
            }
            (Ask::Verb(value, reply), _) => {
                value.into_iter().for_each(log::set_verbosity);
                let _ = reply.send(log::verbosity());
            }
            (Ask::Mute(value, reply), _) => {
                value.into_iter().for_each(log::set_mute);
                let _ = reply.send(log::mute());
            }
            (Ask::AuthRetry(value, reply), runner) => {
                self.retry = value.unwrap_or(self.retry);
                if let Some(runner) = runner {
                    runner.set_auth_retry(self.retry);
                }
                let _ = reply.send(self.retry);
            }
            (ask, Some(runner)) => of_interface(ask, runner, format).await,
            (ask, None) => without_interface(ask),
        }
        Next::Nothing
    }
}

fn asked(signal: Signal) -> Asked {
    match signal {
        Signal::Hangup => Asked::Reread,
        Signal::Terminate => Asked::End("sigterm"),
        Signal::User1 => Asked::Reconnect,
        Signal::User2 => Asked::Status,
    }
}

async fn of_interface(ask: Ask, runner: &mut Runner, format: Format) {
    match ask {
        Ask::Status(wanted, reply) => _ = reply.send(Some(runner.status(wanted.unwrap_or(format)).await)),
        Ask::Sessions(reply) => _ = reply.send(Some((runner.snapshot().await, !runner.is_client()))),
        Ask::Kill(victim, told, reply) => _ = reply.send(runner.kill(victim, &told).await),
        Ask::Decide(key, decision, reply) => _ = reply.send(runner.decide(key, decision).await),
        Ask::Pending(key, text, wait, reply) => _ = reply.send(runner.pending(key, text, wait).await),
        Ask::Respond(text, reply) => _ = reply.send(runner.respond(&text).await),
        Ask::Forget => runner.forget_passwords(),
        Ask::Remote(choice, reply) => _ = reply.send(runner.answer_remote(choice)),
        Ask::Remotes(reply) => _ = reply.send(runner.remotes()),
        Ask::Signal(_) | Ask::Release | Ask::Verb(..) | Ask::Mute(..) | Ask::AuthRetry(..) => {}
    }
}

/// Before the interface is there, while the process waits for `hold release`.
fn without_interface(ask: Ask) {
    match ask {
        Ask::Status(_, reply) => _ = reply.send(None),
        Ask::Sessions(reply) => _ = reply.send(None),
        Ask::Kill(_, _, reply) => _ = reply.send(None),
        Ask::Decide(_, _, reply)
        | Ask::Pending(_, _, _, reply)
        | Ask::Respond(_, reply)
        | Ask::Remote(_, reply) => _ = reply.send(None),
        Ask::Remotes(reply) => _ = reply.send(None),
        Ask::Forget | Ask::Signal(_) | Ask::Release | Ask::Verb(..) | Ask::Mute(..) | Ask::AuthRetry(..) => {}
    }
}
