//! What is made of files before they are used: a private key without its password, the authorities of a directory.

use super::{Refusals, Sources, WRONG_PASSWORD};
use config::openvpn::OpenVpn;
use config::openvpn::settings::Material;
use config::text::Text;
use crypto::pem;
use std::path::Path;

/// Makes it.
pub(super) fn prepare(settings: &mut OpenVpn, sources: &Sources<'_>, refusals: &mut Refusals) {
    if settings.tls.asks_key_password
        && let Some(key) = unlocked(settings, sources, refusals)
    {
        settings.tls.key = Some(key);
        settings.tls.asks_key_password = false;
    }
    if let Some(directory) = settings.tls.authority_directory.clone() {
        match authorities(&directory, settings.tls.authority.as_ref(), sources) {
            Ok(all) => settings.tls.authority = Some(all),
            Err(reason) => {
                let fix = "name the files as openssl rehash does; write crl-verify FILE for revocation lists";
                refusals.wrong("capath", format!("{}: {reason}", directory.display()), fix);
            }
        }
    }
}

/// The key without its password; none if it stays locked, or is refused.
fn unlocked(settings: &OpenVpn, sources: &Sources<'_>, refusals: &mut Refusals) -> Option<Material> {
    let key = settings.tls.key.as_ref()?;
    let is_asked_there = settings.management.as_ref().is_some_and(|management| management.query_passwords);
    let password = match &settings.tls.key_password {
        Some(file) => {
            let end = |byte: &u8| matches!(byte, b'\r' | b'\n');
            Ok(Some(zeroize::Zeroizing::new(file.bytes().split(end).next().unwrap_or_default().to_vec())))
        }
        None => (sources.key_password)(is_asked_there),
    };
    let reason = match password {
        Ok(None) => return None,
        Ok(Some(password)) => match pem::unlock(key.bytes(), &password) {
            Some(text) => return Text::read_from(text.as_bytes()).ok().map(Material::made),
            None => WRONG_PASSWORD.to_owned(),
        },
        Err(reason) => reason,
    };
    let fix = "write askpass FILE with the password, or remove it: openssl pkey -in FILE -out FILE";
    refusals.wrong("key", reason, fix);
    None
}

/// All authorities of the directory, behind those of `ca`.
fn authorities(directory: &Path, file: Option<&Material>, sources: &Sources<'_>) -> Result<Material, String> {
    let mut all = file.map(|file| file.bytes().to_vec()).unwrap_or_default();
    let mut count = 0;
    for name in sources.files.list(directory).map_err(|error| error.to_string())? {
        let Some((hash, number)) = name.split_once('.') else { continue };
        if hash.len() != 8 || !hash.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            continue;
        }
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
        if number.strip_prefix('r').is_some_and(is_number) {
            return Err(format!("not served yet: the revocation list {name}"));
        }
        if is_number(number) {
            let read = sources.files.read(&directory.join(&name));
            all.push(b'\n');
            all.extend(read.map_err(|error| format!("{name}: {error}"))?.bytes());
            count += 1;
        }
    }
    if count == 0 {
        return Err("it has no authority with a name such as 5d3b1f07.0".to_owned());
    }
    Text::read_from(&*all).map(Material::made).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::WRONG_PASSWORD;
    use super::super::tests::{plan_asking, plan_with, server_lines};

    /// Of the private key: openssl pkcs8 -topk8, with the password hunter2; and its certificate.
    const LOCKED: &str = include_str!("../../../../crypto/tests/keys/locked.pem");
    const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\n\
MIIBejCCAR+gAwIBAgIUTps5vDzY8+rBy92Z7pmLsD3Zxm0wCgYIKoZIzj0EAwIw\n\
ETEPMA0GA1UEAwwGY2FwYXRoMCAXDTI2MTEyMzIwNDMxMFoYDzIxMjYxMDMwMjA0\n\
MzEwWjARMQ8wDQYDVQQDDAZjYXBhdGgwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC\n\
AAR5p7WOEpxkB+Y/HTKG09aQNJjPf7sZEr9VEYErsgVcPa6REV7Z+w+kfmWjDwES\n\
kPTnsyqgLKdNN/xBSZtFxHiJo1MwUTAdBgNVHQ4EFgQUf1XH5KwRpARWhkWSJkKn\n\
s5k5b5YwHwYDVR0jBBgwFoAUf1XH5KwRpARWhkWSJkKns5k5b5YwDwYDVR0TAQH/\n\
BAUwAwEB/zAKBggqhkjOPQQDAgNJADBGAiEA7Sa91q4Xab/XLEtJoO+k75b6xR0g\n\
9hzgNwTxfIxW/NYCIQC8Vaxvn1MIlhfxnHxiFF6sAEb7f9l8G0+NB6klGg+/Rg==\n\
-----END CERTIFICATE-----\n\
";

    #[test]
    fn a_key_with_a_password_and_a_directory_of_authorities_are_used_and_wrong_ones_are_refused() {
        let config = server_lines("cert own.pem\nkey own.key\ncapath cas\naskpass word");
        let files = |word, authority| {
            [("own.pem", CERTIFICATE), ("own.key", LOCKED), ("word", word), (authority, CERTIFICATE)]
        };
        let plan = |word, authority| plan_with(&config, &files(word, authority));
        assert_eq!(plan("hunter2\nmore", "cas/5d3b1f07.0"), Ok(()));
        let refused = |word, authority| plan(word, authority).expect_err("it is wrong").join("\n");
        assert!(refused("hunter3", "cas/5d3b1f07.0").contains(&format!("key: {WRONG_PASSWORD}")));
        assert!(refused("hunter2", "cas/5d3b1f07.r0").contains("the revocation list 5d3b1f07.r0"));
        assert!(refused("hunter2", "cas/ca.pem").contains("capath: cas: it has no authority"));
    }

    #[test]
    fn a_key_whose_password_the_management_interface_asks_for_is_locked_until_then() {
        let lines = "cert own.pem\nkey own.key\nca own.pem\nmanagement /run/m unix\nmanagement-query-passwords\nauth-nocache";
        let files = [("own.pem", CERTIFICATE), ("own.key", LOCKED)];
        let asked = |password: Option<&str>| {
            let answer = password.map(|password| password.as_bytes().to_vec().into());
            plan_asking(&server_lines(lines), &files, &|is_asked_there| {
                assert!(is_asked_there);
                Ok(answer.clone())
            })
        };
        let locked = asked(None).expect("it is asked later");
        assert!(locked.is_key_locked && locked.forgets_key_password);
        assert!(!asked(Some("hunter2")).expect("it is right").is_key_locked);
        let refused = asked(Some("hunter3")).map(drop).expect_err("it is wrong").join("\n");
        assert!(refused.contains(WRONG_PASSWORD), "{refused}");
    }
}
