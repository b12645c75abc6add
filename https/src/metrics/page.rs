//! The page of metrics: made once a second at most, and compressed once, for all who ask meanwhile.

use super::{Options, text};
use crate::daemon::Daemon;
use flate2::Compression;
use flate2::write::GzEncoder;
use gateway::facts::FRESH;
use hyper::body::Bytes;
use std::io::Write;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, OnceCell};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// How long the daemon may take to tell its facts.
const PATIENCE: Duration = Duration::from_secs(8);

/// Why there is no page.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum PageError {
    #[error("the daemon does not answer")]
    Silent,
    #[error("{0}")]
    Daemon(String),
    #[error("the metrics cannot be made: see the log of the daemon")]
    Panicked,
}

/// The text of all metrics, and what it is compressed.
pub(super) struct Page {
    text: Bytes,
    gzip: OnceCell<Bytes>,
}

impl Page {
    pub(super) fn new(text: String) -> Self {
        Self { text: text.into(), gzip: OnceCell::new() }
    }

    pub(super) fn text(&self) -> Bytes {
        self.text.clone()
    }

    /// The text by gzip (RFC 1952).
    pub(super) async fn gzip(&self) -> Result<Bytes, PageError> {
        let compress = || async {
            let text = self.text.clone();
            let compressed = spawn_blocking(move || compressed(&text)).await;
            compressed.map_err(|_| PageError::Panicked)
        };
        self.gzip.get_or_try_init(compress).await.cloned()
    }
}

pub(super) fn compressed(text: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).and_then(|()| encoder.finish()).expect("memory takes all").into()
}

/// The latest page, or why there is none. It is made by a task of its own, also if those who asked for it have gone: clients that
/// come and go cannot have the daemon asked more often.
#[derive(Default)]
pub(super) struct Latest {
    state: Mutex<State>,
    is_made: Notify,
}

#[derive(Default)]
struct State {
    made: Option<Made>,
    is_being_made: bool,
}

struct Made {
    at: Instant,
    options: Options,
    page: Result<Arc<Page>, PageError>,
}

impl Latest {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A page that is at most a second old.
    pub(super) async fn page(
        self: &Arc<Self>,
        daemon: &Arc<Daemon>,
        options: Options,
    ) -> Result<Arc<Page>, PageError> {
        loop {
            let mut is_made = pin!(self.is_made.notified());
            {
                let mut state = self.lock();
                if let Some(made) = &state.made
                    && made.at.elapsed() < FRESH
                    && made.options == options
                {
                    return made.page.clone();
                }
                is_made.as_mut().enable();
                if !std::mem::replace(&mut state.is_being_made, true) {
                    // It is not kept while the next is made: that of ten thousand peers has several megabytes.
                    state.made = None;
                    tokio::spawn(Arc::clone(self).renew(Arc::clone(daemon), options));
                }
            }
            is_made.await;
        }
    }

    async fn renew(self: Arc<Self>, daemon: Arc<Daemon>, options: Options) {
        let page = make(&daemon, options).await.map(Arc::new);
        let made = Some(Made { at: Instant::now(), options, page });
        *self.lock() = State { made, is_being_made: false };
        self.is_made.notify_waiters();
    }
}

async fn make(daemon: &Daemon, options: Options) -> Result<Page, PageError> {
    let facts = timeout(PATIENCE, daemon.facts()).await.map_err(|_| PageError::Silent)?;
    let facts = facts.map_err(|refused| PageError::Daemon(refused.error))?;
    let made = spawn_blocking(move || {
        let facts = serde_json::from_slice(&facts).ok()?;
        Some(Page::new(text(facts, options)))
    });
    let made = made.await.map_err(|_| PageError::Panicked)?;
    made.ok_or_else(|| PageError::Daemon("the daemon is of another version".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use std::io::Read;
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixListener;

    /// A daemon that answers each request with this body, and counts them.
    fn daemon(folder: &Path, body: &'static str) -> (Arc<Daemon>, Arc<AtomicUsize>) {
        let socket = folder.join("sock");
        let (listener, asked) =
            (UnixListener::bind(&socket).expect("a socket"), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&asked);
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                let mut request = [0; 1024];
                let _ = stream.read(&mut request).await;
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
                open.push(stream);
            }
        });
        (Arc::new(Daemon::new(socket)), asked)
    }

    fn facts() -> &'static str {
        serde_json::to_string(&gateway::facts::model::Facts::default()).expect("JSON").leak()
    }

    #[tokio::test]
    async fn scrapes_at_once_share_one_page_also_if_the_first_has_gone() {
        let folder = tempfile::tempdir().expect("a folder");
        let (daemon, asked) = daemon(folder.path(), facts());
        let (latest, options) = (Arc::new(Latest::default()), Options::default());
        let gone = tokio::spawn({
            let (latest, daemon) = (Arc::clone(&latest), Arc::clone(&daemon));
            async move { latest.page(&daemon, options).await.map(|_| ()) }
        });
        tokio::task::yield_now().await;
        gone.abort();
        let page = || latest.page(&daemon, options);
        let (one, two, three) = tokio::join!(page(), page(), page());
        let one = one.expect("a page");
        assert!(Arc::ptr_eq(&one, &two.expect("a page")) && Arc::ptr_eq(&one, &three.expect("a page")));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        let other = Options { wireguard_names: true, ..options };
        latest.page(&daemon, other).await.expect("a page");
        assert_eq!(asked.load(Ordering::Relaxed), 2, "other settings are another page");
    }

    #[tokio::test]
    async fn a_page_is_compressed_once_and_is_the_same_text() {
        let page = Page::new("# EOF\n".repeat(1000));
        let (gzip, again) = (page.gzip().await.expect("made"), page.gzip().await.expect("made"));
        assert_eq!(gzip.as_ptr(), again.as_ptr());
        assert!(gzip.len() < 200);
        let mut text = String::new();
        GzDecoder::new(&*gzip).read_to_string(&mut text).expect("gzip");
        assert_eq!(text.as_bytes(), page.text());
    }

    #[tokio::test]
    async fn a_daemon_that_cannot_be_asked_is_told_and_asked_again_a_second_later() {
        let folder = tempfile::tempdir().expect("a folder");
        let (foreign, asked) = daemon(folder.path(), "{}");
        let (latest, options) = (Arc::new(Latest::default()), Options::default());
        for _ in 0..3 {
            let error = latest.page(&foreign, options).await.map(|_| ()).expect_err("no facts");
            assert!(error.to_string().contains("of another version"), "{error}");
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        let gone = Arc::new(Daemon::new(folder.path().join("none")));
        let error =
            Arc::new(Latest::default()).page(&gone, options).await.map(|_| ()).expect_err("no daemon");
        assert!(error.to_string().contains("cannot be asked"), "{error}");
    }
}
