//! Draws a view. Only the rows that are on the screen cost anything.

use super::readings::{HISTORY, Row};
use super::view::{Panel, Shown, Sort, View};
use crate::monitor::rates::bits;
use crate::output::{bytes, timestamp};
use crate::show_path::round_trip;
use crate::tabulate::{duration, short_count};
use gateway::facts::model::State;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

/// Lines above the rows.
const HEAD: u16 = 5;

/// Whether states have colours, beside their words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Colours(pub(super) bool);

impl Colours {
    /// https://no-color.org
    pub(super) fn of_environment() -> Self {
        Self(std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()))
    }

    fn of(self, state: State) -> Style {
        let style = Style::new();
        match state {
            _ if !self.0 => style,
            State::Up => style.fg(Color::Green),
            State::Waiting => style.fg(Color::Yellow),
            State::Down => style.fg(Color::Red).add_modifier(Modifier::BOLD),
        }
    }
}

/// A column: its head, its width and whether it is at the right.
struct Column {
    head: &'static str,
    width: usize,
    is_number: bool,
    sort: Option<Sort>,
}

const fn column(head: &'static str, width: usize, is_number: bool, sort: Option<Sort>) -> Column {
    Column { head, width, is_number, sort }
}

/// The columns behind the name, the most important first: those that do not fit are left out.
const COLUMNS: [Column; 9] = [
    column("State", 7, false, Some(Sort::State)),
    column("In", 12, true, Some(Sort::In)),
    column("Out", 12, true, Some(Sort::Out)),
    column("In and out", HISTORY, false, None),
    column("Handshake", 10, true, Some(Sort::Handshake)),
    column("Type", 9, false, None),
    column("Engine", 9, false, Some(Sort::Engine)),
    column("Lost/s", 7, true, Some(Sort::Lost)),
    column("RTT", 9, true, Some(Sort::Rtt)),
];

/// The narrowest column of names.
const NARROWEST: usize = 16;

/// Draws all of it.
pub(super) fn draw(frame: &mut Frame<'_>, view: &mut View, colours: Colours) {
    let area = frame.area();
    let rows = area.height.saturating_sub(HEAD + 1);
    view.page = rows.into();
    if view.selected < view.top {
        view.top = view.selected;
    }
    view.top = view.top.max((view.selected + 1).saturating_sub(view.page)).min(view.order.len());
    let line = |frame: &mut Frame<'_>, y: u16, line: Line<'_>| {
        if y < area.height {
            frame.render_widget(line, Rect::new(0, y, area.width, 1));
        }
    };
    let width = usize::from(area.width);
    for (y, text) in [overview(view), machine(view), threads(view, width)].into_iter().enumerate() {
        line(frame, y as u16, Line::raw(text));
    }
    line(frame, 3, note(view, colours));
    let (name, columns) = fitting(width);
    let reversed = Style::new().add_modifier(Modifier::REVERSED);
    line(frame, 4, Line::styled(heads(view, name, columns), reversed));
    for (at, &index) in view.order.iter().enumerate().skip(view.top).take(rows.into()) {
        let mut shown = cells(&view.moment.rows[index], view.moment.at, name, columns, colours);
        if at == view.selected {
            shown = shown.style(reversed);
        }
        line(frame, HEAD + (at - view.top) as u16, shown);
    }
    line(frame, area.height.saturating_sub(1).max(HEAD), Line::raw(footer(view)));
    if let Some(panel) = &view.panel {
        explain(frame, panel);
    }
}

fn overview(view: &View) -> String {
    let moment = &view.moment;
    let peers = || moment.rows.iter().filter(|row| row.peer.is_some());
    let sum = |of: fn(&Row) -> f64| bits(peers().map(of).sum());
    let revision = moment.revision.map(|number| format!("  revision {number}")).unwrap_or_default();
    format!(
        "{}  postern {} up {}{revision}  in {}  out {}",
        timestamp(moment.at),
        moment.version,
        duration(moment.at.saturating_sub(moment.started)),
        sum(|row| row.received_bits_per_second),
        sum(|row| row.sent_bits_per_second),
    )
}

fn machine(view: &View) -> String {
    let moment = &view.moment;
    let busy = match (moment.processors, moment.busy, moment.stolen) {
        (Some(count), Some(busy), Some(stolen)) => {
            let stolen = if stolen < 0.005 { String::new() } else { format!(", {} stolen", percent(stolen)) };
            format!("processors: {count}, {} busy{stolen}", percent(busy))
        }
        _ => "processors: measuring".to_owned(),
    };
    let count = |state| moment.rows.iter().filter(|row| row.peer.is_some() && row.state == state).count();
    let [up, waiting, down] = [State::Up, State::Waiting, State::Down].map(count);
    let memory = bytes(moment.resident_bytes);
    format!("tunnels: {up} up, {waiting} waiting, {down} down  {busy}  memory of the daemon: {memory}")
}

/// The busiest threads, as many as fit.
fn threads(view: &View, width: usize) -> String {
    let mut text = "threads:".to_owned();
    for thread in &view.moment.threads {
        let next = format!(" {} {}", thread.name, percent(thread.load));
        if text.len() + next.len() + 1 > width {
            break;
        }
        if text.len() > "threads:".len() {
            text.push(',');
        }
        text += &next;
    }
    text
}

/// A part in percent.
fn percent(part: f64) -> String {
    format!("{:.0}%", 100.0 * part)
}

fn note(view: &View, colours: Colours) -> Line<'_> {
    if view.is_typing || !view.filter.is_empty() {
        let cursor = if view.is_typing { "_" } else { "  (Esc shows all)" };
        return Line::raw(format!("filter: {}{cursor}", view.filter));
    }
    let Some(note) = &view.note else { return Line::default() };
    let style = Style::new().add_modifier(Modifier::BOLD);
    Line::styled(&**note, if colours.0 { style.fg(Color::Yellow) } else { style })
}

/// The width of the names, and the columns that fit behind them.
fn fitting(width: usize) -> (usize, &'static [Column]) {
    let (mut rest, mut count) = (width.saturating_sub(NARROWEST), 0);
    for column in &COLUMNS {
        let Some(left) = rest.checked_sub(column.width + 1) else { break };
        (rest, count) = (left, count + 1);
    }
    (NARROWEST.min(width) + rest.min(width.saturating_sub(NARROWEST)), &COLUMNS[..count])
}

fn heads(view: &View, name: usize, columns: &[Column]) -> String {
    let marked = |head: &str, sort: Option<Sort>| {
        let mark = if view.is_reversed { "^" } else { "v" };
        if sort == Some(view.sort) { format!("{head} {mark}") } else { head.to_owned() }
    };
    let mut text = format!("{:<name$}", marked("Name", Some(Sort::Name)));
    for column in columns {
        text.push(' ');
        text += &padded(&marked(column.head, column.sort), column);
    }
    text
}

fn padded(text: &str, Column { width, is_number, .. }: &Column) -> String {
    let text: String = text.chars().take(*width).collect();
    if *is_number { format!("{text:>width$}") } else { format!("{text:<width$}") }
}

fn cells<'a>(row: &Row, now: u64, name: usize, columns: &[Column], colours: Colours) -> Line<'a> {
    // Peers stand below their interface where they are ordered by name.
    let first: String = row.name().chars().take(name).collect();
    let mut spans = vec![Span::raw(format!("{first:<name$}"))];
    for column in columns {
        let (text, style) = match column.head {
            "State" => (row.state.name().to_owned(), colours.of(row.state)),
            "In" => (bits(row.received_bits_per_second), Style::new()),
            "Out" => (bits(row.sent_bits_per_second), Style::new()),
            "In and out" => (sparkline(&row.history), Style::new()),
            "Handshake" => (age(row.last_handshake, now), Style::new()),
            "Type" => (row.protocol().to_owned(), Style::new()),
            "Engine" => (row.engine.clone().unwrap_or_else(|| "-".to_owned()), Style::new()),
            "RTT" => (round_trip(row.rtt_seconds), Style::new()),
            _ => (short_count(row.lost_per_second.round() as u64), Style::new()),
        };
        spans.push(Span::raw(" "));
        spans.push(Span::styled(padded(&text, column), style));
    }
    Line::from(spans)
}

/// How long ago a handshake was, in its two largest units.
pub(super) fn age(handshake: Option<u64>, now: u64) -> String {
    let Some(at) = handshake else { return "never".to_owned() };
    let seconds = now.saturating_sub(at);
    let rounded = match seconds {
        0..3_600 => seconds,
        3_600..86_400 => seconds / 60 * 60,
        _ => seconds / 3_600 * 3_600,
    };
    duration(rounded)
}

/// The rates of the last seconds, as parts of the largest.
pub(super) fn sparkline(history: &[f64]) -> String {
    const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = history.iter().copied().fold(0.0, f64::max);
    let step = |&rate: &f64| match rate {
        _ if most <= 0.0 || rate <= 0.0 => ' ',
        rate => STEPS[((rate / most * 8.0).ceil() as usize).clamp(1, 8) - 1],
    };
    let missing = HISTORY.saturating_sub(history.len());
    " ".repeat(missing) + &history.iter().map(step).collect::<String>()
}

fn footer(view: &View) -> String {
    let sorts: Vec<String> = Sort::KEYS.iter().map(|(key, name, _)| format!("{key} {name}")).collect();
    let shown = match view.shown {
        Shown::All => "all",
        Shown::Interfaces => "interfaces",
        Shown::Peers => "peers",
    };
    let place = if view.order.is_empty() { 0 } else { view.selected + 1 };
    let (count, sorts) = (view.order.len(), sorts.join(", "));
    format!("{place}/{count}  q quit  Enter explain  / filter  v {shown}  order: {sorts}")
}

fn explain(frame: &mut Frame<'_>, panel: &Panel) {
    let area = frame.area();
    // A small terminal has no place for both.
    let above = if area.height >= 16 { HEAD } else { 0 };
    let area = Rect::new(0, above, area.width, area.height.saturating_sub(above));
    let text = panel.text.as_deref().unwrap_or("asking the daemon: it takes a second or two");
    let block = Block::bordered().title(format!(" {} (Esc closes, arrows scroll) ", panel.title));
    frame.render_widget(Clear, area);
    let wrapped = Paragraph::new(text).wrap(Wrap { trim: false }).scroll((panel.scroll, 0));
    frame.render_widget(wrapped.block(block), area);
}
