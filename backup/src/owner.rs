//! The names of users and groups, from `/etc/passwd` and `/etc/group`.

use std::fs;

/// The permissions of what only its owner may read.
pub const PRIVATE: u32 = 0o600;

/// The users and the groups of this machine.
#[derive(Debug, Default)]
pub struct Owners {
    users: Vec<(String, u32)>,
    groups: Vec<(String, u32)>,
}

impl Owners {
    /// Those of this machine.
    pub fn here() -> Self {
        let read = |path: &str| parse(&fs::read_to_string(path).unwrap_or_default());
        Self { users: read("/etc/passwd"), groups: read("/etc/group") }
    }

    /// The name of a user; its number if it has none.
    pub fn user_name(&self, id: u32) -> String {
        name(&self.users, id)
    }

    /// The name of a group; its number if it has none.
    pub fn group_name(&self, id: u32) -> String {
        name(&self.groups, id)
    }

    /// The number of a user of this name.
    pub fn user(&self, name: &str) -> Option<u32> {
        number(&self.users, name)
    }

    /// The number of a group of this name.
    pub fn group(&self, name: &str) -> Option<u32> {
        number(&self.groups, name)
    }
}

/// Name and number of each line of passwd(5) or group(5).
fn parse(text: &str) -> Vec<(String, u32)> {
    let lines = text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        Some((fields.next()?.to_owned(), fields.nth(1)?.parse().ok()?))
    });
    lines.collect()
}

fn name(known: &[(String, u32)], id: u32) -> String {
    let found = known.iter().find(|(_, number)| *number == id);
    found.map_or_else(|| id.to_string(), |(name, _)| name.clone())
}

fn number(known: &[(String, u32)], name: &str) -> Option<u32> {
    known.iter().find(|(known, _)| known == name).map(|(_, number)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_those_of_the_files() {
        let users = parse("root:x:0:0:root:/root:/bin/bash\nbroken:x\npostern:x:998:997::/:/bin/false\n");
        assert_eq!((name(&users, 998), name(&users, 5)), ("postern".to_owned(), "5".to_owned()));
        assert_eq!((number(&users, "root"), number(&users, "none")), (Some(0), None));
    }
}
