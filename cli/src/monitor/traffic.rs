//! `postern monitor traffic`: the packets of an interface, by tcpdump.

use super::{Lines, follow_program};
use crate::answer::Answer;
use crate::request::Request;
use std::process::Command;

pub(crate) fn follow(request: &Request) -> Answer {
    let interface = request.value("NAME").unwrap_or_default().to_owned();
    let filter = request.value("FILTER").map(str::to_owned);
    Answer::going(move |out, form| {
        let mut command = Command::new("tcpdump");
        command.args(["-n", "-l", "-i", &interface, "--"]).args(&filter);
        follow_program(command, &mut Lines::new(out, form), |error| {
            format!("tcpdump: {error}\n  fix: apt-get install tcpdump").into()
        })
    })
}
