//! Who types.

use rustix::process::{geteuid, getuid};

/// The name of the user for the list of revisions: of the one who became root, if sudo says who that is.
pub(crate) fn name() -> String {
    let sudo = std::env::var("SUDO_USER").ok().filter(|name| geteuid().is_root() && !name.is_empty());
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    sudo.unwrap_or_else(|| of(&users, getuid().as_raw()).unwrap_or_else(|| getuid().as_raw().to_string()))
}

/// The name of a user in a text in the format of passwd(5).
fn of(users: &str, uid: u32) -> Option<String> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_name() {
        let users = "root:x:0:0:root:/root:/bin/bash\nvyos:x:1000:100::/home/vyos:/bin/bash\n";
        assert_eq!(of(users, 1000).as_deref(), Some("vyos"));
        assert_eq!((of(users, 0).as_deref(), of(users, 7)), (Some("root"), None));
    }
}
