//! `service health`: what is different about rules, and who hears of alerts.

use super::outbox::OutboxError;
use super::programs::{ProgramError, program};
use super::wire::{Log, Mail, MailTls, Orders, Receiver, Way, Webhook};
use crate::host::wants::Wants;
use crate::service::{Context, Phase, Planned, Policy, Refusal, Requirements, Service, Step, Work};
use base64ct::{Base64, Encoding};
use config::settings::{Health, Watched, health as settings};
use config::{Path, Settings};
use crypto::SecretBytes;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Keeps rules and receivers what the configuration says.
#[derive(Default)]
pub struct HealthService {
    served: Served,
    /// What is planned, and what was before.
    planned: Option<Intent>,
}

/// What is configured of health, and what rules look at in the rest of the configuration.
#[derive(Clone, Default, PartialEq)]
struct Served {
    health: Option<Arc<Health>>,
    watched: Arc<Watched>,
}

/// What is to be, and what was.
struct Intent {
    wanted: Served,
    before: Served,
    is_begun: bool,
}

/// A program that may not be run.
#[derive(Debug, thiserror::Error)]
#[error("service health alert {name} exec: {error}")]
struct BadProgram {
    name: String,
    error: ProgramError,
}

impl Service for HealthService {
    fn requirements(&self, settings: &Settings) -> Requirements {
        let count = settings.health.as_ref().map_or(0, |health| health.receivers.len());
        Requirements { served: vec![(count, "alert receiver")], ..Requirements::default() }
    }

    fn wants(&self, _: &Settings) -> BTreeMap<String, Wants> {
        BTreeMap::new()
    }

    fn plan<'a>(&'a mut self, settings: &'a mut Settings, context: &'a Context) -> Work<'a, Planned> {
        let health = settings.health.take().map(Arc::new);
        let wanted = Served { health, watched: Arc::new(std::mem::take(&mut settings.watched)) };
        let mut plan = Planned::default();
        if wanted != self.served {
            for error in wanted.health.iter().flat_map(|wanted| bad_programs(wanted, context)) {
                // A program that is missing is run as soon as it exists.
                if error.error.is_temporary() {
                    tracing::warn!("{error}");
                } else {
                    // Nothing of it changes.
                    plan.refused.insert(path(), Refusal::new(error, false));
                }
            }
            if plan.refused.is_empty() {
                let ends = wanted.health.is_none() && self.served.health.is_some();
                let phase = if ends { Phase::Remove } else { Phase::Switch };
                plan.steps.push(Step { path: path(), phase, frees: Vec::new(), needs: Vec::new() });
                self.planned = Some(Intent { wanted, before: self.served.clone(), is_begun: false });
            }
        }
        Box::pin(std::future::ready(plan))
    }

    fn carry_out<'a>(&'a mut self, _: &'a Step, context: &'a Context) -> Work<'a, Result<(), Refusal>> {
        Box::pin(async {
            let Some(planned) = &mut self.planned else { return Ok(()) };
            planned.is_begun = true;
            let wanted = planned.wanted.clone();
            serve(wanted.clone(), context).map_err(|error| Refusal::new(error, false))?;
            self.served = wanted;
            Ok(())
        })
    }

    fn undo<'a>(&'a mut self, _: &'a Step, _: Policy, context: &'a Context) -> Work<'a, Result<(), Refusal>> {
        Box::pin(async {
            let Some(planned) = self.planned.take().filter(|planned| planned.is_begun) else { return Ok(()) };
            self.served.clone_from(&planned.before);
            // This fails only if the process has ended, and nothing starts it again.
            if let Err(error) = serve(planned.before, context) {
                tracing::error!("{error}");
            }
            Ok(())
        })
    }

    fn finish(&mut self) -> Work<'_, ()> {
        self.planned = None;
        Box::pin(std::future::ready(()))
    }

    fn serves(&self) -> bool {
        self.served.health.is_some()
    }

    fn stop(&mut self) {}
}

fn path() -> Path {
    Path::new(["service", "health"])
}

/// The programs that may not be run, or are not there.
fn bad_programs(wanted: &Health, context: &Context) -> Vec<BadProgram> {
    let folders = context.health.folders();
    let bad = wanted.receivers.iter().filter_map(|(name, receiver)| {
        let error = program(receiver.exec.as_deref()?, &folders).err()?;
        Some(BadProgram { name: name.clone(), error })
    });
    bad.collect()
}

fn serve(Served { health, watched }: Served, context: &Context) -> Result<(), OutboxError> {
    let orders = health.as_deref().map(orders).unwrap_or_default();
    context.health.order(health.unwrap_or_default(), orders)?;
    context.health.watch(watched);
    Ok(())
}

fn orders(wanted: &Health) -> Orders {
    let mut receivers = Vec::new();
    for (name, receiver) in &wanted.receivers {
        let exec = receiver.exec.clone().map(Way::Exec);
        let webhook = receiver.webhook.as_ref().map(|webhook| {
            Way::Webhook(Webhook {
                url: text(&webhook.url),
                token: webhook.token.as_ref().map(text),
                authority: webhook.authority.as_ref().map(|one| Base64::encode_string(one)),
            })
        });
        let mail = receiver.mail.as_ref().map(|it| Way::Mail(mail(it)));
        let syslog = receiver.syslog.then_some(Way::Syslog);
        let one = |way| Receiver { name: name.clone(), only_critical: receiver.only_critical, way };
        receivers.extend(exec.into_iter().chain(webhook).chain(mail).chain(syslog).map(one));
    }
    Orders { receivers, log: wanted.log.map(|log| Log { days: log.days, kilobytes: log.kilobytes }) }
}

fn mail(wanted: &settings::Mail) -> Mail {
    Mail {
        to: wanted.to.clone(),
        from: wanted.from.clone(),
        server: wanted.server.clone(),
        port: wanted.port,
        tls: match wanted.tls {
            settings::MailTls::StartTls => MailTls::StartTls,
            settings::MailTls::Implicit => MailTls::Implicit,
            settings::MailTls::Off => MailTls::Off,
        },
        login: wanted.login.as_ref().map(|(user, password)| (user.clone(), text(password))),
        authority: wanted.authority.as_ref().map(|one| Base64::encode_string(one)),
    }
}

fn text(secret: &SecretBytes) -> crate::api::model::SecretText {
    std::str::from_utf8(secret.expose()).expect("the configuration is UTF-8").into()
}
