//! The lines of a file of hashes: `NAME:HASH`.

use crypto::password::{PasswordHash, PasswordHashError};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// The longest name, as in OpenVPN.
const LONGEST_NAME: usize = 64;

/// Names and the hashes of their passwords.
#[derive(Clone, Debug)]
pub struct Users {
    /// In the order of the file; at least one.
    hashes: Vec<PasswordHash>,
    by_name: HashMap<String, usize>,
    /// Chooses what an unknown name is compared with.
    random: RandomState,
}

/// What is wrong with a file. No hash is in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The text is not UTF-8.
    #[error("{0}: it is not text in UTF-8")]
    NotText(String),
    /// There is no user.
    #[error("{0}: there is no user in it")]
    Empty(String),
    /// A line is wrong.
    #[error("{0}:{1}: {2}")]
    Line(String, usize, LineError),
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// It has no colon.
    #[error("it is not NAME:HASH")]
    NoColon,
    /// The name is empty, too long, or has spaces around it.
    #[error("the name is empty, has more than {LONGEST_NAME} bytes, or begins or ends with a space")]
    Name,
    /// Another line has the name.
    #[error("line {0} has this name, too")]
    Twice(usize),
    /// The hash is wrong.
    #[error("the hash: {0}")]
    Hash(#[from] PasswordHashError),
}

impl Users {
    /// Reads the content of a file. Empty lines and those with `#` at their beginning are left out.
    pub fn read(name: &str, content: &[u8]) -> Result<Self, FileError> {
        let text = str::from_utf8(content).map_err(|_| FileError::NotText(name.to_owned()))?;
        let mut users = Self { hashes: Vec::new(), by_name: HashMap::new(), random: RandomState::default() };
        let mut numbers = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |error| FileError::Line(name.to_owned(), number, error);
            let (user, hash) = split(line).map_err(wrong)?;
            if let Some(before) = users.by_name.insert(user.to_owned(), users.hashes.len()) {
                return Err(wrong(LineError::Twice(numbers[before])));
            }
            users.hashes.push(hash);
            numbers.push(number);
        }
        if users.hashes.is_empty() { Err(FileError::Empty(name.to_owned())) } else { Ok(users) }
    }

    /// Whether there is a user of this name.
    pub fn has(&self, user: &str) -> bool {
        self.by_name.contains_key(user)
    }

    /// Whether the password is that of the user. It takes some time: one hash, also for an unknown user.
    pub fn admits(&self, user: &str, password: &str) -> bool {
        let known = self.by_name.get(user);
        // One hash of the file, and the same one each time: the file may have several methods and costs.
        let other = self.random.hash_one(user) as usize % self.hashes.len();
        let is_equal = self.hashes[*known.unwrap_or(&other)].matches(password.as_bytes());
        is_equal && known.is_some()
    }
}

fn split(line: &str) -> Result<(&str, PasswordHash), LineError> {
    // A colon is in no hash.
    let (user, hash) = line.split_once(':').ok_or(LineError::NoColon)?;
    if user.is_empty() || user.len() > LONGEST_NAME || user.trim() != user {
        return Err(LineError::Name);
    }
    Ok((user, hash.trim_end().parse()?))
}

#[cfg(test)]
pub(in crate::openvpn) mod tests {
    use super::*;

    /// `htpasswd -nbB -C 5 anna "Hello world!"`
    pub(in crate::openvpn) const ANNA: &str =
        "anna:$2y$05$uWaclRAwv79iwo34Bt0lF.W2Ga09F7BynQGQlVFzukfun.8xgNhPi\n";
    /// `openssl passwd -6`, of "pa:ss word"
    const BERTA: &str = "berta:$6$rasmuslerdorf$Dr4zoNrOG9AvM8zC.ahnzVVKx6OI0fIydWRXadOGT2.ryZTqgZ1MJL1sHdWyVLaIKbPix6DV8dNld/i7WAZfa1\r\n";

    fn error(text: &str) -> String {
        Users::read("/etc/users", text.as_bytes()).expect_err("wrong").to_string()
    }

    #[test]
    fn users_have_their_own_passwords_alone() {
        let text = format!("# made by htpasswd\n\n{ANNA}{BERTA}");
        let users = Users::read("/etc/users", text.as_bytes()).expect("right");
        assert!(users.admits("anna", "Hello world!") && users.admits("berta", "pa:ss word"));
        for (user, password) in [
            ("anna", "pa:ss word"),
            ("anna", ""),
            ("", "Hello world!"),
            ("Anna", "Hello world!"),
            ("anna ", "Hello world!"),
            ("# made by htpasswd", "Hello world!"),
        ] {
            assert!(!users.admits(user, password), "{user}");
        }
        // An unknown user is compared with one of both.
        let unknown = |number: u32| format!("user{number}");
        for user in (0..16).map(unknown) {
            assert!(!users.admits(&user, "Hello world!") && !users.admits(&user, "pa:ss word"), "{user}");
        }
    }

    #[test]
    fn a_wrong_line_is_told_with_its_number_and_without_its_hash() {
        assert_eq!(error(&format!("{ANNA}\nberta\n")), "/etc/users:3: it is not NAME:HASH");
        assert_eq!(error(&format!("{ANNA}{BERTA}{ANNA}")), "/etc/users:3: line 1 has this name, too");
        let plain = error(&format!("{ANNA}berta:hunter2\n"));
        assert!(
            plain.starts_with("/etc/users:2: the hash: a text without $METHOD$ is not served"),
            "{plain}"
        );
        assert!(!plain.contains("hunter2"), "{plain}");
        let truncated = error(&ANNA[..40]);
        assert_eq!(truncated, "/etc/users:1: the hash: it is no whole hash of bcrypt");
        for name in ["", " anna", "anna ", &"a".repeat(65)] {
            let told = error(&ANNA.replacen("anna", name, 1));
            assert!(told.starts_with("/etc/users:1: the name is empty"), "{told}");
        }
        assert_eq!(error("\n# nobody\n"), "/etc/users: there is no user in it");
        let told = Users::read("/etc/users", b"anna:\xff").expect_err("wrong").to_string();
        assert_eq!(told, "/etc/users: it is not text in UTF-8");
    }
}
