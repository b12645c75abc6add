//! Lines of a client of OpenVPN's management interface. A reason for a refusal is one line.

use gateway::openvpn::management::line::{Command, parse};

/// Lines.
pub fn lines(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for line in text.split('\n') {
        match parse(line) {
            Ok(Command::Nothing) => assert!(line.trim().is_empty()),
            Ok(_) => {}
            Err(reason) => assert!(!reason.is_empty()),
        }
    }
}
