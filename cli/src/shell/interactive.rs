//! The command line at a terminal.

use super::complete::{self, Context};
use super::console::{Console, Flow, is_told};
use super::line::ends_in_quotes;
use super::listing;
use crate::Failure;
use rustix::termios::tcgetwinsize;
use rustyline::config::Configurer as _;
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::{
    Cmd, ConditionalEventHandler, Config, Editor, Event, EventContext, EventHandler, KeyCode, KeyEvent,
    Modifiers, RepeatCount,
};
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The number of lines that are kept.
const KEPT: usize = 1000;

/// What the keys for help share with the command line.
#[derive(Default)]
struct Shared {
    context: Context,
    /// The line, and the place in it, for which help was asked.
    asked: Option<(String, usize)>,
}

type Help = Arc<Mutex<Shared>>;

fn locked(help: &Help) -> std::sync::MutexGuard<'_, Shared> {
    help.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `?`, which lists what may follow.
struct Question(Help);

impl ConditionalEventHandler for Question {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, at: &EventContext<'_>) -> Option<Cmd> {
        let mut shared = locked(&self.0);
        let text = &at.line()[..at.pos()];
        // It is a character like others in a text, and for other programs.
        if ends_in_quotes(text) || complete::is_foreign(text, &shared.context) {
            return None;
        }
        shared.asked = Some((at.line().to_owned(), at.pos()));
        Some(Cmd::AcceptLine)
    }
}

/// TAB, which completes, or lists what may follow.
struct Tab(Help);

impl ConditionalEventHandler for Tab {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, at: &EventContext<'_>) -> Option<Cmd> {
        let mut shared = locked(&self.0);
        let text = &at.line()[..at.pos()];
        let items = complete::items(text, &shared.context);
        match complete::common(text, &items) {
            Some((more, true)) => {
                let end = if more.ends_with('/') { "" } else { " " };
                Some(Cmd::Insert(1, format!("{more}{end}")))
            }
            Some((more, false)) if !more.is_empty() => Some(Cmd::Insert(1, more)),
            _ if items.is_empty() => Some(Cmd::Noop),
            _ => {
                shared.asked = Some((at.line().to_owned(), at.pos()));
                Some(Cmd::AcceptLine)
            }
        }
    }
}

/// Reads lines and carries them out until the end.
pub(super) fn run(console: &mut Console) -> Result<(), Failure> {
    let help = Help::default();
    let mut editor = editor(&help)?;
    let history = history();
    if let Some(history) = &history {
        let _ = editor.load_history(history);
    }
    converse(console, &mut editor, &help, history.as_deref())
}

fn editor(help: &Help) -> Result<Editor<(), DefaultHistory>, Failure> {
    let config = Config::builder().max_history_size(KEPT)?.history_ignore_space(true).build();
    let mut editor = Editor::with_config(config)?;
    editor.set_auto_add_history(false);
    let key = |character| KeyEvent(KeyCode::Char(character), Modifiers::NONE);
    editor.bind_sequence(key('?'), EventHandler::Conditional(Box::new(Question(help.clone()))));
    let tab = EventHandler::Conditional(Box::new(Tab(help.clone())));
    editor.bind_sequence(KeyEvent(KeyCode::Tab, Modifiers::NONE), tab);
    Ok(editor)
}

/// The file with the lines that were typed.
fn history() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
    Some(PathBuf::from(home).join(".postern_history"))
}

fn converse(
    console: &mut Console,
    editor: &mut Editor<(), DefaultHistory>,
    help: &Help,
    history: Option<&Path>,
) -> Result<(), Failure> {
    let (mut initial, mut is_more, mut ends) = ((String::new(), String::new()), false, 0);
    loop {
        locked(help).context = console.context();
        let prompt = if is_more { "> ".to_owned() } else { prompt(console) };
        let (before, after) = std::mem::take(&mut initial);
        let line = editor.readline_with_initial(&prompt, (&before, &after));
        let asked = locked(help).asked.take();
        if let Some((line, at)) = asked {
            let (before, after) = line.split_at(at);
            print!("{}", listing::listed(&complete::items(before, &locked(help).context), columns()));
            initial = (before.to_owned(), after.to_owned());
            continue;
        }
        ends = if matches!(line, Err(ReadlineError::Eof)) { ends + 1 } else { 0 };
        let text = match line {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => {
                console.forget();
                is_more = false;
                continue;
            }
            // Without a terminal no question can be asked.
            Err(ReadlineError::Eof) if ends > 1 => return Ok(()),
            Err(ReadlineError::Eof) => "exit".to_owned(),
            Err(error) => return Err(error.into()),
        };
        keep(&text, editor, history);
        match lines(console, &text) {
            Flow::End => return Ok(()),
            flow => is_more = flow == Flow::More,
        }
    }
}

/// Keeps a line in the history, and in its file at once: the terminal may go at any time.
fn keep(text: &str, editor: &mut Editor<(), DefaultHistory>, history: Option<&Path>) {
    if text.trim().is_empty() || is_private(text) {
        return;
    }
    let is_new = editor.add_history_entry(text).unwrap_or_default();
    if let Some(history) = history.filter(|_| is_new) {
        let _ = editor.append_history(history);
    }
}

/// Whether a line may hold a secret: of the configuration, or of another program and of a URL.
fn is_private(text: &str) -> bool {
    let small = text.to_lowercase();
    let is_named = [
        "password",
        "passwd",
        "passphrase",
        "token",
        "authorization",
        "bearer",
        "apikey",
        "api-key",
        "api_key",
    ];
    config::error::may_hold_secret(text)
        || is_named.iter().any(|name| small.contains(name))
        || small.split("://").skip(1).any(has_credentials)
}

/// Whether a URL, without its scheme, has a password, or a query, which may be a signature.
fn has_credentials(url: &str) -> bool {
    let url = url.split(|c: char| c.is_whitespace() || "'\"".contains(c)).next().unwrap_or_default();
    let host = url.split('/').next().unwrap_or_default();
    host.rsplit_once('@').is_some_and(|(user, _)| user.contains(':')) || url.contains('?')
}

/// Carries out what was typed, or several lines that were pasted.
fn lines(console: &mut Console, text: &str) -> Flow {
    let mut last = Flow::Next;
    for line in text.lines() {
        let outcome = console.execute(line, &mut stdout());
        let _ = stdout().flush();
        match outcome {
            Ok(Flow::End) => return Flow::End,
            Ok(flow) => last = flow,
            Err(error) if is_told(&error) => last = Flow::Next,
            Err(error) => {
                eprintln!("\n  {}\n", error.to_string().trim_start());
                last = Flow::Next;
            }
        }
    }
    last
}

/// The prompt: in a session the level stands on a line above it.
fn prompt(console: &Console) -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let who = format!("{}@{}", console.user(), name.split('.').next().unwrap_or_default());
    match console.session() {
        Some(session) => {
            let level = session.level().to_string();
            println!("[edit{}{level}]", if level.is_empty() { "" } else { " " });
            format!("{who}# ")
        }
        None => format!("{who}:{}$ ", folder()),
    }
}

fn folder() -> String {
    let folder = std::env::current_dir().map(|it| it.display().to_string()).unwrap_or_default();
    match std::env::var("HOME").ok().and_then(|home| folder.strip_prefix(&home).map(str::to_owned)) {
        Some(below) if below.is_empty() || below.starts_with('/') => format!("~{below}"),
        _ => folder,
    }
}

fn columns() -> usize {
    tcgetwinsize(stdout()).map_or(80, |size| usize::from(size.ws_col)).max(20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_secrets_are_not_kept() {
        for line in [
            "save scp://admin:OpenSesame@192.0.2.1/a.conf",
            "load 'https://a:b@example.org/a'",
            "load https://example.org/a?sig=OpenSesame",
            "curl -H 'Authorization: Bearer OpenSesame' https://example.org",
            "mysql --password=OpenSesame",
            "set vpn ipsec authentication psk a secret OpenSesame",
        ] {
            assert!(is_private(line), "{line}");
        }
        for line in [
            "save scp://admin@192.0.2.1/a.conf",
            "load https://example.org/a@b/c:d",
            "set interfaces wireguard wg0 mtu 1400",
            "show vpn ipsec sa | match 'a?'",
        ] {
            assert!(!is_private(line), "{line}");
        }
    }
}
