//! Key method 2: the first message of each side on TLS, with random numbers, credentials and what the peer supports.
//!
//! ```text
//! zero 4 | method 1 = 2 | client only: pre-master 48 | random 32 | random 32
//! options | user name | password | peer information      each: length 2 with its final NUL, text, NUL
//! ```

use super::limits::LONGEST_CREDENTIAL;
use super::packet::{Malformed, take};
use super::wrap::Role;
use crypto::Random;
use std::fmt;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

const METHOD: u8 = 2;
/// The longest message that stock peers accept.
const LONGEST: usize = 2048;

/// Random numbers of one side, from which data keys are derived where TLS exports none.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct KeySource {
    /// Of the client only; zero in a server's.
    pub pre_master: [u8; 48],
    /// For the master secret.
    pub random1: [u8; 32],
    /// For the key expansion.
    pub random2: [u8; 32],
}

impl KeySource {
    /// Random numbers for this side.
    pub fn random(role: Role, random: &mut dyn Random) -> Self {
        let mut source = Self { pre_master: [0; 48], random1: [0; 32], random2: [0; 32] };
        if role == Role::Client {
            random.fill(&mut source.pre_master);
        }
        random.fill(&mut source.random1);
        random.fill(&mut source.random2);
        source
    }
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySource(..)")
    }
}

/// A user name and a password.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The user name; empty if there is none.
    pub user: String,
    /// The password.
    pub password: Zeroizing<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({:?}, ..)", self.user)
    }
}

/// The message of one side.
#[derive(Clone, Debug)]
pub struct KeyMethod {
    /// The random numbers.
    pub source: KeySource,
    /// A summary of the sender's options, which is only compared for warnings.
    pub options: String,
    /// The user's, of a client.
    pub credentials: Credentials,
    /// Lines `NAME=value`, of a client, or of a server in P2P negotiation.
    pub peer_info: String,
}

impl KeyMethod {
    /// Reads a message sent by `sender`.
    pub fn parse(sender: Role, mut bytes: &[u8]) -> Result<Self, Malformed> {
        let bytes = &mut bytes;
        let [0, 0, 0, 0, METHOD] = take(bytes)? else { return Err(Malformed) };
        let pre_master = if sender == Role::Client { take(bytes)? } else { [0; 48] };
        let source = KeySource { pre_master, random1: take(bytes)?, random2: take(bytes)? };
        let options = line(text(bytes)?)?;
        // Old peers end after the options, and some after the password.
        let user = line(text_if_any(bytes)?)?;
        let password = text_if_any(bytes)?;
        if user.len() > LONGEST_CREDENTIAL || password.len() > LONGEST_CREDENTIAL {
            return Err(Malformed);
        }
        let peer_info = text_if_any(bytes)?.to_string();
        Ok(Self { source, options, credentials: Credentials { user, password }, peer_info })
    }

    /// The message of `sender`; `None` if it would be longer than peers accept.
    pub fn emit(&self, sender: Role) -> Option<Zeroizing<Vec<u8>>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(LONGEST));
        bytes.extend_from_slice(&[0, 0, 0, 0, METHOD]);
        if sender == Role::Client {
            bytes.extend_from_slice(&self.source.pre_master);
        }
        bytes.extend_from_slice(&self.source.random1);
        bytes.extend_from_slice(&self.source.random2);
        let texts = [&self.options, &self.credentials.user, &*self.credentials.password, &self.peer_info];
        let length: usize = texts.iter().map(|text| text.len() + 3).sum();
        if bytes.len() + length > LONGEST {
            return None;
        }
        for text in texts {
            if text.is_empty() {
                bytes.extend_from_slice(&[0, 0]);
                continue;
            }
            bytes.extend_from_slice(&(text.len() as u16 + 1).to_be_bytes());
            bytes.extend_from_slice(text.as_bytes());
            bytes.push(0);
        }
        Some(bytes)
    }
}

fn text(bytes: &mut &[u8]) -> Result<Zeroizing<String>, Malformed> {
    let length = u16::from_be_bytes(take(bytes)?).into();
    let (text, rest) = bytes.split_at_checked(length).ok_or(Malformed)?;
    *bytes = rest;
    let Some((&last, text)) = text.split_last() else { return Ok(Zeroizing::default()) };
    // A text that ends early would be seen differently by programs that the values are given to.
    if last != 0 || text.contains(&0) {
        return Err(Malformed);
    }
    // Names may have any encoding: unknown bytes become replacement characters, which no rule matches.
    Ok(Zeroizing::new(String::from_utf8_lossy(text).into_owned()))
}

/// A text that is shown and compared: a user name with a line break could pass for two lines of a log or of a script.
fn line(text: Zeroizing<String>) -> Result<String, Malformed> {
    let line = text.trim_end_matches(['\r', '\n']);
    if line.contains(char::is_control) { Err(Malformed) } else { Ok(line.to_owned()) }
}

fn text_if_any(bytes: &mut &[u8]) -> Result<Zeroizing<String>, Malformed> {
    if bytes.is_empty() { Ok(Zeroizing::default()) } else { text(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(role: Role) -> KeyMethod {
        let pre_master = if role == Role::Client { [1; 48] } else { [0; 48] };
        KeyMethod {
            source: KeySource { pre_master, random1: [2; 32], random2: [3; 32] },
            options: String::from("V4,dev-type tun"),
            credentials: Credentials {
                user: String::from("berta"),
                password: Zeroizing::new(String::from("secret")),
            },
            peer_info: String::from("IV_PROTO=990\n"),
        }
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        for role in [Role::Client, Role::Server] {
            let bytes = message(role).emit(role).expect("short");
            let read = KeyMethod::parse(role, &bytes).expect("well-formed");
            assert_eq!(read.source.pre_master, message(role).source.pre_master);
            assert_eq!((read.source.random1, read.source.random2), ([2; 32], [3; 32]));
            assert_eq!(read.credentials, message(role).credentials);
            assert_eq!((&*read.options, &*read.peer_info), ("V4,dev-type tun", "IV_PROTO=990\n"));
        }
    }

    #[test]
    fn truncated_messages_are_refused_or_end_after_a_text() {
        let bytes = message(Role::Client).emit(Role::Client).expect("short");
        let ends: Vec<usize> = (0..bytes.len())
            .filter(|&length| KeyMethod::parse(Role::Client, &bytes[..length]).is_ok())
            .collect();
        let options = 5 + 48 + 64 + 2 + 16;
        assert_eq!(ends, [options, options + 2 + 6, options + 2 + 6 + 2 + 7]);
    }

    #[test]
    fn a_text_with_a_nul_inside_is_refused() {
        let mut bytes = message(Role::Server).emit(Role::Server).expect("short");
        bytes[5 + 64 + 2 + 3] = 0;
        assert!(KeyMethod::parse(Role::Server, &bytes).is_err());
    }

    #[test]
    fn user_names_and_options_with_control_characters_are_refused() {
        let read = |change: fn(&mut KeyMethod)| {
            let mut message = message(Role::Client);
            change(&mut message);
            KeyMethod::parse(Role::Client, &message.emit(Role::Client).expect("short"))
        };
        assert!(read(|message| message.credentials.user.push_str("\nroot")).is_err());
        assert!(read(|message| message.options.insert(0, '\x1b')).is_err());
        let password = read(|message| message.credentials.password.push('\x07')).expect("any password");
        assert_eq!(&*password.credentials.password, "secret\x07");
        let user = read(|message| message.credentials.user.push_str("\r\n")).expect("ends with a line break");
        assert_eq!(user.credentials.user, "berta");
    }

    #[test]
    fn long_user_names_and_passwords_are_refused() {
        for (user, password, is_read) in [(4096, 4096, true), (4097, 0, false), (0, 4097, false)] {
            let mut bytes = vec![0, 0, 0, 0, METHOD];
            bytes.extend([1; 48 + 64]);
            for length in [2u16, user, password] {
                bytes.extend((length + 1).to_be_bytes());
                bytes.extend(vec![b'a'; length.into()]);
                bytes.push(0);
            }
            assert_eq!(KeyMethod::parse(Role::Client, &bytes).is_ok(), is_read, "{user} {password}");
        }
    }

    #[test]
    fn secrets_are_not_printed_and_long_messages_not_written() {
        let mut message = message(Role::Client);
        let text = format!("{message:?}");
        assert!(!text.contains("secret") && text.contains("berta") && !text.contains("1, 1"), "{text}");
        message.peer_info = "x".repeat(LONGEST);
        assert!(message.emit(Role::Client).is_none());
    }
}
