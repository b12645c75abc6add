//! Probes of the path: STAMP packets to a reflector and back, and ICMP echo replies.

use packet::header::echo::Echo;
use packet::header::stamp::{LENGTH, Reflected, is_reflected, reflect};

/// A datagram to the reflector, which is then one from it; and the same bytes as an echo reply and as what an ICMP error quotes.
pub fn packets(data: &[u8]) {
    let mut bytes = data.to_vec();
    let reflected = reflect(&mut bytes, 1, 2, 3);
    assert_eq!((reflected.is_ok(), bytes.len()), (data.len() >= LENGTH, data.len()), "an answer is as long");
    if reflected.is_ok() {
        let answer = Reflected::parse(&bytes).expect("it is long enough");
        assert_eq!(answer.sender_sequence, answer.sequence);
        assert!(is_reflected(&bytes), "another reflector does not answer it");
        assert_eq!((answer.received.get(), answer.timestamp.get(), answer.sender_ttl), (1, 2, 3));
    } else {
        assert_eq!(bytes, data, "what is no probe stays as it is");
    }
    let _ = Reflected::parse(data);
    for is_v4 in [true, false] {
        let _ = Echo::reply(is_v4, data);
        let _ = Echo::quoted(is_v4, data);
    }
}
