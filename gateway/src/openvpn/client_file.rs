//! The settings of one client as text: its file in `client-config-dir`, or the answer of a program.

use super::scripts::environment::printable;
use super::settings::ClientOverride;
use config::Text;
use config::import::Files;
use config::openvpn::settings::ClientFile;
use config::openvpn::{Refusal, client_file};
use std::fmt::Write;
use std::io;
use std::path::Path;

/// A client's settings name no other files.
struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &Path) -> io::Result<Text> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn list(&self, _: &Path) -> io::Result<Vec<String>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Reads the settings of a client; `name` is for errors.
pub fn read(name: &str, text: &str) -> Result<ClientOverride, String> {
    let mut content = Text::default();
    content.write_str(text).map_err(|error| error.to_string())?;
    let read = client_file(name, &content, &NoFiles);
    let (file, _) = read.map_err(|refusals| {
        let lines: Vec<String> = refusals.iter().map(Refusal::to_string).collect();
        lines.join("\n")
    })?;
    let ClientFile { address, address6, routes, push, reset, remove, is_disabled, username, session_seconds } =
        file;
    if username.is_some() {
        return Err(format!("{name}: override-username is not served here yet"));
    }
    Ok(ClientOverride {
        v4: address.map(|(address, _)| address),
        second: address.map(|(_, second)| second),
        v6: address6.map(|(address, _)| address.addr()),
        behind: routes,
        push,
        reset,
        remove,
        is_disabled,
        session_seconds,
    })
}

impl ClientOverride {
    /// Adds later settings, which count more.
    pub fn add(&mut self, later: Self) {
        if later.v4.is_some() {
            (self.v4, self.second) = (later.v4, later.second);
        }
        self.v6 = later.v6.or(self.v6);
        self.behind.extend(later.behind);
        if later.reset {
            self.push.clear();
        }
        self.push.retain(|option| !later.remove.iter().any(|prefix| option.starts_with(prefix.as_str())));
        self.push.extend(later.push);
        self.reset |= later.reset;
        self.remove.extend(later.remove);
        self.is_disabled |= later.is_disabled;
        self.session_seconds = later.session_seconds.or(self.session_seconds);
    }
}

/// The name of a client's file: one name in a folder, whatever the common name is.
pub fn name_of(name: &str) -> String {
    let name = word(name).replace('/', "_");
    if name == "." || name == ".." { name.replace('.', "_") } else { name }
}

/// A common name as one word of a program's arguments.
pub fn word(name: &str) -> String {
    printable(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_out_of_the_folder() {
        for (name, file) in [
            ("anna", "anna"),
            ("..", "__"),
            (".", "_"),
            ("../../etc/passwd", ".._.._etc_passwd"),
            ("a\nb\0c", "a_b_c"),
            ("anna@example.org", "anna@example.org"),
        ] {
            assert_eq!(name_of(name), file);
        }
    }

    #[test]
    fn later_settings_count_more() {
        let mut own =
            read("a", "ifconfig-push 10.8.0.5 255.255.255.0\npush \"route 10.1.0.0 255.255.0.0\"\n")
                .expect("valid");
        own.add(
            read("b", "push-remove route\npush \"ping 7\"\niroute 10.4.0.0 255.255.0.0\n").expect("valid"),
        );
        assert_eq!(
            (own.v4, &own.push, own.behind.len()),
            (Some([10, 8, 0, 5].into()), &vec!["ping 7".to_owned()], 1)
        );
        own.add(read("c", "push-reset\ndisable\n").expect("valid"));
        assert!(own.push.is_empty() && own.reset && own.is_disabled);
        assert!(read("d", "config /etc/passwd\n").is_err());
    }
}
