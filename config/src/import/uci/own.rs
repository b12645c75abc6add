//! The package `postern`: the daemon's own settings, and lines of a configuration as they are.

use super::{Block, is_off, leave_rest, take_members};
use crate::import::report::Draft;
use crate::import::section::Setting;

/// Imports all sections; returns the comments, which come behind all that they are about.
pub(super) fn import(blocks: Vec<Block>, draft: &mut Draft) -> Vec<Setting> {
    let mut comments = Vec::new();
    for Block { kind, mut section } in blocks {
        match kind.as_str() {
            "daemon" => section.leave(draft, false, "it is for the init script of the daemon", "nothing"),
            "lines" => {
                let is_off = section.take("enabled").is_some_and(|enabled| {
                    draft.take(&enabled.origin, &[]);
                    is_off(&enabled)
                });
                if is_off {
                    section.refuse(draft, false, "the section is not enabled", "option enabled '1'");
                    continue;
                }
                section.take("description").into_iter().for_each(|it| draft.take(&it.origin, &[]));
                for setting in take_members(&mut section, "set") {
                    let line = setting.value.trim();
                    draft.take_line(&setting.origin, line.strip_prefix("set ").unwrap_or(line));
                }
                comments.extend(take_members(&mut section, "comment"));
                leave_rest(section, draft, "it is not an option of a section of type lines");
            }
            _ => {
                section.refuse(
                    draft,
                    true,
                    "no type of this package",
                    "write config lines, or config daemon",
                );
            }
        }
    }
    comments
}
