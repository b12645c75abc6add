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
    /// The configured name of the server is not one.
    #[error("the server {0} is neither a host name nor an IP address: correct mail server")]
    Name(String),
    /// No authority can be trusted.
    #[error("{0}")]
    Tls(#[from] PostError),
    /// Its answer is none of SMTP.
    #[error("it does not speak SMTP")]
    NoSmtp,
    /// It closed the connection before it had answered.
    #[error("it hung up")]
    HungUp,
    /// It has no STARTTLS.
    // No advice to use clear text: an attacker on the way can remove STARTTLS from the answer.
    #[error(
        "it does not offer STARTTLS, and nothing is sent without TLS: if it has a TLS port, set mail tls implicit"
    )]
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
            Self::Name(_) | Self::Tls(_) | Self::NoSmtp | Self::NoStartTls | Self::NoLogin => false,
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
    let tls = if server.protection == Protection::Nothing {
        None
    } else {
        let host = server.host.to_owned();
        let name = ServerName::try_from(host).map_err(|_| MailError::Name(server.host.to_owned()))?;
        Some((TlsConnector::from(trusting(server.authority)?), name))
    };
    let stream = TcpStream::connect((server.host, server.port)).await?;
    match (server.protection, tls) {
        (Protection::Tls, Some((connector, name))) => {
            let mut talk = Talk::new(connector.connect(name, stream).await?);
            talk.expect("the connection", 220).await?;
            deliver(talk, server, message).await
        }
        (Protection::StartTls, Some((connector, name))) => {
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
            deliver(Talk::new(connector.connect(name, talk.stream).await?), server, message).await
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
mod tests;
