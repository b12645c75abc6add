//! Identities as identification payloads carry them (RFC 7296 section 3.5).

use super::message::Identification;
pub use crypto::pki::Identity;

/// Reads an identification payload; `None` if its type is not supported or its data are invalid for the type.
pub(super) fn read(payload: &Identification<'_>) -> Option<Identity> {
    Identity::from_payload(payload.kind, payload.data).ok()
}

/// The body of the identification payload.
pub(super) fn body(identity: &Identity) -> Vec<u8> {
    [&[identity.kind(), 0, 0, 0][..], &identity.data()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_returns_from_its_payload() {
        for text in ["192.0.2.1", "2001:db8::1", "vpn.example", "a@b.example", "C=CH, CN=moon", "@#0a1b"] {
            let identity: Identity = text.parse().expect("an identity");
            let body = body(&identity);
            assert_eq!(read(&Identification::parse(&body).expect("ours")), Some(identity));
        }
    }

    #[test]
    fn what_is_not_of_its_type_is_none() {
        for body in
            [&[1, 0, 0, 0, 1, 2, 3][..], &[5, 0, 0, 0, 1], &[2, 0, 0, 0, 0xff], &[99, 0, 0, 0], &[0; 4]]
        {
            assert_eq!(read(&Identification::parse(body).expect("long enough")), None, "{body:?}");
        }
    }
}
