//! `postern show crypto`: which engine each cipher uses, and why.

use crate::answer::Answer;
use crate::output::ago;
use crate::request::Request;
use crate::{Failure, client, engines};
use bench::report::table;
use crypto::Cipher;
use crypto::choice::Subject;
use gateway::api::model::{Crypto, CryptoCipher, CryptoEngine, CryptoPlace, EngineState};
use std::fmt::Write;

pub(crate) fn show(request: &Request) -> Result<Answer, Failure> {
    Ok(Answer::new(ask(request)?, text))
}

/// Asks a daemon; without one, measures in this process. A cipher that the daemon has not measured is measured in this process
/// too, and marked. A pair of cipher and MAC is measured only if it is named.
fn ask(request: &Request) -> Result<Crypto, Failure> {
    let cipher = request.value("CIPHER");
    let wanted = cipher.map(|name| Subject::by_name(name).ok_or_else(|| unknown(name))).transpose()?;
    let answers: Vec<Crypto> =
        if request.api().is_some() || client::is_any_daemon_here() { request.ask()? } else { Vec::new() };
    let Some(mut answer) = answers.into_iter().next() else {
        let all = || Cipher::ALL.iter().copied().map(Subject::Cipher).collect();
        return Ok(measure(wanted.map_or_else(all, |subject| vec![subject])));
    };
    answer.ciphers.retain(|shown| cipher.is_none_or(|name| name == shown.name));
    if let Some(wanted) = wanted.filter(|_| answer.ciphers.is_empty()) {
        let measured = measure(vec![wanted]).ciphers.into_iter();
        answer.ciphers = measured.filter(|shown| shown.name == wanted.to_string()).collect();
    }
    Ok(answer)
}

/// The engines, measured in this process.
fn measure(subjects: Vec<Subject>) -> Crypto {
    let mut here = gateway::api::show_crypto(&engines::choice(&subjects));
    here.ciphers.iter_mut().for_each(|cipher| cipher.measured_here = true);
    here
}

fn unknown(name: &str) -> String {
    let names: Vec<&str> = Cipher::ALL.iter().map(|cipher| cipher.name()).collect();
    let names = names.join(", ");
    format!("there is no cipher {name}\n  fix: one of {names}, or a pair such as aes-256-cbc+hmac-sha256-128")
}

/// The text of the answer.
fn text(answer: &Crypto) -> String {
    let row = |engine: &CryptoEngine| {
        let version = engine.version.clone().unwrap_or_else(|| "-".to_owned());
        vec![engine.name.clone(), version, engine.failures.to_string(), state(engine)]
    };
    let rows: Vec<Vec<String>> = answer.engines.iter().map(row).collect();
    let mut text = table(&["engine", "version", "failures", "state"], &rows);
    for cipher in &answer.ciphers {
        let _ = write!(text, "\n{}\n{}", head(cipher), costs(cipher));
        for unused in &cipher.unused {
            let _ = writeln!(text, "{} is not used: {}", unused.engine, unused.why);
        }
    }
    if !answer.events.is_empty() {
        text.push('\n');
    }
    for event in &answer.events {
        let _ = writeln!(text, "{} {} {}", ago(event.at), event.engine, event.what);
    }
    text
}

/// Whether an engine is in use, and if not, why.
fn state(engine: &CryptoEngine) -> String {
    let why = |state: EngineState| match &engine.why {
        Some(why) => format!("{state}: {why}"),
        None => state.to_string(),
    };
    match (engine.state, engine.retry_in) {
        (EngineState::NotAllowed, _) => "not allowed: set system acceleration qat".to_owned(),
        (EngineState::Failed, Some(seconds)) => format!("failed, tried again in {seconds} s"),
        (state, _) => why(state),
    }
}

/// The line above the table of a cipher.
fn head(cipher: &CryptoCipher) -> String {
    let star =
        if cipher.measured_here { "measured here, no daemon uses it; * would be used" } else { "* is used" };
    let pinned = match (&cipher.pinned, &cipher.pin_refused) {
        (Some(engine), Some(why)) => format!("; pinned to {engine}, which is not in use: {why}"),
        (Some(engine), None) => format!("; pinned to {engine}"),
        _ => String::new(),
    };
    format!("{}, ns a packet, {star}{pinned}", cipher.name)
}

/// A row for each direction, burst and size: the cost with each engine, and the ratio of the second best to the chosen one.
fn costs(cipher: &CryptoCipher) -> String {
    let mut names: Vec<&str> = Vec::new();
    for cost in cipher.places.iter().flat_map(|place| &place.costs) {
        if !names.contains(&cost.engine.as_str()) {
            names.push(&cost.engine);
        }
    }
    names.sort_unstable();
    let head: Vec<&str> =
        ["", "packets", "bytes"].into_iter().chain(names.iter().copied()).chain(["next"]).collect();
    let row = |place: &CryptoPlace| {
        let cell = |name: &&str| {
            let cost = place.costs.iter().find(|cost| cost.engine == *name);
            let mark = if place.chosen == **name { "*" } else { "" };
            cost.map_or_else(|| "-".to_owned(), |cost| format!("{:.0}{mark}", cost.ns))
        };
        let used = place.costs.iter().find(|cost| cost.engine == place.chosen).map(|cost| cost.ns);
        let other = place.costs.iter().find(|cost| cost.engine != place.chosen).map(|cost| cost.ns);
        let next = used.zip(other).map_or_else(String::new, |(used, other)| format!("{:.2}x", other / used));
        let front = [place.direction.to_string(), place.burst.to_string(), place.size.to_string()];
        front.into_iter().chain(names.iter().map(cell)).chain([next]).collect()
    };
    let rows: Vec<Vec<String>> = cipher.places.iter().map(row).collect();
    table(&head, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_is_not_used_says_why() {
        let shown = |state, why: Option<&str>, retry_in| {
            let (name, why) = ("qat".to_owned(), why.map(str::to_owned));
            super::state(&CryptoEngine {
                name,
                version: None,
                state,
                why,
                retry_in,
                accelerator: true,
                failures: 1,
                sealed: None,
                opened: None,
            })
        };
        assert_eq!(shown(EngineState::InUse, None, None), "in use");
        assert_eq!(shown(EngineState::Absent, Some("no library"), None), "absent: no library");
        assert_eq!(shown(EngineState::NotUsed, Some("slower"), None), "not used: slower");
        assert_eq!(shown(EngineState::NotAllowed, None, None), "not allowed: set system acceleration qat");
        assert_eq!(shown(EngineState::Failed, None, Some(9)), "failed, tried again in 9 s");
    }

    #[test]
    fn the_head_says_where_it_was_measured_and_whether_a_pin_is_followed() {
        let mut cipher = CryptoCipher {
            name: "aes-128-gcm".to_owned(),
            pinned: Some("ipsec-mb".to_owned()),
            pin_refused: None,
            unused: Vec::new(),
            measured_here: false,
            places: Vec::new(),
        };
        assert_eq!(head(&cipher), "aes-128-gcm, ns a packet, * is used; pinned to ipsec-mb");
        cipher.pin_refused = Some("failed".to_owned());
        assert!(head(&cipher).ends_with("pinned to ipsec-mb, which is not in use: failed"));
        cipher.measured_here = true;
        assert!(head(&cipher).contains("measured here, no daemon uses it"));
    }
}
