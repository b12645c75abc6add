//! The control channel and the data channel.

use crate::openvpn::draft::Draft;
use crate::openvpn::given::Given;
use crate::openvpn::row::{Row, harmless, served};
use crate::openvpn::settings::{
    Compression, DataCipher, Digest, Group, MssFix, NameMatch, PeerName, Revocation, Suite, TlsVersion,
    default_ciphers,
};
use crate::openvpn::verdict::Wrong;

const CERTIFICATE: &[&str] = &["CERTIFICATE", "TRUSTED CERTIFICATE", "X509 CERTIFICATE"];
const KEY: &[&str] = &["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "ENCRYPTED PRIVATE KEY"];
const STATIC_KEY: &[&str] = &["OpenVPN Static key V1"];

/// Rows of the control channel and of the data channel.
pub(super) const ROWS: &[Row] = &[
    served("ca", "FILE", "tls.authority", |draft, given| {
        if !given.is_announced() {
            draft.tls.authority = Some(given.pem(0, CERTIFICATE)?);
        }
        Ok(())
    })
    .block(),
    served("capath", "DIRECTORY", "tls.authority_directory", |draft, given| {
        draft.tls.authority_directory = Some(given.path(0)?);
        Ok(())
    }),
    served("cert", "FILE", "tls.certificate", |draft, given| {
        if !given.is_announced() {
            draft.tls.certificate = Some(given.pem(0, CERTIFICATE)?);
        }
        Ok(())
    })
    .block(),
    served("extra-certs", "FILE", "tls.extra_certificates", |draft, given| {
        if !given.is_announced() {
            draft.tls.extra_certificates = Some(given.pem(0, CERTIFICATE)?);
        }
        Ok(())
    })
    .block(),
    served("key", "FILE", "tls.key", |draft, given| {
        if !given.is_announced() {
            let key = given.pem(0, KEY)?;
            let is_locked = |text: &str| text.contains("ENCRYPTED");
            draft.tls.asks_key_password = key.text().is_some_and(is_locked);
            draft.tls.key = Some(key);
        }
        Ok(())
    })
    .block(),
    served("askpass", "[FILE]", "tls.key_password", |draft, given| {
        if given.get(0).is_some_and(|file| file != "stdin") {
            draft.tls.key_password = Some(given.content(0)?);
        }
        Ok(())
    }),
    harmless("dh", "FILE|none", "keys are exchanged over elliptic curves").block(),
    served("crl-verify", "FILE|DIRECTORY [dir]", "tls.revocation", |draft, given| {
        draft.tls.revocation = Some(match given.get(1) {
            Some(_) => {
                given.choice(1, &[("dir", ())])?;
                Revocation::Directory(given.inner_path(0)?)
            }
            None => Revocation::List(given.inner_pem(0, &["X509 CRL"])?),
        });
        Ok(())
    })
    .block(),
    served("verify-x509-name", "NAME [subject|name|name-prefix]", "tls.peer_name", |draft, given| {
        let known =
            [("subject", NameMatch::Subject), ("name", NameMatch::Name), ("name-prefix", NameMatch::Prefix)];
        let by = if given.get(1).is_some() { given.choice(1, &known)? } else { NameMatch::Subject };
        draft.tls.peer_name = Some(PeerName { name: given.owned(0)?, by });
        Ok(())
    }),
    served("remote-cert-tls", "client|server", "tls.key_usage, extended_key_usage", |draft, given| {
        let known = [("server", "serverAuth"), ("client", "clientAuth")];
        draft.tls.key_usage = Some(Vec::new());
        draft.tls.extended_key_usage = Some(given.choice(0, &known)?.to_owned());
        Ok(())
    }),
    served("ns-cert-type", "client|server", "tls.extended_key_usage", |draft, given| {
        let known = [("server", "serverAuth"), ("client", "clientAuth")];
        draft.tls.extended_key_usage = Some(given.choice(0, &known)?.to_owned());
        draft.warn("the extended key usage is checked instead: write remote-cert-tls");
        Ok(())
    }),
    served("remote-cert-ku", "[HEX...]", "tls.key_usage", |draft, given| {
        let parse = |text: &str| u16::from_str_radix(text.trim_start_matches("0x"), 16);
        let usages: Result<Vec<u16>, _> = given.from(0).map(parse).collect();
        draft.tls.key_usage = Some(usages.map_err(|_| given.wrong("a key usage is not hexadecimal"))?);
        Ok(())
    }),
    served("remote-cert-eku", "OID", "tls.extended_key_usage", |draft, given| {
        draft.tls.extended_key_usage = Some(match given.at(0)? {
            "TLS Web Server Authentication" | "1.3.6.1.5.5.7.3.1" => "serverAuth".to_owned(),
            "TLS Web Client Authentication" | "1.3.6.1.5.5.7.3.2" => "clientAuth".to_owned(),
            other => other.to_owned(),
        });
        Ok(())
    }),
    served("peer-fingerprint", "HASH", "tls.peer_fingerprints", |draft, given| {
        draft.tls.peer_fingerprints.extend(fingerprints(given)?);
        Ok(())
    })
    .block(),
    served("verify-hash", "HASH [SHA256]", "tls.issuer_fingerprints", |draft, given| {
        if given.directive.block.is_none() {
            let sha1 = Wrong::new("SHA-1 fingerprints can be forged", "write verify-hash HASH SHA256");
            given.choice(1, &[("SHA256", ())]).map_err(|_| sha1)?;
        }
        draft.tls.issuer_fingerprints.extend(fingerprints(given)?);
        Ok(())
    })
    .block(),
    served("tls-auth", "FILE [0|1]", "connection.wrapping", |draft, given| {
        let direction = given.get(1).map(|_| direction(given, 1)).transpose()?;
        let known = draft.link.auth.take();
        draft.link.auth = Some(if given.is_announced() {
            (known.and_then(|(key, _)| key), direction)
        } else {
            (Some(given.pem(0, STATIC_KEY)?), direction.or(known.and_then(|(_, direction)| direction)))
        });
        Ok(())
    })
    .block()
    .connection(),
    served("tls-crypt", "FILE [0|1]", "connection.wrapping", |draft, given| {
        if !given.is_announced() {
            draft.link.crypt = Some(given.pem(0, STATIC_KEY)?);
        }
        Ok(())
    })
    .block()
    .connection(),
    served("tls-crypt-v2", "FILE [force-cookie|allow-noncookie]", "connection.wrapping", |draft, given| {
        let known = [("force-cookie", true), ("allow-noncookie", false)];
        let force = if given.get(1).is_some() { given.choice(1, &known)? } else { false };
        if !given.is_announced() {
            let labels = &["OpenVPN tls-crypt-v2 client key", "OpenVPN tls-crypt-v2 server key"];
            draft.link.crypt_v2 = Some((given.pem(0, labels)?, force));
        }
        Ok(())
    })
    .block()
    .connection(),
    served("key-direction", "0|1", "connection.wrapping", |draft, given| {
        draft.link.direction = Some(direction(given, 0)?);
        Ok(())
    })
    .connection(),
    served("tls-version-min", "VERSION [or-highest]", "tls.version_min", |draft, given| {
        if given.get(1).is_some() {
            given.choice(1, &[("or-highest", ())])?;
        }
        draft.tls.version_min = Some(match given.at(0)? {
            "1.0" | "1.1" => {
                draft.warn("TLS 1.2 is the oldest version that is served");
                TlsVersion::V1_2
            }
            "1.2" => TlsVersion::V1_2,
            "1.3" => TlsVersion::V1_3,
            _ if given.get(1).is_some() => TlsVersion::V1_3,
            other => return Err(given.wrong(format!("{other} is not a version of TLS"))),
        });
        Ok(())
    }),
    served("tls-version-max", "1.2|1.3", "tls.version_max", |draft, given| {
        draft.tls.version_max = Some(match given.at(0)? {
            "1.0" | "1.1" => {
                let fix = "delete the line, and update peers that have no TLS 1.2";
                return Err(Wrong::new("TLS 1.0 and 1.1 are not served (RFC 8996)", fix));
            }
            _ => given.choice(0, &[("1.2", TlsVersion::V1_2), ("1.3", TlsVersion::V1_3)])?,
        });
        Ok(())
    }),
    served("tls-cipher", "LIST", "tls.suites", |draft, given| {
        let suites = suites(draft, given, false)?;
        if suites.is_empty() {
            draft.warn("none of these suites is served: TLS 1.3 alone is used");
        }
        draft.tls.suites = Some(suites);
        Ok(())
    }),
    served("tls-ciphersuites", "LIST", "tls.suites_tls13", |draft, given| {
        draft.tls.suites_tls13 = Some(suites(draft, given, true)?);
        Ok(())
    }),
    served("tls-groups", "LIST", "tls.groups", groups),
    served("ecdh-curve", "NAME", "tls.groups", groups),
    served("tls-cert-profile", "PROFILE", "tls", |draft, given| match given.at(0)? {
        "suiteb" => {
            Err(Wrong::new("the profile suiteb is not served", "write tls-groups secp256r1:secp384r1"))
        }
        "insecure" => {
            draft.warn("SHA-1 signatures and RSA keys below 2048 bits are refused");
            Ok(())
        }
        _ => given.choice(0, &[("legacy", ()), ("preferred", ())]),
    }),
    served("x509-username-field", "FIELD...", "tls.username_fields", |draft, given| {
        draft.tls.username_fields = given.from(0).map(str::to_owned).collect();
        Ok(())
    }),
    served("x509-track", "ATTRIBUTE", "tls.tracked", |draft, given| {
        draft.tls.tracked.push(given.owned(0)?);
        Ok(())
    }),
    served("tls-exit", "", "tls.exit_on_failure", |draft, _| {
        draft.tls.exit_on_failure = true;
        Ok(())
    }),
    served("single-session", "", "tls.single_session", |draft, _| {
        draft.tls.single_session = true;
        Ok(())
    }),
    served("max-packet-size", "BYTES", "tls.packet, connection.mssfix", |draft, given| {
        let bytes: u16 = given.number(0, 1..=u16::MAX)?;
        let packet = bytes.clamp(154, 2048);
        if packet != bytes {
            draft.warn(format!("control packets have {packet} bytes at most"));
        }
        draft.tls.packet = Some(packet);
        draft.link.base.mssfix = MssFix::Mtu(bytes);
        Ok(())
    }),
    served("data-ciphers", "LIST", "data.ciphers", data_ciphers),
    served("ncp-ciphers", "LIST", "data.ciphers", data_ciphers),
    harmless("ncp-disable", "", "ciphers are always negotiated, as since OpenVPN 2.6"),
    served("data-ciphers-fallback", "CIPHER", "data.fallback", |draft, given| {
        draft.data.fallback = Some(cipher(given, given.at(0)?)?);
        Ok(())
    }),
    served("cipher", "CIPHER", "data.fallback", |draft, given| {
        let cipher = cipher(given, given.at(0)?)?;
        if cipher == DataCipher::None {
            draft.warn("packets to peers that do not negotiate are not encrypted");
        }
        draft.cipher = Some(cipher);
        Ok(())
    }),
    served("auth", "DIGEST", "data.digest", |draft, given| {
        let name = given.at(0)?;
        let fix = "write auth SHA256 on both ends: ciphers with GCM do not use it for packets";
        let unknown = || Wrong::new(format!("the digest {name} is not served"), fix);
        draft.data.digest = Digest::of(name).ok_or_else(unknown)?;
        Ok(())
    }),
    served("compat-mode", "VERSION", "data", |draft, given| {
        let text = given.at(0)?;
        let mut parts = text.split('.').map(str::parse::<u32>);
        let Some(Ok(major)) = parts.next() else {
            return Err(given.wrong(format!("{text} is not a version of OpenVPN")));
        };
        let minor = parts.next().and_then(Result::ok).unwrap_or(0);
        draft.compatible = Some((major, minor));
        Ok(())
    }),
    served("compress", "[ALGORITHM]", "data.compression", compress).connection(),
    served("comp-lzo", "[MODE]", "data.compression", compress).connection(),
    harmless("allow-compression", "no|asym|yes", "packets are never compressed"),
    harmless("comp-noadapt", "", "packets are never compressed"),
    served("replay-window", "PACKETS [SECONDS]", "data.replay_window", |draft, given| {
        draft.data.replay_window = (given.number(0, 1..=65_536)?, given.count_or(1, 15)?);
        Ok(())
    }),
    served("mute-replay-warnings", "", "data.mute_replay", |draft, _| {
        draft.data.mute_replay = true;
        Ok(())
    }),
    served("force-tls-key-material-export", "", "data.force_exporter", |draft, _| {
        draft.data.force_exporter = true;
        Ok(())
    }),
    harmless("engine", "[NAME]", "engines are chosen by measurement: see show crypto"),
    harmless("providers", "NAME...", "TLS is not that of OpenSSL: its providers are not needed"),
    harmless("prng", "DIGEST [LENGTH]", "random numbers come from the system"),
    harmless("keying-material-exporter", "LABEL LENGTH", "it is for plugins, and these are refused"),
    harmless("keysize", "BITS", "keys have the length of their cipher, as since OpenVPN 2.6"),
    harmless("disable-occ", "", "options of the two ends are not compared"),
    harmless("opt-verify", "", "options of the two ends are not compared"),
    harmless("key-method", "2", "key method 2 is the only one").connection(),
    harmless("no-name-remapping", "", "names are handed to scripts as OpenVPN hands them"),
    harmless("compat-names", "[no-remapping]", "names are handed to scripts as OpenVPN hands them"),
    harmless("use-prediction-resistance", "", "random numbers come from the system"),
];

/// Framing without compression: nothing is compressed, as in OpenVPN 2.7. A server tells its clients to use `stub-v2`, which
/// changes no packet.
fn compress(draft: &mut Draft, given: &Given<'_>) -> Result<(), Wrong> {
    let lzo = [("no", false), ("yes", true), ("adaptive", true)];
    let (compression, compresses) = match (given.name, given.get(0)) {
        ("comp-lzo", None) | ("compress", Some("lzo")) => (Compression::Before, true),
        ("comp-lzo", Some(_)) => (Compression::Before, given.choice(0, &lzo)?),
        (_, None) => (Compression::Swapped, false),
        _ => {
            let known = [
                ("stub", (Compression::Swapped, false)),
                ("stub-v2", (Compression::StubV2, false)),
                ("migrate", (Compression::Migrate, false)),
                ("lz4", (Compression::Swapped, true)),
                ("lz4-v2", (Compression::StubV2, true)),
            ];
            given.choice(0, &known)?
        }
    };
    draft.data.compression = compression;
    draft.compresses = compresses.then_some(if given.name == "compress" { "compress" } else { "comp-lzo" });
    Ok(())
}

fn direction(given: &Given<'_>, index: usize) -> Result<u8, Wrong> {
    given.choice(index, &[("0", 0), ("1", 1)])
}

/// SHA-256 fingerprints of an argument or of the lines of a block.
fn fingerprints(given: &Given<'_>) -> Result<Vec<[u8; 32]>, Wrong> {
    let block = given.directive.block.as_ref().map(|_| given.content(0)).transpose()?;
    let text = match &block {
        Some(block) => block.text().unwrap_or_default(),
        None => given.at(0)?,
    };
    let lines = text.lines().map(|line| line.split(['#', ';']).next().unwrap_or_default().trim());
    let lines = lines.filter(|line| !line.is_empty());
    let parse = |line: &str| {
        let bytes: Option<Vec<u8>> = line
            .split(':')
            .map(|part| u8::from_str_radix(part, 16).ok().filter(|_| part.len() == 2))
            .collect();
        bytes.and_then(|bytes| bytes.try_into().ok())
    };
    let found: Option<Vec<[u8; 32]>> = lines.map(parse).collect();
    found.filter(|found| !found.is_empty()).ok_or_else(|| {
        let fix = "print it with: openssl x509 -in FILE -noout -fingerprint -sha256";
        Wrong::new("it is not a SHA-256 fingerprint: 32 hexadecimal bytes with colons", fix)
    })
}

fn cipher(given: &Given<'_>, name: &str) -> Result<DataCipher, Wrong> {
    if let Some(cipher) = DataCipher::of(name) {
        return Ok(cipher);
    }
    let known: Vec<&str> = DataCipher::ALL.iter().map(|cipher| cipher.name()).collect();
    let is_weak =
        ["BF-", "DES-", "CAST5", "RC2-", "IDEA"].iter().any(|weak| name.to_uppercase().starts_with(weak));
    let reason = if is_weak {
        format!("{name} has blocks of 64 bits (SWEET32), and is not served")
    } else {
        format!("the cipher {name} is not served")
    };
    let fix = format!("write {} AES-256-GCM on both ends; served are {}", given.name, known.join(", "));
    Err(Wrong::new(reason, fix))
}

fn data_ciphers(draft: &mut Draft, given: &Given<'_>) -> Result<(), Wrong> {
    let (mut ciphers, mut missing) = (Vec::new(), None);
    let mut add = |cipher| {
        if !ciphers.contains(&cipher) {
            ciphers.push(cipher);
        }
    };
    for name in given.at(0)?.split(':').filter(|name| !name.is_empty()) {
        let is_optional = name.starts_with('?');
        match cipher(given, name.trim_start_matches('?')) {
            _ if name == "DEFAULT" => default_ciphers().into_iter().for_each(&mut add),
            Ok(cipher) => add(cipher),
            Err(wrong) if !is_optional => missing = Some((name.to_owned(), wrong)),
            Err(_) => {}
        }
    }
    match missing {
        Some((_, wrong)) if ciphers.is_empty() => return Err(wrong),
        None if ciphers.is_empty() => return Err(given.wrong("the list is empty")),
        Some((name, _)) => draft.warn(format!("{name} is left out: it is not served")),
        None => {}
    }
    draft.data.ciphers = ciphers;
    Ok(())
}

/// The suites of a list that are served. Those of TLS 1.3 stand in a list of their own, as in OpenSSL.
fn suites(draft: &mut Draft, given: &Given<'_>, is_tls13: bool) -> Result<Vec<Suite>, Wrong> {
    let names = given.at(0)?.split(':').filter(|name| !name.is_empty());
    let (mut found, mut left_out) = (Vec::new(), 0);
    for name in names {
        // The list language of OpenSSL: a class of suites, or `!` and `-` for suites that are left out.
        if name.starts_with(['!', '-', '+', '@']) {
            continue;
        }
        let is_class = matches!(name, "DEFAULT" | "HIGH" | "ALL" | "ECDHE" | "kEECDH" | "EECDH" | "ECDH");
        match Suite::of(&name.replace("TLS-AES", "TLS_AES")) {
            Some(suite) if suite.is_tls13() == is_tls13 => found.push(suite),
            _ if is_class => {
                let all = Suite::ALL.iter().copied();
                found.extend(all.filter(|suite| suite.is_tls13() == is_tls13));
            }
            _ => left_out += 1,
        }
    }
    if found.is_empty() && is_tls13 {
        let known: Vec<&str> = Suite::ALL.iter().filter(|it| it.is_tls13()).map(|it| it.name()).collect();
        return Err(Wrong::new("none of these suites is served", format!("served are {}", known.join(":"))));
    }
    if left_out > 0 && !found.is_empty() {
        draft.warn(format!("suites that are not served are left out: {left_out}"));
    }
    Ok(found)
}

fn groups(draft: &mut Draft, given: &Given<'_>) -> Result<(), Wrong> {
    let names: Vec<&str> = given.at(0)?.split(':').collect();
    let found: Vec<Group> = names.iter().filter_map(|name| Group::of(name)).collect();
    let known: Vec<&str> = Group::ALL.iter().map(|group| group.name()).collect();
    if found.is_empty() {
        let fix = format!("delete the line, or use one of {}", known.join(", "));
        return Err(Wrong::new("none of these groups is served", fix));
    }
    if found.len() < names.len() {
        draft.warn(format!("groups are left out that are none of {}", known.join(", ")));
    }
    draft.tls.groups = Some(found);
    Ok(())
}
