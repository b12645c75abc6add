//! Converts ECDSA signatures between two encodings: r and s concatenated (RFC 4754), and DER (RFC 3279).

use der::asn1::UintRef;
use der::{Decode, Encode, Sequence};

#[derive(Sequence)]
struct EcdsaSignature<'a> {
    r: UintRef<'a>,
    s: UintRef<'a>,
}

/// Encodes r and s as DER. `None` if one is zero, or if the length is not twice `coordinate`.
pub(super) fn to_der(signature: &[u8], coordinate: usize) -> Option<Vec<u8>> {
    if signature.len() != 2 * coordinate {
        return None;
    }
    let (r, s) = signature.split_at(coordinate);
    if [r, s].iter().any(|number| number.iter().all(|&byte| byte == 0)) {
        return None;
    }
    EcdsaSignature { r: UintRef::new(r).ok()?, s: UintRef::new(s).ok()? }.to_der().ok()
}

/// Decodes DER to r and s of `coordinate` bytes each.
pub(super) fn from_der(signature: &[u8], coordinate: usize) -> Option<Vec<u8>> {
    let EcdsaSignature { r, s } = EcdsaSignature::from_der(signature).ok()?;
    let mut raw = vec![0; 2 * coordinate];
    for (number, room) in [r, s].iter().zip(raw.chunks_exact_mut(coordinate)) {
        let start = coordinate.checked_sub(number.as_bytes().len())?;
        room[start..].copy_from_slice(number.as_bytes());
    }
    Some(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_encodings_have_the_same_numbers() {
        let mut raw = [0; 64];
        raw[31] = 0x80;
        raw[32] = 0xff;
        let der = to_der(&raw, 32).expect("neither is zero");
        assert_eq!(der[..6], [0x30, 0x27, 0x02, 0x02, 0x00, 0x80]);
        assert_eq!(from_der(&der, 32).expect("it fits"), raw);
    }

    #[test]
    fn zero_and_wrong_lengths_have_no_der() {
        let mut raw = [0; 64];
        assert_eq!(to_der(&raw, 32), None);
        raw[0] = 1;
        assert_eq!(to_der(&raw, 32), None);
        raw[63] = 1;
        assert!(to_der(&raw, 32).is_some());
        assert_eq!((to_der(&raw[1..], 32), to_der(&[1; 65], 32), to_der(b"", 32)), (None, None, None));
    }

    #[test]
    fn numbers_longer_than_the_curve_have_no_raw_form() {
        let der = to_der(&[1; 96], 48).expect("neither is zero");
        assert_eq!(from_der(&der, 32), None);
        assert_eq!(from_der(b"", 32), None);
    }
}
