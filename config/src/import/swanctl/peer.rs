//! A connection as the peer that it becomes.

use crate::import::credentials::Store;
use crate::import::names::Names;
use crate::import::place::Origin;
use crate::import::report::Draft;
use crate::import::section::Section;
use std::net::IpAddr;

/// A peer that is imported.
pub(super) struct Peer<'a, 'b> {
    pub(super) name: String,
    /// `vpn ipsec site-to-site peer P`
    pub(super) path: String,
    pub(super) local: Option<IpAddr>,
    pub(super) remote: Option<IpAddr>,
    pub(super) child_seconds: u64,
    pub(super) store: &'a mut Store<'b>,
    pub(super) children: usize,
}

impl Peer<'_, '_> {
    /// The `esp-group` of a child. Groups of other connections may have been named alike.
    pub(super) fn group_of(&self, child: &str, names: &mut Names) -> String {
        let kept: String = child.chars().filter(|c| !c.is_whitespace()).take(19).collect();
        let wanted = if self.children > 1 { format!("{}-{kept}", self.name) } else { self.name.clone() };
        names.free("esp-group", &wanted)
    }

    /// Keeps the peer from being served as long as something is not decided.
    pub(super) fn hold(&self, origin: &Origin, why: &str, fix: &str, draft: &mut Draft) {
        let path = &self.path;
        draft.imply(origin, &format!("{path} disable"), None);
        let why = format!("{why}; the peer is disabled, and the packets of its tunnels are not protected");
        draft.leave_open(origin, why, format!("{fix}; then: delete {path} disable"));
    }
}

/// Reports what is left in a section because nothing knows it.
pub(super) fn rest(section: Section, draft: &mut Draft) {
    if !section.settings.is_empty() || !section.sections.is_empty() {
        let fix = "look it up in swanctl.conf(5): if it restricts who may connect or what is protected, do not go on without it";
        section.leave(draft, true, "Postern has nothing like it", fix);
    }
}
