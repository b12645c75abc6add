//! Translates configurations of other programs to `set` lines, and reports what became of each option.
//!
//! ```text
//! wg-quick ──────────────────────────────┐
//! VyOS, EdgeOS ── router ────────────────┼──> Draft ── parse, Settings ──> Imported
//! swanctl.conf ──> Section ── swanctl ───┘
//! ipsec.conf ── ipsec_conf ─────┤
//! UCI ── uci ───────────────────┘
//! ```
//! An option is taken out of its section where it is translated. What is left in a section at the end is reported, so that
//! nothing is lost without a word.

mod credentials;
mod files;
mod ipsec_conf;
mod names;
mod network;
mod place;
mod proposal;
mod report;
mod router;
mod section;
mod swanctl;
mod uci;
mod wg_quick;

pub use files::{Disk, Files, LONGEST, NoFiles};
pub use place::{Place, SyntaxError};
pub use report::{Entry, Imported, Outcome, Problem};
pub use uci::Wanted;

use crate::text::Text;
use report::Draft;
use std::net::IpAddr;

/// A file to import.
#[derive(Debug)]
pub struct Source {
    /// Its name, as errors show it.
    pub name: String,
    /// Its content.
    pub text: Text,
}

impl Source {
    /// The content as characters.
    fn text(&self) -> Result<&str, SyntaxError> {
        self.text.as_str().map_err(|error| {
            let before = &self.text.bytes()[..error.valid_up_to()];
            let line = before.split(|byte| *byte == b'\n').count();
            let place = Place { order: 0, file: self.name.as_str().into(), line, column: 1, last_line: line };
            let (reason, fix) = ("this is not UTF-8".to_owned(), "convert the file with iconv".to_owned());
            SyntaxError { place, reason, fix }
        })
    }
}

/// The format of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `config.boot` or `set` lines of VyOS.
    Vyos,
    /// The same of EdgeOS.
    EdgeOs,
    /// A file of wg-quick.
    WgQuick,
    /// swanctl.conf of strongSwan.
    Swanctl,
    /// ipsec.conf of strongSwan and libreswan, with ipsec.secrets.
    IpsecConf,
    /// UCI of OpenWrt: the packages `network`, `openvpn`, `ipsec` and `postern`.
    Uci(Wanted),
}

/// Imports files of one format. Those that they refer to are read as `files` has them. `local` are addresses of this
/// gateway, which tell left from right in ipsec.conf.
pub fn import(
    format: Format,
    sources: &[Source],
    files: &dyn Files,
    local: &[IpAddr],
) -> Result<Imported, SyntaxError> {
    let mut draft = Draft::default();
    match format {
        Format::WgQuick => wg_quick::import(sources, &mut draft)?,
        Format::Swanctl => swanctl::import(sources, files, &mut draft)?,
        Format::IpsecConf => ipsec_conf::import(sources, files, local, &mut draft)?,
        Format::Uci(wanted) => uci::import(sources, files, wanted, &mut draft)?,
        Format::Vyos => router::import(sources, files, false, &mut draft)?,
        Format::EdgeOs => router::import(sources, files, true, &mut draft)?,
    }
    let mut imported = draft.finish();
    if format == Format::Uci(Wanted::Own) {
        // It is made at each start, when its report is not read.
        imported.refuse_what_is_left();
    }
    Ok(imported)
}

/// The format that a source seems to have.
pub fn detect(source: &Source) -> Option<Format> {
    let text = source.text.as_str().ok()?;
    let lines = || text.lines().map(str::trim);
    let begins = |words: &[&str]| lines().any(|line| words.iter().any(|word| line.starts_with(word)));
    if lines().any(|line| matches!(line.to_lowercase().as_str(), "[interface]" | "[peer]")) {
        return Some(Format::WgQuick);
    }
    if begins(&["config interface", "config openvpn", "config remote", "config lines", "config wireguard_"]) {
        return Some(Format::Uci(Wanted::All));
    }
    let is_edge = text.contains("vyatta-config-version") || text.contains("EdgeRouter");
    let router = if is_edge { Format::EdgeOs } else { Format::Vyos };
    if begins(&["conn ", "config setup"]) || source.name.ends_with("secrets") {
        return Some(Format::IpsecConf);
    }
    if begins(&["connections", "secrets", "include "]) && !begins(&["interfaces {", "set "]) {
        return Some(Format::Swanctl);
    }
    (is_edge || text.contains("vyos-config-version") || begins(&["interfaces {", "vpn {", "pki {", "set "]))
        .then_some(router)
}
