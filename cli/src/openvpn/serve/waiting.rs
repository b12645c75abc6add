//! What the process waits for without an interface: `hold release`, the password of the private key. Files are read again meanwhile, and
//! when an interface is there.

use super::{Served, login};
use crate::openvpn::asks::Next;
use crate::openvpn::background::Caller;
use crate::openvpn::files::WrongPassword;
use crate::openvpn::signals::Asked;
use crate::openvpn::status_file::StatusFile;
use crate::openvpn::{log, process};
use crate::{Failure, Outcome};
use config::openvpn::settings::{AuthRetry, NULL};
use gateway::openvpn::convert::Plan;
use gateway::openvpn::management::Ask;
use gateway::openvpn::runner::Runner;
use gateway::openvpn::status::Format;
use gateway::rights::Rights;
use sd_notify::NotifyState;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::oneshot;
use zeroize::Zeroizing;

/// How the wait for `hold release` ended.
pub(super) enum Held {
    /// With it.
    Released,
    /// The files were read again.
    Anew(Box<Plan>),
    /// The process ends.
    Over,
}

/// How a wait ended.
enum Waited<T> {
    /// What was awaited is there.
    Found(T),
    /// `hold release`.
    Released,
    /// The files were read again.
    Anew(Box<Plan>),
    /// The process ends.
    Over,
}

impl Served {
    /// Waits for `hold release`, or for a signal that ends the hold.
    pub(super) async fn hold(&mut self, remap: Option<&str>, caller: &mut Caller) -> Result<Held, Failure> {
        tracing::info!("waits for hold release at the management interface");
        self.leave(caller)?;
        self.managed.board.wait(0);
        let held = match self.wait(remap, std::future::pending::<Infallible>()).await {
            Waited::Found(never) => match never {},
            Waited::Released => Held::Released,
            Waited::Anew(plan) => Held::Anew(plan),
            Waited::Over => Held::Over,
        };
        self.managed.board.release();
        Ok(held)
    }

    /// Asks for the password of the private key at the management interface until it is right; what is served with it, or nothing if the process
    /// ends.
    ///
    /// # Errors
    /// The password is wrong, and `auth-retry` is `none`, as in OpenVPN. Or the files were changed, and are refused.
    pub(super) async fn unlock(
        &mut self,
        remap: Option<&str>,
        caller: &mut Caller,
    ) -> Result<Option<Box<Plan>>, Failure> {
        tracing::info!("waits for the password of the private key at the management interface");
        self.leave(caller)?;
        loop {
            let mut answer = self.ask_key_password();
            let password = loop {
                match self.wait(remap, &mut answer).await {
                    Waited::Found(password) => break password??,
                    Waited::Released => {}
                    Waited::Anew(plan) if plan.is_key_locked => {}
                    Waited::Anew(plan) => return Ok(Some(plan)),
                    Waited::Over => return Ok(None),
                }
            };
            self.directives.set_key_password(&password);
            match self.reread().await {
                Ok(plan) => return Ok(Some(Box::new(plan))),
                Err(error) if error.is::<WrongPassword>() => {
                    self.directives.forget_key_password();
                    let text = ">PASSWORD:Verification Failed: 'Private Key'\n";
                    self.managed.board.tell(Zeroizing::new(text.to_owned()));
                    if self.managed.retry() == AuthRetry::None {
                        let fix = "auth-retry interact asks again";
                        let text = format!("private key password verification failed\n  fix: {fix}");
                        return Err(text.into());
                    }
                    tracing::warn!("the password of the private key is wrong");
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Asks on a thread of its own, which waits as long as nobody answers.
    fn ask_key_password(&self) -> oneshot::Receiver<Result<Zeroizing<String>, String>> {
        let (give, take) = oneshot::channel();
        let board = Arc::clone(&self.managed.board);
        std::thread::spawn(move || {
            Rights::None.keep();
            // The process may be about to end.
            let _ = give.send(board.ask_key_password());
        });
        take
    }

    /// The caller, and systemd, cannot wait for what another program decides.
    fn leave(&mut self, caller: &mut Caller) -> Outcome {
        self.write_pid()?;
        caller.release()?;
        let _ = sd_notify::notify(&[NotifyState::Ready]);
        Ok(())
    }

    /// Waits without an interface.
    async fn wait<T>(&mut self, remap: Option<&str>, found: impl Future<Output = T>) -> Waited<T> {
        let format = self.format();
        let mut found = std::pin::pin!(found);
        loop {
            let asked = tokio::select! {
                found = &mut found => return Waited::Found(found),
                ask = self.managed.next() => match self.take(ask, None, format).await {
                    Next::Release => return Waited::Released,
                    Next::Signal(asked) => asked,
                    Next::Nothing => continue,
                },
                asked = self.signals.next() => asked,
            };
            match asked.remapped(remap) {
                Asked::End(_) => {
                    self.managed.board.state("EXITING", "SIGTERM,,,,,");
                    return Waited::Over;
                }
                Asked::Reread => {
                    if let Some(plan) = self.hung_up().await {
                        return Waited::Anew(plan);
                    }
                }
                Asked::Reconnect => tracing::info!("SIGUSR1: there are no sessions yet"),
                Asked::Status => tracing::info!("SIGUSR2: there is no status yet"),
            }
        }
    }

    /// Answers a request of the management interface.
    pub(super) async fn take(&mut self, ask: Ask, runner: Option<&mut Runner>, format: Format) -> Next {
        if matches!(ask, Ask::Forget) {
            self.directives.forget_key_password();
        }
        self.managed.answer(ask, runner, format).await
    }

    /// SIGHUP: what is served from now on, unless the files are refused.
    pub(super) async fn hung_up(&mut self) -> Option<Box<Plan>> {
        match self.reread().await {
            Ok(plan) => {
                tracing::info!("SIGHUP: the files were read again, and everything starts anew");
                self.managed.board.state("RECONNECTING", "SIGHUP,,,,,");
                Some(Box::new(plan))
            }
            Err(error) => {
                tracing::error!("SIGHUP: the files are refused, and nothing changes: {error}");
                None
            }
        }
    }

    /// Reads the files again. `dev tun` keeps its name.
    async fn reread(&mut self) -> Result<Plan, Failure> {
        let mut plan = self.directives.read_apart().await?;
        let is_kept = plan.name == "tun" || plan.name == NULL && self.name.starts_with(NULL);
        if !is_kept && plan.name != self.name {
            let fix = "stop the process, and start it again";
            return Err(
                format!("dev: the interface is {}, not {}\n  fix: {fix}", self.name, plan.name).into()
            );
        }
        if plan.programs != self.programs {
            let fix = "stop the process, and start it again";
            return Err(format!("the programs or setenv have changed\n  fix: {fix}").into());
        }
        if let Some(login) = login(&mut plan.settings).filter(|login| login.question.is_some()) {
            if login.question != self.login.question {
                let fix = "stop the process, and start it again";
                return Err(
                    format!("auth-user-pass: the user must be asked at the start\n  fix: {fix}").into()
                );
            }
            login.credentials.clone_from(&self.login.credentials);
            login.prompt.clone_from(&self.login.prompt);
        }
        process::report(&plan.remarks);
        self.managed.compare(plan.management.as_ref());
        log::set_mute(plan.log.mute);
        StatusFile::follow(&mut self.status, &plan.log);
        Ok(plan)
    }
}
