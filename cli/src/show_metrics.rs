//! `show metrics`: what `service metrics` serves, in the text of OpenMetrics.

use crate::Failure;
use crate::answer::Answer;
use crate::request::Request;
use ::https::metrics::{Options, text};
use gateway::facts::model::Facts;

pub(crate) fn show(request: &Request) -> Result<Answer, Failure> {
    let options = Options { wireguard_names: true, ..Options::default() };
    let print = move |all: &Vec<Facts>| all.iter().cloned().map(|facts| text(facts, options)).collect();
    Ok(Answer::new(request.ask::<Facts>()?, print))
}
