//! `test-crypto`: the test of the cipher that `cipher` names, with the key of `secret`.

use super::{Given, argument};
use crate::Outcome;
use config::text::Text;
use gateway::openvpn::self_test::{LONGEST, run as test};
use std::path::Path;

pub(super) fn run(given: &Given<'_>) -> Outcome {
    let read = |file: &str| Text::read(Path::new(file)).map_err(|error| format!("{file}: {error}"));
    let key = argument(given, "secret").map(read).transpose()?;
    let key = key.as_ref().map(Text::as_str).transpose()?;
    let cipher = argument(given, "cipher").unwrap_or("AES-256-GCM");
    let cipher = test(cipher, argument(given, "auth").unwrap_or("SHA1"), key)?;
    println!("{cipher}: packets of 1 to {LONGEST} bytes were sealed and opened: self-test mode SUCCEEDED");
    Ok(())
}
