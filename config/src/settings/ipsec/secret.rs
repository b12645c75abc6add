//! `vpn ipsec authentication psk`: pre-shared keys, found by the identities of both sides.

use super::{Identity, Reader, branches, identity};
use crate::schema::bytes_of;
use crate::tree::Tree;
use crypto::SecretBytes;
use std::collections::HashMap;

/// Secrets by identity.
#[derive(Default)]
pub(super) struct Secrets {
    shared: Vec<Shared>,
    by_identity: HashMap<Identity, Vec<usize>>,
    /// Secrets for any identity.
    of_anyone: Vec<usize>,
}

struct Shared {
    name: String,
    ids: Vec<Option<Identity>>,
    secret: SecretBytes,
}

impl Shared {
    fn belongs_to(&self, ids: &[Identity]) -> bool {
        self.ids.iter().flatten().any(|id| ids.contains(id))
    }
}

impl Secrets {
    /// The secret of two sides, each with some identities, and its name.
    ///
    /// A secret that names the peer is preferred, best if it also names the local side; then one that names only the
    /// local side; then one for any identity. A secret that names the local side and another peer belongs to those
    /// two, and is not used for this peer.
    pub(super) fn find(&self, ours: &[Identity], theirs: &[Identity]) -> Option<(&str, &SecretBytes)> {
        let of = |ids: &[Identity]| -> Vec<&Shared> {
            let found = ids.iter().filter_map(|id| self.by_identity.get(id)).flatten();
            found.filter_map(|&index| self.shared.get(index)).collect()
        };
        let theirs_too = of(theirs);
        let best =
            theirs_too.iter().copied().find(|shared| shared.belongs_to(ours)).or(theirs_too.first().copied());
        let only_ours = |shared: &&Shared| shared.ids.iter().flatten().all(|id| ours.contains(id));
        let ours = || of(ours).into_iter().find(only_ours);
        let anyone = || self.shared.get(*self.of_anyone.first()?);
        best.or_else(ours).or_else(anyone).map(|shared| (&*shared.name, &shared.secret))
    }

    /// All identities for which there is a secret.
    pub(super) fn identities(&self) -> Vec<String> {
        self.by_identity.keys().map(Identity::to_string).collect()
    }

    fn add(&mut self, shared: Shared) {
        let index = self.shared.len();
        for id in &shared.ids {
            match id {
                Some(id) => self.by_identity.entry(id.clone()).or_default().push(index),
                None => self.of_anyone.push(index),
            }
        }
        self.shared.push(shared);
    }
}

impl Reader {
    pub(super) fn secrets(&mut self, tree: &Tree) -> Secrets {
        let mut secrets = Secrets::default();
        for (name, tree) in branches(tree, &["authentication", "psk"]) {
            let path = format!("vpn ipsec authentication psk {name}");
            let ids: Vec<_> = tree.values("id").into_iter().map(Identity::new).collect();
            if ids.is_empty() && !tree.has("dhcp-interface") {
                let fix = format!("set {path} id ADDRESS, once for us and once for the peer");
                self.error(tree.location(), format!("{path}: id is not set"), fix);
            }
            let (secret, guessed) = shared_secret(tree).unwrap_or_else(|(reason, fix)| {
                self.error(tree.location(), format!("{path}: {reason}"), format!("set {path} {fix}"));
                // An empty one, so that its peers are not reported as well.
                (SecretBytes::new(Vec::new()), None)
            });
            if let Some((prefix, form)) = guessed {
                self.warn(format!(
                    "{path}: the secret begins with {prefix} and is read as {form}, as VyOS does; if it is text: set {path} \
                     secret-type plaintext"
                ));
            }
            secrets.add(Shared { name: name.to_owned(), ids, secret });
        }
        secrets
    }
}

/// An encoding of secrets that swanctl, and so VyOS, tells by a prefix: the prefix and the name.
type Form = (&'static str, &'static str);

const FORMS: [Form; 2] = [("0x", "hex"), ("0s", "base64")];

/// The bytes of a secret, and its form if the prefix tells it; or the error and the fix.
fn shared_secret(tree: &Tree) -> Result<(SecretBytes, Option<Form>), (&'static str, &'static str)> {
    let Some(text) = tree.value("secret") else {
        return Err(("secret is not set", "secret 'SECRET', the same on both sides"));
    };
    let form = tree.value("secret-type");
    let marked = FORMS.into_iter().filter(|_| form.is_none()).find_map(|marked| {
        let secret = decoded(marked.1, text.strip_prefix(marked.0)?)?;
        Some((secret, Some(marked)))
    });
    let said = || Some((decoded(form.unwrap_or("plaintext"), text)?, None));
    marked
        .or_else(said)
        .ok_or(("the secret does not match secret-type", "secret-type plaintext, if it is text"))
}

fn decoded(form: &str, text: &str) -> Option<SecretBytes> {
    let bytes = match form {
        "base64" => std::mem::take(&mut *bytes_of(text)?),
        "hex" => identity::hexadecimal(text)?,
        _ => text.as_bytes().to_vec(),
    };
    (!bytes.is_empty()).then(|| SecretBytes::new(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    fn secrets(text: &str) -> Secrets {
        let tree = parse(text).expect("right");
        let mut reader = Reader::default();
        let secrets = reader.secrets(tree.at(&["vpn", "ipsec"]).expect("set"));
        assert_eq!(reader.errors, []);
        secrets
    }

    fn found<'a>(secrets: &'a Secrets, ours: &[&str], theirs: &[&str]) -> Option<&'a str> {
        let ids = |texts: &[&str]| texts.iter().filter_map(|text| Identity::new(text)).collect::<Vec<_>>();
        let found = secrets.find(&ids(ours), &ids(theirs));
        found.map(|(name, secret)| {
            assert_eq!(name.as_bytes(), secret.expose(), "the secrets here are their names");
            name
        })
    }

    #[test]
    fn the_secret_that_names_both_sides_is_taken() {
        let secrets = secrets(
            "set vpn ipsec authentication psk a id 192.0.2.1\nset vpn ipsec authentication psk a secret a\n\
             set vpn ipsec authentication psk b id 192.0.2.9\nset vpn ipsec authentication psk b id 192.0.2.1\n\
             set vpn ipsec authentication psk b secret b\n\
             set vpn ipsec authentication psk c id %any\nset vpn ipsec authentication psk c secret c",
        );
        assert_eq!(found(&secrets, &["192.0.2.9"], &["192.0.2.1"]), Some("b"));
        assert_eq!(found(&secrets, &["192.0.2.8"], &["192.0.2.1"]), Some("a"));
        assert_eq!(found(&secrets, &["192.0.2.8"], &["192.0.2.2"]), Some("c"), "anyone's");
        assert_eq!(found(&secrets, &["192.0.2.9"], &[]), Some("c"), "b is for us and another");
        assert_eq!(
            found(&secrets, &["192.0.2.9"], &["192.0.2.2"]),
            Some("c"),
            "not one of ours with another"
        );
    }

    #[test]
    fn a_secret_of_two_sides_is_not_given_to_an_anonymous_peer() {
        let secrets = secrets(
            "set vpn ipsec authentication psk both id us.example\nset vpn ipsec authentication psk both id berlin\n\
             set vpn ipsec authentication psk both secret both\n\
             set vpn ipsec authentication psk own id us2.example\nset vpn ipsec authentication psk own secret own",
        );
        assert_eq!(found(&secrets, &["us.example"], &[]), None);
        assert_eq!(found(&secrets, &["us.example"], &["berlin"]), Some("both"));
        assert_eq!(found(&secrets, &["us2.example"], &[]), Some("own"), "it names no other peer");
    }

    #[test]
    fn a_secret_is_read_as_its_type_says() {
        let line = "set vpn ipsec authentication psk a";
        let of = |text: &str, kind: &str| {
            let kind = if kind.is_empty() { String::new() } else { format!("{line} secret-type {kind}") };
            let tree = parse(&format!("{line} id a\n{line} secret '{text}'\n{kind}")).expect("right");
            let tree = tree.at(&["vpn", "ipsec", "authentication", "psk", "a"]).expect("set").clone();
            shared_secret(&tree).map(|(secret, _)| secret.expose().to_vec())
        };
        assert_eq!(of("0sAAEC", ""), Ok(vec![0, 1, 2]), "as VyOS hands it on");
        assert_eq!(of("0x00ff", ""), Ok(vec![0, 255]));
        assert_eq!(of("0x00ff", "plaintext"), Ok(b"0x00ff".to_vec()));
        assert_eq!(of("0xsesame", ""), Ok(b"0xsesame".to_vec()));
        assert_eq!(of("AAEC", "plaintext"), Ok(b"AAEC".to_vec()));
        assert_eq!(of("AAEC", "base64"), Ok(vec![0, 1, 2]));
        assert_eq!(of("00ff", "hex"), Ok(vec![0, 255]));
        assert!(of("not hex", "hex").is_err() && of("not base64", "base64").is_err());
    }
}
