//! What is wrong with a file: the error at which reading stops, and the traps that ipsec-secgw says nothing about.

use std::fmt;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Postern does otherwise than ipsec-secgw, or a value has little effect.
    Note,
    /// A trap: the file is accepted, and does something else than it seems to say.
    Warning,
    /// Nothing is started.
    Error,
}

impl Severity {
    /// The word in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Something that is wrong with a line, with the file as a whole, or with the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The line; none for the file as a whole and for the command line.
    pub line: Option<u32>,
    /// How bad it is.
    pub severity: Severity,
    /// The name of the rule, for programs.
    pub rule: &'static str,
    /// What is wrong, in one sentence; for an error, the message of ipsec-secgw.
    pub text: String,
    /// What to do.
    pub fix: String,
}

impl Finding {
    pub(super) fn new(
        severity: Severity,
        line: impl Into<Option<u32>>,
        rule: &'static str,
        text: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { line: line.into(), severity, rule, text: text.into(), fix: fix.into() }
    }

    pub(super) fn error(
        line: impl Into<Option<u32>>,
        rule: &'static str,
        text: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self::new(Severity::Error, line, rule, text, fix)
    }

    pub(super) fn warning(
        line: impl Into<Option<u32>>,
        rule: &'static str,
        text: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self::new(Severity::Warning, line, rule, text, fix)
    }

    pub(super) fn note(
        line: impl Into<Option<u32>>,
        rule: &'static str,
        text: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self::new(Severity::Note, line, rule, text, fix)
    }

    /// The finding as one report: place, severity, sentence and mend.
    pub fn in_file<'a>(&'a self, file: &'a str) -> impl fmt::Display + 'a {
        InFile { finding: self, file }
    }
}

struct InFile<'a> {
    finding: &'a Finding,
    file: &'a str,
}

impl fmt::Display for InFile<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { line, severity, rule, text, fix } = self.finding;
        f.write_str(self.file)?;
        if let Some(line) = line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}: {text}", severity.name())?;
        if *severity != Severity::Error {
            write!(f, " [{rule}]")?;
        }
        if fix.is_empty() { Ok(()) } else { write!(f, "\n  fix: {fix}") }
    }
}
