//! The certificate that the server signs itself: made once and kept, so that clients can pin it.

use disk::{Folder, Wanted};
use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Clients whose clock is behind accept a new certificate too.
const BEFORE: Duration = DAY;

/// For what a certificate was made.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Made {
    names: BTreeSet<String>,
    /// When it expires, in seconds since 1970.
    expires: u64,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    #[error(
        "{0}: {1}\n  fix: let the user of the daemon write there, or name a certificate of pki: set service https certificates certificate NAME"
    )]
    Io(String, io::Error),
    #[error(
        "{0}: the certificate or its key cannot be read: {1}\n  fix: bring the files back from a backup; or delete the folder, \
         restart the daemon, and make the tokens again that were not used"
    )]
    Unreadable(String, pem::Error),
    #[error("a certificate cannot be made: {0}")]
    Made(#[from] rcgen::Error),
}

/// A certificate with its key.
pub(crate) struct Identity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

/// The certificate of which others know the key: the one kept in a folder, however old. It is made only if there is none.
pub(crate) fn lasting(
    folder: &Path,
    names: BTreeSet<String>,
    days: u32,
) -> Result<Identity, CertificateError> {
    let io = |error| CertificateError::Io(folder.display().to_string(), error);
    // The key is written first, and counts once a certificate is there.
    for name in [CERTIFICATE, MADE] {
        if folder.join(name).try_exists().map_err(io)? {
            return read(folder)
                .map_err(|error| CertificateError::Unreadable(folder.display().to_string(), error));
        }
    }
    own(folder, names, days)
}

/// The certificate kept in a folder; a new one if there is none for these names, or if it expires.
pub(crate) fn own(folder: &Path, names: BTreeSet<String>, days: u32) -> Result<Identity, CertificateError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    own_at(now, folder, names, days)
}

fn own_at(
    now: Duration,
    folder: &Path,
    names: BTreeSet<String>,
    days: u32,
) -> Result<Identity, CertificateError> {
    if let Some(kept) = kept(folder, &names, now + least_left(days)) {
        return Ok(kept);
    }
    let expires = now + DAY * days;
    let key = KeyPair::generate()?;
    let mut parameters = CertificateParams::new(names.iter().cloned().collect::<Vec<_>>())?;
    parameters.distinguished_name.push(DnType::CommonName, "Postern");
    parameters.not_before = date_time_ymd(1970, 1, 1) + now.saturating_sub(BEFORE);
    parameters.not_after = date_time_ymd(1970, 1, 1) + expires;
    let certificate = parameters.self_signed(&key)?;
    let made = Made { names, expires: expires.as_secs() };
    keep(folder, &certificate.pem(), &Zeroizing::new(key.serialize_pem()), &made)
        .map_err(|error| CertificateError::Io(folder.display().to_string(), error))?;
    tracing::info!("a certificate was made, which is {}", folder.join(CERTIFICATE).display());
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("PKCS #8 was written");
    Ok(Identity { chain: vec![certificate.der().clone()], key })
}

const CERTIFICATE: &str = "certificate.pem";
const KEY: &str = "key.pem";
const MADE: &str = "made.json";

/// A certificate that is valid for less than this is made anew: a day, or half of a shorter lifetime.
fn least_left(days: u32) -> Duration {
    DAY.min(DAY * days / 2)
}

fn kept(folder: &Path, names: &BTreeSet<String>, until: Duration) -> Option<Identity> {
    let made: Made = serde_json::from_slice(&fs::read(folder.join(MADE)).ok()?).ok()?;
    if made.names != *names || Duration::from_secs(made.expires) < until {
        return None;
    }
    read(folder).ok()
}

fn read(folder: &Path) -> Result<Identity, pem::Error> {
    let certificate = CertificateDer::from_pem_file(folder.join(CERTIFICATE))?;
    let key = PrivateKeyDer::from_pem_file(folder.join(KEY))?;
    Ok(Identity { chain: vec![certificate], key })
}

/// Writes the files; what they were made for comes last, as it makes them valid.
fn keep(folder: &Path, certificate: &str, key: &str, made: &Made) -> io::Result<()> {
    let folder = Folder::make(folder, 0o700)?;
    let made_for = serde_json::to_vec(made)?;
    folder.remove(OsStr::new(MADE))?;
    for (name, bytes) in [(KEY, key.as_bytes()), (CERTIFICATE, certificate.as_bytes()), (MADE, &made_for)] {
        folder.write(OsStr::new(name), &Wanted::private(bytes))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_certificate_is_kept_until_its_names_change_or_it_expires() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("https");
        let now = Duration::from_secs(1_800_000_000);
        let at = |now, names: &BTreeSet<String>, days| {
            own_at(now, &folder, names.clone(), days).expect("made").chain
        };
        let made = |names: &BTreeSet<String>, days| at(now, names, days);
        let wanted = names(&["localhost", "192.0.2.1"]);
        let first = made(&wanted, 365);
        assert_eq!(made(&wanted, 365), first);
        let mode = |name: &str| fs::metadata(folder.join(name)).expect("there").mode() & 0o777;
        assert_eq!((mode(KEY), mode(".")), (0o600, 0o700));
        assert_eq!(at(now + 363 * DAY, &wanted, 365), first);
        assert_ne!(at(now + 365 * DAY, &wanted, 365), first, "it has less than a day left");
        let short = made(&names(&["localhost"]), 1);
        assert_ne!(short, first);
        assert_eq!(at(now + DAY / 3, &names(&["localhost"]), 1), short, "a short one is not made each time");
        assert_ne!(at(now + DAY, &names(&["localhost"]), 1), short);
        fs::write(folder.join(KEY), "nothing").expect("ours");
        assert_ne!(made(&wanted, 365), first);
    }

    #[test]
    fn a_key_that_others_know_is_never_made_again_by_itself() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("enrollment");
        let lasting = |days| lasting(&folder, names(&["enrollment"]), days);
        // It expires at once.
        let first = lasting(0).map_err(|error| error.to_string()).expect("made").chain;
        assert_eq!(lasting(0).map_err(|error| error.to_string()).expect("kept").chain, first);
        let remade =
            own(&folder, names(&["other"]), 0).map_err(|error| error.to_string()).expect("made").chain;
        assert_ne!(remade, first, "others are made again");
        fs::remove_file(folder.join(MADE)).expect("ours");
        assert_eq!(lasting(1).map_err(|error| error.to_string()).expect("kept").chain, remade);
        let key = fs::read(folder.join(KEY)).expect("ours");
        for bad in [&b"nothing"[..], &key[..40], b""] {
            fs::write(folder.join(KEY), bad).expect("ours");
            let error = lasting(1).map(|_| ()).expect_err("it cannot be read").to_string();
            assert!(
                error.contains("cannot be read") && error.contains("fix: bring the files back"),
                "{error}"
            );
            assert_eq!(fs::read(folder.join(KEY)).expect("ours"), bad, "it is left as it is");
        }
        fs::remove_file(folder.join(KEY)).expect("ours");
        assert!(lasting(1).is_err());
        fs::remove_dir_all(&folder).expect("ours");
        assert!(lasting(1).is_ok_and(|new| new.chain != remade));
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named_with_a_fix() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let error = own(file.path(), names(&["localhost"]), 365).map(|_| ()).expect_err("a file").to_string();
        assert!(error.contains("fix: let the user of the daemon write there"), "{error}");
    }
}
