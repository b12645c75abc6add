//! What a user sees of the rows: their order, a filter, the selected row, a panel about it.

use super::readings::{Kind, Moment, Row};
use config::tree::natural_order;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::cmp::Ordering;

/// What the rows are ordered by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    Name,
    State,
    #[default]
    In,
    Out,
    Lost,
    Handshake,
    Engine,
    Rtt,
}

impl Sort {
    /// The keys, and what the footer says of them.
    pub(super) const KEYS: [(char, &'static str, Self); 8] = [
        ('n', "name", Self::Name),
        ('s', "state", Self::State),
        ('i', "in", Self::In),
        ('o', "out", Self::Out),
        ('l', "lost", Self::Lost),
        ('h', "handshake", Self::Handshake),
        ('e', "engine", Self::Engine),
        ('r', "rtt", Self::Rtt),
    ];

    fn compare(self, a: &Row, b: &Row) -> Ordering {
        let more = |of: fn(&Row) -> f64| of(b).total_cmp(&of(a));
        match self {
            Self::Name => Ordering::Equal,
            // What is down comes first.
            Self::State => b.state.cmp(&a.state),
            Self::In => more(|row| row.received_bits_per_second),
            Self::Out => more(|row| row.sent_bits_per_second),
            Self::Lost => more(|row| row.lost_per_second),
            Self::Handshake => b.last_handshake.cmp(&a.last_handshake),
            Self::Engine => b.engine.cmp(&a.engine),
            // Those that are not probed, or do not answer, are last.
            Self::Rtt => more(|row| row.rtt_seconds.unwrap_or(-1.0)),
        }
    }
}

/// Which rows there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Shown {
    #[default]
    All,
    Interfaces,
    Peers,
}

/// What a key asks for beside a change of the view.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Asked {
    Nothing,
    Quit,
    /// The explanation of this row.
    Explain(Box<Row>),
}

/// An explanation of a row.
#[derive(Clone, Debug, Default)]
pub(super) struct Panel {
    pub(super) title: String,
    /// None while it is fetched.
    pub(super) text: Option<String>,
    /// How many lines of it are above the first that is shown.
    pub(super) scroll: u16,
}

/// The view of one user.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) moment: Moment,
    /// The indices of the rows that pass the filter, in their order.
    pub(super) order: Vec<usize>,
    pub(super) sort: Sort,
    pub(super) is_reversed: bool,
    pub(super) shown: Shown,
    pub(super) filter: String,
    pub(super) is_typing: bool,
    /// The place of the selected row in the order.
    pub(super) selected: usize,
    /// The first place on the screen.
    pub(super) top: usize,
    pub(super) panel: Option<Panel>,
    /// What is wrong, or has happened.
    pub(super) note: Option<String>,
    /// How many rows fit, as they were drawn last.
    pub(super) page: usize,
    /// Whether the user has moved: then the same row stays selected.
    has_moved: bool,
}

impl View {
    /// Shows another moment.
    pub(super) fn show(&mut self, moment: Moment) {
        let selected = self.key();
        self.moment = moment;
        self.arrange(selected);
    }

    /// The selected row.
    pub(super) fn row(&self) -> Option<&Row> {
        self.moment.rows.get(*self.order.get(self.selected)?)
    }

    fn key(&self) -> Option<String> {
        self.row().filter(|_| self.has_moved).map(|row| row.key.clone())
    }

    /// Filters and orders the rows anew.
    fn arrange(&mut self, selected: Option<String>) {
        let wanted = self.filter.to_lowercase();
        let is_wanted = |row: &Row| {
            let is_kind = match self.shown {
                Shown::All => true,
                Shown::Interfaces => row.kind == Kind::Interface,
                Shown::Peers => row.kind == Kind::Peer,
            };
            is_kind && (wanted.is_empty() || passes(row, &wanted))
        };
        let rows = &self.moment.rows;
        self.order = (0..rows.len()).filter(|&at| is_wanted(&rows[at])).collect();
        let names: Vec<String> = rows.iter().map(Row::name).collect();
        let (sort, is_reversed) = (self.sort, self.is_reversed);
        self.order.sort_by(|&a, &b| {
            let by_name = || natural_order(&names[a], &names[b]).then_with(|| rows[a].key.cmp(&rows[b].key));
            let order = sort.compare(&rows[a], &rows[b]);
            match (sort, is_reversed) {
                (Sort::Name, true) => by_name().reverse(),
                (_, true) => order.reverse().then_with(by_name),
                _ => order.then_with(by_name),
            }
        });
        let found = selected.and_then(|key| self.order.iter().position(|&at| rows[at].key == key));
        self.selected = found.unwrap_or(self.selected).min(self.order.len().saturating_sub(1));
        if !self.has_moved {
            self.selected = 0;
        }
    }

    /// What a key does.
    pub(super) fn press(&mut self, key: KeyEvent) -> Asked {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if is_control && matches!(key.code, KeyCode::Char('c')) {
            return Asked::Quit;
        }
        if self.is_typing {
            self.types(key.code);
            return Asked::Nothing;
        }
        match key.code {
            KeyCode::Char('q') => return Asked::Quit,
            KeyCode::Esc | KeyCode::Enter if self.panel.is_some() => self.panel = None,
            KeyCode::Esc => self.filters(String::new()),
            KeyCode::Enter => return self.opens(),
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('v') => self.turns(),
            KeyCode::Char(typed) => self.sorts_or_moves(typed),
            code => self.moves(code),
        }
        Asked::Nothing
    }

    /// A key while the filter is typed.
    fn types(&mut self, code: KeyCode) {
        let mut filter = self.filter.clone();
        match code {
            KeyCode::Enter => return self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                filter.clear();
            }
            KeyCode::Backspace => _ = filter.pop(),
            KeyCode::Char(typed) => filter.push(typed),
            _ => return,
        }
        self.filters(filter);
    }

    fn filters(&mut self, filter: String) {
        let selected = self.key();
        self.filter = filter;
        self.arrange(selected);
    }

    fn turns(&mut self) {
        let selected = self.key();
        self.shown = match self.shown {
            Shown::All => Shown::Interfaces,
            Shown::Interfaces => Shown::Peers,
            Shown::Peers => Shown::All,
        };
        self.arrange(selected);
    }

    fn opens(&mut self) -> Asked {
        let Some(row) = self.row().cloned() else { return Asked::Nothing };
        self.panel = Some(Panel { title: row.name(), ..Panel::default() });
        Asked::Explain(Box::new(row))
    }

    fn sorts_or_moves(&mut self, typed: char) {
        if let Some((_, _, sort)) = Sort::KEYS.iter().find(|(key, _, _)| *key == typed) {
            let selected = self.key();
            self.is_reversed = self.sort == *sort && !self.is_reversed;
            self.sort = *sort;
            return self.arrange(selected);
        }
        match typed {
            'j' => self.moves(KeyCode::Down),
            'k' => self.moves(KeyCode::Up),
            'g' => self.moves(KeyCode::Home),
            'G' => self.moves(KeyCode::End),
            ' ' => self.moves(KeyCode::PageDown),
            _ => {}
        }
    }

    fn moves(&mut self, code: KeyCode) {
        let page = self.page.max(1);
        let step = |from: usize, last: usize| match code {
            KeyCode::Up => from.saturating_sub(1),
            KeyCode::Down => (from + 1).min(last),
            KeyCode::PageUp => from.saturating_sub(page),
            KeyCode::PageDown => (from + page).min(last),
            KeyCode::Home => 0,
            KeyCode::End => last,
            _ => from,
        };
        if let Some(panel) = &mut self.panel {
            let lines = panel.text.as_deref().map_or(0, |text| text.lines().count());
            panel.scroll = step(panel.scroll.into(), lines.saturating_sub(1)) as u16;
            return;
        }
        self.selected = step(self.selected, self.order.len().saturating_sub(1));
        self.has_moved = true;
    }
}

/// Whether a row has these letters in its name, protocol, state or engine.
fn passes(row: &Row, wanted: &str) -> bool {
    let words = [&*row.name(), row.protocol(), row.state.name(), row.engine.as_deref().unwrap_or_default()];
    words.iter().any(|word| word.to_lowercase().contains(wanted))
}
