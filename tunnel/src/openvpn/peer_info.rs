//! Peer information: what a client says about itself when keys are exchanged, in lines `NAME=value`.

use std::fmt::Write;

/// The longest peer information that is looked at.
const LONGEST: usize = 4096;
/// Lines, and ciphers, that are looked at.
const MOST: usize = 64;

/// Bits of `IV_PROTO`.
pub mod proto {
    /// Data packets with a peer ID.
    pub const DATA_V2: u32 = 1 << 1;
    /// The client expects a push reply without asking.
    pub const REQUEST_PUSH: u32 = 1 << 2;
    /// Data keys may be exported from TLS.
    pub const TLS_EXPORT: u32 = 1 << 3;
    /// `AUTH_PENDING` may have a timeout.
    pub const AUTH_PENDING: u32 = 1 << 4;
    /// Two peers without a server choose the cipher of data packets by what they announce.
    pub const NEGOTIATING_PEER: u32 = 1 << 5;
    /// `EXIT` may be sent on the control channel; `protocol-flags` are understood.
    pub const CONTROL_EXIT: u32 = 1 << 7;
    /// `AUTH_FAILED,TEMP` is understood.
    pub const AUTH_FAIL_TEMPORARY: u32 = 1 << 8;
    /// Renegotiations may be wrapped with an exported key.
    pub const DYNAMIC_TLS_CRYPT: u32 = 1 << 9;
    /// Data packets under epoch keys, of 2.7.
    pub const DATA_EPOCH: u32 = 1 << 10;
}

/// What both sides announce, unless the configuration leaves something out.
pub const OURS: u32 = proto::DATA_V2
    | proto::REQUEST_PUSH
    | proto::TLS_EXPORT
    | proto::CONTROL_EXIT
    | proto::AUTH_FAIL_TEMPORARY
    | proto::DYNAMIC_TLS_CRYPT
    | proto::DATA_EPOCH;

/// What a client says about itself. Nothing in it is verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerInfo {
    /// `IV_PROTO`.
    pub proto: u32,
    /// `IV_CIPHERS`: the ciphers that the client accepts.
    pub ciphers: Option<Vec<String>>,
    /// `IV_NCP`: 2 for clients of 2.4, which accept both AES-GCM ciphers.
    pub ncp: u32,
    /// All lines, for reports.
    pub lines: Vec<(String, String)>,
}

impl PeerInfo {
    /// Reads the lines; those that have another form, or control characters, are ignored.
    pub fn parse(text: &str) -> Self {
        let mut info = Self::default();
        let text = shortened(text, LONGEST);
        let lines = text.lines().filter(|line| !line.contains(char::is_control)).take(MOST);
        for (name, value) in lines.filter_map(|line| line.split_once('=')) {
            match name {
                "IV_PROTO" => info.proto = value.parse().unwrap_or(0),
                "IV_NCP" => info.ncp = value.parse().unwrap_or(0),
                "IV_CIPHERS" => info.ciphers = Some(value.split(':').take(MOST).map(str::to_owned).collect()),
                _ => {}
            }
            info.lines.push((name.to_owned(), value.to_owned()));
        }
        info
    }

    /// The text of a client with these ciphers.
    pub fn of_client(proto: u32, ciphers: &str, mtu: u16, more: &[(String, String)]) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let mut text = format!(
            "IV_VER=postern-{version}\nIV_PLAT=linux\nIV_TCPNL=1\nIV_MTU={mtu}\nIV_NCP=2\nIV_CIPHERS={ciphers}\n\
             IV_PROTO={proto}\nIV_LZO_STUB=1\nIV_COMP_STUB=1\nIV_COMP_STUBv2=1\n"
        );
        for (name, value) in more {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{name}={value}");
        }
        text
    }

    /// Without the bits that our side does not use.
    #[must_use]
    pub fn limited_to(self, proto: u32) -> Self {
        Self { proto: self.proto & proto, ..self }
    }

    /// Whether the client has announced all of these bits, even if our side does not use them.
    pub fn announces(&self, bits: u32) -> bool {
        let line = self.lines.iter().rev().find(|(name, _)| name == "IV_PROTO");
        line.and_then(|(_, value)| value.parse::<u32>().ok()).is_some_and(|proto| proto & bits == bits)
    }

    /// Whether the client has announced all of these bits, and our side uses them.
    pub fn has(&self, bits: u32) -> bool {
        self.proto & bits == bits
    }
}

/// The start of a text, with at most this many bytes.
pub fn shortened(text: &str, length: usize) -> &str {
    let end = (0..=length.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_openvpn_2_6_sends_is_understood() {
        let info = PeerInfo::parse(
            "IV_VER=2.6.14\nIV_PLAT=linux\nIV_TCPNL=1\nIV_MTU=1600\nIV_NCP=2\n\
             IV_CIPHERS=AES-256-GCM:AES-128-GCM:CHACHA20-POLY1305\nIV_PROTO=990\n",
        );
        assert!(info.has(OURS & !proto::DATA_EPOCH) && info.has(proto::AUTH_PENDING));
        assert_eq!(info.ciphers.as_ref().map(Vec::len), Some(3));
        assert_eq!((info.ncp, info.lines.len()), (2, 7));
    }

    #[test]
    fn what_we_send_is_understood() {
        let more = [(String::from("UV_SITE"), String::from("berlin"))];
        let info = PeerInfo::parse(&PeerInfo::of_client(OURS, "AES-256-GCM", 1500, &more));
        assert_eq!(info.proto, OURS);
        assert_eq!(info.ciphers, Some(vec![String::from("AES-256-GCM")]));
        assert_eq!(info.lines.last(), Some(&more[0]));
    }

    #[test]
    fn other_lines_are_ignored() {
        let info = PeerInfo::parse("nothing\nIV_PROTO=many\n=\n\u{fffd}=1");
        assert_eq!((info.proto, info.lines.len()), (0, 3));
        let info = PeerInfo::parse("IV_VER=2\x1b[2J\nUV_A=a\rb\nUV_B=b\r\n");
        assert_eq!(info.lines, [(String::from("UV_B"), String::from("b"))]);
    }

    #[test]
    fn peer_information_is_bounded() {
        let long = PeerInfo::parse(&format!("x{}\nIV_NCP=2", "é".repeat(LONGEST)));
        assert_eq!((long.ncp, long.lines.len()), (0, 0));
        assert_eq!(PeerInfo::parse(&"A=\n".repeat(1000)).lines.len(), MOST);
        let ciphers = PeerInfo::parse(&format!("IV_CIPHERS={}", "A:".repeat(1000))).ciphers;
        assert_eq!(ciphers.map(|ciphers| ciphers.len()), Some(MOST));
    }
}
