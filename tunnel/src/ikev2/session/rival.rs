//! Simultaneous rekeying by both sides (RFC 7296 section 2.8.1).

/// The peer's rekeying of an SA with a pending local rekeying: the exchange with the lowest of the four nonces loses
/// (section 2.8.1).
#[derive(Clone, Debug)]
pub(super) struct Rival<S> {
    /// The SPI of the SA that the peer created.
    pub(super) spi: S,
    /// The lower nonce of its exchange.
    pub(super) lowest: Vec<u8>,
}

/// The lower of the nonces of an exchange.
pub(super) fn lowest(one: &[u8], other: &[u8]) -> Vec<u8> {
    one.min(other).to_vec()
}
