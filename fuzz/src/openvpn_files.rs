//! OpenVPN's own files. Each error names a place, and settings are printed without secrets.

use config::Text;
use config::import::Files;
use config::openvpn::{client_file, load};
use std::io;
use std::path::Path;

/// The file itself, under one name; any other one is not there.
struct One<'a>(&'a [u8]);

impl Files for One<'_> {
    fn read(&self, path: &Path) -> io::Result<Text> {
        match path.to_str() {
            Some("it.conf") => Text::read_from(self.0),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn list(&self, _: &Path) -> io::Result<Vec<String>> {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// A file, which may include itself, and the same as the file of a client.
pub fn files(data: &[u8]) {
    let files = One(data);
    match load(&["--config".to_owned(), "it.conf".to_owned()], &files) {
        Ok(loaded) => {
            assert!(!loaded.settings.device.name.is_empty());
            assert!(!loaded.settings.connections.is_empty());
        }
        Err(refusals) => {
            assert!(!refusals.is_empty());
            for refusal in refusals {
                assert!(
                    !refusal.reason.is_empty()
                        && !refusal.fix.is_empty()
                        && !refusal.position.file.is_empty()
                );
            }
        }
    }
    let text = Text::read_from(data).expect("memory");
    let _ = client_file("ccd/client", &text, &files);
}
