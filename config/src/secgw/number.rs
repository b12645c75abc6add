//! Numbers as the C library reads them, on which the format relies: `atoi`, `strtoul` and `isdigit`.

/// Whether the text has only decimal digits; an empty text has.
pub(super) fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// `atoll`: white space, a sign, and the digits that follow; 0 without digits. Too large a number is the largest one.
pub(super) fn long(text: &str) -> i64 {
    let text = text.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = &digits[..digits.bytes().take_while(u8::is_ascii_digit).count()];
    let mut value: i64 = 0;
    for digit in digits.bytes().map(|byte| i64::from(byte - b'0')) {
        let next = value
            .checked_mul(10)
            .and_then(|value| if is_negative { value.checked_sub(digit) } else { value.checked_add(digit) });
        match next {
            Some(next) => value = next,
            None => return if is_negative { i64::MIN } else { i64::MAX },
        }
    }
    value
}

/// `atoi`: the low 32 bits of `atoll`, as glibc computes it.
pub(super) fn int(text: &str) -> i32 {
    long(text) as i32
}

/// `strtoul`: the value, and the text behind it; nothing for a number of more than 64 bits. The base 0 takes it from the prefix.
pub(super) fn unsigned(text: &str, base: u32) -> Option<(u64, &str)> {
    let start = text.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
    let (is_negative, body) = match start.strip_prefix('-') {
        Some(body) => (true, body),
        None => (false, start.strip_prefix('+').unwrap_or(start)),
    };
    let hexadecimal = body.strip_prefix("0x").or(body.strip_prefix("0X"));
    let hexadecimal = hexadecimal
        .filter(|digits| digits.starts_with(|c: char| c.is_ascii_hexdigit()) && matches!(base, 0 | 16));
    let (base, digits) = match (base, hexadecimal) {
        (_, Some(digits)) => (16, digits),
        (0, None) if body.starts_with('0') => (8, body),
        (0, None) => (10, body),
        (base, None) => (base, body),
    };
    let length = digits.bytes().take_while(|&byte| char::from(byte).is_digit(base)).count();
    if length == 0 {
        return Some((0, text));
    }
    let magnitude = u64::from_str_radix(&digits[..length], base).ok()?;
    let value = if is_negative { magnitude.wrapping_neg() } else { magnitude };
    Some((value, &digits[length..]))
}

/// A number of DPDK's command line library: decimal, `0x`, `0b`, or octal with a leading zero; at most 16 bits.
pub(super) fn command_line_16_bits(text: &str) -> Option<u16> {
    let digits = |digits: &str, radix| {
        let are_digits = !digits.is_empty() && digits.bytes().all(|byte| char::from(byte).is_digit(radix));
        are_digits.then(|| u16::from_str_radix(digits, radix).ok()).flatten()
    };
    if let Some(rest) = text.strip_prefix("0x") {
        return digits(rest, 16);
    }
    if let Some(rest) = text.strip_prefix("0b") {
        return digits(rest, 2);
    }
    digits(text, if text.starts_with('0') { 8 } else { 10 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_the_c_library_reads_them() {
        assert_eq!((int("12x"), int("x"), int(""), int("-3"), int("+4")), (12, 0, 0, -3, 4));
        assert_eq!(int("4294967296"), 0, "only 32 bits are kept");
        assert_eq!(int("99999999999999999999"), -1, "the largest 64-bit number, cut");
        assert_eq!(long("-99999999999999999999"), i64::MIN);
        assert_eq!(unsigned("0x1fz", 16), Some((0x1f, "z")));
        assert_eq!(unsigned("zz", 16), Some((0, "zz")));
        assert_eq!(unsigned("0x", 16), Some((0, "x")));
        assert_eq!(unsigned("-1", 16), Some((u64::MAX, "")));
        assert_eq!(
            (unsigned("010", 0), unsigned("10", 0), unsigned("0x10", 0)),
            (Some((8, "")), Some((10, "")), Some((16, "")))
        );
        assert_eq!(unsigned("fffffffffffffffff", 16), None);
    }

    #[test]
    fn numbers_of_neighbours_have_prefixes_and_16_bits() {
        for (text, number) in [("3", 3), ("0x1f", 31), ("0b101", 5), ("017", 15), ("0", 0), ("65535", 65535)]
        {
            assert_eq!(command_line_16_bits(text), Some(number), "{text}");
        }
        for text in ["", "65536", "08", "0x", "-1", "+1", "3a", "0b2"] {
            assert_eq!(command_line_16_bits(text), None, "{text}");
        }
    }
}
