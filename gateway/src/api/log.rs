//! The last lines that the daemon has logged, kept in memory: a machine without a journal has them too.

use super::lock;
use super::model::{Log, LogLine};
use super::server::misplaced;
use axum::Json;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::response::Response;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Mutex;

/// How many lines are kept.
const LINES: usize = 2_000;
/// How many characters of a line are kept.
const LENGTH: usize = 1_024;

/// The lines of this process.
static RECENT: Mutex<Recent> = Mutex::new(Recent { lines: VecDeque::new(), logged: 0 });

/// The last lines of a log, and how many there have been.
struct Recent {
    lines: VecDeque<String>,
    logged: u64,
}

impl Recent {
    fn add(&mut self, text: &str) {
        for line in text.lines() {
            if self.lines.len() == LINES {
                self.lines.pop_front();
            }
            self.lines.push_back(line.chars().take(LENGTH).collect());
            self.logged += 1;
        }
    }

    /// The lines after the one with this number; the first has number 1.
    fn after(&self, number: u64) -> Vec<LogLine> {
        let first = self.logged - self.lines.len() as u64 + 1;
        let numbered = (first..).zip(&self.lines);
        let wanted = numbered.filter(|(own, _)| *own > number);
        wanted.map(|(number, text)| LogLine { number, text: text.clone() }).collect()
    }
}

/// Keeps what is written to it, a whole event at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keeper;

impl Write for Keeper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&RECENT).add(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) async fn all() -> Json<Log> {
    later(0)
}

pub(super) async fn after(number: Result<Path<u64>, PathRejection>) -> Result<Json<Log>, Response> {
    let Path(number) = number.map_err(|rejection| misplaced(&rejection))?;
    Ok(later(number))
}

fn later(number: u64) -> Json<Log> {
    Json(Log { lines: lock(&RECENT).after(number) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_with_their_numbers() {
        let mut recent = Recent { lines: VecDeque::new(), logged: 0 };
        assert!(recent.after(0).is_empty());
        recent.add("first\nsecond\n");
        recent.add(&"ü".repeat(LENGTH + 1));
        let numbers: Vec<u64> = recent.after(1).iter().map(|line| line.number).collect();
        assert_eq!(numbers, [2, 3]);
        assert_eq!(recent.after(2)[0].text.chars().count(), LENGTH);
        (0..LINES).for_each(|number| recent.add(&number.to_string()));
        let all = recent.after(0);
        assert_eq!((all.len(), all[0].number, all[0].text.as_str()), (LINES, 4, "0"));
        assert!(recent.after(recent.logged).is_empty());
    }
}
