//! A row of the table of directives.

use super::directive::Directive;
use super::draft::Draft;
use super::given::Given;
use super::settings::ClientFile;
use super::verdict::Wrong;

/// Where a directive may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope(u8);

impl Scope {
    /// A file, or the command line.
    pub const CONFIG: Self = Self(1);
    /// A block `<connection>`.
    pub const CONNECTION: Self = Self(2);
    /// A file of a client in `client-config-dir`.
    pub const CLIENT_FILE: Self = Self(4);

    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether it has all places of another.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    fn place(self) -> &'static str {
        match self {
            Self::CONNECTION => "a block <connection>",
            Self::CLIENT_FILE => "a file of client-config-dir",
            _ => "the configuration",
        }
    }
}

/// The roles that a directive applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// Every role.
    All,
    /// A server for many clients: `mode server`.
    Server,
    /// A client that takes options from the server: `pull`.
    Client,
}

/// Changes a draft as a directive wants.
pub(super) type Setter = fn(&mut Draft, &Given<'_>) -> Result<(), Wrong>;

/// Changes the settings of one client as a directive of its file wants.
pub(super) type ClientSetter = fn(&mut ClientFile, &Given<'_>) -> Result<(), Wrong>;

/// What becomes of a directive.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    /// It is served.
    Served {
        /// The setting.
        into: &'static str,
    },
    /// It has no effect, and needs none.
    Harmless {
        /// Why not.
        why: &'static str,
    },
    /// It is refused.
    Refused {
        /// The reason.
        why: &'static str,
        /// What to do.
        fix: &'static str,
    },
}

/// A directive.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// Its arguments: those in brackets may be missing, and dots say that the last one may be repeated.
    pub usage: &'static str,
    /// Where it may stand.
    pub scope: Scope,
    /// The roles that it applies to.
    pub role: For,
    /// Whether it may be an inline block.
    pub has_block: bool,
    /// What becomes of it.
    pub fate: Fate,
    /// What changes the draft, if it is served.
    pub(super) by: Option<Setter>,
    /// What becomes of it in the file of a client.
    pub(super) client_file: Option<ClientSetter>,
}

pub(super) const fn row(name: &'static str, usage: &'static str, fate: Fate) -> Row {
    Row {
        name,
        usage,
        scope: Scope::CONFIG,
        role: For::All,
        has_block: false,
        fate,
        by: None,
        client_file: None,
    }
}

pub(super) const fn served(name: &'static str, usage: &'static str, into: &'static str, by: Setter) -> Row {
    Row { by: Some(by), ..row(name, usage, Fate::Served { into }) }
}

pub(super) const fn harmless(name: &'static str, usage: &'static str, why: &'static str) -> Row {
    row(name, usage, Fate::Harmless { why })
}

/// One that is refused with any arguments, wherever it stands.
pub(super) const fn refused(name: &'static str, why: &'static str, fix: &'static str) -> Row {
    let scope = Scope::CONFIG.and(Scope::CONNECTION).and(Scope::CLIENT_FILE);
    Row { scope, has_block: true, ..row(name, "[ARGUMENT...]", Fate::Refused { why, fix }) }
}

impl Row {
    pub(super) const fn block(self) -> Self {
        Self { has_block: true, ..self }
    }

    pub(super) const fn connection(self) -> Self {
        Self { scope: self.scope.and(Scope::CONNECTION), ..self }
    }

    pub(super) const fn server(self) -> Self {
        Self { role: For::Server, ..self }
    }

    pub(super) const fn client(self) -> Self {
        Self { role: For::Client, ..self }
    }

    /// May stand in the file of a client too.
    pub(super) const fn in_client_file(self, by: ClientSetter) -> Self {
        Self { scope: self.scope.and(Scope::CLIENT_FILE), client_file: Some(by), ..self }
    }

    /// May stand only in the file of a client.
    pub(super) const fn only_in_client_file(self, by: ClientSetter) -> Self {
        Self { scope: Scope::CLIENT_FILE, client_file: Some(by), ..self }
    }

    /// The least and the largest number of arguments.
    fn arity(&self) -> (usize, usize) {
        let mut arity = (0, 0);
        for word in self.usage.split(' ').filter(|word| !word.is_empty()) {
            arity.1 = if word.contains("...") { usize::MAX } else { arity.1 + 1 };
            if !word.starts_with('[') {
                arity.0 += 1;
            }
        }
        arity
    }

    /// Checks the place of a directive and the number of its arguments.
    pub(super) fn check(&self, directive: &Directive, scope: Scope) -> Result<(), Wrong> {
        let usage = format!("write {} {}", self.name, self.usage).trim_end().to_owned();
        if !self.scope.has(scope) {
            let known = [Scope::CONFIG, Scope::CONNECTION, Scope::CLIENT_FILE];
            let right = known.into_iter().find(|it| self.scope.has(*it)).unwrap_or(Scope::CONFIG);
            let reason = format!("it may not stand in {}", scope.place());
            return Err(Wrong::new(reason, format!("move it to {}", right.place())));
        }
        if directive.block.is_some() {
            let reason = format!("<{}> is not an inline block of OpenVPN", self.name);
            return if self.has_block { Ok(()) } else { Err(Wrong::new(reason, usage)) };
        }
        let (least, most) = self.arity();
        match directive.arguments.len() {
            count if count < least => Err(Wrong::new("an argument is missing", usage)),
            count if count > most => Err(Wrong::new("it has too many arguments", usage)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usage_says_how_many_arguments_there_are() {
        let arity = |usage| row("x", usage, Fate::Harmless { why: "" }).arity();
        assert_eq!(arity(""), (0, 0));
        assert_eq!(arity("HOST [PORT] [PROTOCOL]"), (1, 3));
        assert_eq!(arity("HEX..."), (1, usize::MAX));
        assert_eq!(arity("[FLAG...]"), (0, usize::MAX));
    }
}
