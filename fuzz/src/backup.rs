//! Backups: the encrypted file, and the tar file in it.

use backup::{pack, unpack};
use crypto::{SecretBytes, age};

/// The work that is done for an input.
const WORK: u8 = 4;

/// The tar file of a backup.
pub fn tar(data: &[u8]) {
    let Ok(read) = unpack(data) else { return };
    for entry in &read.entries {
        let path = entry.place.to_string();
        assert!(!path.contains("..") || path.split('/').all(|part| part != ".."), "{path}");
        assert!(entry.mode <= 0o777);
    }
    let packed = pack(&read).expect("memory");
    assert_eq!(unpack(&packed).expect("we write nothing wrong"), read);
}

/// A file that is encrypted with a passphrase, and the text that becomes one.
pub fn age(data: &[u8]) {
    let passphrase = SecretBytes::new(b"passphrase".to_vec());
    // More work says nothing more about the reader.
    if age::work_factor(data).is_ok_and(|work| work <= WORK) {
        let _ = age::open(&passphrase, data);
    }
    let sealed = age::seal(&passphrase, 1, data, &mut super::Constant(0)).expect("there is memory");
    assert_eq!(age::open(&passphrase, &sealed).expect("we wrote it")[..], *data);
}
