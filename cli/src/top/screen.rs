//! `top` on a terminal: threads that read facts and keys send events to one that draws. Whatever ends it, the terminal gets its
//! mode back.

use super::draw::{Colours, draw};
use super::readings::{Reading, Readings, Row};
use super::view::{Asked, View};
use super::{INTERVAL, Source, explain};
use crate::output::timestamp;
use crate::wireguard::ignores_hangup;
use crate::{Failure, Outcome};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event as Input, KeyEvent, KeyEventKind};
use rustix::stdio::stdout;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use std::io::Write;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// Events that wait to be drawn.
const WAITING: usize = 64;
/// How long a note about something that has passed stays.
const NOTED: Duration = Duration::from_secs(10);

/// To the alternate screen, without a cursor; and back.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";
const LEAVE: &[u8] = b"\x1b[?25h\x1b[?1049l";

/// The mode that the terminal had.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// What happens.
enum Event {
    Read(Result<Box<Reading>, String>),
    Key(KeyEvent),
    Resized,
    Explained(String),
    /// The terminal is gone.
    Gone(std::io::Error),
}

/// A terminal in raw mode, until it is dropped.
struct Raw;

impl Raw {
    fn enter() -> Result<Self, Failure> {
        let before = tcgetattr(stdout())?;
        let mut raw = before.clone();
        raw.make_raw();
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        let entered = Self;
        tcsetattr(stdout(), OptionalActions::Now, &raw)?;
        write(ENTER);
        Ok(entered)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal its mode back, once.
fn restore() {
    if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
        let _ = tcsetattr(stdout(), OptionalActions::Now, &before);
        write(LEAVE);
    }
}

/// Past the lock of the standard output, which the thread that draws holds.
fn write(bytes: &[u8]) {
    let _ = rustix::io::write(stdout(), bytes);
}

/// Shows the rates until the user has seen enough.
pub(super) fn run(source: Source, out: &mut dyn Write) -> Outcome {
    watch_signals()?;
    let said = std::panic::take_hook();
    // A release aborts at a panic: nothing is dropped then.
    std::panic::set_hook(Box::new(move |panic| {
        restore();
        said(panic);
    }));
    let _raw = Raw::enter()?;
    let (sender, events) = sync_channel(WAITING);
    let api = source.request.api().map(ToOwned::to_owned);
    start("facts", sender.clone(), move |events| read(source, events))?;
    start("keys", sender.clone(), keys)?;
    let mut screen = Screen {
        terminal: Terminal::new(CrosstermBackend::new(out))?,
        colours: Colours::of_environment(),
        view: View::default(),
        readings: Readings::default(),
        link: Link::default(),
        is_explaining: false,
        wanted: None,
        api,
        sender,
    };
    screen.follow(&events)
}

fn start(
    name: &str,
    events: SyncSender<Event>,
    work: impl FnOnce(&SyncSender<Event>) + Send + 'static,
) -> Outcome {
    std::thread::Builder::new().name(name.to_owned()).spawn(move || work(&events))?;
    Ok(())
}

fn read(mut source: Source, events: &SyncSender<Event>) {
    loop {
        let begun = Instant::now();
        let read = source.read().map(Box::new).map_err(|error| error.to_string());
        if events.send(Event::Read(read)).is_err() {
            return;
        }
        std::thread::sleep(INTERVAL.saturating_sub(begun.elapsed()));
    }
}

fn keys(events: &SyncSender<Event>) {
    loop {
        let event = match event::read() {
            Ok(Input::Key(key)) if key.kind != KeyEventKind::Release => Event::Key(key),
            Ok(Input::Resize(..)) => Event::Resized,
            Ok(_) => continue,
            Err(error) => Event::Gone(error),
        };
        let is_last = matches!(event, Event::Gone(_));
        if events.send(event).is_err() || is_last {
            return;
        }
    }
}

/// Has signals that end the program restore the terminal first.
fn watch_signals() -> Outcome {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let entered = runtime.enter();
    // nohup has it ignored.
    let mut hangup = (!ignores_hangup()).then(|| signal(SignalKind::hangup())).transpose()?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut quit = signal(SignalKind::quit())?;
    drop(entered);
    let ended = async move {
        let hung_up = async {
            match &mut hangup {
                Some(hangup) => _ = hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = hung_up => SignalKind::hangup(),
            _ = terminate.recv() => SignalKind::terminate(),
            _ = interrupt.recv() => SignalKind::interrupt(),
            _ = quit.recv() => SignalKind::quit(),
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let number = runtime.block_on(ended);
        restore();
        // As bash has it for a program that a signal ended.
        std::process::exit(128 + number.as_raw_value());
    })?;
    Ok(())
}

/// Whether the daemon answers.
#[derive(Default)]
struct Link {
    /// Since when it does not, and why.
    lost: Option<(Instant, String)>,
    /// What was said last of it.
    said: Option<(Instant, String)>,
}

impl Link {
    fn lose(&mut self, why: &str) {
        let since = self.lost.as_ref().map_or_else(Instant::now, |(since, _)| *since);
        self.lost = Some((since, why.lines().next().unwrap_or_default().to_owned()));
    }

    fn is_back(&mut self, at: u64, has_restarted: bool) {
        let lost = self.lost.take().map(|(since, _)| since.elapsed().as_secs());
        let what = match (lost, has_restarted) {
            (Some(seconds), true) => format!("connected again after {seconds} s: the daemon was restarted"),
            (Some(seconds), false) => format!("connected again after {seconds} s"),
            (None, true) => "the daemon was restarted".to_owned(),
            (None, false) => return,
        };
        self.said = Some((Instant::now(), format!("{} {what}", timestamp(at))));
    }

    fn note(&self) -> Option<String> {
        if let Some((since, why)) = &self.lost {
            let seconds = since.elapsed().as_secs();
            return Some(format!("no answer for {seconds} s, trying again: {why}"));
        }
        self.said.as_ref().filter(|(at, _)| at.elapsed() < NOTED).map(|(_, said)| said.clone())
    }
}

struct Screen<'a> {
    terminal: Terminal<CrosstermBackend<&'a mut dyn Write>>,
    colours: Colours,
    view: View,
    readings: Readings,
    link: Link,
    is_explaining: bool,
    /// The row that is to be explained next.
    wanted: Option<Box<Row>>,
    api: Option<PathBuf>,
    sender: SyncSender<Event>,
}

impl Screen<'_> {
    fn follow(&mut self, events: &Receiver<Event>) -> Outcome {
        loop {
            self.view.note = self.link.note();
            let (view, colours) = (&mut self.view, self.colours);
            self.terminal.draw(|frame| draw(frame, view, colours))?;
            let mut next = match events.recv_timeout(INTERVAL) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            // What has come meanwhile is drawn at once.
            while let Some(event) = next {
                if !self.take(event)? {
                    return Ok(());
                }
                next = events.try_recv().ok();
            }
        }
    }

    /// Whether it goes on.
    fn take(&mut self, event: Event) -> Result<bool, Failure> {
        match event {
            Event::Read(Ok(reading)) => {
                let moment = self.readings.add(*reading);
                self.link.is_back(moment.at, !moment.restarted.is_empty());
                self.view.show(moment);
            }
            Event::Read(Err(why)) => self.link.lose(&why),
            Event::Key(key) => match self.view.press(key) {
                Asked::Quit => return Ok(false),
                Asked::Explain(row) => self.explain(row)?,
                Asked::Nothing => {}
            },
            Event::Explained(text) => self.explained(text)?,
            Event::Resized => self.terminal.autoresize()?,
            Event::Gone(error) => return Err(error.into()),
        }
        Ok(true)
    }

    /// Asks for an explanation; one is asked for at a time.
    fn explain(&mut self, row: Box<Row>) -> Outcome {
        if self.is_explaining {
            self.wanted = Some(row);
            return Ok(());
        }
        self.is_explaining = true;
        let api = self.api.clone();
        start("explanation", self.sender.clone(), move |events| {
            let _ = events.send(Event::Explained(explain(&row, api.as_deref())));
        })
    }

    fn explained(&mut self, text: String) -> Outcome {
        self.is_explaining = false;
        if let Some(row) = self.wanted.take() {
            return self.explain(row);
        }
        if let Some(panel) = &mut self.view.panel {
            panel.text = Some(text);
        }
        Ok(())
    }
}
