//! `vpn ipsec site-to-site peer NAME authentication second`.

use super::{Identity, Named, Reader, Second};
use crate::tree::Tree;

/// The second round of a peer is not usable; the reader has the error.
pub(super) struct Refused;

impl Reader {
    pub(super) fn second_round(
        &mut self,
        named: &Named<'_>,
        path: &str,
        tree: &Tree,
    ) -> Result<Option<Second>, Refused> {
        let Some(second) = tree.at(&["authentication", "second"]) else { return Ok(None) };
        let path = format!("{path} authentication second");
        let mut id = |name: &str| {
            let found = second.value(name).and_then(Identity::new);
            if found.is_none() {
                let fix = format!("set {path} {name} ID, which only one {} has", whose(name));
                self.error(second.location(), format!("{path} has no {name}"), fix);
            }
            found.ok_or(Refused)
        };
        let (local, remote) = (id("local-id"), id("remote-id"));
        let (local_id, remote_id) = (local?, remote?);
        let ids = [&local_id, &remote_id].map(std::slice::from_ref);
        if let Some((psk, secret)) = named.secrets.find(ids[0], ids[1]) {
            let (psk, secret) = (psk.to_owned(), secret.clone());
            return Ok(Some(Second { local_id, remote_id, psk, secret }));
        }
        let fix = format!(
            "set vpn ipsec authentication psk NAME id {remote_id}, set vpn ipsec authentication psk NAME secret 'SECRET'"
        );
        self.error(second.location(), format!("{path}: no psk has {remote_id} as id"), fix);
        Err(Refused)
    }
}

fn whose(name: &str) -> &'static str {
    if name == "local-id" { "gateway" } else { "peer" }
}
