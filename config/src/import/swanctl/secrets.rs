//! The secrets of swanctl.conf.

use crate::import::credentials::Store;
use crate::import::place::Origin;
use crate::import::report::Draft;
use crate::import::section::Section;
use base64ct::{Base64, Encoding};
use zeroize::Zeroizing;

/// Imports all secrets; private keys are read, to be found by the certificates that they belong to.
pub(super) fn import(secrets: Section, store: &mut Store<'_>, draft: &mut Draft) {
    for mut section in secrets.sections {
        let kind = kind(&section.name);
        match kind {
            "ike" => shared(section, draft),
            "private" | "rsa" | "ecdsa" | "pkcs8" => {
                let passphrase = section.take("secret");
                if let Some(setting) = passphrase {
                    let why = "encrypted private keys are not supported";
                    draft.leave(&setting.origin, why, "decrypt the key: openssl pkey -in KEY -out PLAIN, and import again");
                }
                if let Some(file) = section.take("file") {
                    private(&file.origin, &file.value, store, draft);
                }
                section_rest(section, draft);
            }
            "eap" | "xauth" | "ntlm" => {
                let why = "Postern connects sites: it has no EAP, XAuth or NTLM";
                section.leave(draft, false, why, "keep strongSwan for clients");
            }
            "ppk" => section.leave(
                draft,
                true,
                "Postern has no post-quantum pre-shared keys (RFC 8784)",
                "weigh whether the tunnel may do without",
            ),
            _ => section.leave(
                draft,
                false,
                "keys in PKCS#12 files and on tokens are not supported",
                "export the key: openssl pkcs12 -in FILE -nodes, and set pki certificate NAME private key BASE64",
            ),
        }
    }
    for setting in secrets.settings {
        draft.leave_open(&setting.origin, "it is not a secret that Postern knows", "look it up");
    }
}

/// The kind of a secret: its name without what tells several apart.
fn kind(name: &str) -> &'static str {
    const KINDS: [&str; 9] = ["ike", "private", "rsa", "ecdsa", "pkcs8", "eap", "xauth", "ntlm", "ppk"];
    KINDS.into_iter().find(|kind| name.starts_with(kind)).unwrap_or("other")
}

fn section_rest(section: Section, draft: &mut Draft) {
    if !section.settings.is_empty() || !section.sections.is_empty() {
        section.leave(draft, true, "it is not an option of a secret", "look it up");
    }
}

/// A pre-shared key, which is named after its section, or numbered. The secrets of UCI come one in each call.
fn shared(mut section: Section, draft: &mut Draft) {
    let suffix = section.name.trim_start_matches("ike").trim_start_matches(['-', '_']);
    let kept: String = suffix.chars().filter(|c| !c.is_whitespace()).take(80).collect();
    let is_number = kept.bytes().all(|byte| byte.is_ascii_digit());
    let names = &mut draft.names;
    let name = if is_number { names.numbered("psk", "psk", 1) } else { names.free("psk", &kept) };
    let path = format!("vpn ipsec authentication psk {name}");
    let ids = section.take_all("id");
    let secret = section.take("secret");
    for id in &ids {
        draft.take(&id.origin, &[(format!("{path} id"), Some(&id.value))]);
    }
    if let (true, Some(secret)) = (ids.is_empty(), &secret) {
        let why = "without an id, a secret is for every peer";
        draft.translate(&secret.origin, &[(format!("{path} id"), Some("%any"))], why);
    }
    if let Some(secret) = secret {
        set_secret(&path, &secret.value, &secret.origin, draft);
    }
    section_rest(section, draft);
}

/// A secret by its encoding: `0x` and hexadecimal digits, `0s` and base64, or text; `None` if it is damaged.
fn encoded(secret: &str) -> Option<(&'static str, Zeroizing<String>)> {
    let with_room = |room: usize| Zeroizing::new(String::with_capacity(room));
    if let Some(digits) = secret.strip_prefix("0x") {
        let mut even = with_room(digits.len() + 1);
        // strongSwan adds a digit in front of an odd number of them.
        even.push_str(if digits.len() % 2 == 1 { "0" } else { "" });
        even.push_str(digits);
        let is_right = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        return is_right.then_some(("hex", even));
    }
    if let Some(text) = secret.strip_prefix("0s") {
        let text = text.trim_end_matches('=');
        let mut padded = with_room(text.len() + 3);
        padded.push_str(text);
        (0..(4 - text.len() % 4) % 4).for_each(|_| padded.push('='));
        let bytes = Base64::decode_vec(&padded).map(Zeroizing::new);
        return bytes.is_ok_and(|bytes| !bytes.is_empty()).then_some(("base64", padded));
    }
    if secret.contains(['\n', '\r']) {
        return Some(("base64", Zeroizing::new(Base64::encode_string(secret.as_bytes()))));
    }
    Some(("plaintext", Zeroizing::new(secret.to_owned())))
}

fn set_secret(path: &str, secret: &str, origin: &Origin, draft: &mut Draft) {
    let (kind, at) = (format!("{path} secret-type"), format!("{path} secret"));
    match encoded(secret) {
        None => {
            draft.leave_open(origin, "the encoding of the secret is damaged", format!("set {at} 'SECRET'"));
        }
        Some(("plaintext", text)) => draft.take(origin, &[(at, Some(&text))]),
        Some((word, text)) => {
            let why = "the encoding has a setting of its own";
            draft.translate(origin, &[(kind, Some(word)), (at, Some(&text))], why);
        }
    }
}

fn private(origin: &Origin, file: &str, store: &mut Store<'_>, draft: &mut Draft) {
    match store.add_named_private(file) {
        Ok(()) => {
            draft.translate(origin, &[], "the key goes to the certificate or key pair that it belongs to");
        }
        Err(why) => draft.leave(origin, why, "set pki certificate NAME private key BASE64"),
    }
}
