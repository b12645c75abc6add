//! What the API shows of the crypto engines.

use super::model::{Crypto, CryptoCipher, CryptoCost, CryptoEngine, CryptoEvent, CryptoPlace};
use crypto::choice::{BURSTS, Choice, Happening, Health, Measured, Row, SIZES, Slot, Subject};
use std::time::UNIX_EPOCH;

/// Shows the engines, the choice between them, and what happened to them.
pub fn show(choice: &Choice) -> Crypto {
    let present = (0..choice.engines().len()).map(|index| engine(choice, index));
    let absent = choice.absent().iter().map(|(name, reason)| CryptoEngine {
        name: (*name).to_owned(),
        version: None,
        state: format!("absent: {reason}"),
        accelerator: false,
        failures: 0,
    });
    let events = choice.events().into_iter().map(|event| CryptoEvent {
        at: event.at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        engine: event.engine.to_owned(),
        what: said(&event.what).to_owned(),
    });
    Crypto {
        engines: present.chain(absent).collect(),
        ciphers: choice.rows().iter().map(|(subject, row)| cipher(choice, *subject, row)).collect(),
        events: events.collect(),
    }
}

/// The words for what happened to an engine.
pub fn said(what: &Happening) -> &'static str {
    match what {
        Happening::Failed => "failed and is not used; its burst was done by another",
        Happening::FailedAgain => "was tried again and failed again",
        Happening::Recovered => "works again and is used again",
    }
}

fn engine(choice: &Choice, index: usize) -> CryptoEngine {
    let engine = &choice.engines()[index];
    let (health, failures) = choice.health(index);
    let rows = choice.rows();
    let is_chosen = rows.iter().any(|(_, row)| Slot::all().any(|slot| row.chosen(slot) == index));
    let is_wrong = rows.iter().any(|(_, row)| matches!(row.measured()[index], Measured::Wrong));
    let state = match health {
        Health::Failed(wait) => format!("failed, tried again in {} s", wait.as_secs()),
        Health::Works if is_chosen => "in use".to_owned(),
        Health::Works if is_wrong => "not used: it computes something else than the others".to_owned(),
        Health::Works if engine.is_accelerator() && !choice.rules().accelerators => {
            "not allowed: set system acceleration qat".to_owned()
        }
        Health::Works => "not used: slower everywhere".to_owned(),
    };
    CryptoEngine {
        name: engine.name().to_owned(),
        version: Some(engine.version()),
        state,
        accelerator: engine.is_accelerator(),
        failures,
    }
}

fn cipher(choice: &Choice, subject: Subject, row: &Row) -> CryptoCipher {
    let name = |index: usize| choice.engines()[index].name().to_owned();
    let places = Slot::all().map(|slot| {
        let costs = row.ranking(slot).into_iter();
        CryptoPlace {
            direction: slot.direction.name().to_owned(),
            burst: BURSTS[slot.burst],
            size: SIZES[slot.size],
            chosen: name(row.chosen(slot)),
            costs: costs.map(|(engine, ns)| CryptoCost { engine: name(engine), ns }).collect(),
        }
    });
    let cipher = subject.to_string();
    CryptoCipher {
        pinned: choice.rules().pinned.get(&cipher).cloned(),
        name: cipher,
        places: places.collect(),
    }
}
