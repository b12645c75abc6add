//! A pseudoterminal with a program in it, and what a terminal would show: the few sequences that ratatui writes.

use crate::support::PATIENCE;
use lab::wait_until;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};

pub struct Terminal {
    ours: File,
    theirs: OwnedFd,
    child: Child,
    written: Arc<Mutex<Vec<u8>>>,
    size: (u16, u16),
}

fn size_of((columns, rows): (u16, u16)) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

impl Terminal {
    /// Starts a program with a terminal of its own.
    pub fn start(mut command: Command, columns: u16, rows: u16) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudoterminal");
        grantpt(&ours).expect("ours");
        unlockpt(&ours).expect("ours");
        let name = ptsname(&ours, Vec::new()).expect("a name");
        let theirs =
            rustix::fs::open(&*name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).expect("it opens");
        tcsetwinsize(&theirs, size_of((columns, rows))).expect("a size");
        let end = || theirs.try_clone().expect("a descriptor");
        let child = command.stdin(end()).stdout(end()).stderr(end()).env("TERM", "xterm").spawn();
        let written: Arc<Mutex<Vec<u8>>> = Arc::default();
        let (mut reader, kept) = (File::from(ours.try_clone().expect("a descriptor")), Arc::clone(&written));
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                let mut written = kept.lock().unwrap_or_else(PoisonError::into_inner);
                written.extend_from_slice(&buffer[..count]);
            }
        });
        let size = (columns, rows);
        Self { ours: ours.into(), theirs, child: child.expect("it runs"), written, size }
    }

    fn written(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    /// What stands on the screen.
    pub fn screen(&self) -> String {
        let (columns, rows) = (usize::from(self.size.0), usize::from(self.size.1));
        let mut cells = vec![vec![' '; columns]; rows];
        let (mut x, mut y) = (0, 0);
        let text = self.written();
        let mut rest = text.chars();
        while let Some(next) = rest.next() {
            match next {
                '\u{1b}' if rest.as_str().starts_with('[') => {
                    rest.next();
                    let sequence = rest.as_str();
                    let end = sequence.find(|it: char| it.is_ascii_alphabetic()).unwrap_or(sequence.len());
                    let (numbers, after) = sequence.split_at(end);
                    rest = after.chars();
                    let mut places = numbers.split(';').map(|number| number.parse::<usize>().unwrap_or(1));
                    let consumed = rest.next();
                    match consumed {
                        Some('H') => {
                            y = places.next().unwrap_or(1) - 1;
                            x = places.next().unwrap_or(1) - 1;
                        }
                        Some('J') => cells.iter_mut().for_each(|row| row.fill(' ')),
                        _ => {}
                    }
                }
                '\r' => x = 0,
                '\n' => y += 1,
                letter => {
                    if let Some(cell) = cells.get_mut(y).and_then(|row| row.get_mut(x)) {
                        *cell = letter;
                    }
                    x += 1;
                }
            }
        }
        cells.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned() + "\n").collect()
    }

    pub fn shows(&self, text: &str) {
        wait_until(PATIENCE, || self.screen().contains(text))
            .unwrap_or_else(|_| panic!("no {text:?}:\n{}", self.screen()));
    }

    pub fn types(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).expect("it is read");
    }

    pub fn resize(&mut self, columns: u16, rows: u16) {
        self.size = (columns, rows);
        tcsetwinsize(&self.theirs, size_of(self.size)).expect("a size");
        // The kernel signals only the foreground group of a controlling terminal.
        self.signal(Signal::WINCH);
    }

    pub fn signal(&self, signal: Signal) {
        let process = Pid::from_child(&self.child);
        kill_process(process, signal).expect("it runs");
    }

    pub fn ends(&mut self, status: i32) {
        let mut ended = None;
        let has_ended = || {
            ended = self.child.try_wait().expect("ours");
            ended.is_some()
        };
        wait_until(PATIENCE, has_ended).expect("it ends");
        assert_eq!(ended.and_then(|it| it.code()), Some(status), "{}", self.screen());
    }

    /// Whether lines are edited and echoed, as before it was started.
    pub fn is_cooked(&self) -> bool {
        let modes = tcgetattr(&self.theirs).expect("a terminal").local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Whether it has left the alternate screen, with a cursor.
    pub fn has_left(&self) -> bool {
        let left = || self.written().ends_with("\u{1b}[?25h\u{1b}[?1049l");
        wait_until(PATIENCE, left).is_ok()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
