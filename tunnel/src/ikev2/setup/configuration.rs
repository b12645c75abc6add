//! Configuration payloads (RFC 7296 section 3.15).

/// Whether a configuration payload asks for an address.
pub(super) fn asks_address(payload: &[u8]) -> bool {
    const REQUEST: u8 = 1;
    const ADDRESSES: [u16; 2] = [1, 8];
    let Some((&[REQUEST, ..], mut attributes)) = payload.split_first_chunk::<4>() else { return false };
    while let Some((&[high, low, one, two], rest)) = attributes.split_first_chunk() {
        // The highest bit is reserved.
        if ADDRESSES.contains(&(u16::from_be_bytes([high, low]) & 0x7fff)) {
            return true;
        }
        attributes = rest.get(usize::from(u16::from_be_bytes([one, two]))..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_for_an_address_is_told_from_others() {
        assert!(asks_address(&[1, 0, 0, 0, 0, 1, 0, 0]), "for any of IPv4");
        assert!(asks_address(&[1, 0, 0, 0, 0, 3, 0, 4, 1, 2, 3, 4, 0, 8, 0, 0]), "IPv6, after a name server");
        for other in [
            &[][..],
            &[1, 0, 0],
            &[1, 0, 0, 0],
            &[2, 0, 0, 0, 0, 1, 0, 0],
            &[1, 0, 0, 0, 0, 3, 0, 0],
            &[1, 0, 0, 0, 0, 3, 0, 9, 0, 1, 0, 0],
            &[1, 0, 0, 0, 0],
        ] {
            assert!(!asks_address(other), "{other:?}");
        }
    }
}
