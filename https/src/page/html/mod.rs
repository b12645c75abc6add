//! The views as HTML.

mod drops;
mod graph;
mod health;
mod overview;
mod part;
mod performance;
mod tunnel;
mod words;

pub(super) use drops::drops;
pub(super) use health::health;
pub(super) use overview::overview;
pub(super) use part::Part;
pub(super) use performance::performance;
pub(super) use tunnel::tunnel;

use super::asked::{Asked, Dropped, Filter};
use maud::{DOCTYPE, Markup, html};
use std::hash::{DefaultHasher, Hash, Hasher};

/// A view: its markup, and the parts of it that change.
pub(super) struct Rendered {
    pub(super) title: String,
    pub(super) main: Markup,
    pub(super) parts: Vec<Part>,
}

/// The views that each page leads to.
fn views() -> [(&'static str, Asked); 4] {
    [
        ("Overview", Asked::Overview(Filter { page: 1, ..Filter::default() })),
        ("Performance", Asked::Performance),
        ("Drops", Asked::Drops(Dropped { page: 1, ..Dropped::default() })),
        ("Health", Asked::Health),
    ]
}

/// A document with its frame.
fn document(title: &str, asked: Option<&Asked>, is_known: bool, main: &Markup) -> Markup {
    let has_graphs = matches!(asked, Some(Asked::Performance));
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " - Postern" }
                link rel="stylesheet" href="/style.css";
                @if has_graphs { link rel="stylesheet" href="/uplot.css"; }
                link rel="icon" href="/icon.svg" type="image/svg+xml";
                @if has_graphs { script src="/uplot.js" defer {} }
                @if asked.is_some() { script src="/live.js" defer {} }
            }
            body data-events=[asked.map(|asked| format!("/events{}", asked.place()))] {
                a.skip href="#main" { "Skip to the content" }
                header {
                    a.brand href="/" { "Postern" }
                    @if is_known {
                        (navigation(asked))
                        form method="post" action="/logout" { button type="submit" { "Log out" } }
                    }
                }
                main #main tabindex="-1" {
                    @if asked.is_some() {
                        // Without script, a page is of when it was loaded.
                        p.connection { span #connection role="status" {} noscript { a href=[asked.map(Asked::place)] { "Reload" } } }
                    }
                    (main)
                }
            }
        }
    }
}

fn navigation(asked: Option<&Asked>) -> Markup {
    html! {
        nav.views aria-label="Views" {
            ul {
                @for (name, view) in views() {
                    @let is_this = asked.is_some_and(|it| std::mem::discriminant(it) == std::mem::discriminant(&view));
                    li { a href=(view.place()) aria-current=[is_this.then_some("page")] { (name) } }
                }
            }
        }
    }
}

/// The document of a view.
pub(super) fn page(asked: &Asked, view: &Rendered) -> Markup {
    document(&view.title, Some(asked), true, &view.main)
}

/// Where a reader logs in.
pub(super) fn login(why: Option<&str>) -> Markup {
    let form = html! {
        h1 { "Log in" }
        @if let Some(why) = why { p.error role="alert" { (why) } }
        form.login method="post" action="/login" {
            // Browsers that keep passwords ask for a name.
            input type="text" name="user" value="postern" autocomplete="username" readonly hidden;
            label for="token" { "Token of " code { "service page token" } }
            input #token type="password" name="token" autocomplete="current-password" required autofocus;
            button type="submit" { "Log in" }
        }
    };
    document("Log in", None, false, &form)
}

/// Why nothing can be shown.
pub(super) fn failed(title: &str, why: &str, is_known: bool) -> Markup {
    let main = html! { h1 { (title) } p.error role="alert" { (why) } p { a href="/" { "Overview" } } };
    document(title, None, is_known, &main)
}

/// A table, of which the rows are a part. Its columns have these heads.
fn table(caption: &Markup, heads: &[&str], rows: &Part) -> Markup {
    html! {
        // With display: block, as on narrow screens, browsers forget that it is a table.
        table role="table" {
            caption { (caption) }
            thead role="rowgroup" {
                tr role="row" { @for head in heads { th scope="col" role="columnheader" { (head) } } }
            }
            (rows.markup())
        }
    }
}

/// The rows of a table.
fn rows(id: &str, rows: Vec<Part>) -> Part {
    Part::around(id, rows, |rows| html! { tbody id=(id) role="rowgroup" { (rows) } })
}

/// An ID of what is called so.
fn id(kind: &str, name: &impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    format!("{kind}{:016x}", hasher.finish())
}

/// A cell, which tells the head of its column where there is no room for a table.
fn cell(head: &str, content: &Markup) -> Markup {
    html! { td role="cell" data-label=(head) { (content) } }
}

fn number(head: &str, content: &str) -> Markup {
    html! { td.number role="cell" data-label=(head) { (content) } }
}

/// Links to the page before and the next one.
fn pages(page: usize, pages: usize, link: impl Fn(usize) -> String) -> Part {
    let links = html! {
        nav #pages.pages aria-label="Pages" {
            @if pages > 1 {
                @if page > 1 { a href=(link(page - 1)) rel="prev" { "Previous" } }
                span { "Page " (page) " of " (pages) }
                @if page < pages { a href=(link(page + 1)) rel="next" { "Next" } }
            }
        }
    };
    Part::new("pages", links)
}

#[cfg(test)]
mod tests;
