//! Where copies of the configuration go: a folder, or a URL of one.

use super::form::is_domain;
use std::fmt;
use std::net::IpAddr;

/// Characters of a location.
const LONGEST: usize = 1024;
/// Beside letters and digits, the characters of a folder: none that a shell reads.
const PLAIN: &str = "/-_.+,@=:%~";

/// A folder for copies of the configuration, here or on another machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// On this machine: an absolute path.
    Folder(String),
    /// On another machine, by scp.
    Scp {
        /// The user there; without one, that of the program.
        user: Option<String>,
        /// Its address, without brackets, or its name.
        host: String,
        /// The port of its SSH server.
        port: Option<u16>,
        /// An absolute path.
        folder: String,
    },
    /// At a server of HTTP or FTP, by curl.
    Url(String),
}

impl Location {
    /// Reads a location: `/folder`, or a URL of file, scp, sftp, http, https or ftp. The error never has the text, in which a
    /// password may be.
    pub fn parse(text: &str) -> Result<Self, String> {
        let is_printed = !text.contains(|c: char| c.is_control() || c.is_whitespace());
        if text.is_empty() || text.chars().count() > LONGEST || !is_printed {
            return Err(format!("a location has 1 to {LONGEST} characters without spaces"));
        }
        let Some((scheme, rest)) = text.split_once("://") else { return folder(text).map(Self::Folder) };
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let (user, host) =
            authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
        if user.is_some_and(|user| user.contains(':')) {
            return Err("a password in a location would be visible to all users of this machine".to_owned());
        }
        match scheme {
            "file" if authority.is_empty() => folder(path).map(Self::Folder),
            "scp" | "sftp" => scp(user, host, path),
            "http" | "https" | "ftp" if is_host(host_and_port(host)?.0) => Ok(Self::Url(text.to_owned())),
            "file" | "http" | "https" | "ftp" => {
                Err("the name of the machine in the location is not valid".to_owned())
            }
            _ => Err("locations of this kind are not known: use a folder, scp, sftp, http, https or ftp"
                .to_owned()),
        }
    }
}

fn folder(path: &str) -> Result<String, String> {
    // Older versions of scp give the path to a shell of the other machine.
    if !path.chars().all(|c| c.is_alphanumeric() || PLAIN.contains(c)) {
        return Err(format!("a folder in a location has only letters, digits and {PLAIN}"));
    }
    let is_whole = path.starts_with('/') && path.split('/').all(|part| part != "..");
    is_whole
        .then(|| path.to_owned())
        .ok_or_else(|| "a folder is written with its whole path, which begins with /".to_owned())
}

fn scp(user: Option<&str>, host: &str, path: &str) -> Result<Location, String> {
    let (host, port) = host_and_port(host)?;
    let is_user = |user: &str| {
        !user.is_empty()
            && !user.starts_with('-')
            && user.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    if !is_host(host) || !user.is_none_or(is_user) {
        return Err("the user or the name of the machine in the location is not valid".to_owned());
    }
    if path.is_empty() {
        return Err("the folder in the location is missing".to_owned());
    }
    Ok(Location::Scp { user: user.map(str::to_owned), host: host.to_owned(), port, folder: folder(path)? })
}

/// A host without its brackets, and its port.
fn host_and_port(text: &str) -> Result<(&str, Option<u16>), String> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':').filter(|_| !rest.is_empty())),
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    match port {
        None => Ok((host, None)),
        Some(port) => match port.parse() {
            Ok(port) if port > 0 => Ok((host, Some(port))),
            _ => Err("the port in the location is not a number from 1 to 65535".to_owned()),
        },
    }
}

fn is_host(text: &str) -> bool {
    // A name that begins with a hyphen would be an option of ssh.
    text.parse::<IpAddr>().is_ok() || (is_domain(text) && !text.starts_with('-'))
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => f.write_str(path),
            Self::Url(url) => f.write_str(url),
            Self::Scp { user, host, port, folder } => {
                let user = user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
                let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
                let port = port.map(|port| format!(":{port}")).unwrap_or_default();
                write!(f, "scp://{user}{host}{port}{folder}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_folders_and_urls() {
        let scp = |user: Option<&str>, host: &str, port, folder: &str| Location::Scp {
            user: user.map(str::to_owned),
            host: host.to_owned(),
            port,
            folder: folder.to_owned(),
        };
        for (text, read) in [
            ("/config/archive", Location::Folder("/config/archive".to_owned())),
            ("file:///config/archive", Location::Folder("/config/archive".to_owned())),
            ("scp://vyos@192.0.2.1/a/b", scp(Some("vyos"), "192.0.2.1", None, "/a/b")),
            ("sftp://backup.example.org:2222/", scp(None, "backup.example.org", Some(2222), "/")),
            ("scp://a@[2001:db8::1]:22/b", scp(Some("a"), "2001:db8::1", Some(22), "/b")),
            ("https://a.example.org:8443/b?c", Location::Url("https://a.example.org:8443/b?c".to_owned())),
        ] {
            assert_eq!(Location::parse(text).as_ref(), Ok(&read), "{text}");
        }
        assert_eq!(scp(Some("a"), "2001:db8::1", Some(22), "/b").to_string(), "scp://a@[2001:db8::1]:22/b");
    }

    #[test]
    fn wrong_ones_are_refused_and_not_repeated() {
        for text in [
            "",
            "config",
            "/a/../b",
            "file://host/a",
            "scp://host",
            "scp://-oProxyCommand=x/a",
            "scp://-a@host/a",
            "scp://a b@host/a",
            "scp://host:0/a",
            "scp://host:70000/a",
            "scp://a;b@host/a",
            "tftp://host/a",
            "git+ssh://host/a",
            "http:///a",
            "scp://user:hunter2@host/a",
            "ftp://user:hunter2@host/a",
            "/a\n/b",
            "/$(reboot)",
            "/a;reboot",
            "scp://host/`reboot`",
            "scp://host/a*",
        ] {
            let reason = Location::parse(text).expect_err(text);
            assert!(!reason.contains("hunter2"), "{reason}");
        }
    }
}
