//! Why packets were dropped: every reason by its name, with what it means.

use super::super::asked::{Asked, Dropped};
use super::super::rates::dropped;
use super::super::view::View;
use super::words::{count, per_second};
use super::{Part, Rendered, cell, number, pages, rows, table};
use gateway::api::meaning_of_drop;
use gateway::facts::model::Drop;
use maud::{Markup, html};
use std::cmp::Reverse;

/// Reasons on a page.
const ROWS: usize = 200;

pub(super) const HEADS: [&str; 6] =
    ["Reason", "Interface", "Now", "From inside", "From outside", "Handshakes"];

/// The reasons of all interfaces, or of one.
pub(crate) fn drops(view: &View, wanted: &Dropped) -> Rendered {
    let fitting = fitting(view, &wanted.interface, wanted.all);
    let all = fitting.len().div_ceil(ROWS).max(1);
    let page = wanted.page.min(all);
    let link = |page| Asked::Drops(Dropped { page, ..wanted.clone() }).place();
    let shown = fitting.iter().skip((page - 1) * ROWS).take(ROWS).map(|drop| row(view, drop));
    let rows = rows("drops", shown.collect());
    let found = Part::new("found", html! { span #found { (caption(fitting.len(), wanted.all)) } });
    let pages = pages(page, all, link);
    let other = Dropped { all: !wanted.all, page: 1, ..wanted.clone() };
    let main = html! {
        h1 { "Drops" }
        p { "Every packet that is dropped has a reason, which is counted since the interface was made." }
        (interfaces(view, wanted))
        p {
            a href=(Asked::Drops(other).place()) {
                @if wanted.all { "Only what was dropped" } @else { "All reasons, also those without drops" }
            }
        }
        (table(&html! { (found.markup()) }, &HEADS, &rows))
        (pages.markup())
    };
    Rendered { title: "Drops".to_owned(), main, parts: vec![found, rows, pages] }
}

/// The reasons for which an interface has dropped something.
pub(super) fn some(view: &View, interface: &str) -> Part {
    let shown = fitting(view, interface, false).into_iter().take(ROWS).map(|drop| row(view, drop));
    rows("drops", shown.collect())
}

/// What happens now comes first, then what was most.
fn fitting<'a>(view: &'a View, interface: &str, all: bool) -> Vec<&'a Drop> {
    let fits = |it: &&Drop| (interface.is_empty() || it.interface == interface) && (all || dropped(it) > 0);
    let mut fitting: Vec<&Drop> = view.facts.drops.iter().filter(fits).collect();
    fitting.sort_by_key(|drop| {
        let happens = view.rates.drops(drop).is_some_and(|rate| rate > 0.0);
        (Reverse(happens), Reverse(dropped(drop)))
    });
    fitting
}

fn caption(count: usize, all: bool) -> Markup {
    html! {
        @match (count, all) {
            (0, _) => "Nothing was dropped.",
            (count, true) => { (count) " reasons" }
            (count, false) => { (count) " reasons for which packets were dropped" }
        }
    }
}

/// Links to the drops of each interface.
fn interfaces(view: &View, wanted: &Dropped) -> Markup {
    let of = |interface: &str| {
        Asked::Drops(Dropped { interface: interface.to_owned(), page: 1, ..wanted.clone() }).place()
    };
    let current = |interface: &str| (wanted.interface == interface).then_some("true");
    html! {
        nav.choice aria-label="Interfaces" {
            ul {
                li { a href=(of("")) aria-current=[current("")] { "All interfaces" } }
                @for name in view.interfaces() { li { a href=(of(name)) aria-current=[current(name)] { (name) } } }
            }
        }
    }
}

fn row(view: &View, drop: &Drop) -> Part {
    let id = format!("d{:016x}", super::super::rates::of_drop(drop));
    let rate = view.rates.drops(drop);
    let class = if rate.is_some_and(|rate| rate > 0.0) { "now" } else { "" };
    let reason = html! {
        strong { (drop.reason) }
        @if let Some(meaning) = meaning_of_drop(&drop.reason) { div.quiet { (meaning) } }
    };
    let [reason_head, interface, now, outbound, inbound, handshake] = HEADS;
    let row = html! {
        tr id=(id) role="row" class=(class) {
            (cell(reason_head, &reason))
            (cell(interface, &html! { (drop.interface) }))
            (number(now, &per_second(rate)))
            (number(outbound, &count(drop.outbound)))
            (number(inbound, &count(drop.inbound)))
            (number(handshake, &count(drop.handshake)))
        }
    };
    Part::new(id, row)
}
