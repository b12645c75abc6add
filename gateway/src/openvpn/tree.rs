//! `interfaces openvpn` as the settings of an interface: the way of OpenVPN's own files, and what a daemon does not serve of them.

use super::client_file;
use super::convert::{Sources, convert};
use super::scripts::Hook;
use super::settings::{ForClients, Role, Settings};
use config::Path;
use config::import::{Disk, Files};
use config::openvpn::settings::Revocation;
use config::openvpn::{Refusal, Remark};
use config::settings::openvpn::{CLIENTS, OpenVpn as Wanted, Profile};
use ipnet::IpNet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

/// A directive that `postern openvpn` may serve, and a daemon does not, with what to do.
type Row = (&'static str, &'static str);

const PROCESS: &str =
    "delete the line: the interface is one of the daemon, which has a process and a log of its own";
const PROGRAM: &str = "delete the line: the daemon runs no program; postern openvpn --config FILE does";
const SHOW: &str = "delete the line, and use postern show openvpn";
const NODE: &str = "delete the line: the name and the role of the interface have nodes of their own";

/// What `openvpn-option` may not name.
const OF_A_PROCESS: &[Row] = &[
    ("askpass", "remove the password of the private key: openssl pkey -in FILE -out FILE"),
    ("cd", "write whole paths, from / on"),
    ("chroot", PROCESS),
    ("client-connect", PROGRAM),
    ("client-crresponse", PROGRAM),
    ("client-disconnect", PROGRAM),
    (
        "auth-user-pass-verify",
        "delete the line, and set interfaces openvpn INTERFACE authentication password-hash-file FILE: the daemon runs no program",
    ),
    ("daemon", PROCESS),
    ("down", PROGRAM),
    ("down-pre", PROGRAM),
    ("echo", PROCESS),
    ("group", PROCESS),
    (
        "ifconfig-pool-persist",
        "delete the line, and set interfaces openvpn INTERFACE server client NAME ip ADDRESS",
    ),
    ("ipchange", PROGRAM),
    ("learn-address", PROGRAM),
    ("log", PROCESS),
    ("log-append", PROCESS),
    ("management", SHOW),
    ("mlock", PROCESS),
    ("nice", PROCESS),
    ("ping-exit", PROCESS),
    ("remap-usr1", PROCESS),
    ("route-pre-down", PROGRAM),
    ("route-up", PROGRAM),
    ("status", SHOW),
    ("suppress-timestamps", PROCESS),
    ("syslog", PROCESS),
    ("tls-crypt-v2-verify", PROGRAM),
    ("tls-exit", PROCESS),
    ("tls-export-cert", PROGRAM),
    ("tls-verify", PROGRAM),
    ("up", PROGRAM),
    ("user", PROCESS),
    ("writepid", PROCESS),
];

/// A directory of revoked serial numbers is read by the process for files, which a daemon does not have.
const DIRECTORY: Row = ("crl-verify", "delete the line, and set pki ca NAME crl-file FILE");

/// The refusal of files of clients.
const CLIENT_FILES: &str = "not served for an interface of the configuration\n  fix: delete the line, and set interfaces openvpn \
                            INTERFACE server client NAME";

/// What to do in the words of the configuration, by the directive that is refused; `{path}` stands for the interface.
const FIXES: &[Row] = &[
    ("auth", "set {path} hash sha256 on both ends"),
    ("data-ciphers", "set {path} encryption data-ciphers aes256gcm, and delete the others"),
    ("dev", "set {path} mode server on one end, and mode client on the other"),
    ("ifconfig-pool", "delete {path} server client-ip-pool: clients have the whole server subnet"),
    ("ifconfig-ipv6-pool", "delete {path} server client-ipv6-pool: clients have the whole server subnet"),
    ("local", "delete {path} local-host: all addresses of this machine are bound"),
    ("proto", "set {path} protocol udp on both ends, and delete {path} ip-version"),
    ("redirect-gateway", "delete {path} replace-default-route"),
    ("server-ipv6", "set {path} server subnet of IPv6 with a length from 64 to 111"),
    ("tls-version-min", "set {path} tls tls-version-min 1.2: 1.3 is used if both ends have it"),
    ("topology", "set {path} server topology subnet"),
];

/// All that is refused of an interface, by the nodes of the configuration.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub(super) struct Refused(Vec<String>);

/// Where host names come from.
pub(super) type Resolve = fn(&str) -> io::Result<Vec<IpAddr>>;

/// An address in the place of one that is not looked up yet.
pub(super) const UNRESOLVED: Resolve =
    |_| Ok(vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()]);

/// An interface that can be served.
pub(super) struct Accepted {
    pub(super) settings: Settings,
    pub(super) warnings: Vec<String>,
    pub(super) files: ReadAgain,
}

/// The files of a server that are read again when they change.
pub(super) struct ReadAgain {
    pub(super) revocations: Option<PathBuf>,
    pub(super) hashes: Option<PathBuf>,
}

/// The settings of an interface.
pub(super) fn settings(
    name: &str,
    path: &Path,
    wanted: &Wanted,
    resolve: Resolve,
) -> Result<Accepted, Refused> {
    let profile = &wanted.profile;
    let told =
        |refusals: Vec<Refusal>| Refused(refusals.iter().map(|it| refusal(profile, path, it)).collect());
    let disk = disk();
    let loaded = profile.load(&disk).map_err(told)?;
    let mut own: Vec<Refusal> =
        OF_A_PROCESS.iter().filter_map(|row| of_a_process(row, &loaded.given)).collect();
    if matches!(loaded.settings.tls.revocation, Some(Revocation::Directory(_))) {
        own.extend(of_a_process(&DIRECTORY, &loaded.given));
    }
    if !own.is_empty() {
        return Err(told(own));
    }
    let device = loaded.given.get("dev").cloned();
    let files = profile.files(&disk);
    let folder = loaded.settings.server.as_ref().and_then(|server| server.client_directory.clone());
    if folder.is_some_and(|folder| folder != std::path::Path::new(CLIENTS)) {
        return Err(Refused(vec![format!("{path} openvpn-option: client-config-dir: {CLIENT_FILES}")]));
    }
    let mut plan = convert(
        loaded,
        &Sources {
            files: &files,
            resolve: &resolve,
            key_password: &|_| Err("nothing asks for the password of the key".to_owned()),
        },
    )
    .map_err(told)?;
    if plan.name != name {
        let position = device.into_iter().next_back();
        let wrong = |position| Refusal {
            position,
            directive: "dev".to_owned(),
            reason: format!("the interface is {name}"),
            fix: NODE.to_owned(),
        };
        return Err(told(position.map(wrong).into_iter().collect()));
    }
    if let Role::Client(client) = &plan.settings.role
        && client.login.question.is_some()
    {
        let fix = "set interfaces openvpn NAME authentication username NAME, and password PASSWORD";
        return Err(Refused(vec![format!(
            "{path} openvpn-option: no user can be asked for a password\n  fix: {fix}"
        )]));
    }
    if let Role::Server(server) = &mut plan.settings.role {
        for (name, text) in profile.clients() {
            let own = client_file::read(name, text)
                .map_err(|error| Refused(vec![format!("{path} server client {name}: {error}")]))?;
            server.network.clients.insert(name.to_owned(), own);
        }
    }
    // The files of clients are of the configuration: a commit reads them again.
    // The daemon reads revocation lists again.
    let kept = ["client-config-dir", "crl-verify"];
    let warnings = plan.remarks.iter().filter(|it| it.is_warning && !kept.contains(&it.directive.as_str()));
    let warnings = warnings.map(|it| remark(profile, path, it)).collect();
    let mut files = plan.programs.by_hook;
    let [revocations, hashes] =
        [Hook::Revocations, Hook::PasswordHashes].map(|hook| files.remove(&hook).map(|file| file.path));
    Ok(Accepted { settings: plan.settings, warnings, files: ReadAgain { revocations, hashes } })
}

/// What a server can take over of these settings without an end of sessions.
///
/// # Errors
/// They are refused: a file has changed since they were planned.
pub(super) fn for_clients(name: &str, path: &Path, wanted: &Wanted) -> Result<Option<ForClients>, Refused> {
    Ok(match settings(name, path, wanted, UNRESOLVED)?.settings.role {
        Role::Server(server) if server.site.is_none() => {
            Some(ForClients { push: server.network.push, clients: server.network.clients })
        }
        Role::Server(_) | Role::Client(_) => None,
    })
}

fn of_a_process(
    (name, fix): &Row,
    given: &std::collections::BTreeMap<&'static str, config::openvpn::Position>,
) -> Option<Refusal> {
    Some(Refusal {
        position: given.get(name)?.clone(),
        directive: (*name).to_owned(),
        reason: "not served for an interface of the configuration".to_owned(),
        fix: (*fix).to_owned(),
    })
}

fn refusal(profile: &Profile, path: &Path, refusal: &Refusal) -> String {
    let Refusal { position, directive, reason, fix } = refusal;
    let colon = if directive.is_empty() { "" } else { ": " };
    let origin = profile.origin(position, path);
    // A directive that the user has written is mended as one.
    let is_own = origin.ends_with(" openvpn-option");
    let row = FIXES.iter().find(|(name, _)| !is_own && name == directive);
    let fix = row.map_or_else(|| fix.clone(), |(_, fix)| fix.replace("{path}", &path.to_string()));
    format!("{origin}: {directive}{colon}{reason}\n  fix: {fix}")
}

fn remark(profile: &Profile, path: &Path, remark: &Remark) -> String {
    format!("{}: {}: {}", profile.origin(&remark.position, path), remark.directive, remark.text)
}

pub(super) fn disk() -> Disk {
    Disk { root: PathBuf::from("/") }
}

/// The networks behind the clients of a server, and the pushed ones: what this machine forwards.
pub(super) fn forwarded(wanted: &Wanted) -> Vec<IpNet> {
    let files: &dyn Files = &disk();
    let Ok(loaded) = wanted.profile.load(files) else { return Vec::new() };
    let settings = loaded.settings;
    let pushed = settings.server.iter().flat_map(|server| &server.push);
    let pushed = super::options::pushed_routes(&pushed.cloned().collect::<Vec<_>>());
    pushed.into_iter().filter(|network| network.prefix_len() != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{Settings as All, parse};

    fn wanted(lines: &[&str]) -> Wanted {
        let authority = not_a_certificate();
        let base = format!(
            "set pki ca ca certificate {authority}\nset pki certificate it certificate {authority}\n\
             set pki certificate it private key AAAA\nset interfaces openvpn vtun0 mode server\n\
             set interfaces openvpn vtun0 server subnet 10.8.0.0/24\nset interfaces openvpn vtun0 tls ca-certificate ca\n\
             set interfaces openvpn vtun0 tls certificate it\n"
        );
        let lines: String =
            lines.iter().map(|line| format!("set interfaces openvpn vtun0 {line}\n")).collect();
        let (mut all, _) = All::new(&parse(&(base + &lines)).expect("right")).expect("right");
        all.openvpn.remove("vtun0").expect("it is there")
    }

    /// Base64 that is no certificate: what is refused here comes before certificates are read.
    fn not_a_certificate() -> &'static str {
        "AAAA"
    }

    fn refused(lines: &[&str]) -> String {
        let path = Path::new(["interfaces", "openvpn", "vtun0"]);
        settings("vtun0", &path, &wanted(lines), UNRESOLVED).err().expect("refused").to_string()
    }

    #[test]
    fn what_belongs_to_a_process_is_refused_with_its_node() {
        for (name, _) in OF_A_PROCESS {
            let row = config::openvpn::find(name).unwrap_or_else(|| panic!("{name} is no directive"));
            assert_eq!(row.name, *name);
        }
        let told = refused(&["openvpn-option 'status /run/status 10'", "openvpn-option 'user nobody'"]);
        assert!(
            told.contains("interfaces openvpn vtun0 openvpn-option: status: not served for an interface"),
            "{told}"
        );
        assert!(told.contains("openvpn-option: user: ") && told.contains("\n  fix: "), "{told}");
    }

    #[test]
    fn settings_that_cannot_be_read_again_change_nothing_for_clients() {
        let path = Path::new(["interfaces", "openvpn", "vtun0"]);
        let told = for_clients("vtun0", &path, &wanted(&["server client anna ip 10.8.0.9"]));
        assert!(told.expect_err("no certificate").to_string().contains("tls c"));
    }

    #[test]
    fn a_directory_of_revoked_serial_numbers_is_refused() {
        let told = refused(&["openvpn-option 'crl-verify / dir'"]);
        assert!(told.contains("vtun0 openvpn-option: crl-verify: not served for an interface"), "{told}");
        assert!(told.contains("set pki ca NAME crl-file FILE"), "{told}");
    }

    #[test]
    fn a_file_of_hashes_is_a_node() {
        let told = refused(&["authentication password-hash-file /nonexistent/users"]);
        let node =
            "interfaces openvpn vtun0 authentication password-hash-file: auth-user-pass-hashes: cannot read";
        assert!(told.contains(node), "{told}");
        let told = refused(&[
            "openvpn-option 'auth-user-pass-verify /bin/true via-file'",
            "openvpn-option 'script-security 2'",
        ]);
        assert!(told.contains("authentication password-hash-file FILE"), "{told}");
    }

    #[test]
    fn a_setting_that_is_not_served_is_refused_with_its_node() {
        let told = refused(&["openvpn-option 'replay-window 60000'"]);
        assert!(
            told.contains("interfaces openvpn vtun0 openvpn-option: replay-window: not served"),
            "{told}"
        );
        assert!(told.contains("interfaces openvpn vtun0 tls c"), "{told}");
        assert!(!told.contains("configuration:"), "{told}");
    }

    #[test]
    fn what_to_do_is_told_in_the_words_of_the_configuration() {
        for (name, _) in FIXES {
            assert!(config::openvpn::find(name).is_some(), "{name} is no directive");
        }
        let told = refused(&["hash md5"]);
        assert!(told.contains("vtun0 hash: auth: "), "{told}");
        assert!(told.contains("\n  fix: set interfaces openvpn vtun0 hash sha256 on both ends"), "{told}");
        let told = refused(&["openvpn-option 'auth MD5'"]);
        assert!(told.contains("openvpn-option: auth: ") && !told.contains("hash sha256"), "{told}");
    }

    #[test]
    fn pushed_networks_are_forwarded() {
        let forwarded = forwarded(&wanted(&["server push-route 10.2.0.0/24"]));
        assert_eq!(forwarded, ["10.2.0.0/24".parse().expect("literal")]);
    }
}
