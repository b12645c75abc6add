//! The environment of a program: names and values as OpenVPN lets them pass.

use std::collections::BTreeMap;
use std::fmt;
use zeroize::Zeroizing;

/// What the names of variables about a peer begin with: its address, and its certificates.
pub const OF_PEER: [&str; 5] = ["trusted_", "untrusted_", "tls_", "X509_", "common_name"];

/// Longer values are cut: the kernel starts no program with a variable above 128 KiB.
const LONGEST: usize = 16_384;

/// Variables. A value may be a password: it is erased when dropped, and not printed.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<String, Zeroizing<String>>);

impl Environment {
    /// Sets a variable. Other characters of the name than letters, digits and underscores are left out; control characters of
    /// the value become underscores, so that no value has two lines.
    pub fn set(&mut self, name: &str, value: impl fmt::Display) {
        let name: String =
            name.chars().filter(|letter| letter.is_ascii_alphanumeric() || *letter == '_').collect();
        if name.is_empty() {
            return;
        }
        let text = Zeroizing::new(value.to_string());
        let value = tunnel::openvpn::peer_info::shortened(&text, LONGEST);
        self.0.insert(name, Zeroizing::new(printable(value)));
    }

    /// The variables.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// A variable.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| value.as_str())
    }

    /// Those whose names begin with one of these.
    #[must_use]
    pub fn only(&self, prefixes: &[&str]) -> Self {
        let is_one = |name: &String| prefixes.iter().any(|prefix| name.starts_with(prefix));
        Self(
            self.0
                .iter()
                .filter(|(name, _)| is_one(name))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        )
    }

    /// Removes the variables whose names begin with one of these.
    pub fn forget(&mut self, prefixes: &[&str]) {
        self.0.retain(|name, _| !prefixes.iter().any(|prefix| name.starts_with(prefix)));
    }

    /// Adds all variables of another environment.
    pub fn extend(&mut self, other: &Self) {
        self.0.extend(other.0.iter().map(|(name, value)| (name.clone(), value.clone())));
    }
}

/// A text with underscores in place of control characters. It may be a password: a string that grows leaves copies behind.
pub fn printable(text: &str) -> String {
    let mut own = String::with_capacity(text.len());
    own.extend(text.chars().map(|letter| if letter.is_control() { '_' } else { letter }));
    own
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_have_no_characters_that_a_script_could_mistake() {
        let mut environment = Environment::default();
        environment.set("username", "anna\nuntrusted=1\x1b$(id)`id`");
        environment.set("IV_A=B;LD_PRELOAD", "x");
        environment.set("=\n", "x");
        environment.set("long", "é".repeat(LONGEST));
        let all: Vec<(&str, &str)> = environment.iter().filter(|(name, _)| *name != "long").collect();
        assert_eq!(all, [("IV_ABLD_PRELOAD", "x"), ("username", "anna_untrusted=1_$(id)`id`")]);
        assert_eq!(environment.value("long").map(str::len), Some(LONGEST));
        assert!(!format!("{environment:?}").contains("anna"));
    }

    #[test]
    fn no_copy_of_a_password_is_left_behind() {
        let text = "a text that is long enough to grow, with é and \u{85}\n";
        let own = printable(text);
        assert!(own.ends_with("é and __") && own.capacity() == text.len());
    }
}
