//! In place of a protocol, in a program that is built without it: what is configured of it is refused by name.

use crate::host::wants::Wants;
use crate::service::{
    Context, LeftOut, Planned, Policy, Refusal, Refused, Requirements, Service, Step, Work,
};
use config::{Path, Settings};
use std::collections::BTreeMap;
use std::future::ready;
use std::marker::PhantomData;

/// What was left out.
pub trait Part: Send + 'static {
    /// Its kind of interfaces, and the cargo feature that has it.
    const NAME: &'static str;

    /// The names of its interfaces.
    fn interfaces(settings: &Settings) -> impl Iterator<Item = &String>;

    /// Removes its settings, as they are dealt with.
    fn remove(settings: &mut Settings);

    /// What stays closed for it: the traffic that it would protect leaves in clear just as little.
    fn wants(_settings: &Settings) -> BTreeMap<String, Wants> {
        BTreeMap::new()
    }
}

/// Serves nothing.
pub struct Without<P>(PhantomData<P>);

impl<P> Default for Without<P> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<P: Part> Without<P> {
    fn refused(settings: &Settings) -> Refused {
        let path = |name: &String| Path::new(["interfaces", P::NAME, name]);
        LeftOut::refuse(P::interfaces(settings).map(path), P::NAME)
    }
}

impl<P: Part> Service for Without<P> {
    fn requirements(&self, _: &Settings) -> Requirements {
        Requirements::default()
    }

    fn wants(&self, settings: &Settings) -> BTreeMap<String, Wants> {
        P::wants(settings)
    }

    fn check(&self, settings: &Settings) -> (Vec<String>, Refused) {
        (Vec::new(), Self::refused(settings))
    }

    fn plan<'a>(&'a mut self, settings: &'a mut Settings, _: &'a Context) -> Work<'a, Planned> {
        let planned = Planned { steps: Vec::new(), refused: Self::refused(settings) };
        P::remove(settings);
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

/// The gateways between Ethernet ports.
#[cfg(any(test, not(feature = "secgw")))]
pub struct Secgw;

#[cfg(any(test, not(feature = "secgw")))]
pub type SecgwService = Without<Secgw>;

#[cfg(any(test, not(feature = "secgw")))]
impl Part for Secgw {
    const NAME: &'static str = "secgw";

    fn interfaces(settings: &Settings) -> impl Iterator<Item = &String> {
        settings.secgw.keys()
    }

    fn remove(settings: &mut Settings) {
        settings.secgw.clear();
    }
}

#[cfg(any(test, not(feature = "openvpn")))]
pub struct OpenVpn;

#[cfg(any(test, not(feature = "openvpn")))]
pub type OpenVpnService = Without<OpenVpn>;

#[cfg(any(test, not(feature = "openvpn")))]
impl Part for OpenVpn {
    const NAME: &'static str = "openvpn";

    fn interfaces(settings: &Settings) -> impl Iterator<Item = &String> {
        settings.openvpn.keys()
    }

    fn remove(settings: &mut Settings) {
        settings.openvpn.clear();
    }

    fn wants(settings: &Settings) -> BTreeMap<String, Wants> {
        crate::openvpn::closed::all(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::parse;

    #[test]
    fn a_protocol_that_is_left_out_is_refused_by_name_and_what_it_protects_stays_closed() {
        let lines = "set pki ca ca certificate AAAA\nset pki certificate it certificate AAAA\n\
                     set pki certificate it private key AAAA\nset interfaces openvpn vtun0 mode client\n\
                     set interfaces openvpn vtun0 remote-host 192.0.2.1\nset interfaces openvpn vtun0 replace-default-route\n\
                     set interfaces openvpn vtun0 tls ca-certificate ca\nset interfaces openvpn vtun0 tls certificate it\n";
        let (settings, _) = Settings::new(&parse(lines).expect("right")).expect("right");
        let service = OpenVpnService::default();
        let (_, refused) = service.check(&settings);
        let said: Vec<String> = refused.values().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "interfaces openvpn vtun0: this program was built without it: use one that was built with the cargo feature `openvpn`"
            ]
        );
        assert!(service.wants(&settings)["vtun0"].closed.iter().any(|(prefix, _)| prefix.prefix_len() == 0));
        assert!(SecgwService::default().check(&settings).1.is_empty());
    }
}
