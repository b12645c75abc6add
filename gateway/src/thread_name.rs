//! The names of the threads of an interface: its name and a role, in the 15 bytes that the kernel keeps.
//!
//! An interface may have a name of 15 bytes itself. Then its name is cut and not the role, which tells its threads apart.

/// The longest name that the kernel has of a thread, in bytes.
const LONGEST: usize = 15;

/// The name of a thread of an interface.
pub fn thread_name(interface: &str, role: &str) -> String {
    let mut end = LONGEST.saturating_sub(1 + role.len()).min(interface.len());
    while !interface.is_char_boundary(end) {
        end -= 1;
    }
    format!("{} {role}", &interface[..end])
}

/// Whether a thread with this name is one of the interface. Two interfaces whose names begin with the same bytes may be confused.
pub fn is_thread_of(name: &str, interface: &str) -> bool {
    name.split_once(' ').is_some_and(|(_, role)| thread_name(interface, role) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_interface_leaves_the_role_whole() {
        assert_eq!(thread_name("wg0", "out 1"), "wg0 out 1");
        for (interface, role, name) in [
            ("hub16170x214", "out", "hub16170x21 out"),
            ("averylongname15", "crypto", "averylon crypto"),
            ("averylongname15", "in 15", "averylong in 15"),
            ("naïvenäïve", "crypto", "naïven crypto"),
        ] {
            assert_eq!(thread_name(interface, role), name);
            assert!(name.len() <= LONGEST && is_thread_of(name, interface), "{name}");
        }
        for name in ["wg01 out", "wg out", "wg0", "wg0out", ""] {
            assert!(!is_thread_of(name, "wg0"), "{name}");
        }
    }
}
