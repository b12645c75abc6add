//! What a server tells its client to use: `PUSH_REPLY` and its options, split into several messages if it is long.

use super::data::Framing;
use super::keepalive::{Keepalive, Silence};
use super::limits::{MAX_PUSH_MESSAGES, PUSH_LENGTH};
use super::negotiate::DataCipher;
use super::packet::Malformed;
use super::peer_info::shortened;
use std::time::Duration;

const REPLY: &str = "PUSH_REPLY";

/// Splits options into messages of at most [`PUSH_LENGTH`] bytes. An option that is too long, or that a client would read
/// as two because of a comma or a control character, is left out and returned.
pub fn emit(options: &[String]) -> (Vec<String>, Vec<&String>) {
    const CONTINUATION: usize = ",push-continuation 2".len();
    let mut messages = vec![String::from(REPLY)];
    let mut left_out = Vec::new();
    for option in options {
        let is_separated = option.contains(|character: char| character == ',' || character.is_control());
        if is_separated || REPLY.len() + 1 + option.len() + CONTINUATION > PUSH_LENGTH {
            left_out.push(option);
            continue;
        }
        let last = messages.last_mut().expect("there is one from the start");
        if last.len() + 1 + option.len() + CONTINUATION <= PUSH_LENGTH {
            *last += ",";
            *last += option;
        } else {
            messages.push(format!("{REPLY},{option}"));
        }
    }
    if let Some((last, earlier)) = messages.split_last_mut().filter(|(_, earlier)| !earlier.is_empty()) {
        for message in earlier {
            *message += ",push-continuation 2";
        }
        *last += ",push-continuation 1";
    }
    (messages, left_out)
}

/// A command that is one command at its receiver: without control characters, and not longer than a push message.
pub fn one_command(text: &str) -> String {
    let text = text.replace(char::is_control, " ");
    shortened(&text, PUSH_LENGTH).to_owned()
}

/// Collects the messages of a reply.
#[derive(Default)]
pub struct Reply {
    options: Vec<String>,
    messages: usize,
}

impl Reply {
    /// Takes a message that begins with `PUSH_REPLY`; returns all options after the last one.
    pub fn take(&mut self, message: &str) -> Result<Option<Vec<String>>, Malformed> {
        let rest = message.strip_prefix(REPLY).ok_or(Malformed)?;
        self.messages += 1;
        if self.messages > MAX_PUSH_MESSAGES {
            return Err(Malformed);
        }
        let mut continues = false;
        for option in
            rest.strip_prefix(',').unwrap_or_default().split(',').filter(|option| !option.is_empty())
        {
            match option.strip_prefix("push-continuation ") {
                Some(number) => continues = number == "2",
                None => self.options.push(option.to_owned()),
            }
        }
        if continues {
            return Ok(None);
        }
        self.messages = 0;
        Ok(Some(std::mem::take(&mut self.options)))
    }
}

/// The options that the core itself uses. All others are the caller's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct CoreOptions {
    /// `cipher`.
    pub cipher: Option<DataCipher>,
    /// `peer-id`.
    pub peer_id: Option<u32>,
    /// `protocol-flags tls-ekm`, or `key-derivation tls-ekm`.
    pub export_keys: bool,
    /// `protocol-flags dyn-tls-crypt`.
    pub dynamic_tls_crypt: bool,
    /// `protocol-flags aead-epoch`.
    pub epochs: bool,
    /// `protocol-flags cc-exit`.
    pub control_exit: bool,
    /// `ping`, `ping-restart` and `ping-exit`. A time of 0 is kept: it replaces the client's own.
    pub keepalive: Keepalive,
    /// `compress` and `comp-lzo` without compression: the framing instead of the client's own.
    pub framing: Option<Option<Framing>>,
}

/// An option of a push reply that we cannot serve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server pushed \"{0}\", which is not supported")]
pub struct Unsupported(pub String);

impl CoreOptions {
    /// Reads the options that matter to the core.
    pub fn parse(options: &[String]) -> Result<Self, Unsupported> {
        let mut found = Self::default();
        for option in options {
            let unsupported = || Unsupported(option.clone());
            let mut words = option.split_ascii_whitespace();
            let (name, value) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            match name {
                "cipher" => found.cipher = Some(DataCipher::by_name(value).ok_or_else(unsupported)?),
                "peer-id" => {
                    let id = value.parse().ok().filter(|id| *id <= 0x00ff_ffff).ok_or_else(unsupported)?;
                    found.peer_id = Some(id);
                }
                "key-derivation" if value == "tls-ekm" => found.export_keys = true,
                "protocol-flags" => {
                    for flag in std::iter::once(value).chain(words) {
                        found.set_flag(flag).ok_or_else(unsupported)?;
                    }
                }
                "ping" => found.keepalive.ping = Some(seconds(value).ok_or_else(unsupported)?),
                "ping-restart" | "ping-exit" => {
                    let after = seconds(value).ok_or_else(unsupported)?;
                    found.keepalive.silence = Some(Silence { after, exits: name == "ping-exit" });
                }
                "comp-lzo" if value == "no" => found.framing = Some(Some(Framing::Before)),
                "compress" if matches!(value, "" | "stub") => found.framing = Some(Some(Framing::Swapped)),
                "compress" if value == "stub-v2" => found.framing = Some(None),
                // A server that wants compression compresses itself.
                "compress" | "comp-lzo" => return Err(unsupported()),
                _ => {}
            }
        }
        Ok(found)
    }

    fn set_flag(&mut self, flag: &str) -> Option<()> {
        match flag {
            "tls-ekm" => self.export_keys = true,
            "dyn-tls-crypt" => self.dynamic_tls_crypt = true,
            "cc-exit" => self.control_exit = true,
            "aead-epoch" => self.epochs = true,
            _ => return None,
        }
        Some(())
    }
}

fn seconds(value: &str) -> Option<Duration> {
    value.parse::<u32>().ok().map(|seconds| Duration::from_secs(seconds.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reply_of_openvpn_2_6_is_understood() {
        let message = "PUSH_REPLY,topology subnet,route-gateway 10.99.0.1,ping 10,ping-restart 60,\
                       ifconfig 10.99.0.2 255.255.255.0,peer-id 7,cipher AES-256-GCM,\
                       protocol-flags cc-exit tls-ekm dyn-tls-crypt,tun-mtu 1500";
        let options = Reply::default().take(message).expect("well-formed").expect("complete");
        assert_eq!(options.len(), 9);
        let core = CoreOptions::parse(&options).expect("supported");
        assert_eq!((core.peer_id, core.cipher), (Some(7), Some(DataCipher::DEFAULT[0])));
        assert!(core.export_keys && core.dynamic_tls_crypt && core.control_exit);
        let sixty = Some(Duration::from_secs(60));
        assert_eq!(core.keepalive.silence, sixty.map(|after| Silence { after, exits: false }));
    }

    #[test]
    fn long_replies_are_split_and_joined_again() {
        let options: Vec<String> =
            (0..200).map(|number| format!("route 10.{number}.0.0 255.255.0.0")).collect();
        let (messages, too_long) = emit(&options);
        assert!(messages.len() > 5 && too_long.is_empty());
        assert!(messages.iter().all(|message| message.len() <= PUSH_LENGTH));
        let mut reply = Reply::default();
        let (last, earlier) = messages.split_last().expect("several");
        assert!(earlier.iter().all(|message| reply.take(message) == Ok(None)));
        assert_eq!(reply.take(last), Ok(Some(options)));
        let long = vec!["x".repeat(PUSH_LENGTH)];
        assert_eq!(emit(&long), (vec![String::from(REPLY)], vec![&long[0]]));
    }

    #[test]
    fn an_option_cannot_become_two() {
        for option in
            ["dhcp-option DNS 10.0.0.1,redirect-gateway", "route 10.0.0.0\0RESTART", "setenv A b\nc"]
        {
            let options = [String::from(option), String::from("ping 10")];
            assert_eq!(emit(&options), (vec![String::from("PUSH_REPLY,ping 10")], vec![&options[0]]));
        }
        assert_eq!(one_command("AUTH_FAILED,a\0RESTART\r\n"), "AUTH_FAILED,a RESTART  ");
        assert_eq!(one_command(&"é".repeat(PUSH_LENGTH)).len(), PUSH_LENGTH);
        assert_eq!(one_command(&format!("x{}", "é".repeat(PUSH_LENGTH))).len(), PUSH_LENGTH - 1);
    }

    #[test]
    fn endless_and_unsupported_replies_are_refused() {
        let mut reply = Reply::default();
        let results: Vec<_> =
            (0..=MAX_PUSH_MESSAGES).map(|_| reply.take("PUSH_REPLY,a,push-continuation 2")).collect();
        assert_eq!(results.last(), Some(&Err(Malformed)));
        assert_eq!(Reply::default().take("PUSH_UPDATE"), Err(Malformed));
        for option in [
            "cipher BF-CBC",
            "peer-id 16777216",
            "protocol-flags aead-tag-end",
            "comp-lzo adaptive",
            "compress lz4",
        ] {
            assert_eq!(CoreOptions::parse(&[option.into()]), Err(Unsupported(option.into())));
        }
        for (option, framing) in [
            ("comp-lzo no", Some(Framing::Before)),
            ("compress", Some(Framing::Swapped)),
            ("compress stub", Some(Framing::Swapped)),
            ("compress stub-v2", None),
        ] {
            let found = CoreOptions::parse(&[option.into()]).map(|core| core.framing);
            assert_eq!(found, Ok(Some(framing)), "{option}");
        }
    }
}
