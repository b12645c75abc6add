//! The control channel and the data channel.

use super::material::Material;
use std::path::PathBuf;

/// Who begins the TLS handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsRole {
    /// The peer.
    Server,
    /// We.
    #[default]
    Client,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.2.
    V1_2,
    /// TLS 1.3.
    V1_3,
}

/// Defines an enum whose variants have names, with a parser.
macro_rules! named {
    ($(#[$about:meta])* $type:ident { $($(#[$meta:meta])* $variant:ident = $name:literal $(| $alias:literal)*,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the names say it")]
        pub enum $type { $($(#[$meta])* $variant,)* }

        impl $type {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The one of this name, in large or small letters.
            pub fn of(name: &str) -> Option<Self> {
                let known: &[(Self, &[&str])] = &[$((Self::$variant, &[$name $(, $alias)*]),)*];
                let fits = |names: &[&str]| names.iter().any(|it| it.eq_ignore_ascii_case(name));
                known.iter().find(|(_, names)| fits(names)).map(|(it, _)| *it)
            }
        }
    };
}

named! {
    /// A cipher of the data channel.
    DataCipher {
        Aes256Gcm = "AES-256-GCM" | "id-aes256-GCM",
        Aes192Gcm = "AES-192-GCM" | "id-aes192-GCM",
        Aes128Gcm = "AES-128-GCM" | "id-aes128-GCM",
        ChaCha20Poly1305 = "CHACHA20-POLY1305",
        Aes256Cbc = "AES-256-CBC",
        Aes192Cbc = "AES-192-CBC",
        Aes128Cbc = "AES-128-CBC",
        None = "none",
    }
}

named! {
    /// The digest of HMAC, for CBC and for `tls-auth`.
    Digest {
        Sha1 = "SHA1" | "SHA" | "SHA-1" | "RSA-SHA1",
        Sha256 = "SHA256" | "SHA2-256" | "SHA-256" | "RSA-SHA256",
        Sha384 = "SHA384" | "SHA2-384" | "SHA-384" | "RSA-SHA384",
        Sha512 = "SHA512" | "SHA2-512" | "SHA-512" | "RSA-SHA512",
        None = "none",
    }
}

named! {
    /// A cipher suite of TLS, by the name of IANA in OpenVPN's spelling; also by that of OpenSSL.
    Suite {
        Tls13Aes256 = "TLS_AES_256_GCM_SHA384",
        Tls13Aes128 = "TLS_AES_128_GCM_SHA256",
        Tls13ChaCha20 = "TLS_CHACHA20_POLY1305_SHA256",
        EcdsaAes256 = "TLS-ECDHE-ECDSA-WITH-AES-256-GCM-SHA384" | "ECDHE-ECDSA-AES256-GCM-SHA384",
        EcdsaAes128 = "TLS-ECDHE-ECDSA-WITH-AES-128-GCM-SHA256" | "ECDHE-ECDSA-AES128-GCM-SHA256",
        EcdsaChaCha20 = "TLS-ECDHE-ECDSA-WITH-CHACHA20-POLY1305-SHA256" | "ECDHE-ECDSA-CHACHA20-POLY1305",
        RsaAes256 = "TLS-ECDHE-RSA-WITH-AES-256-GCM-SHA384" | "ECDHE-RSA-AES256-GCM-SHA384",
        RsaAes128 = "TLS-ECDHE-RSA-WITH-AES-128-GCM-SHA256" | "ECDHE-RSA-AES128-GCM-SHA256",
        RsaChaCha20 = "TLS-ECDHE-RSA-WITH-CHACHA20-POLY1305-SHA256" | "ECDHE-RSA-CHACHA20-POLY1305",
    }
}

impl Suite {
    /// Whether it is one of TLS 1.3.
    pub fn is_tls13(self) -> bool {
        matches!(self, Self::Tls13Aes256 | Self::Tls13Aes128 | Self::Tls13ChaCha20)
    }
}

named! {
    /// A group of the key exchange.
    Group {
        X25519 = "X25519",
        Secp256r1 = "secp256r1" | "prime256v1" | "P-256",
        Secp384r1 = "secp384r1" | "P-384",
        X25519MlKem768 = "X25519MLKEM768",
    }
}

/// How the name of the peer's certificate is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameMatch {
    /// The whole subject.
    #[default]
    Subject,
    /// The common name.
    Name,
    /// The beginning of the common name.
    Prefix,
}

/// `verify-x509-name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerName {
    /// The name.
    pub name: String,
    /// How it is compared.
    pub by: NameMatch,
}

/// `crl-verify`.
#[derive(Clone, Debug)]
pub enum Revocation {
    /// A CRL. A file is read again when it changes.
    List(Material),
    /// A directory with a file for each revoked serial number, in decimal.
    Directory(PathBuf),
}

/// The control channel.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a directive of its own")]
pub struct Tls {
    /// Who begins the handshake.
    pub role: TlsRole,
    /// Trusted authorities, in PEM.
    pub authority: Option<Material>,
    /// A directory of trusted authorities.
    pub authority_directory: Option<PathBuf>,
    /// Our certificate, in PEM.
    pub certificate: Option<Material>,
    /// Certificates between ours and the authority.
    pub extra_certificates: Option<Material>,
    /// Our private key, in PEM.
    pub key: Option<Material>,
    /// The password of the private key.
    pub key_password: Option<Material>,
    /// Whether the private key has a password that `askpass` does not have in a file.
    pub asks_key_password: bool,
    /// Whether the answer is erased after use (`auth-nocache`).
    pub forgets_key_password: bool,
    /// Revoked certificates.
    pub revocation: Option<Revocation>,
    /// The name of the peer's certificate.
    pub peer_name: Option<PeerName>,
    /// Key usages that the peer's certificate must have: one of them; any key usage if it is empty.
    pub key_usage: Option<Vec<u16>>,
    /// The extended key usage that the peer's certificate must have, as an object identifier or a name of OpenSSL.
    pub extended_key_usage: Option<String>,
    /// SHA-256 fingerprints of the peer's certificate.
    pub peer_fingerprints: Vec<[u8; 32]>,
    /// SHA-256 fingerprints of the certificate that issued the peer's.
    pub issuer_fingerprints: Vec<[u8; 32]>,
    /// The oldest version.
    pub version_min: Option<TlsVersion>,
    /// The newest version.
    pub version_max: Option<TlsVersion>,
    /// Cipher suites of TLS 1.2; all if none.
    pub suites: Option<Vec<Suite>>,
    /// Cipher suites of TLS 1.3; all if none.
    pub suites_tls13: Option<Vec<Suite>>,
    /// Groups of the key exchange; all if none.
    pub groups: Option<Vec<Group>>,
    /// Where the names of clients stand in their certificates; the common name if none.
    pub username_fields: Vec<String>,
    /// Attributes of the peer's certificate that scripts get.
    pub tracked: Vec<String>,
    /// Whether the process ends when a handshake fails: `tls-exit`.
    pub exit_on_failure: bool,
    /// Whether one session alone is served: `single-session`.
    pub single_session: bool,
    /// The largest control packet.
    pub packet: Option<u16>,
}

/// Compression framing. Packets are never compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// None.
    #[default]
    Off,
    /// `stub-v2`: IP packets are as they are without it.
    StubV2,
    /// A byte before each packet: `comp-lzo`.
    Before,
    /// A byte in place of the first one, which is at the end: `compress`.
    Swapped,
    /// A server tells clients with compression to use `stub-v2`: `compress migrate`.
    Migrate,
}

/// The data channel.
#[derive(Clone, Debug)]
pub struct DataChannel {
    /// Ciphers that are negotiated, the best first.
    pub ciphers: Vec<DataCipher>,
    /// The cipher for peers that do not negotiate.
    pub fallback: Option<DataCipher>,
    /// The digest.
    pub digest: Digest,
    /// Compression framing.
    pub compression: Compression,
    /// Packets that may arrive late, and for how many seconds.
    pub replay_window: (u32, u32),
    /// Warnings about replayed packets are not logged.
    pub mute_replay: bool,
    /// Only keys of the TLS exporter: `force-tls-key-material-export`.
    pub force_exporter: bool,
}

impl Default for DataChannel {
    fn default() -> Self {
        Self {
            ciphers: default_ciphers().to_vec(),
            fallback: None,
            digest: Digest::Sha1,
            compression: Compression::Off,
            replay_window: (64, 15),
            mute_replay: false,
            force_exporter: false,
        }
    }
}

/// What `DEFAULT` stands for in `data-ciphers`.
pub fn default_ciphers() -> [DataCipher; 3] {
    [DataCipher::Aes256Gcm, DataCipher::Aes128Gcm, DataCipher::ChaCha20Poly1305]
}
