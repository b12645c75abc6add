//! A client that hands one message to a mail server: SMTP (RFC 5321) with STARTTLS or TLS (RFC 3207, RFC 8314) and AUTH (RFC 4954).
//!
//! The server may be slow or hostile: an answer has bounded lines, and the whole conversation a deadline.

use crate::client::{PostError, trusting};
use base64ct::{Base64, Encoding};
use rustls::pki_types::ServerName;
use std::fmt::Write as _;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use zeroize::Zeroizing;

/// Bytes of a line of an answer: RFC 5321 4.5.3.1.5 allows 512.
const LINE: usize = 1024;
/// Lines of an answer.
const LINES: usize = 64;

/// How the conversation is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Not at all.
    Nothing,
    /// By TLS after STARTTLS, without which nothing is sent.
    StartTls,
    /// By TLS from the first byte.
    Tls,
}

/// Where a message goes.
#[derive(Debug)]
pub struct Server<'a> {
    /// Its name or address, which its certificate must have.
    pub host: &'a str,
    /// Its TCP port.
    pub port: u16,
    /// How the conversation is protected.
    pub protection: Protection,
    /// The certificate of the only authority that is trusted, in DER; those of the machine if there is none.
    pub authority: Option<&'a [u8]>,
    /// A user and a password.
    pub login: Option<(&'a str, &'a str)>,
    /// What this machine calls itself.
    pub own_name: &'a str,
}

/// A message. Addresses have no `<`, `>` or white space, and the text ends its lines with CR LF and begins none with a dot.
#[derive(Debug)]
pub struct Message<'a> {
    /// Who gets to know if it cannot be delivered.
    pub from: &'a str,
    /// Who gets it.
    pub to: &'a [&'a str],
    /// Head and body.
    pub text: &'a str,
}

/// Why a message was not taken. What the server says is shown without control characters, and bounded.
#[derive(Debug, thiserror::Error)]
pub enum MailError {
    /// It cannot be reached, or TLS failed.
    #[error("it cannot be reached: {0}")]
    Unreachable(#[from] io::Error),
    /// No authority can be trusted, or the name of the server is none.
    #[error("{0}")]
    Tls(#[from] PostError),
    /// Its answer is none of SMTP.
    #[error("it does not speak SMTP")]
    NoSmtp,
    /// It closed the connection before it had answered.
    #[error("it hung up")]
    HungUp,
    /// It has no STARTTLS.
    #[error("it has no STARTTLS: set mail tls implicit or none")]
    NoStartTls,
    /// It has no way to log in that is known.
    #[error("it takes no password by PLAIN or LOGIN")]
    NoLogin,
    /// It refused.
    #[error("to {at} it answers {code} {text}")]
    Refused {
        /// The command.
        at: &'static str,
        /// Its code.
        code: u16,
        /// What it says.
        text: String,
    },
    /// It did not end in time.
    #[error("it does not answer in time")]
    Silent,
}

impl MailError {
    /// Whether another try may succeed: RFC 5321 4.2.1, 4yz.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Refused { code, .. } => (400..500).contains(code),
            Self::Unreachable(_) | Self::HungUp | Self::Silent => true,
            Self::Tls(_) | Self::NoSmtp | Self::NoStartTls | Self::NoLogin => false,
        }
    }
}

/// Hands a message over, which may take so long as a whole. The addresses that the server refuses, with what it says, if it takes
/// others; an error if it takes none.
pub async fn send(
    server: &Server<'_>,
    message: &Message<'_>,
    deadline: Duration,
) -> Result<Vec<(String, MailError)>, MailError> {
    timeout(deadline, converse(server, message)).await.unwrap_or(Err(MailError::Silent))
}

async fn converse(server: &Server<'_>, message: &Message<'_>) -> Result<Vec<(String, MailError)>, MailError> {
    let connector = match server.protection {
        Protection::Nothing => None,
        _ => Some(TlsConnector::from(trusting(server.authority)?)),
    };
    let stream = TcpStream::connect((server.host, server.port)).await?;
    let name = || ServerName::try_from(server.host.to_owned()).map_err(|_| PostError::Url);
    match (server.protection, connector) {
        (Protection::Tls, Some(connector)) => {
            let mut talk = Talk::new(connector.connect(name()?, stream).await?);
            talk.expect("the connection", 220).await?;
            deliver(talk, server, message).await
        }
        (Protection::StartTls, Some(connector)) => {
            let mut talk = Talk::new(stream);
            talk.expect("the connection", 220).await?;
            let offers = talk.hello(server.own_name).await?;
            if !offers.iter().any(|offer| offer.eq_ignore_ascii_case("STARTTLS")) {
                return Err(MailError::NoStartTls);
            }
            talk.ask("STARTTLS", "STARTTLS", 220).await?;
            // RFC 3207 4.2 and 5: what was sent before TLS, and arrives with the answer, is not of the server.
            if !talk.read.is_empty() {
                return Err(MailError::NoSmtp);
            }
            deliver(Talk::new(connector.connect(name()?, talk.stream).await?), server, message).await
        }
        _ => {
            let mut talk = Talk::new(stream);
            talk.expect("the connection", 220).await?;
            deliver(talk, server, message).await
        }
    }
}

/// All from EHLO on, on a connection that is protected as it is meant to be.
async fn deliver<S>(
    mut talk: Talk<S>,
    server: &Server<'_>,
    message: &Message<'_>,
) -> Result<Vec<(String, MailError)>, MailError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let offers = talk.hello(server.own_name).await?;
    if let Some((user, password)) = server.login {
        talk.log_in(&offers, user, password).await?;
    }
    talk.ask("MAIL FROM", &format!("MAIL FROM:<{}>", message.from), 250).await?;
    let mut refused = Vec::new();
    for &to in message.to {
        match talk.ask("RCPT TO", &format!("RCPT TO:<{to}>"), 250).await {
            Ok(_) => {}
            // RFC 5321 3.8: with 421 the server ends the conversation.
            Err(error @ MailError::Refused { code, .. }) if code != 421 => {
                refused.push((to.to_owned(), error));
            }
            Err(error) => return Err(error),
        }
    }
    if refused.len() == message.to.len()
        && let Some(last) = refused.pop()
    {
        // Another try helps if it helps with one of them.
        let temporary = refused.into_iter().map(|(_, error)| error).find(MailError::is_temporary);
        return Err(temporary.unwrap_or(last.1));
    }
    talk.ask("DATA", "DATA", 354).await?;
    talk.ask("the message", &format!("{}\r\n.", message.text.trim_end()), 250).await?;
    // It has the message now, whatever becomes of the connection.
    let _ = talk.ask("QUIT", "QUIT", 221).await;
    Ok(refused)
}

/// A conversation.
struct Talk<S> {
    stream: S,
    /// What was read, and is no answer yet.
    read: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Talk<S> {
    fn new(stream: S) -> Self {
        Self { stream, read: Vec::new() }
    }

    /// Says EHLO; what the server offers.
    async fn hello(&mut self, own_name: &str) -> Result<Vec<String>, MailError> {
        let reply = self.ask("EHLO", &format!("EHLO {own_name}"), 250).await?;
        Ok(reply.lines.into_iter().skip(1).collect())
    }

    async fn log_in(&mut self, offers: &[String], user: &str, password: &str) -> Result<(), MailError> {
        let has = |way: &str| {
            let ways = offers.iter().filter_map(|offer| {
                let (word, ways) = offer.split_once([' ', '='])?;
                word.eq_ignore_ascii_case("AUTH").then_some(ways)
            });
            ways.flat_map(str::split_whitespace).any(|it| it.eq_ignore_ascii_case(way))
        };
        let encoded = |text: &str| Zeroizing::new(Base64::encode_string(text.as_bytes()));
        if has("PLAIN") {
            let secret = Zeroizing::new(format!("\0{user}\0{password}"));
            let line = Zeroizing::new(format!("AUTH PLAIN {}", *encoded(&secret)));
            self.ask("AUTH", &line, 235).await?;
        } else if has("LOGIN") {
            self.ask("AUTH", "AUTH LOGIN", 334).await?;
            self.ask("AUTH", &encoded(user), 334).await?;
            self.ask("AUTH", &encoded(password), 235).await?;
        } else {
            return Err(MailError::NoLogin);
        }
        Ok(())
    }

    /// Sends a line, to which the answer must have this code.
    async fn ask(&mut self, at: &'static str, line: &str, code: u16) -> Result<Reply, MailError> {
        let line = Zeroizing::new(format!("{line}\r\n"));
        self.stream.write_all(line.as_bytes()).await?;
        self.stream.flush().await?;
        self.expect(at, code).await
    }

    async fn expect(&mut self, at: &'static str, code: u16) -> Result<Reply, MailError> {
        let reply = loop {
            if let Some((reply, taken)) = Reply::parse(&self.read)? {
                self.read.drain(..taken);
                break reply;
            }
            let mut bytes = [0; 1024];
            match self.stream.read(&mut bytes).await? {
                0 => return Err(MailError::HungUp),
                count => self.read.extend_from_slice(&bytes[..count]),
            }
        };
        // RFC 5321 4.3.2: a recipient elsewhere is taken with 251.
        let is_taken = reply.code == code || (code == 250 && reply.code == 251);
        if is_taken { Ok(reply) } else { Err(reply.refusal(at)) }
    }
}

/// An answer of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Its code.
    pub code: u16,
    /// Its lines without codes.
    pub lines: Vec<String>,
}

impl Reply {
    /// The first answer in what was read, and its bytes; nothing if more is to come. RFC 5321 4.2: `250-TEXT`, and at last `250 TEXT`.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, MailError> {
        let (mut lines, mut at) = (Vec::new(), 0);
        loop {
            let rest = &bytes[at..];
            let Some(end) = rest.iter().take(LINE).position(|&byte| byte == b'\n') else {
                return if rest.len() < LINE { Ok(None) } else { Err(MailError::NoSmtp) };
            };
            let line = String::from_utf8_lossy(&rest[..end]).trim_end().to_owned();
            at += end + 1;
            let digits = line.get(..3).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
            let code: u16 = digits.and_then(|digits| digits.parse().ok()).ok_or(MailError::NoSmtp)?;
            let (is_last, text) = match line[3..].chars().next() {
                None => (true, ""),
                Some(' ') => (true, &line[4..]),
                Some('-') => (false, &line[4..]),
                Some(_) => return Err(MailError::NoSmtp),
            };
            lines.push(text.to_owned());
            if is_last {
                return Ok(Some((Self { code, lines }, at)));
            }
            if lines.len() >= LINES {
                return Err(MailError::NoSmtp);
            }
        }
    }

    fn refusal(&self, at: &'static str) -> MailError {
        let mut text = String::new();
        for line in self.lines.iter().take(3) {
            let _ = write!(text, "{line} ");
        }
        let text: String =
            text.trim_end().chars().take(200).map(|c| if c.is_control() { '?' } else { c }).collect();
        MailError::Refused { at, code: self.code, text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::crypto::aws_lc_rs::default_provider;
    use std::sync::Arc;
    use tokio::net::TcpListener;
    use tokio::task::JoinHandle;
    use tokio_rustls::TlsAcceptor;

    const DEADLINE: Duration = Duration::from_secs(20);

    /// A server that answers each line with the next of these, and then says nothing; what it was sent.
    async fn server(answers: &'static [&'static str]) -> (u16, JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let served = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a client");
            answer(&mut stream, answers, true).await
        });
        (port, served)
    }

    /// Answers each line with the next of these, the first of which needs none if the server speaks first; what it was sent.
    async fn answer<S>(stream: &mut S, answers: &[&str], speaks_first: bool) -> String
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut read = String::new();
        for (at, answer) in answers.iter().enumerate() {
            let ends = if at > 0 && answers[at - 1].starts_with("354") { "\r\n.\r\n" } else { "\r\n" };
            let before = read.len();
            let needs_none = at == 0 && speaks_first;
            while !(needs_none || read.len() > before && read.ends_with(ends)) {
                let mut bytes = [0; 512];
                match stream.read(&mut bytes).await {
                    Ok(count @ 1..) => read.push_str(&String::from_utf8_lossy(&bytes[..count])),
                    _ => return read,
                }
            }
            if stream.write_all(answer.as_bytes()).await.is_err() {
                break;
            }
        }
        read
    }

    fn to(port: u16, login: Option<(&'static str, &'static str)>) -> Server<'static> {
        let (host, own_name) = ("127.0.0.1", "gw.example");
        Server { host, port, protection: Protection::Nothing, authority: None, login, own_name }
    }

    const MESSAGE: Message<'static> =
        Message { from: "a@b.example", to: &["c@d.example"], text: "Subject: x\r\n\r\nbody\r\n" };

    #[tokio::test]
    async fn a_message_is_handed_over_with_a_password() {
        let (port, served) = server(&[
            "220 mail\r\n",
            "250-mail\r\n250-SIZE 1000\r\n250 AUTH LOGIN PLAIN\r\n",
            "235 in\r\n",
            "250 ok\r\n",
            "251 elsewhere\r\n",
            "354 go\r\n",
            "250 taken\r\n",
            "221 bye\r\n",
        ])
        .await;
        let refused = send(&to(port, Some(("me", "secret"))), &MESSAGE, DEADLINE).await.expect("it is taken");
        assert!(refused.is_empty());
        assert_eq!(
            served.await.expect("served"),
            "EHLO gw.example\r\nAUTH PLAIN AG1lAHNlY3JldA==\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<c@d.example>\r\nDATA\r\n\
             Subject: x\r\n\r\nbody\r\n.\r\nQUIT\r\n"
        );
    }

    #[tokio::test]
    async fn refusals_are_told_with_the_command_and_what_may_pass_is_tried_again() {
        for (answers, said, is_temporary) in [
            (&["554 go away\x07\r\n"][..], "to the connection it answers 554 go away?", false),
            (&["220 a\r\n", "250 a\r\n", "451 later\r\n"], "to MAIL FROM it answers 451 later", true),
            (
                &["220 a\r\n", "250 a\r\n", "250 a\r\n", "550 no such user\r\n"],
                "to RCPT TO it answers 550",
                false,
            ),
            (&["HTTP/1.1 400 no\r\n"], "it does not speak SMTP", false),
            (&["220 a\r\n", "250-a\r\n250+b\r\n"], "it does not speak SMTP", false),
        ] {
            let (port, _served) = server(answers).await;
            let error = send(&to(port, None), &MESSAGE, DEADLINE).await.expect_err(said);
            assert!(error.to_string().contains(said), "{error}");
            assert_eq!(error.is_temporary(), is_temporary, "{error}");
        }
        let (port, _served) = server(&["220 a\r\n", "250 a\r\n"]).await;
        let error = send(&to(port, Some(("a", "b"))), &MESSAGE, DEADLINE).await.expect_err("no way");
        assert!(matches!(error, MailError::NoLogin), "{error}");
    }

    #[tokio::test]
    async fn an_address_that_is_refused_keeps_the_message_from_no_other() {
        const BEGIN: [&str; 3] = ["220 a\r\n", "250 a\r\n", "250 ok\r\n"];
        let two = Message { to: &["gone@d.example", "c@d.example"], ..MESSAGE };
        let (port, served) = server(&[
            "220 a\r\n",
            "250 a\r\n",
            "250 ok\r\n",
            "550 no such user\r\n",
            "250 ok\r\n",
            "354 go\r\n",
            "250 taken\r\n",
            "221 bye\r\n",
        ])
        .await;
        let refused = send(&to(port, None), &two, DEADLINE).await.expect("one is taken");
        assert!(served.await.expect("served").contains("RCPT TO:<c@d.example>\r\nDATA\r\n"));
        let [(address, why)] = &refused[..] else { panic!("{refused:?}") };
        assert_eq!((&**address, why.to_string().contains("550 no such user")), ("gone@d.example", true));
        // If all are refused there is another try if it helps one of them.
        for (answers, said, is_temporary) in [
            (&[&BEGIN[..], &["550 no\r\n", "551 no\r\n"]].concat()[..], "551 no", false),
            (&[&BEGIN[..], &["450 later\r\n", "551 no\r\n"]].concat(), "450 later", true),
            (&[&BEGIN[..], &["250 ok\r\n", "421 bye\r\n"]].concat(), "421 bye", true),
        ] {
            let (port, _served) = server(answers.to_vec().leak()).await;
            let error = send(&to(port, None), &two, DEADLINE).await.expect_err(said);
            assert!(error.to_string().contains(said) && error.is_temporary() == is_temporary, "{error}");
        }
    }

    #[tokio::test]
    async fn a_server_without_starttls_gets_no_message() {
        let (port, served) = server(&["220 a\r\n", "250 a\r\n", "never"]).await;
        let der = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])
            .expect("signed")
            .cert
            .der()
            .to_vec();
        let server = Server { protection: Protection::StartTls, authority: Some(&der), ..to(port, None) };
        let error = send(&server, &MESSAGE, DEADLINE).await.expect_err("it is not sent in clear");
        assert!(matches!(error, MailError::NoStartTls), "{error}");
        assert_eq!(served.await.expect("served"), "EHLO gw.example\r\n");
        // What a third party adds to the answer is not taken for the server's.
        let (port, _served) =
            self::server(&["220 a\r\n", "250-a\r\n250 STARTTLS\r\n", "220 go\r\n250 injected\r\n"]).await;
        let server = Server { port, ..server };
        assert!(matches!(send(&server, &MESSAGE, DEADLINE).await, Err(MailError::NoSmtp)));
    }

    #[tokio::test]
    async fn a_message_is_sent_by_tls_from_the_first_byte_or_after_starttls() {
        const REST: &[&str] =
            &["250 a\r\n", "250 ok\r\n", "250 ok\r\n", "354 go\r\n", "250 taken\r\n", "221 bye\r\n"];
        let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("signed");
        let der = signed.cert.der().clone();
        let builder = rustls::ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().expect("versions").with_no_client_auth();
        let key =
            rustls::pki_types::PrivateKeyDer::try_from(signed.signing_key.serialize_der()).expect("a key");
        let config = builder.with_single_cert(vec![der.clone()], key).expect("it fits");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        for protection in [Protection::StartTls, Protection::Tls] {
            let server = Server { host: "localhost", protection, authority: Some(&der), ..to(port, None) };
            let (sent, said) = tokio::join!(send(&server, &MESSAGE, DEADLINE), async {
                let (mut stream, _) = listener.accept().await.expect("a client");
                let is_plain = protection == Protection::StartTls;
                if is_plain {
                    let begin = ["220 a\r\n", "250-a\r\n250 STARTTLS\r\n", "220 go\r\n"];
                    answer(&mut stream, &begin, true).await;
                }
                let mut stream = acceptor.accept(stream).await.expect("TLS");
                if !is_plain {
                    stream.write_all(b"220 a\r\n").await.expect("sent");
                }
                answer(&mut stream, REST, false).await
            });
            sent.expect("it is taken");
            assert!(said.starts_with("EHLO gw.example\r\nMAIL FROM:<a@b.example>\r\n"), "{said}");
        }
        let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])
            .expect("signed")
            .cert
            .der()
            .to_vec();
        let server = Server {
            host: "localhost",
            protection: Protection::Tls,
            authority: Some(&other),
            ..to(port, None)
        };
        let (sent, _) = tokio::join!(send(&server, &MESSAGE, DEADLINE), async {
            let (stream, _) = listener.accept().await.expect("a client");
            acceptor.accept(stream).await.is_ok()
        });
        assert!(sent.expect_err("another authority").to_string().contains("certificate"));
    }

    #[tokio::test]
    async fn one_that_is_silent_or_never_ends_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let error = send(&to(port, None), &MESSAGE, Duration::from_millis(100)).await.expect_err("silence");
        assert!(matches!(error, MailError::Silent) && error.is_temporary());
        drop(listener.accept().await);
        for piece in [&b"220-again and again\r\n"[..], b"220 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"] {
            let plain = to(port, None);
            let error = tokio::join!(send(&plain, &MESSAGE, DEADLINE), async {
                let (mut stream, _) = listener.accept().await.expect("a client");
                while stream.write_all(piece).await.is_ok() {}
            });
            assert!(matches!(error.0, Err(MailError::NoSmtp)), "{:?}", error.0);
        }
    }

    #[test]
    fn answers_are_read_one_by_one() {
        let parse = |text: &str| Reply::parse(text.as_bytes());
        let reply =
            |code, lines: &[&str]| Reply { code, lines: lines.iter().map(|&it| it.to_owned()).collect() };
        assert_eq!(parse("250-a\r\n250 b\r\n221 c\r\n").expect("two"), Some((reply(250, &["a", "b"]), 14)));
        assert_eq!(parse("250\n").expect("short"), Some((reply(250, &[""]), 4)));
        for begun in ["", "2", "250-a\r\n", "250 a"] {
            assert_eq!(parse(begun).expect("begun"), None, "{begun}");
        }
        for wrong in ["\r\n", "25 a\r\n", "2a0 b\r\n", "250_a\r\n", "\u{e9}\u{e9} a\r\n"] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
