//! The messages of IKE that are sent and received, for who looks for what is wrong with one peer. Only their headers: the rest is a secret, or
//! encrypted.

use super::IkeThread;
use std::net::SocketAddr;
use tracing::Level;
use tunnel::ikev2::message::{Exchange, Header};

impl IkeThread {
    /// Logs a message at the level of debugging. Its peer is the one at this address, which is configured, or none.
    pub(super) fn trace(&self, happened: &str, remote: SocketAddr, message: &[u8]) {
        // Mostly no one wants it.
        if !tracing::enabled!(Level::DEBUG) {
            return;
        }
        let peer = self.children.at(remote.ip()).map(|connection| self.children.name(connection));
        tracing::debug!(peer, "{happened} {remote}: {}", described(message));
    }
}

/// `IKE_AUTH request 1, 252 bytes, SPIs 4f1d... and 9a20...`
fn described(message: &[u8]) -> String {
    let bytes = message.len();
    let Ok((header, ..)) = Header::parse(message) else {
        return format!("{bytes} bytes that are no message of IKEv2");
    };
    let exchange = match header.exchange {
        Exchange::IkeSaInit => "IKE_SA_INIT".to_owned(),
        Exchange::IkeAuth => "IKE_AUTH".to_owned(),
        Exchange::CreateChildSa => "CREATE_CHILD_SA".to_owned(),
        Exchange::Informational => "INFORMATIONAL".to_owned(),
        Exchange::Other(number) => format!("exchange {number}"),
    };
    let kind = if header.is_response { "response" } else { "request" };
    let (initiator, responder) = (header.initiator_spi, header.responder_spi);
    format!(
        "{exchange} {kind} {}, {bytes} bytes, SPIs {initiator:016x} and {responder:016x}",
        header.message_id
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_header_of_a_message_is_told() {
        let mut message = [
            &1u64.to_be_bytes()[..],
            &2u64.to_be_bytes(),
            &[46, 0x20, 35, 0x08],
            &1u32.to_be_bytes(),
            &33u32.to_be_bytes(),
        ]
        .concat();
        message.extend(*b"psk!!");
        let said = described(&message);
        assert_eq!(said, "IKE_AUTH request 1, 33 bytes, SPIs 0000000000000001 and 0000000000000002");
        assert_eq!(described(b"short"), "5 bytes that are no message of IKEv2");
    }
}
