//! The answer of the API about the crypto engines.

use super::model::{
    Crypto, CryptoCipher, CryptoCost, CryptoDirection, CryptoEngine, CryptoEvent, CryptoPlace, CryptoTraffic,
    CryptoUnused, EngineState,
};
use crypto::choice::{
    BURSTS, Carried, Choice, Direction, EngineChange, Health, Measured, Row, SIZES, Slot, Subject,
};
use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

/// The size of packets, in bytes, for which an engine is named.
const TYPICAL: usize = 1400;

/// The engines, those that are here first.
pub(super) fn engines(choice: &Choice) -> Vec<CryptoEngine> {
    let present = (0..choice.engines().len()).map(|index| engine(choice, index));
    let absent = choice.absent().iter().map(|(name, reason)| CryptoEngine {
        name: (*name).to_owned(),
        version: None,
        state: EngineState::Absent,
        why: Some(reason.to_string()),
        retry_in: None,
        accelerator: false,
        failures: 0,
        sealed: None,
        opened: None,
    });
    present.chain(absent).collect()
}

/// The engines, the choice between them, and their events.
pub fn show(choice: &Choice) -> Crypto {
    let events = choice.events().into_iter().map(|event| CryptoEvent {
        at: event.at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        engine: event.engine.to_owned(),
        what: describe(&event.what),
    });
    Crypto {
        engines: engines(choice),
        ciphers: choice.rows().iter().map(|(subject, row)| cipher(choice, *subject, row)).collect(),
        events: events.collect(),
    }
}

/// The engine that encrypts packets of a suite, when they are many and of a typical size.
pub fn engine_of(suite: &str, ciphers: &[CryptoCipher]) -> Option<String> {
    let plain = |name: &str| -> String {
        name.chars().filter(char::is_ascii_alphanumeric).map(|it| it.to_ascii_lowercase()).collect()
    };
    let suite = plain(suite);
    let named = ciphers.iter().filter(|cipher| suite.starts_with(&plain(&cipher.name)));
    let places = &named.max_by_key(|cipher| cipher.name.len())?.places;
    let seals = places.iter().filter(|place| place.direction == CryptoDirection::Seal);
    seals.max_by_key(|it| (it.burst, usize::MAX - it.size.abs_diff(TYPICAL))).map(|it| it.chosen.clone())
}

/// Describes an event of an engine.
pub fn describe(what: &EngineChange) -> String {
    match what {
        EngineChange::Failed => "failed and is not used; another engine did its burst".to_owned(),
        EngineChange::FailedAgain => "was tried again and failed again".to_owned(),
        EngineChange::Recovered => "works again and is used again".to_owned(),
        EngineChange::NotLoaded(subject) => {
            format!("failed to load a key of {subject} and is not used; another engine has the key")
        }
        EngineChange::NotMeasured(subject) => format!("failed when it was measured for {subject}"),
        EngineChange::Wrong(subject) => {
            format!("computed something wrong for {subject} when it was measured")
        }
        EngineChange::Measured(subject) => format!("was measured again for {subject}, and works"),
    }
}

fn engine(choice: &Choice, index: usize) -> CryptoEngine {
    let engine = &choice.engines()[index];
    let (health, failures) = choice.health(index);
    let carried = choice.carried(index);
    let traffic = |it: Carried| CryptoTraffic { packets: it.packets, bytes: it.bytes };
    let rows = choice.rows();
    let is_chosen = rows.iter().any(|(_, row)| row.is_chosen(index));
    let (state, why, retry_in) = match health {
        Health::Failed(wait) => (EngineState::Failed, None, Some(wait.as_secs())),
        Health::Works if is_chosen => (EngineState::InUse, None, None),
        Health::Works if !is_allowed(choice, index) => (EngineState::NotAllowed, None, None),
        Health::Works => (EngineState::NotUsed, Some(reasons(choice, index)), None),
    };
    CryptoEngine {
        name: engine.name().to_owned(),
        version: Some(engine.version()),
        state,
        why,
        retry_in,
        accelerator: engine.is_accelerator(),
        failures,
        sealed: carried.map(|[sealed, _]| traffic(sealed)),
        opened: carried.map(|[_, opened]| traffic(opened)),
    }
}

fn is_allowed(choice: &Choice, index: usize) -> bool {
    choice.rules().accelerators || !choice.engines()[index].is_accelerator()
}

/// Why no cipher uses an engine: one reason, or several with their ciphers.
fn reasons(choice: &Choice, index: usize) -> String {
    let mut ciphers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (subject, row) in choice.rows() {
        let why = why_unused(choice, subject, &row, index).unwrap_or_default();
        ciphers.entry(why).or_default().push(subject.to_string());
    }
    let reasons: Vec<String> = match ciphers.len() {
        0 => vec!["no cipher was measured yet".to_owned()],
        1 => ciphers.into_keys().collect(),
        _ => ciphers.into_iter().map(|(why, ciphers)| format!("{why} ({})", ciphers.join(", "))).collect(),
    };
    reasons.join("; ")
}

/// Why a cipher does not use an engine; `None` if it uses it for some packet sizes.
fn why_unused(choice: &Choice, subject: Subject, row: &Row, index: usize) -> Option<String> {
    if row.is_chosen(index) {
        return None;
    }
    let why = match row.measured().get(index)? {
        Measured::Lacks => "lacks it".to_owned(),
        Measured::Failed => "failed when it was measured".to_owned(),
        Measured::Wrong => "computed something wrong".to_owned(),
        Measured::Works(_) if choice.health(index).0 != Health::Works => "failed".to_owned(),
        Measured::Works(_) if !is_allowed(choice, index) => "not allowed".to_owned(),
        Measured::Works(_) => match pinned(choice, subject) {
            Some((name, Some(other))) if row.is_chosen(other) => format!("pinned to {name}"),
            _ => "slower everywhere".to_owned(),
        },
    };
    Some(why)
}

/// The engine that a cipher is pinned to, and its index if it is here.
fn pinned(choice: &Choice, subject: Subject) -> Option<(String, Option<usize>)> {
    let name = choice.rules().pinned.get(&subject.to_string()).cloned()?;
    let index = choice.engines().iter().position(|engine| engine.name() == name);
    Some((name, index))
}

fn cipher(choice: &Choice, subject: Subject, row: &Row) -> CryptoCipher {
    let name = |index: usize| choice.engines()[index].name().to_owned();
    let places = Slot::all().map(|slot| {
        let costs = row.ranking(slot).into_iter();
        CryptoPlace {
            direction: match slot.direction {
                Direction::Seal => CryptoDirection::Seal,
                Direction::Open => CryptoDirection::Open,
            },
            burst: BURSTS[slot.burst],
            size: SIZES[slot.size],
            chosen: name(row.chosen(slot)),
            costs: costs.map(|(engine, ns)| CryptoCost { engine: name(engine), ns }).collect(),
        }
    });
    let unused = (0..choice.engines().len()).filter_map(|index| {
        Some(CryptoUnused { engine: name(index), why: why_unused(choice, subject, row, index)? })
    });
    let pinned = pinned(choice, subject);
    let pin_refused = pinned.as_ref().and_then(|(name, index)| match index {
        Some(index) => why_unused(choice, subject, row, *index),
        None => Some(why_absent(choice, name)),
    });
    CryptoCipher {
        name: subject.to_string(),
        pinned: pinned.map(|(name, _)| name),
        pin_refused,
        unused: unused.collect(),
        measured_here: false,
        places: places.collect(),
    }
}

fn why_absent(choice: &Choice, name: &str) -> String {
    let absent = choice.absent().iter().find(|(absent, _)| *absent == name);
    absent.map_or_else(|| "there is no such engine".to_owned(), |(_, reason)| format!("absent: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::Cipher;
    use crypto::choice::Rules;
    use crypto::engine::aws_lc::AwsLc;
    use crypto::engine::none;
    use std::sync::Arc;

    const CIPHER: Cipher = Cipher::ChaCha20Poly1305;

    fn shown(pinned: &[(&str, &str)]) -> Crypto {
        let choice = Choice::among(vec![Arc::new(AwsLc), Arc::new(none::None)]);
        let pinned = pinned.iter().map(|(cipher, engine)| ((*cipher).to_owned(), (*engine).to_owned()));
        choice.set_rules(Rules { pinned: pinned.collect(), ..Rules::default() });
        choice.row(CIPHER.into());
        show(&choice)
    }

    #[test]
    fn an_engine_that_computes_something_else_is_not_used_and_says_why() {
        let shown = shown(&[]);
        assert_eq!((shown.engines[0].state, shown.engines[0].why.as_deref()), (EngineState::InUse, None));
        let why = Some("computed something wrong");
        assert_eq!((shown.engines[1].state, shown.engines[1].why.as_deref()), (EngineState::NotUsed, why));
        assert_eq!(shown.ciphers[0].unused[0].why, "computed something wrong");
        assert!(shown.events[0].what.starts_with("computed something wrong for chacha20-poly1305"));
    }

    #[test]
    fn a_pin_that_is_not_followed_says_why() {
        let refused = |engine| shown(&[("chacha20-poly1305", engine)]).ciphers[0].pin_refused.clone();
        assert_eq!(refused("aws-lc"), None);
        assert_eq!(refused("none").as_deref(), Some("computed something wrong"));
        assert_eq!(refused("abacus").as_deref(), Some("there is no such engine"));
    }
}
