//! `postern monitor bandwidth`: the rates of the interfaces of this machine.

use super::rates::{Reading, watch};
use crate::Failure;
use crate::answer::Answer;
use crate::host::interfaces::{Kind, found};
use crate::request::Request;

pub(crate) fn follow(request: &Request) -> Result<Answer, Failure> {
    let wanted = request.value("NAME").map(str::to_owned);
    watch("Interface", move || read(wanted.as_deref()))
}

fn read(wanted: Option<&str>) -> Result<Vec<Reading>, Failure> {
    let mut interfaces = found(None)?;
    interfaces.retain(|interface| wanted.is_none_or(|name| name == interface.name));
    if let Some(name) = wanted.filter(|_| interfaces.is_empty()) {
        return Err(format!("there is no interface {name}\n  fix: postern show interfaces").into());
    }
    let reading = |interface: gateway::host::netlink::inventory::Interface| Reading {
        kind: Kind::of(&interface).name(),
        state: if interface.is_up() && interface.has_link() { "up" } else { "down" }.to_owned(),
        bytes: [interface.counters.received.bytes, interface.counters.sent.bytes],
        trouble: None,
        name: interface.name,
    };
    Ok(interfaces.into_iter().map(reading).collect())
}
