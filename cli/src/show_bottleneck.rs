//! `postern show bottleneck`: what limits the speed of each interface.

use crate::answer::{Answer, Form};
use crate::request::Request;
use crate::{Failure, Outcome, monitor};
use gateway::api::model::{Bottleneck, Bottlenecks, Limit};
use std::fmt::Write as _;
use std::io::Write;

pub(crate) fn show(request: &Request) -> Result<Answer, Failure> {
    Ok(Answer::new(read(request)?, |found| text(found)))
}

/// Shows them again and again: each answer takes the daemon a second.
pub(crate) fn follow(request: &Request) -> Answer {
    let request = request.clone();
    Answer::going(move |out, form| again(&request, out, form))
}

fn again(request: &Request, out: &mut dyn Write, form: Form) -> Outcome {
    if form.terminal && !form.json {
        out.write_all(b"\x1b[2J")?;
    }
    loop {
        let found = read(request)?;
        match form {
            Form { json: true, .. } => writeln!(out, "{}", serde_json::to_string(&found)?)?,
            Form { terminal: true, .. } => monitor::overwrite(out, &text(&found))?,
            _ => out.write_all(text(&found).as_bytes())?,
        }
        out.flush()?;
    }
}

fn read(request: &Request) -> Result<Vec<Bottleneck>, Failure> {
    let answers = request.ask::<Bottlenecks>()?;
    let mut found: Vec<Bottleneck> = answers.into_iter().flat_map(|answer| answer.bottlenecks).collect();
    if let Some(name) = request.value("NAME") {
        found.retain(|it| it.interface == name);
        if found.is_empty() {
            return Err(format!("no tunnel has the interface {name}\n  fix: postern show interfaces").into());
        }
    }
    Ok(found)
}

fn text(found: &[Bottleneck]) -> String {
    let mut text = String::new();
    for it in found {
        let _ = writeln!(text, "{} {}: {}", it.interface, it.direction, it.limit);
        let _ = writeln!(text, "  {}", it.sentence);
        if it.limit == Limit::NoTraffic {
            continue;
        }
        for evidence in &it.evidence {
            let _ = writeln!(text, "    {evidence}");
        }
        if let Some(remedy) = &it.remedy {
            let _ = writeln!(text, "  fix: {remedy}");
        }
    }
    if found.is_empty() {
        text.push_str("there is no tunnel\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_stands_first_and_the_fix_last() {
        let found = Bottleneck {
            interface: "wg0".to_owned(),
            direction: "out".to_owned(),
            limit: Limit::Cipher,
            sentence: "The cipher limits wg0.".to_owned(),
            evidence: vec!["thread wg0 out: ran 97% of the time".to_owned()],
            remedy: Some("set interfaces wireguard wg0 threads auto".to_owned()),
            ..Bottleneck::default()
        };
        let quiet = Bottleneck { limit: Limit::NoTraffic, sentence: "None.".to_owned(), ..found.clone() };
        let expected = "wg0 out: cipher\n  The cipher limits wg0.\n    thread wg0 out: ran 97% of the time\n  \
                        fix: set interfaces wireguard wg0 threads auto\n";
        assert_eq!(text(std::slice::from_ref(&found)), expected);
        assert_eq!(text(&[quiet]), "wg0 out: no-traffic\n  None.\n");
        assert_eq!(text(&[]), "there is no tunnel\n");
    }
}
