//! `postern advise`: which algorithms to take on this machine, by measuring what each costs here.

use crate::answer::Answer;
use crate::tabulate::tabulate;
use crate::{Failure, engines};
use config::settings::ipsec::{encryption_by_name, weakness};
use crypto::choice::{Choice, Direction, SIZES, Slot, Subject};
use crypto::machine::Machine;
use serde::Serialize;
use std::fmt::Write as _;

/// The algorithms of the guide's table: the words of a proposal, encryption and hash, and what is measured.
const ALGORITHMS: &[(&str, Option<&str>, &str)] = &[
    ("aes128", Some("sha1"), "aes-128-cbc+hmac-sha1-96"),
    ("aes256", Some("sha256"), "aes-256-cbc+hmac-sha256-128"),
    ("aes128gcm128", None, "aes-128-gcm"),
    ("aes256gcm128", None, "aes-256-gcm"),
    ("3des", Some("sha1"), "3des-cbc+hmac-sha1-96"),
    ("chacha20poly1305", None, "chacha20-poly1305"),
];

/// The packets of a transfer, and those of a conversation.
const LARGE: usize = 1400;
const SMALL: usize = 256;
/// An accelerator that gains less than this is not worth its configuration.
const WORTH: f64 = 1.05;

/// The advice for a machine.
#[derive(Debug, Serialize, PartialEq)]
struct Advice {
    processor: String,
    cores: usize,
    packet_bytes: usize,
    algorithms: Vec<Algorithm>,
    purposes: Vec<Purpose>,
    acceleration: String,
}

/// What an algorithm costs here.
#[derive(Debug, Clone, Serialize, PartialEq)]
struct Algorithm {
    encryption: &'static str,
    hash: Option<&'static str>,
    /// The fastest engine on the processor, and what one core does with it.
    engine: String,
    gigabits_per_core: f64,
    /// The same with an accelerator, if this machine has one for the algorithm.
    accelerator: Option<String>,
    accelerated_gigabits: Option<f64>,
    /// Seconds for a small packet alone, in billionths.
    small_packet_nanoseconds: f64,
    /// Why it should not be used.
    weak: Option<&'static str>,
}

/// The best algorithm for a purpose.
#[derive(Debug, Serialize, PartialEq)]
struct Purpose {
    preset: &'static str,
    encryption: &'static str,
    why: String,
    lines: Vec<String>,
}

pub(crate) fn show() -> Result<Answer, Failure> {
    let subjects: Vec<Subject> =
        ALGORITHMS.iter().filter_map(|(_, _, name)| Subject::by_name(name)).collect();
    let choice = engines::choice(&subjects);
    let measured: Vec<Algorithm> = ALGORITHMS.iter().filter_map(|row| measured(&choice, row)).collect();
    let processor = Machine::here().processor;
    let has_accelerator = choice.engines().iter().any(|engine| engine.is_accelerator());
    let advice = advise((processor.model, processor.count), measured, has_accelerator);
    Ok(Answer::new(advice.ok_or("nothing could be measured\n  fix: postern show crypto")?, text))
}

/// The cost of an algorithm with the best engine of each kind.
fn measured(
    choice: &Choice,
    &(encryption, hash, name): &(&'static str, Option<&'static str>, &str),
) -> Option<Algorithm> {
    let row = choice.row(Subject::by_name(name)?);
    // What passes a gateway is encrypted on one side and decrypted on the other: the mean of both.
    let cost = |engine: usize, packets: usize, size: usize| {
        let costs = Direction::ALL.map(|direction| {
            let ranking = row.ranking(Slot::of(direction, packets, size));
            ranking.iter().find(|(index, _)| *index == engine).map(|(_, cost)| *cost)
        });
        let [seal, open] = costs;
        Some(f64::midpoint(seal?, open?))
    };
    let best = |accelerated: bool| {
        let engines = choice.engines().iter().enumerate();
        let of_kind = engines.filter(|(_, engine)| engine.is_accelerator() == accelerated);
        let costs =
            of_kind.filter_map(|(index, engine)| Some((engine.name(), index, cost(index, 32, LARGE)?)));
        costs.min_by(|a, b| a.2.total_cmp(&b.2))
    };
    let (engine, index, nanoseconds) = best(false)?;
    let accelerated = best(true);
    let weak = encryption_by_name(encryption).and_then(weakness);
    Some(Algorithm {
        encryption,
        hash,
        engine: engine.to_owned(),
        gigabits_per_core: gigabits(nanoseconds),
        accelerator: accelerated.map(|(name, ..)| name.to_owned()),
        accelerated_gigabits: accelerated.map(|(.., cost)| gigabits(cost)),
        small_packet_nanoseconds: cost(index, 1, SMALL)?,
        weak: weak.or((hash == Some("sha1")).then_some("is weak: SHA-1")),
    })
}

/// Gbit/s of large packets that take so long each.
fn gigabits(nanoseconds: f64) -> f64 {
    let size = SIZES[Slot::of(Direction::Seal, 32, LARGE).size];
    size as f64 * 8.0 / nanoseconds
}

fn advise(
    (processor, cores): (String, usize),
    algorithms: Vec<Algorithm>,
    has_accelerator: bool,
) -> Option<Advice> {
    let purposes = vec![bulk(&algorithms)?, low_latency(&algorithms)?, max_security(&algorithms)?];
    let acceleration = acceleration(&algorithms, has_accelerator);
    Some(Advice { processor, cores, packet_bytes: LARGE, algorithms, purposes, acceleration })
}

impl Algorithm {
    /// What one core does at best.
    fn best(&self) -> f64 {
        self.accelerated_gigabits.unwrap_or_default().max(self.gigabits_per_core)
    }

    fn name(&self) -> String {
        self.hash.map_or_else(|| self.encryption.to_owned(), |hash| format!("{} + {hash}", self.encryption))
    }
}

/// The algorithms to choose from: strong, and one pass over the packet.
fn candidates(algorithms: &[Algorithm]) -> impl Iterator<Item = &Algorithm> {
    algorithms.iter().filter(|it| it.weak.is_none() && it.hash.is_none())
}

/// The preset, and the proposal that is better here than its own.
fn lines(preset: &str, own: &str, chosen: &Algorithm) -> Vec<String> {
    let set = "set vpn ipsec esp-group NAME";
    let better =
        (chosen.encryption != own).then(|| format!("{set} proposal 1 encryption {}", chosen.encryption));
    [format!("{set} preset {preset}")].into_iter().chain(better).collect()
}

fn bulk(algorithms: &[Algorithm]) -> Option<Purpose> {
    let best = candidates(algorithms).max_by(|a, b| a.best().total_cmp(&b.best()))?;
    Some(Purpose {
        preset: "bulk",
        encryption: best.encryption,
        why: format!("{:.1} Gbit/s a core, the most of the strong ones", best.best()),
        lines: lines("bulk", "aes128gcm128", best),
    })
}

fn low_latency(algorithms: &[Algorithm]) -> Option<Purpose> {
    let best = candidates(algorithms)
        .min_by(|a, b| a.small_packet_nanoseconds.total_cmp(&b.small_packet_nanoseconds))?;
    Some(Purpose {
        preset: "low-latency",
        encryption: best.encryption,
        // The preset has the guide's short tags; the advice is a whole tag, which costs nothing more.
        why: format!("{:.0} ns for a packet of {SMALL} bytes alone", best.small_packet_nanoseconds),
        lines: lines("low-latency", "aes128gcm64", best),
    })
}

fn max_security(algorithms: &[Algorithm]) -> Option<Purpose> {
    let long = candidates(algorithms).filter(|it| it.encryption != "aes128gcm128");
    let best = long.max_by(|a, b| a.best().total_cmp(&b.best()))?;
    Some(Purpose {
        preset: "max-security",
        encryption: best.encryption,
        why: format!("{:.1} Gbit/s a core, the most with keys of 256 bits", best.best()),
        lines: lines("max-security", "aes256gcm128", best),
    })
}

/// Whether to allow an accelerator.
fn acceleration(algorithms: &[Algorithm], has_accelerator: bool) -> String {
    if !has_accelerator {
        return "this machine has no accelerator for encryption: find out more with postern doctor crypto"
            .to_owned();
    }
    let gains =
        |it: &&Algorithm| it.accelerated_gigabits.is_some_and(|more| more > it.gigabits_per_core * WORTH);
    let gaining: Vec<String> = algorithms.iter().filter(gains).map(Algorithm::name).collect();
    if gaining.is_empty() {
        return "the processor is faster than the accelerator: leave system acceleration qat unset"
            .to_owned();
    }
    format!("set system acceleration qat: it is faster for {}", gaining.join(", "))
}

fn text(advice: &Advice) -> String {
    let row = |it: &Algorithm| {
        let improvement = it
            .accelerated_gigabits
            .map(|more| format!("{:+.0}%", (more / it.gigabits_per_core - 1.0) * 100.0));
        vec![
            it.name(),
            format!("{:.2}", it.gigabits_per_core),
            it.engine.clone(),
            it.accelerated_gigabits.map_or_else(|| "n/a".to_owned(), |more| format!("{more:.2}")),
            improvement.unwrap_or_else(|| "n/a".to_owned()),
            it.weak.unwrap_or_default().to_owned(),
        ]
    };
    let head = ["Algorithm", "Gbit/s per core", "Engine", "With accelerator", "Improvement", "Note"];
    let mut text = format!(
        "{}, {} processors; packets of {} bytes, encrypted and decrypted\n\n{}\n",
        advice.processor,
        advice.cores,
        advice.packet_bytes,
        tabulate(&head, &advice.algorithms.iter().map(row).collect::<Vec<_>>())
    );
    for it in &advice.purposes {
        let _ = writeln!(text, "{}: {}, {}", it.preset, it.encryption, it.why);
        it.lines.iter().for_each(|line| text += &["  ", line, "\n"].concat());
    }
    text + "\nAcceleration: " + &advice.acceleration + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::schema::ESP_PRESETS;

    fn algorithm(encryption: &'static str, hash: Option<&'static str>, speed: f64, small: f64) -> Algorithm {
        Algorithm {
            encryption,
            hash,
            engine: "aws-lc".to_owned(),
            gigabits_per_core: speed,
            accelerator: None,
            accelerated_gigabits: None,
            small_packet_nanoseconds: small,
            weak: None,
        }
    }

    fn machine() -> Vec<Algorithm> {
        vec![
            algorithm("aes256", Some("sha256"), 90.0, 1.0),
            algorithm("aes128gcm128", None, 30.0, 120.0),
            algorithm("aes256gcm128", None, 25.0, 130.0),
            Algorithm { weak: Some("is weak"), ..algorithm("3des", Some("sha1"), 99.0, 1.0) },
            algorithm("chacha20poly1305", None, 12.0, 200.0),
        ]
    }

    fn advised(algorithms: Vec<Algorithm>, has_accelerator: bool) -> Advice {
        advise(("A Xeon".to_owned(), 2), algorithms, has_accelerator).expect("there are algorithms")
    }

    #[test]
    fn the_fastest_of_the_strong_ones_is_advised() {
        let advice = advised(machine(), false);
        let chosen: Vec<(&str, &str)> = advice.purposes.iter().map(|it| (it.preset, it.encryption)).collect();
        assert_eq!(
            chosen,
            [("bulk", "aes128gcm128"), ("low-latency", "aes128gcm128"), ("max-security", "aes256gcm128")]
        );
        assert_eq!(advice.purposes[0].lines, ["set vpn ipsec esp-group NAME preset bulk"]);
        assert_eq!(
            advice.purposes[1].lines,
            [
                "set vpn ipsec esp-group NAME preset low-latency",
                "set vpn ipsec esp-group NAME proposal 1 encryption aes128gcm128"
            ]
        );
        assert!(advice.purposes.iter().all(|it| ESP_PRESETS.contains(&it.preset)));
        assert!(advice.acceleration.starts_with("this machine has no accelerator"));
    }

    #[test]
    fn a_processor_without_aes_gets_another_cipher() {
        let mut slow = machine();
        slow[1].gigabits_per_core = 0.2;
        slow[2].gigabits_per_core = 0.1;
        let advice = advised(slow, false);
        assert_eq!(advice.purposes[0].encryption, "chacha20poly1305");
        assert_eq!(
            advice.purposes[2].lines[1],
            "set vpn ipsec esp-group NAME proposal 1 encryption chacha20poly1305"
        );
    }

    #[test]
    fn an_accelerator_is_advised_only_where_it_wins() {
        let mut algorithms = machine();
        algorithms[1].accelerated_gigabits = Some(20.0);
        assert!(
            advised(algorithms.clone(), true).acceleration.contains("leave system acceleration qat unset")
        );
        algorithms[0].accelerated_gigabits = Some(180.0);
        let advice = advised(algorithms, true);
        assert_eq!(advice.acceleration, "set system acceleration qat: it is faster for aes256 + sha256");
        let text = text(&advice);
        let line = text.lines().find(|line| line.starts_with("aes256 + sha256")).expect("it is listed");
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(cells[3..], ["90.00", "aws-lc", "180.00", "+100%"]);
        assert!(text.contains("\nbulk: aes128gcm128, 30.0 Gbit/s a core"), "{text}");
    }

    #[test]
    fn every_algorithm_can_be_measured_and_configured() {
        for (encryption, _, name) in ALGORITHMS {
            assert!(Subject::by_name(name).is_some(), "{name}");
            assert!(encryption_by_name(encryption).is_some(), "{encryption}");
        }
    }
}
