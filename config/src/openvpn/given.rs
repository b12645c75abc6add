//! The arguments of a directive, read as numbers, addresses, words and files.

use super::directive::Directive;
use super::lexer;
use super::settings::{Command, Material};
use super::verdict::Wrong;
use crate::import::Files;
use ipnet::{Ipv4Net, Ipv6Net};
use std::fmt::Display;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// The name of a file that stands for an inline block.
const INLINE: &str = "[inline]";

/// A directive with its usage, and the files that it may name.
pub(super) struct Given<'a> {
    pub(super) directive: &'a Directive,
    pub(super) name: &'static str,
    pub(super) usage: &'static str,
    pub(super) files: &'a dyn Files,
    pub(super) folder: &'a Path,
    /// The directory of `chroot`.
    pub(super) root: Option<&'a Path>,
}

impl Given<'_> {
    /// An error with the usage as its fix.
    pub(super) fn wrong(&self, reason: impl Into<String>) -> Wrong {
        Wrong::new(reason, format!("write {} {}", self.name, self.usage).trim_end())
    }

    pub(super) fn get(&self, index: usize) -> Option<&str> {
        self.directive.arguments.get(index).map(|word| word.as_str())
    }

    /// An argument that the usage requires.
    pub(super) fn at(&self, index: usize) -> Result<&str, Wrong> {
        self.get(index).ok_or_else(|| self.wrong("an argument is missing"))
    }

    pub(super) fn owned(&self, index: usize) -> Result<String, Wrong> {
        self.at(index).map(str::to_owned)
    }

    /// All arguments from one on.
    pub(super) fn from(&self, index: usize) -> impl Iterator<Item = &str> {
        self.directive.arguments.iter().skip(index).map(|word| word.as_str())
    }

    pub(super) fn parse<T: FromStr>(&self, index: usize, what: &str) -> Result<T, Wrong> {
        let text = self.at(index)?;
        text.parse().map_err(|_| self.wrong(format!("{text} is not {what}")))
    }

    pub(super) fn number<T>(&self, index: usize, range: RangeInclusive<T>) -> Result<T, Wrong>
    where
        T: FromStr + PartialOrd + Display,
    {
        let what = format!("a number from {} to {}", range.start(), range.end());
        let number = self.parse(index, &what)?;
        if range.contains(&number) {
            return Ok(number);
        }
        Err(self.wrong(format!("{number} is not {what}")))
    }

    /// A number of seconds, packets or the like.
    pub(super) fn count(&self, index: usize) -> Result<u32, Wrong> {
        self.number(index, 0..=u32::MAX >> 1)
    }

    pub(super) fn count_or(&self, index: usize, default: u32) -> Result<u32, Wrong> {
        if self.get(index).is_some() { self.count(index) } else { Ok(default) }
    }

    pub(super) fn port(&self, index: usize) -> Result<u16, Wrong> {
        self.number(index, 1..=u16::MAX)
    }

    pub(super) fn ipv4(&self, index: usize) -> Result<Ipv4Addr, Wrong> {
        self.parse(index, "an IPv4 address")
    }

    pub(super) fn ipv6(&self, index: usize) -> Result<Ipv6Addr, Wrong> {
        self.parse(index, "an IPv6 address")
    }

    /// An address and a netmask as a network, with the host part of the address.
    pub(super) fn network(&self, index: usize) -> Result<Ipv4Net, Wrong> {
        let (address, mask) = (self.ipv4(index)?, self.ipv4(index + 1)?);
        Ipv4Net::with_netmask(address, mask).map_err(|_| self.wrong(format!("{mask} is not a netmask")))
    }

    /// An IPv6 address with the length of its network, which may be missing.
    pub(super) fn prefix6(&self, index: usize, default: u8) -> Result<Ipv6Net, Wrong> {
        let text = self.at(index)?;
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, length.parse().ok()),
            None => (text, Some(default)),
        };
        let found = address.parse().ok().zip(length);
        let net = found.and_then(|(address, length)| Ipv6Net::new(address, length).ok());
        net.ok_or_else(|| self.wrong(format!("{text} is not an IPv6 address with a length")))
    }

    /// A word of a list, with its meaning.
    pub(super) fn choice<T: Copy>(&self, index: usize, words: &[(&str, T)]) -> Result<T, Wrong> {
        let text = self.at(index)?;
        let found = words.iter().find(|(word, _)| *word == text);
        found.map(|(_, meaning)| *meaning).ok_or_else(|| {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.wrong(format!("{text} is none of {}", known.join(", ")))
        })
    }

    /// A path, below the working directory unless it is absolute.
    pub(super) fn path(&self, index: usize) -> Result<PathBuf, Wrong> {
        let text = self.at(index)?;
        if text.is_empty() {
            return Err(self.wrong("the name of the file is empty"));
        }
        Ok(self.folder.join(text))
    }

    /// A path that is looked up while the process runs: below the directory of `chroot`, if there is one.
    pub(super) fn inner_path(&self, index: usize) -> Result<PathBuf, Wrong> {
        let Some(root) = self.root else { return self.path(index) };
        Ok(root.join(self.at(index)?.trim_start_matches('/')))
    }

    /// A program with its arguments, in one argument.
    pub(super) fn command(&self, index: usize) -> Result<Command, Wrong> {
        let words = lexer::words(self.at(index)?).map_err(|error| Wrong::new(error.reason(), error.fix()))?;
        let mut words = words.into_iter().map(|word| word.to_string());
        let program = words.next().ok_or_else(|| self.wrong("the command is empty"))?;
        Ok(Command { program: self.folder.join(program), arguments: words.collect() })
    }

    /// Whether the directive only says that a block follows: `ca [inline]`.
    pub(super) fn is_announced(&self) -> bool {
        self.directive.block.is_none() && self.get(0) == Some(INLINE)
    }

    /// The inline block, or the content of the file that an argument names.
    pub(super) fn content(&self, index: usize) -> Result<Material, Wrong> {
        match &self.directive.block {
            Some(block) => Ok(Material::new(None, Arc::clone(block))),
            None => self.file(self.path(index)?),
        }
    }

    fn file(&self, path: PathBuf) -> Result<Material, Wrong> {
        match self.files.read(&path) {
            Ok(text) => Ok(Material::new(Some(&path), Arc::new(text))),
            Err(error) => {
                let reason = format!("cannot read {}: {error}", path.display());
                let name = self.name;
                Err(Wrong::new(
                    reason,
                    format!("name a file that exists, or write its content between <{name}> and </{name}>"),
                ))
            }
        }
    }

    /// The same in PEM, with one of these labels.
    pub(super) fn pem(&self, index: usize, labels: &[&str]) -> Result<Material, Wrong> {
        labelled(self.content(index)?, labels)
    }

    /// The same of a file that is read again while the process runs.
    pub(super) fn inner_content(&self, index: usize) -> Result<Material, Wrong> {
        match &self.directive.block {
            Some(_) => self.content(index),
            None => self.file(self.inner_path(index)?),
        }
    }

    /// The same in PEM, with one of these labels.
    pub(super) fn inner_pem(&self, index: usize, labels: &[&str]) -> Result<Material, Wrong> {
        labelled(self.inner_content(index)?, labels)
    }
}

/// Checks that a text has PEM with one of these labels, whole.
fn labelled(content: Material, labels: &[&str]) -> Result<Material, Wrong> {
    let text = String::from_utf8_lossy(content.bytes());
    let text = zeroize::Zeroizing::new(text.into_owned());
    let wanted = labels.join(" or ");
    let place = match &content.file {
        Some(file) => file.display().to_string(),
        None => "the block".to_owned(),
    };
    let named = |label: &&&str| text.contains(&format!("-----BEGIN {label}-----"));
    let Some(label) = labels.iter().find(named) else {
        let fix = format!("put the lines from -----BEGIN {wanted}----- to its END line there");
        return Err(Wrong::new(format!("{place} has no {wanted}"), fix));
    };
    if !text.contains(&format!("-----END {label}-----")) {
        let reason = format!("{place} is truncated: the END line of {label} is missing");
        return Err(Wrong::new(reason, "copy it again, whole"));
    }
    Ok(content)
}
