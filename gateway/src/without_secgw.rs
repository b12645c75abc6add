//! In place of the gateways between Ethernet ports, in a program that is built without them: `interfaces secgw` is refused.

use crate::host::wants::Wants;
use crate::service::{
    Context, LeftOut, Planned, Policy, Refusal, Refused, Requirements, Service, Step, Work,
};
use config::{Path, Settings};
use std::collections::BTreeMap;
use std::future::ready;

/// Serves nothing.
#[derive(Default)]
pub struct SecgwService;

/// Refuses each gateway.
fn refused(settings: &Settings) -> Refused {
    LeftOut::refuse(settings.secgw.keys().map(|name| Path::new(["interfaces", "secgw", name])), "secgw")
}

impl Service for SecgwService {
    fn requirements(&self, _: &Settings) -> Requirements {
        Requirements::default()
    }

    fn wants(&self, _: &Settings) -> BTreeMap<String, Wants> {
        BTreeMap::new()
    }

    fn check(&self, settings: &Settings) -> (Vec<String>, Refused) {
        (Vec::new(), refused(settings))
    }

    fn plan<'a>(&'a mut self, settings: &'a mut Settings, _: &'a Context) -> Work<'a, Planned> {
        let planned = Planned { steps: Vec::new(), refused: refused(settings) };
        settings.secgw.clear();
        Box::pin(ready(planned))
    }

    fn carry_out<'a>(&'a mut self, _: &'a Step, _: &'a Context) -> Work<'a, Result<(), Refusal>> {
        Box::pin(ready(Ok(())))
    }

    fn undo<'a>(&'a mut self, _: &'a Step, _: Policy, _: &'a Context) -> Work<'a, Result<(), Refusal>> {
        Box::pin(ready(Ok(())))
    }

    fn finish(&mut self) -> Work<'_, ()> {
        Box::pin(ready(()))
    }

    fn serves(&self) -> bool {
        false
    }

    fn stop(&mut self) {}
}
