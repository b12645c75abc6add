//! The package `openvpn`: each enabled section is an interface. Directives without a word of their own here become `openvpn-option`.

use super::{Block, interface_name, is_on, take_members};
use crate::import::credentials::{Directories, Store};
use crate::import::files::Files;
use crate::import::place::Origin;
use crate::import::report::{Draft, Set};
use crate::import::section::{Section, Setting};
use crate::openvpn::{self, Fate};
use ipnet::{IpNet, Ipv4Net};
use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::path::Path;
use zeroize::Zeroizing;

/// Directives that have no effect here, and why.
const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("daemon", "one daemon serves all interfaces"),
    ("dh", "all key exchanges are on elliptic curves"),
    ("group", "the daemon runs as a user of its own"),
    ("log", "the daemon has one log"),
    ("log_append", "the daemon has one log"),
    ("mute", "the daemon has one log"),
    ("nobind", "a client takes any port"),
    ("persist_key", "keys are kept in memory"),
    ("persist_local_ip", "addresses are those of the configuration"),
    ("persist_remote_ip", "addresses are those of the configuration"),
    ("persist_tun", "the interface is kept while a session is renewed"),
    ("resolv_retry", "names are tried until they lead somewhere"),
    ("script_security", "Postern runs no programs"),
    ("status", "postern show openvpn has it"),
    ("syslog", "the daemon has one log"),
    ("user", "the daemon runs as a user of its own"),
    ("verb", "the daemon has one log"),
];

/// Programs and files that an interface of the configuration does not have.
const NOT_SERVED: &[&str] = &[
    "auth_user_pass_verify",
    "client_config_dir",
    "client_connect",
    "client_disconnect",
    "config",
    "down",
    "ipchange",
    "learn_address",
    "management",
    "plugin",
    "route_pre_down",
    "route_up",
    "setenv",
    "tls_verify",
    "up",
];

/// The port of a peer where none is named.
const PORT: &str = "1194";

/// Ciphers of OpenVPN in our words.
const CIPHERS: &[(&str, &str)] = &[
    ("AES-128-CBC", "aes128"),
    ("AES-128-GCM", "aes128gcm"),
    ("AES-192-CBC", "aes192"),
    ("AES-192-GCM", "aes192gcm"),
    ("AES-256-CBC", "aes256"),
    ("AES-256-GCM", "aes256gcm"),
];

/// Static keys among the names of files.
const STATIC_KEY: &str = "shared-secret";

struct Interface<'a, 'b> {
    path: String,
    is_server: bool,
    /// Something that matters for security is left: the interface is disabled.
    is_weaker: bool,
    files: &'a dyn Files,
    store: &'b mut Store<'a>,
    draft: &'b mut Draft,
}

/// Imports all sections.
pub(super) fn import(blocks: Vec<Block>, files: &dyn Files, draft: &mut Draft) {
    let mut store = Store::new(files, Directories::default());
    let mut taken: HashSet<String> = HashSet::new();
    for Block { kind, mut section } in blocks {
        if kind != "openvpn" {
            section.refuse(draft, true, "no type of this package", "write config openvpn");
            continue;
        }
        if section.value("config").is_some() {
            let why = "the interface is left out: its configuration is another file";
            section.refuse(draft, true, why, "postern openvpn --config FILE serves it; or write its directives as options, and import again");
            continue;
        }
        let is_set = |name| section.settings.iter().any(|it| it.name == name && is_on(it));
        let is_client = is_set("client") || is_set("pull");
        let is_server =
            !is_client && (section.value("server").is_some() || section.value("server_ipv6").is_some());
        if !is_client && !is_server {
            let why = "the interface is left out: it is neither a client nor a server";
            section.refuse(draft, true, why, "set interfaces openvpn vtunN mode site-to-site, by hand");
            continue;
        }
        let dev = section.value("dev").unwrap_or_default().replace("tun", "vtun");
        let dev = Some(dev).filter(|dev| interface_name("openvpn", dev).is_some() && !taken.contains(dev));
        let mut names = (0..=taken.len()).map(|number| format!("vtun{number}"));
        let name = dev.or_else(|| names.find(|name| !taken.contains(name))).unwrap_or_default();
        taken.insert(name.clone());
        let path = format!("interfaces openvpn {name}");
        let mode = if is_server { "server" } else { "client" };
        let why = format!("the interface {} is {name} here, and has mode {mode}", section.name);
        draft.translate(&section.origin, &[(path.clone(), None), (format!("{path} mode"), Some(mode))], why);
        let mut interface = Interface { path, is_server, is_weaker: false, files, store: &mut store, draft };
        interface.enabled(&mut section);
        interface.options(section);
    }
}

impl Interface<'_, '_> {
    fn at(&self, word: &str) -> String {
        format!("{} {word}", self.path)
    }

    fn enabled(&mut self, section: &mut Section) {
        let found = ["enable", "enabled"].map(|name| section.take(name));
        let on = found.iter().flatten().find(|setting| is_on(setting));
        if let Some(setting) = on {
            self.draft.take(&setting.origin, &[]);
            return;
        }
        let origin = found
            .into_iter()
            .flatten()
            .next()
            .map_or_else(|| section.origin.clone(), |setting| setting.origin);
        let sets = [(self.at("disable"), None)];
        self.draft.translate(&origin, &sets, "it is not enabled");
    }

    fn options(&mut self, mut section: Section) {
        let origin = section.origin.clone();
        self.certificates(&mut section);
        self.control_key(&mut section);
        self.sockets(&mut section);
        for name in ["client", "tls_client", "tls_server", "pull", "dev", "dev_type"] {
            section.take(name).into_iter().for_each(|setting| match (name, setting.value.as_str()) {
                ("dev_type" | "dev", text) if text.starts_with("tap") => {
                    self.draft.take(&setting.origin, &[(self.at("device-type"), Some("tap"))]);
                }
                _ => self.draft.take(&setting.origin, &[]),
            });
        }
        for (name, why) in WITHOUT_EFFECT {
            for setting in take_members(&mut section, name) {
                self.draft.translate(&setting.origin, &[], *why);
            }
        }
        for setting in std::mem::take(&mut section.settings) {
            self.option(&setting);
        }
        if self.is_weaker {
            self.draft.imply(&origin, &self.at("disable"), None);
            let fix = format!("see to what is left, then: delete {} disable", self.path);
            self.draft.leave_open(
                &origin,
                "a part that matters for security is left: the interface is disabled",
                fix,
            );
        }
    }

    fn option(&mut self, setting: &Setting) {
        let Setting { name, value, origin } = setting;
        let words: Vec<&str> = value.split_whitespace().collect();
        match (name.as_str(), &words[..]) {
            (name, _) if NOT_SERVED.contains(&name) => {
                self.is_weaker = true;
                self.draft.leave_open(
                    origin,
                    "Postern runs no programs, and reads no other files for it",
                    "see what it is for, and set it by hand",
                );
            }
            ("server", [network, mask]) if self.is_server => match prefix(network, mask) {
                Some(prefix) => self.draft.take(origin, &[(self.at("server subnet"), Some(&prefix))]),
                None => self.directive(setting),
            },
            ("server_ipv6", [prefix]) if self.is_server => {
                self.draft.take(origin, &[(self.at("server subnet"), Some(prefix))]);
            }
            ("topology", ["subnet"]) if self.is_server => {
                self.draft.take(origin, &[(self.at("server topology"), Some("subnet"))]);
            }
            ("topology", ["net30"]) if self.is_server => {
                self.draft.take(origin, &[(self.at("server topology"), Some("net30"))]);
            }
            ("max_clients", [count]) if self.is_server => {
                self.draft.take(origin, &[(self.at("server max-connections"), Some(count))]);
            }
            ("push", _) if self.is_server => self.push(setting),
            ("tun_mtu", [bytes]) => self.draft.take(origin, &[(self.at("mtu"), Some(bytes))]),
            ("auth", [hash]) if ["SHA256", "SHA384", "SHA512"].contains(hash) => {
                self.draft.take(origin, &[(self.at("hash"), Some(&hash.to_lowercase()))]);
            }
            ("data_ciphers", [names]) => match ciphers(names) {
                Some(names) => {
                    let path = self.at("encryption data-ciphers");
                    let sets: Vec<Set<'_>> = names.iter().map(|name| (path.clone(), Some(*name))).collect();
                    self.draft.take(origin, &sets);
                }
                None => self.directive(setting),
            },
            _ => self.directive(setting),
        }
    }

    fn push(&mut self, setting: &Setting) {
        let words: Vec<&str> = setting.value.split_whitespace().collect();
        let set = match words[..] {
            ["route", network, mask] => {
                prefix(network, mask).map(|prefix| format!("server push-route {prefix}"))
            }
            ["dhcp-option", "DNS", address] => Some(format!("server name-server {address}")),
            _ => None,
        };
        let Some(set) = set else { return self.directive(setting) };
        match set.rsplit_once(' ') {
            Some((word, value)) if word.ends_with("name-server") => {
                self.draft.take(&setting.origin, &[(self.at(word), Some(value))]);
            }
            _ => self.draft.take(&setting.origin, &[(self.at(&set), None)]),
        }
    }

    /// A directive as it is, if Postern serves it.
    fn directive(&mut self, setting: &Setting) {
        let Setting { name, value, origin } = setting;
        let directive = name.replace('_', "-");
        match openvpn::find(&directive).map(|row| row.fate) {
            Some(Fate::Served { .. }) => {}
            Some(Fate::Harmless { why }) => return self.draft.translate(origin, &[], why),
            Some(Fate::Refused { why, fix }) => {
                self.is_weaker = true;
                return self.draft.leave_open(origin, why, fix);
            }
            None => {
                self.is_weaker = true;
                return self.draft.leave_open(
                    origin,
                    "it is not a directive of OpenVPN",
                    "look it up, and remove it",
                );
            }
        }
        let line = Zeroizing::new(match (name.as_str(), value.as_str()) {
            (_, "0") if is_flag(&directive) => return self.draft.take(origin, &[]),
            (_, "1") if is_flag(&directive) => directive,
            ("push", text) => format!("push \"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
            (_, text) => format!("{directive} {text}"),
        });
        self.draft.take(origin, &[(self.at("openvpn-option"), Some(&line))]);
    }

    fn sockets(&mut self, section: &mut Section) {
        if let Some(Setting { value, origin, .. }) = section.take("proto") {
            let version =
                if value.contains('6') { Some("ipv6") } else { value.contains('4').then_some("ipv4") };
            let protocol = match (value.starts_with("tcp"), self.is_server) {
                (false, _) => "udp",
                (true, true) => "tcp-passive",
                (true, false) => "tcp-active",
            };
            let mut sets = vec![(self.at("protocol"), Some(protocol))];
            sets.extend(version.map(|version| (self.at("ip-version"), Some(version))));
            self.draft.take(&origin, &sets);
        }
        let port = if self.is_server { "local-port" } else { "remote-port" };
        let mut common = None;
        for (name, word) in
            [("port", port), ("lport", "local-port"), ("rport", "remote-port"), ("local", "local-host")]
        {
            let Some(Setting { value, origin, .. }) = section.take(name) else { continue };
            if !self.is_server && word.starts_with("local") {
                self.draft.translate(&origin, &[], "a client takes any port and address");
                continue;
            }
            self.draft.take(&origin, &[(self.at(word), Some(&value))]);
            if word == "remote-port" {
                common = Some(value);
            }
        }
        self.remotes(section, common);
        let keep_alive = section.take("keepalive").and_then(|setting| {
            let mut numbers = setting.value.split_whitespace().map(str::parse::<u32>);
            match (numbers.next(), numbers.next(), numbers.next()) {
                (Some(Ok(interval)), Some(Ok(timeout)), None) if interval > 0 && timeout % interval == 0 => {
                    let (interval, count) = (interval.to_string(), (timeout / interval).to_string());
                    let sets = [
                        (self.at("keep-alive interval"), Some(&*interval)),
                        (self.at("keep-alive failure-count"), Some(&*count)),
                    ];
                    self.draft.take(&setting.origin, &sets);
                    None
                }
                _ => Some(setting),
            }
        });
        section.settings.extend(keep_alive);
    }

    /// Imports the options `remote`; `common` is the port of a remote without one. `remote-port` holds for every `remote-host`, so a remote
    /// with another port than the first becomes a directive.
    fn remotes(&mut self, section: &mut Section, common: Option<Zeroizing<String>>) {
        let common = common.unwrap_or_else(|| PORT.to_owned().into());
        let mut first: Option<String> = None;
        for Setting { value, origin, .. } in take_members(section, "remote") {
            let words: Vec<&str> = value.split_whitespace().collect();
            let (host, own) = (words.first().copied().unwrap_or_default(), words.get(1).copied());
            let port = own.unwrap_or(&common);
            if !host.is_empty() && first.as_ref().is_some_and(|first| first != port) {
                let line = format!("remote {host} {port}");
                let why = "remote-port is that of the first remote: this one is a directive, and is tried after the others";
                self.draft.translate(&origin, &[(self.at("openvpn-option"), Some(&line))], why);
            } else {
                let mut sets = vec![(self.at("remote-host"), Some(host))];
                let port = own.filter(|_| first.is_none());
                sets.extend(port.map(|port| (self.at("remote-port"), Some(port))));
                self.draft.take(&origin, &sets);
            }
            first.get_or_insert_with(|| port.to_owned());
            if words.len() > 2 {
                let why = "all remotes have the protocol of the interface";
                self.draft.leave(&origin, why, "nothing, if they have the same");
            }
        }
    }

    fn certificates(&mut self, section: &mut Section) {
        let (ca, cert, key) = (section.take("ca"), section.take("cert"), section.take("key"));
        if let Some(key) = &key {
            self.draft.take(&key.origin, &[]);
            // The certificate that it belongs to says what is wrong.
            self.store.add_private(Path::new(&*key.value));
        }
        for (setting, word) in [(ca, "tls ca-certificate"), (cert, "tls certificate")] {
            let Some(Setting { value, origin, .. }) = setting else { continue };
            let name = match word {
                "tls certificate" => self.store.certificate(&value, &origin, self.draft),
                _ => self.store.authority(&value, &origin, self.draft),
            };
            match name {
                Ok(name) => self.draft.take(&origin, &[(self.at(word), Some(&name))]),
                Err(why) => self.missing(&origin, why),
            }
        }
    }

    fn missing(&mut self, origin: &Origin, why: String) {
        self.is_weaker = true;
        self.draft.leave_open(
            origin,
            why,
            "import the files of the machine: --root DIR names the directory that is its root",
        );
    }

    /// The key of tls-auth or tls-crypt.
    fn control_key(&mut self, section: &mut Section) {
        let direction = section.take("key_direction");
        for (name, word) in [("tls_auth", "tls auth-key"), ("tls_crypt", "tls crypt-key")] {
            let Some(Setting { value, origin, .. }) = section.take(name) else { continue };
            let file = value.split_whitespace().next().unwrap_or_default();
            let said = value.split_whitespace().nth(1).or(direction.as_ref().map(|it| it.value.as_str()));
            if name == "tls_auth" && said != Some(if self.is_server { "0" } else { "1" }) {
                let why = "the key is used in one direction each: 0 on the server, 1 on a client".to_owned();
                self.missing(&origin, why);
                continue;
            }
            let digits = match self.static_key(file) {
                Ok(digits) => digits,
                Err(why) => {
                    self.missing(&origin, why);
                    continue;
                }
            };
            let key = self.draft.names.of_file(STATIC_KEY, Path::new(file));
            self.draft.imply(&origin, &format!("pki openvpn shared-secret {key} key"), Some(&digits));
            self.draft.take(&origin, &[(self.at(word), Some(&key))]);
        }
        if let Some(setting) = direction {
            self.draft.take(&setting.origin, &[]);
        }
    }

    /// The digits of a static key in a file.
    fn static_key(&self, file: &str) -> Result<Zeroizing<String>, String> {
        let text =
            self.files.read(Path::new(file)).map_err(|error| format!("cannot read {file}: {error}"))?;
        let text = text.as_str().map_err(|_| format!("{file} is no text"))?;
        let mut digits = Zeroizing::new(String::with_capacity(text.len()));
        let lines =
            text.lines().map(str::trim).skip_while(|line| !line.starts_with("-----BEGIN OpenVPN Static key"));
        for line in lines.skip(1).take_while(|line| !line.starts_with("-----END")) {
            digits.push_str(line);
        }
        if digits.is_empty() { Err(format!("{file} has no static key of OpenVPN")) } else { Ok(digits) }
    }
}

/// The prefix of a network and its mask.
fn prefix(network: &str, mask: &str) -> Option<String> {
    let (network, mask) = (network.parse::<Ipv4Addr>().ok()?, mask.parse::<Ipv4Addr>().ok()?);
    let prefix = Ipv4Net::with_netmask(network, mask).ok()?;
    Some(IpNet::V4(prefix.trunc()).to_string())
}

/// Our words for all of these ciphers.
fn ciphers(names: &str) -> Option<Vec<&'static str>> {
    let word = |name: &str| {
        CIPHERS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, word)| *word)
    };
    names.split(':').map(word).collect()
}

/// Whether a directive has no argument, so that UCI says 1 for it.
fn is_flag(directive: &str) -> bool {
    openvpn::find(directive).is_some_and(|row| row.usage.is_empty())
}
