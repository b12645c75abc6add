//! A token as a QR code, on a terminal.

use crate::Failure;
use qrcode::render::unicode::Dense1x2;
use qrcode::{EcLevel, QrCode};

/// The code in blocks, two modules a character, light on the dark of most terminals.
pub(super) fn code(text: &str) -> Result<String, Failure> {
    let code = QrCode::with_error_correction_level(text, EcLevel::L)?;
    Ok(code.render::<Dense1x2>().dark_color(Dense1x2::Light).light_color(Dense1x2::Dark).build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_fits_a_terminal() {
        let text = code(&"PE1ABCD7".repeat(18)).expect("it fits");
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest.is_some_and(|width| width <= 80) && text.lines().count() <= 40, "{widest:?}\n{text}");
    }
}
