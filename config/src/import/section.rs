//! Sections of named settings: what swanctl.conf has, and what ipsec.conf is turned into.

use super::place::Origin;
use super::report::Draft;
use zeroize::Zeroizing;

/// A setting.
#[derive(Clone)]
pub(super) struct Setting {
    pub(super) name: String,
    pub(super) value: Zeroizing<String>,
    pub(super) origin: Origin,
}

impl Setting {
    /// Its values between commas.
    pub(super) fn list(&self) -> impl Iterator<Item = &str> {
        self.value.split(',').map(str::trim).filter(|part| !part.is_empty())
    }

    /// Whether it is `yes`, in one of its spellings.
    pub(super) fn is_yes(&self) -> bool {
        matches!(self.value.to_lowercase().as_str(), "yes" | "true" | "enabled" | "1")
    }

    /// Whether it is `no`, in one of its spellings.
    pub(super) fn is_no(&self) -> bool {
        matches!(self.value.to_lowercase().as_str(), "no" | "false" | "disabled" | "0")
    }
}

/// A section with settings and sections.
#[derive(Clone)]
pub(super) struct Section {
    pub(super) name: String,
    pub(super) origin: Origin,
    pub(super) settings: Vec<Setting>,
    pub(super) sections: Vec<Section>,
}

impl Section {
    pub(super) fn new(name: impl Into<String>, origin: Origin) -> Self {
        Self { name: name.into(), origin, settings: Vec::new(), sections: Vec::new() }
    }

    /// The value of a setting, which stays.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|setting| setting.name == name).map(|setting| setting.value.as_str())
    }

    /// Takes a setting out. One without a value is as if it were not there.
    pub(super) fn take(&mut self, name: &str) -> Option<Setting> {
        let index = self.settings.iter().position(|setting| setting.name == name)?;
        Some(self.settings.remove(index))
    }

    /// Takes the settings out whose names begin with `prefix`.
    pub(super) fn take_all(&mut self, prefix: &str) -> Vec<Setting> {
        self.settings.extract_if(.., |setting| setting.name.starts_with(prefix)).collect()
    }

    /// Takes the sections out whose names begin with `prefix`.
    pub(super) fn take_sections(&mut self, prefix: &str) -> Vec<Section> {
        self.sections.extract_if(.., |section| section.name.starts_with(prefix)).collect()
    }

    /// Sets or replaces a setting.
    pub(super) fn put(&mut self, setting: Setting) {
        match self.settings.iter_mut().find(|known| known.name == setting.name) {
            Some(known) => *known = setting,
            None => self.settings.push(setting),
        }
    }

    /// Reports that it is not served, with all that is in it.
    pub(super) fn refuse(self, draft: &mut Draft, security: bool, why: &str, fix: &str) {
        leave(draft, &self.origin, security, why, fix);
        let part = format!("it is a part of {}, which is left", self.origin.option);
        for setting in &self.settings {
            draft.leave(&setting.origin, &*part, "see there");
        }
        for section in self.sections {
            section.leave(draft, false, &part, "see there");
        }
    }

    /// Reports what is left of the servers of an authority.
    pub(super) fn leave_authority(self, draft: &mut Draft) {
        let why = "servers of revocation are those that certificates name";
        let fix = "set pki ca NAME crl-file FILE, or name the server in the certificates";
        self.leave(draft, true, why, fix);
    }

    /// Reports all that is left in it.
    pub(super) fn leave(self, draft: &mut Draft, security: bool, why: &str, fix: &str) {
        for setting in &self.settings {
            leave(draft, &setting.origin, security, why, fix);
        }
        for section in self.sections {
            section.leave(draft, security, why, fix);
        }
    }
}

fn leave(draft: &mut Draft, origin: &Origin, security: bool, why: &str, fix: &str) {
    if security {
        draft.leave_open(origin, why, fix);
    } else {
        draft.leave(origin, why, fix);
    }
}
