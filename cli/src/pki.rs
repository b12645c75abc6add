//! `postern generate pki`: authorities, certificates, revocation lists and static keys, as VyOS generates them.
//!
//! ```text
//! arguments, configuration (pki) ──> authority ──> issue ──> PEM, lines of set, or files
//! ```
//! No key is an argument of a command: keys come from the configuration, and go to standard output or to a file of mode 0600.

mod authority;
pub(crate) mod client_config;
pub(crate) mod easy_rsa;
mod issue;

use crate::shell::api::{Router, Socket};
use crate::shell::session::read;
use crate::{Failure, Outcome};
use authority::Authority;
use base64ct::{Base64, Encoding};
use clap::{Args, Subcommand};
use config::{Text, Tree};
use crypto::{Random, random};
use gateway::api::model::InForce;
use issue::{KeyType, Made, Purpose, Wanted};
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use zeroize::Zeroizing;

/// Days of an authority and of a certificate, as in VyOS.
const AUTHORITY_DAYS: u32 = 1825;
const CERTIFICATE_DAYS: u32 = 365;

#[derive(Subcommand)]
pub(crate) enum What {
    /// A certificate authority that signs itself, or that another one signs
    Ca {
        #[command(flatten)]
        options: CertificateOptions,
        #[command(subcommand)]
        words: Option<CaWords>,
    },
    /// A certificate with its private key
    Certificate {
        #[command(flatten)]
        options: CertificateOptions,
        #[command(subcommand)]
        words: CertificateWords,
    },
    /// A revocation list: the certificates of an authority for which the configuration has `revoke`
    Crl {
        /// Name of the authority in the configuration
        ca: String,
        #[command(flatten)]
        source: Source,
        /// Days until the next list is due
        #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3650))]
        days: u32,
        /// A file with a certificate that is revoked too
        #[arg(long, value_name = "FILE")]
        revoke: Vec<PathBuf>,
        #[command(subcommand)]
        to: Option<ListTo>,
    },
    /// Keys of OpenVPN
    #[command(subcommand)]
    Openvpn(OpenVpn),
}

#[derive(Subcommand)]
pub(crate) enum OpenVpn {
    /// A static key for tls-auth or tls-crypt
    SharedSecret {
        #[command(subcommand)]
        to: Option<To>,
    },
}

#[derive(Subcommand)]
pub(crate) enum CaWords {
    /// Print the lines that set it
    Install {
        /// Name in the configuration
        name: String,
    },
    /// Write it to NAME.pem, and the key to NAME.key
    File {
        /// Name of the files
        name: String,
    },
    /// Have another authority sign it
    Sign {
        /// Name of that authority in the configuration
        ca: String,
        #[command(subcommand)]
        to: Option<To>,
    },
}

#[derive(Subcommand)]
pub(crate) enum CertificateWords {
    /// Have an authority of the configuration sign it
    Sign {
        /// Name of the authority in the configuration
        ca: String,
        #[command(subcommand)]
        to: Option<To>,
    },
    /// Sign it with its own key
    SelfSigned {
        #[command(subcommand)]
        to: Option<To>,
    },
}

/// Where a certificate or a key goes; without it, it is printed.
#[derive(Subcommand, Clone)]
pub(crate) enum To {
    /// Print the lines that set it
    Install {
        /// Name in the configuration
        name: String,
    },
    /// Write it to NAME.pem, and a key to NAME.key
    File {
        /// Name of the files
        name: String,
    },
}

/// Where a list goes.
#[derive(Subcommand, Clone)]
pub(crate) enum ListTo {
    /// Print the line that sets it
    Install,
    /// Write it to NAME.crl
    File {
        /// Name of the file
        name: String,
    },
}

// Where the configuration is read. Not a doc comment: clap would print that as the help of each verb.
#[derive(Args, Default)]
pub(crate) struct Source {
    /// Read this configuration file, instead of asking the daemon
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Ask the daemon at this socket
    #[arg(long, value_name = "SOCKET", global = true, conflicts_with = "config")]
    api: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct CertificateOptions {
    #[command(flatten)]
    source: Source,
    /// Common name (default: NAME)
    #[arg(long, global = true)]
    common_name: Option<String>,
    /// What the certificate is for
    #[arg(long = "type", value_enum, global = true, default_value = "client")]
    purpose: Purpose,
    /// Alternative name: an address or a domain
    #[arg(long, global = true, value_name = "NAME")]
    alternative_name: Vec<String>,
    /// Days until it expires
    #[arg(long, global = true, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: Option<u32>,
    /// The private key: an elliptic curve, or RSA
    #[arg(long, value_enum, global = true, default_value = "ec")]
    key_type: KeyType,
}

pub(crate) fn run(what: What) -> Outcome {
    match what {
        What::Ca { options, words } => {
            let (signer, to) = match words {
                None => (None, None),
                Some(CaWords::Install { name }) => (None, Some(To::Install { name })),
                Some(CaWords::File { name }) => (None, Some(To::File { name })),
                Some(CaWords::Sign { ca, to }) => (Some(ca), to),
            };
            certificate(&options, signer.as_deref(), to, true)
        }
        What::Certificate { options, words: CertificateWords::Sign { ca, to } } => {
            certificate(&options, Some(&ca), to, false)
        }
        What::Certificate { options, words: CertificateWords::SelfSigned { to } } => {
            certificate(&options, None, to, false)
        }
        What::Crl { ca, source, days, revoke, to } => list(&ca, &source, days, &revoke, to),
        What::Openvpn(OpenVpn::SharedSecret { to }) => shared_secret(to),
    }
}

fn certificate(options: &CertificateOptions, signer: Option<&str>, to: Option<To>, is_ca: bool) -> Outcome {
    let name = match &to {
        Some(To::Install { name } | To::File { name }) => Some(name.clone()),
        None => None,
    };
    let common_name = options.common_name.clone().or(name);
    let common_name = common_name
        .ok_or("the certificate has no name\n  fix: add --common-name NAME, or install NAME, or file NAME")?;
    let wanted = Wanted {
        common_name,
        alternative_names: options.alternative_name.clone(),
        is_authority: is_ca,
        purpose: options.purpose,
        days: options.days.unwrap_or(if is_ca { AUTHORITY_DAYS } else { CERTIFICATE_DAYS }),
        key_type: options.key_type,
    };
    let signer = match signer {
        Some(name) => Some(Authority::of(&configuration(&options.source)?, name)?),
        None => None,
    };
    let Made { certificate, key } = issue::certificate(&wanted, signer.as_ref())?;
    match to {
        None => print(&format!("{}{}", issue::pem("CERTIFICATE", &certificate), *issue::secret_pem(&key))),
        Some(To::Install { name }) => {
            let path = format!("pki {} {name}", if is_ca { "ca" } else { "certificate" });
            let key = Zeroizing::new(Base64::encode_string(&key));
            let certificate = Base64::encode_string(&certificate);
            print(&format!("set {path} certificate {certificate}\nset {path} private key {}\n", *key))
        }
        Some(To::File { name }) => {
            write_file(&format!("{name}.key"), &issue::secret_pem(&key), 0o600)?;
            write_file(&format!("{name}.pem"), &issue::pem("CERTIFICATE", &certificate), 0o644)
        }
    }
}

fn list(ca: &str, source: &Source, days: u32, revoke: &[PathBuf], to: Option<ListTo>) -> Outcome {
    let tree = configuration(source)?;
    let authority = Authority::of(&tree, ca)?;
    let mut revoked = authority.revoked(&tree)?;
    for file in revoke {
        let bytes = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
        revoked.extend(authority.serials_of(&bytes, &file.display().to_string())?);
    }
    let list = issue::revocation_list(&authority, revoked, days)?;
    match to {
        None => print(&issue::pem("X509 CRL", &list)),
        Some(ListTo::Install) => {
            // The new list has all that older ones have.
            print(&format!("delete pki ca {ca} crl\nset pki ca {ca} crl {}\n", Base64::encode_string(&list)))
        }
        Some(ListTo::File { name }) => {
            write_file(&format!("{name}.crl"), &issue::pem("X509 CRL", &list), 0o644)
        }
    }
}

/// The bytes of a static key.
const STATIC_KEY: usize = 256;

fn shared_secret(to: Option<To>) -> Outcome {
    let bytes = Zeroizing::new(random::System::default().bytes::<STATIC_KEY>());
    let mut digits = Zeroizing::new(String::with_capacity(2 * STATIC_KEY));
    for byte in bytes.iter() {
        write!(digits, "{byte:02x}")?;
    }
    match to {
        Some(To::Install { name }) => print(&format!(
            "set pki openvpn shared-secret {name} key {}\nset pki openvpn shared-secret {name} version 1\n",
            *digits
        )),
        Some(To::File { name }) => write_file(&format!("{name}.key"), &static_key(&digits), 0o600),
        None => print(&static_key(&digits)),
    }
}

/// The digits in the file of a static key.
fn digits_of(file: &str) -> Option<Zeroizing<String>> {
    let mut digits = Zeroizing::new(String::with_capacity(file.len()));
    let (_, inside) = file.split_once("-----BEGIN OpenVPN Static key V1-----")?;
    let (inside, _) = inside.split_once("-----END")?;
    inside.split_whitespace().for_each(|line| digits.push_str(line));
    config::schema::Type::StaticKey.check(&digits).is_ok().then_some(digits)
}

/// The file of a static key.
fn static_key(digits: &str) -> Zeroizing<String> {
    const LINE: usize = 32;
    let mut text = Zeroizing::new(String::with_capacity(2 * digits.len() + 200));
    text.push_str("-----BEGIN OpenVPN Static key V1-----\n");
    let mut rest = digits;
    while !rest.is_empty() {
        let (line, after) = rest.split_at(LINE.min(rest.len()));
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    text.push_str("-----END OpenVPN Static key V1-----\n");
    text
}

/// The configuration in force, or that of a file.
fn configuration(source: &Source) -> Result<Tree, Failure> {
    if let Some(file) = &source.config {
        let text = Text::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
        return read(text.as_str()?);
    }
    let InForce { text, .. } = Socket::new(source.api.clone()).in_force()?;
    read(text.as_str())
}

fn print(text: &str) -> Outcome {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Writes a file that must not exist.
fn write_file(name: &str, text: &str, mode: u32) -> Outcome {
    let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(name);
    let mut file = opened.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => format!("{name} exists\n  fix: name another file, or remove it"),
        _ => format!("{name}: {error}"),
    })?;
    file.write_all(text.as_bytes())?;
    eprintln!("{name} was written");
    Ok(())
}
