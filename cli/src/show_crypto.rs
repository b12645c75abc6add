//! `postern show crypto`: which engine is used for what, and why.

use crate::{Failure, client, engines};
use bench::report::table;
use crypto::Cipher;
use crypto::choice::Subject;
use gateway::api::model::{Crypto, CryptoCipher, CryptoEngine, CryptoPlace};
use std::fmt::Write;
use std::path::Path;

/// Asks a daemon; where none runs, or for a cipher that it has not measured, measures here.
pub(crate) fn ask(api: Option<&Path>, cipher: Option<&str>) -> Result<Crypto, Failure> {
    let wanted = cipher.map(|name| Subject::by_name(name).ok_or_else(|| unknown(name))).transpose()?;
    let answered: Result<Vec<Crypto>, Failure> = client::ask(api, "/v1/crypto");
    let mut answer = match answered {
        Ok(answers) => answers.into_iter().next().unwrap_or_default(),
        Err(error) if api.is_some() => return Err(error),
        Err(_) => Crypto::default(),
    };
    let has = |answer: &Crypto, name: &str| answer.ciphers.iter().any(|cipher| cipher.name == name);
    if answer.engines.is_empty() || wanted.is_some_and(|wanted| !has(&answer, &wanted.to_string())) {
        let choice = engines::choice(if wanted.is_none() { Cipher::ALL } else { &[] });
        wanted.map(|wanted| choice.row(wanted));
        answer = gateway::api::show_crypto(&choice);
    }
    answer.ciphers.retain(|cipher| wanted.is_none_or(|wanted| wanted.to_string() == cipher.name));
    Ok(answer)
}

fn unknown(name: &str) -> String {
    let names: Vec<&str> = Cipher::ALL.iter().map(|cipher| cipher.name()).collect();
    format!(
        "there is no cipher {name}\n  fix: one of {}, or a cipher and a MAC such as aes-256-cbc+hmac-sha256-128",
        names.join(", ")
    )
}

/// The answer for people.
pub(crate) fn text(answer: &Crypto) -> String {
    let row = |engine: &CryptoEngine| {
        let version = engine.version.clone().unwrap_or_else(|| "-".to_owned());
        vec![engine.name.clone(), version, engine.failures.to_string(), engine.state.clone()]
    };
    let rows: Vec<Vec<String>> = answer.engines.iter().map(row).collect();
    let mut text = table(&["engine", "version", "failures", "state"], &rows);
    for cipher in &answer.ciphers {
        let pinned = cipher.pinned.as_ref().map(|engine| format!("; pinned to {engine}")).unwrap_or_default();
        let _ = write!(text, "\n{}, ns a packet, * is used{pinned}\n{}", cipher.name, costs(cipher));
    }
    if !answer.events.is_empty() {
        text.push('\n');
    }
    for event in &answer.events {
        let _ = writeln!(text, "{} {} {}", crate::show::ago(event.at), event.engine, event.what);
    }
    text
}

/// A line for each size: what every engine takes, alone and in bursts, and how far the next is behind.
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
        let front = [place.direction.clone(), place.burst.to_string(), place.size.to_string()];
        front.into_iter().chain(names.iter().map(cell)).chain([next]).collect()
    };
    let rows: Vec<Vec<String>> = cipher.places.iter().map(row).collect();
    table(&head, &rows)
}
