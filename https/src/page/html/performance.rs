//! What limits the speed of each interface, what each stage takes, and which threads and engines do the work.

use super::super::performance::{Ciphers, Histories, Limits};
use super::super::view::View;
use super::graph::graphs;
use super::words::{count, percent};
use super::{Part, Rendered, cell, id, number, rows, table};
use gateway::api::engine_of;
use gateway::api::model::{Bottleneck, CryptoEngine, Limit, Thread};
use gateway::facts::model::History;
use maud::{Markup, html};

const THREADS: [&str; 3] = ["Thread", "On a processor", "Waited for one"];
const ENGINES: [&str; 4] = ["Engine", "State", "Failures", "Version or why"];
const CIPHERS: [&str; 3] = ["Cipher", "Engine", "Pinned to"];

/// All of it.
pub(crate) fn performance(view: &View, limits: &Limits, history: &Histories, ciphers: &Ciphers) -> Rendered {
    let sections = match limits {
        Ok(limits) => limits.bottlenecks.iter().map(section).collect(),
        Err(why) => vec![Part::new("unknown", html! { p #unknown.error { (why) } })],
    };
    let limits = Part::around("limits", sections, |all| html! { div #limits { (all) } });
    let graphs = graphs(history.as_deref().unwrap_or(&History::default()));
    let mut busiest: Vec<&Thread> = view.facts.threads.iter().collect();
    busiest.sort_by(|one, other| {
        let load = |it: &Thread| view.rates.thread(it.id).map_or(0.0, |[ran, _]| ran);
        load(other).total_cmp(&load(one)).then_with(|| one.name.cmp(&other.name))
    });
    let threads = rows("threads", busiest.into_iter().map(|thread| of_thread(view, thread)).collect());
    let handoffs = Part::new("handoffs", handoffs(view));
    let engines = rows("engines", view.facts.engines.iter().map(engine).collect());
    let chosen = rows("ciphers", of_ciphers(ciphers));
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let main = html! {
        h1 { "Performance" }
        h2 { "What limits each interface" }
        (limits.markup())
        h2 { "Throughput" }
        (graphs.markup())
        h2 { "Threads" }
        (table(&html! { "The threads that carry packets, on " (processors) " processors" }, &THREADS, &threads))
        (handoffs.markup())
        h2 { "Engines" }
        (table(&html! { "What encrypts and decrypts" }, &ENGINES, &engines))
        (table(&html! { "The engine of each cipher, for many packets of 1400 bytes" }, &CIPHERS, &chosen))
    };
    let parts = vec![limits, graphs, threads, handoffs, engines, chosen];
    Rendered { title: "Performance".to_owned(), main, parts }
}

/// What limits an interface in one direction.
fn section(limit: &Bottleneck) -> Part {
    let id = id("l", &(&limit.interface, &limit.direction));
    let way = if limit.direction == "out" { "sending" } else { "receiving" };
    let is_limited = !matches!(limit.limit, Limit::NoTraffic | Limit::Elsewhere);
    let stages = html! {
        table.figures role="table" {
            caption { "What each stage takes for a packet, of one burst in 64" }
            tbody role="rowgroup" {
                @for stage in &limit.stages {
                    tr role="row" {
                        th scope="row" role="rowheader" { (stage.stage) }
                        td.number role="cell" { (format!("{:.0} ns", stage.nanoseconds)) }
                        td.number role="cell" { (percent(stage.share)) }
                        // What it takes of all is seen too.
                        td.bar role="cell" { progress max="100" value=(format!("{:.0}", 100.0 * stage.share)) aria-hidden="true" {} }
                    }
                }
            }
        }
    };
    let section = html! {
        section.limit.limited[is_limited] id=(id) {
            h3 { (limit.interface) ", " (way) }
            p.sentence { strong { (limit.sentence) } }
            @if let Some(remedy) = &limit.remedy { div.fix { "Fix: " code { (remedy) } } }
            @if !limit.evidence.is_empty() { ul.evidence { @for line in &limit.evidence { li { (line) } } } }
            @if !limit.stages.is_empty() { (stages) }
        }
    };
    Part::new(id, section)
}

fn of_thread(view: &View, thread: &Thread) -> Part {
    let id = format!("n{}", thread.id);
    let part =
        |at: usize| view.rates.thread(thread.id).map_or_else(|| "\u{2013}".to_owned(), |it| percent(it[at]));
    let row = html! {
        tr id=(id) role="row" {
            (cell(THREADS[0], &html! { (thread.name) }))
            (number(THREADS[1], &part(0)))
            (number(THREADS[2], &part(1)))
        }
    };
    Part::new(id, row)
}

fn handoffs(view: &View) -> Markup {
    html! {
        ul #handoffs {
            @for handoff in &view.facts.handoffs {
                li {
                    (handoff.interface) ": " (handoff.crypto_threads) " crypto threads, " (count(handoff.handed_off))
                    " bursts handed off, " (count(handoff.taken_back)) " taken back, " (handoff.waiting) " waiting"
                }
            }
        }
    }
}

fn engine(engine: &CryptoEngine) -> Part {
    let id = id("e", &engine.name);
    let about = engine.why.as_deref().or(engine.version.as_deref()).unwrap_or_default();
    let row = html! {
        tr id=(id) role="row" {
            (cell(ENGINES[0], &html! { strong { (engine.name) } }))
            (cell(ENGINES[1], &html! { (engine.state) }))
            (number(ENGINES[2], &count(engine.failures)))
            (cell(ENGINES[3], &html! { (about) }))
        }
    };
    Part::new(id, row)
}

fn of_ciphers(ciphers: &Ciphers) -> Vec<Part> {
    let Ok(ciphers) = ciphers else { return Vec::new() };
    let row = |cipher: &gateway::api::model::CryptoCipher| {
        let id = id("c", &cipher.name);
        let chosen = engine_of(&cipher.name, std::slice::from_ref(cipher));
        let row = html! {
            tr id=(id) role="row" {
                (cell(CIPHERS[0], &html! { strong { (cipher.name) } }))
                (cell(CIPHERS[1], &html! { (chosen.as_deref().unwrap_or("none")) }))
                (cell(CIPHERS[2], &html! { (cipher.pinned.as_deref().unwrap_or("nothing")) }))
            }
        };
        Part::new(id, row)
    };
    ciphers.iter().map(row).collect()
}
