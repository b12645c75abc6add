//! Who is who by certificates: every kind of key, identity and chain, with either side as initiator; lists of what is revoked; and
//! chains so long that their messages travel in pieces.

use super::authorities::{Authorities, Keys, sites};
use super::{Ours, all, counter, ours, reaches, theirs};
use crate::support::answers;
use lab::Lab;
use lab::strongswan::StrongSwan;
use std::fmt::Write as _;

/// How both sides show who they are.
#[derive(Clone, Copy)]
pub struct Case {
    name: &'static str,
    keys: Keys,
    /// Identities: ours, and charon's. Those that are subjects are what both sides say by themselves.
    identities: [&'static str; 2],
    /// How charon signs, in its words.
    signs: &'static str,
    /// Settings of charon's.
    settings: &'static str,
    /// Ours, besides the usual.
    ours: &'static [&'static str],
    /// How charon says that it has signed, and we: when it calls, and when we do.
    said: [&'static str; 3],
}

const SUBJECTS: [&str; 2] = ["C=CH, O=Sites, CN=a", "C=CH, O=Sites, CN=b"];
const DOMAINS: [&str; 2] = ["a.sites.example", "b.sites.example"];
const EMAILS: [&str; 2] = ["a@sites.example", "b@sites.example"];

const ACCEPT_SHA1: &[&str] = &["PEER authentication x509 accept-sha1"];

pub const P256: Case = Case {
    name: "P-256, subjects",
    keys: Keys { authorities: "ecdsa --size 256", hosts: "ecdsa --size 256" },
    identities: SUBJECTS,
    signs: "pubkey",
    settings: "",
    ours: &[],
    said: ["ECDSA_WITH_SHA256_DER"; 3],
};

const CASES: &[Case] = &[
    P256,
    Case {
        name: "P-384, domains",
        keys: Keys { authorities: "ecdsa --size 384", hosts: "ecdsa --size 384" },
        identities: DOMAINS,
        said: ["ECDSA_WITH_SHA384_DER"; 3],
        ..P256
    },
    Case {
        name: "P-521, e-mail",
        keys: Keys { authorities: "ecdsa --size 521", hosts: "ecdsa --size 521" },
        identities: EMAILS,
        said: ["ECDSA_WITH_SHA512_DER"; 3],
        ..P256
    },
    Case {
        name: "P-256 without RFC 7427",
        identities: DOMAINS,
        settings: "signature_authentication = no",
        said: ["ECDSA-256"; 3],
        ..P256
    },
    Case {
        name: "P-384 without RFC 7427",
        keys: Keys { authorities: "ecdsa --size 384", hosts: "ecdsa --size 384" },
        settings: "signature_authentication = no",
        said: ["ECDSA-384"; 3],
        ..P256
    },
    Case {
        name: "Ed25519",
        keys: Keys { authorities: "ed25519", hosts: "ed25519" },
        identities: EMAILS,
        said: ["ED25519"; 3],
        ..P256
    },
    Case {
        name: "RSA 2048, charon with PKCS#1, SHA-1 accepted and not needed",
        keys: Keys { authorities: "rsa --size 2048", hosts: "rsa --size 2048" },
        ours: ACCEPT_SHA1,
        said: ["RSA_EMSA_PKCS1_SHA2_256", "RSA_EMSA_PKCS1_SHA2_256", "RSA_EMSA_PSS_SHA2_256"],
        ..P256
    },
    // RFC 7296 has SHA-1 with these keys, and nothing else.
    Case {
        name: "RSA 2048 without RFC 7427, SHA-1 accepted",
        keys: Keys { authorities: "ecdsa --size 256", hosts: "rsa --size 2048" },
        settings: "signature_authentication = no",
        ours: ACCEPT_SHA1,
        said: ["RSA signature"; 3],
        ..P256
    },
    Case {
        name: "RSA 4096, charon with PSS",
        keys: Keys { authorities: "rsa --size 2048", hosts: "rsa --size 4096" },
        identities: DOMAINS,
        signs: "ike:rsa/pss-sha512",
        said: ["RSA_EMSA_PSS_SHA2_512", "RSA_EMSA_PSS_SHA2_256", "RSA_EMSA_PSS_SHA2_256"],
        ..P256
    },
    Case {
        name: "RSA 2048 under Ed25519, charon with PSS",
        keys: Keys { authorities: "ed25519", hosts: "rsa --size 2048" },
        identities: EMAILS,
        signs: "ike:rsa/pss-sha384",
        said: ["RSA_EMSA_PSS_SHA2_384", "RSA_EMSA_PSS_SHA2_256", "RSA_EMSA_PSS_SHA2_256"],
        ..P256
    },
];

impl Case {
    pub fn authorities(&self) -> Authorities {
        let names = |host: usize| [DOMAINS[host], EMAILS[host]];
        Authorities::new(self.keys, [&names(0), &names(1)]).expect("the tool works")
    }

    /// Ours, which begins when there is a packet. `trusted`: the authorities above the peer that we are told of.
    pub fn ours(&self, authorities: &Authorities, trusted: &[&str], more: &[&str]) -> String {
        let [local, remote] = self.identities;
        let mut lines = vec![
            "PEER authentication mode x509".to_owned(),
            "PEER authentication x509 certificate ours".to_owned(),
            format!("PEER authentication local-id '{local}'"),
            format!("PEER authentication remote-id '{remote}'"),
            "PEER connection-type trap".to_owned(),
        ];
        let trusted: Vec<&str> = trusted.iter().chain(&["between-a"]).copied().collect();
        lines.extend(trusted.iter().map(|name| format!("PEER authentication x509 ca-certificate {name}")));
        let more = self.ours.iter().chain(more).copied();
        let lines: Vec<&str> = lines.iter().map(String::as_str).chain(more).collect();
        let pki = |kind: &str, name: &str, what: &str, file: String| {
            format!("set pki {kind} {name} {what} {}\n", authorities.base64(&file))
        };
        let of_authority = |name: &&str| pki("ca", name, "certificate", format!("{name}.pem"));
        let certificates: String = trusted.iter().map(of_authority).collect();
        let own = pki("certificate", "ours", "certificate", "a.pem".to_owned())
            + &pki("certificate", "ours", "private key", "a.key".to_owned());
        ours(&lines) + &certificates + &own
    }

    fn theirs(&self, connection: &str) -> String {
        let ([remote, local], signs) = (self.identities, self.signs);
        theirs(connection, "")
            .replacen(
                "auth = psk\n id = 192.168.77.2",
                &format!("auth = {signs}\n certs = b.pem\n id = \"{local}\""),
                1,
            )
            .replacen("auth = psk\n id = 192.168.77.1", &format!("auth = pubkey\n id = \"{remote}\""), 1)
    }

    /// A charon that has its certificates; it knows nothing of the authority between the root and us.
    pub fn charon(&self, lab: &mut Lab, authorities: &Authorities, connection: &str) -> StrongSwan {
        let charon = StrongSwan::start(lab, "b", "", self.settings).expect("it starts");
        let hand = |file: &str, folder: &str| authorities.hand(file, &charon.file(folder)).expect("a copy");
        for (file, folder) in
            [("b.pem", "x509"), ("b.key", "private"), ("root.pem", "x509ca"), ("between-b.pem", "x509ca")]
        {
            hand(file, folder);
        }
        charon.reconfigure(lab, &self.theirs(connection)).expect("it reads them");
        charon
    }

    /// A tunnel that charon begins, and then one that we begin.
    fn joins_both_ways(&self) {
        let Some(mut lab) = sites() else { return };
        let authorities = self.authorities();
        let charon = self.charon(&mut lab, &authorities, "");
        let daemon = Ours::start(&mut lab, "a", &self.ours(&authorities, &["root"], &[]));
        charon.initiate(&lab, "net").unwrap_or_else(|error| {
            panic!("{}: charon calls: {error}\n{}", self.name, daemon.tell(&charon));
        });
        daemon.wait_for_tunnels(&lab, &charon);
        assert!(reaches(&lab, "b", "10.1.0.1"), "{}: charon calls\n{}", self.name, daemon.tell(&charon));
        charon.swanctl(&lab, &["--terminate", "--ike", "site"]).expect("it ends");
        daemon.wait(&charon, "both have ended it", || daemon.peer()["up"] == false);
        assert!(reaches(&lab, "a", "10.2.0.1"), "{}: we call\n{}", self.name, daemon.tell(&charon));
        daemon.wait_for_tunnels(&lab, &charon);
        self.both_have_signed(&daemon, &charon);
    }

    fn both_have_signed(&self, daemon: &Ours, charon: &StrongSwan) {
        let ([ours, theirs], [its, when_called, when_calling]) = (self.identities, self.said);
        signed(&charon.log(), &format!("'{theirs}' (myself)"), [its, its]);
        signed(&charon.log(), &format!("'{ours}'"), [when_called, when_calling]);
        let peer = daemon.peer();
        assert_eq!([&peer["local_id"], &peer["remote_id"]], [ours, theirs], "{}", self.name);
    }
}

/// Asserts that charon logs these signature schemes, one after the other.
pub fn signed(log: &str, who: &str, schemes: [&str; 2]) {
    let said = format!("authentication of {who} with");
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(&said)).collect();
    let fits = |(line, scheme): (&&str, &str)| line.contains(scheme);
    assert!(lines.len() == 2 && lines.iter().zip(schemes).all(fits), "{schemes:?}: {lines:#?}");
}

#[test]
fn every_kind_of_key_shows_who_is_who_to_both() {
    all(CASES, |case| case.name, Case::joins_both_ways);
}

/// Why a certificate that is otherwise right is refused.
struct Refused {
    name: &'static str,
    case: Case,
    /// The authority and the certificates that it revokes.
    revoked: Option<(&'static str, &'static str)>,
    /// Whether the list is ours, or charon's.
    list_is_ours: bool,
    /// What we say, and what charon logs.
    said: [&'static str; 2],
}

const REFUSED: &[Refused] = &[
    Refused {
        name: "theirs is revoked",
        case: P256,
        revoked: Some(("between-b", "b")),
        list_is_ours: true,
        said: ["C=CH, O=Sites, CN=b is revoked", "AUTH_FAILED"],
    },
    Refused {
        name: "the authority of theirs is revoked",
        case: P256,
        revoked: Some(("root", "between-b")),
        list_is_ours: true,
        said: ["C=CH, O=Sites, CN=between-b is revoked", "AUTH_FAILED"],
    },
    Refused {
        name: "ours is revoked",
        case: P256,
        revoked: Some(("between-a", "a")),
        list_is_ours: false,
        said: ["rejected our authentication", "certificate was revoked"],
    },
    Refused {
        name: "RSA without RFC 7427",
        case: Case {
            keys: Keys { authorities: "ecdsa --size 256", hosts: "rsa --size 2048" },
            settings: "signature_authentication = no",
            ..P256
        },
        revoked: None,
        list_is_ours: true,
        said: ["authentication x509 accept-sha1, as a last resort", "AUTH_FAILED"],
    },
    Refused {
        name: "another name than the certificate's",
        case: Case { identities: [SUBJECTS[0], "c.sites.example"], ..P256 },
        revoked: None,
        list_is_ours: true,
        said: ["its certificate is for C=CH, O=Sites, CN=b", "AUTH_FAILED"],
    },
    Refused {
        name: "we have another name than our certificate",
        case: Case { identities: ["c.sites.example", SUBJECTS[1]], ..P256 },
        revoked: None,
        list_is_ours: false,
        said: ["rejected our authentication", "c.sites.example"],
    },
];

impl Refused {
    fn is_refused_both_ways(&self) {
        let Some(mut lab) = sites() else { return };
        let authorities = self.case.authorities();
        // Lists come with the authority that signs them.
        let trusted: &[&str] = if self.list_is_ours { &["root", "between-b"] } else { &["root"] };
        let mut configuration = self.case.ours(&authorities, trusted, &[]);
        let charon = self.case.charon(&mut lab, &authorities, "");
        if let Some((authority, revoked)) = self.revoked {
            authorities.revoke(authority, &[revoked]).expect("the tool works");
            let list = format!("{authority}.crl");
            if self.list_is_ours {
                let _ = writeln!(configuration, "set pki ca {authority} crl {}", authorities.base64(&list));
            } else {
                authorities.hand(&list, &charon.file("x509crl")).expect("a copy");
                charon.load(&lab).expect("it reads it");
            }
        }
        let daemon = Ours::start(&mut lab, "a", &configuration);
        assert!(charon.initiate(&lab, "net").is_err(), "{}: charon calls", self.name);
        let [ours, theirs] = self.said;
        let is_said = || daemon.peer()["failure"].to_string().contains(ours);
        daemon.wait(&charon, self.name, || is_said() && daemon.peer()["up"] == false);
        assert!(!answers(&lab, "a", "10.2.0.1"), "{}: we call", self.name);
        daemon.wait(&charon, self.name, is_said);
        daemon.wait(&charon, self.name, || charon.log().contains(theirs));
        assert_eq!(daemon.peer()["tunnels"][0]["sas"].as_array().map(Vec::len), Some(0), "{}", self.name);
    }
}

#[test]
fn what_is_revoked_or_weak_is_refused() {
    all(REFUSED, |refused| refused.name, Refused::is_refused_both_ways);
}

/// Datagrams that a host has cut, and put together, as IP.
fn ip_fragments(lab: &Lab, site: &str) -> [u64; 2] {
    ["FragCreates", "ReasmOKs"].map(|name| counter(lab, site, "Ip:", name))
}

/// Certificates of several KiB a side.
const LARGE: Case = Case {
    keys: Keys { authorities: "rsa --size 3072", hosts: "rsa --size 3072" },
    said: ["RSA_EMSA_PKCS1_SHA2_256", "RSA_EMSA_PKCS1_SHA2_256", "RSA_EMSA_PSS_SHA2_256"],
    ..P256
};

#[test]
fn a_long_chain_travels_in_fragments_both_ways() {
    let Some(mut lab) = sites() else { return };
    let case = Case { settings: "fragment_size = 700", ..LARGE };
    let authorities = case.authorities();
    let charon = case.charon(&mut lab, &authorities, "");
    let daemon =
        Ours::start(&mut lab, "a", &case.ours(&authorities, &["root"], &["PEER connection-type initiate"]));
    daemon.wait_for_tunnels(&lab, &charon);
    assert!(reaches(&lab, "a", "10.2.0.1"), "{}", daemon.tell(&charon));
    let log = charon.log();
    for said in ["parsed IKE_AUTH request 1 [ EF(2/", "generating IKE_AUTH response 1 [ EF(5/"] {
        assert!(log.contains(said), "{said}\n{log}");
    }
    for site in ["a", "b"] {
        assert_eq!(ip_fragments(&lab, site), [0, 0], "{site}: IP has nothing to do with it");
    }
}

#[test]
fn without_fragments_of_ike_a_long_chain_travels_in_those_of_ip() {
    let Some(mut lab) = sites() else { return };
    let authorities = LARGE.authorities();
    let charon = LARGE.charon(&mut lab, &authorities, "fragmentation = no");
    let daemon = Ours::start(&mut lab, "a", &LARGE.ours(&authorities, &["root"], &[]));
    charon.initiate(&lab, "net").unwrap_or_else(|error| panic!("{error}\n{}", daemon.tell(&charon)));
    daemon.wait_for_tunnels(&lab, &charon);
    charon.swanctl(&lab, &["--terminate", "--ike", "site"]).expect("it ends");
    daemon.wait(&charon, "both have ended it", || daemon.peer()["up"] == false);
    assert!(reaches(&lab, "a", "10.2.0.1"), "{}", daemon.tell(&charon));
    assert!(!charon.log().contains("EF("), "{}", charon.log());
    for site in ["a", "b"] {
        let [cut, whole] = ip_fragments(&lab, site);
        assert!(cut >= 4 && whole >= 2, "{site}: {cut} {whole}");
    }
}
