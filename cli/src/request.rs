//! The arguments and options of an operational command, and the daemons that it asks.

use crate::{Failure, client};
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

/// The arguments of one run of an operational command.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    /// The socket of the only daemon to ask; all daemons if there is none.
    api: Option<PathBuf>,
    /// The path that is requested from the API; the names of arguments in it stand in braces.
    asks: &'static str,
    values: Vec<(&'static str, String)>,
    flags: Vec<&'static str>,
}

impl Request {
    /// A request without options.
    pub(crate) fn new(api: Option<PathBuf>, asks: &'static str, values: Vec<(&'static str, String)>) -> Self {
        Self { api, asks, values, flags: Vec::new() }
    }

    /// The same with these options.
    pub(crate) fn with_flags(self, flags: Vec<&'static str>) -> Self {
        Self { flags, ..self }
    }

    /// The value of an argument, if it was given.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.values.iter().find(|(known, _)| *known == name).map(|(_, value)| &**value)
    }

    /// Whether an option was given.
    pub(crate) fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    /// The socket of the only daemon to ask.
    pub(crate) fn api(&self) -> Option<&Path> {
        self.api.as_deref()
    }

    /// The answers of the daemons; an error if there is none.
    pub(crate) fn ask<T: DeserializeOwned>(&self) -> Result<Vec<T>, Failure> {
        client::ask(self.api(), &self.question())
    }

    /// The answer of each daemon, with its socket.
    pub(crate) fn ask_each<T: DeserializeOwned>(&self) -> Result<Vec<(PathBuf, T)>, Failure> {
        client::ask_each(self.api(), &self.question())
    }

    fn question(&self) -> String {
        let fill = |text: String, (name, value): &(&str, String)| text.replace(&format!("{{{name}}}"), value);
        self.values.iter().fold(self.asks.to_owned(), fill)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_stand_in_the_question() {
        let request = Request::new(None, "/v1/{INTERFACE}/explain", vec![("INTERFACE", "wg0".to_owned())]);
        assert_eq!((request.question(), request.value("PEER")), ("/v1/wg0/explain".to_owned(), None));
        assert!(request.with_flags(vec!["all"]).has("all"));
    }
}
