//! Tokens, which people type.

use https::enrollment::Token;

/// A token that is read is written as the same, and anything else is refused.
pub fn tokens(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(token) = Token::decode(&text) else { return };
    let written = token.encode().expect("what is read can be written");
    assert_eq!(Token::decode(&written).as_ref(), Ok(&token));
    assert!((token.host_name.is_some() || token.servers().count() >= 1) && !token.branch.is_empty());
}
