//! The numbers of IKEv2 (RFC 7296 section 3, and the registry "Internet Key Exchange Version 2").

/// Types of payloads (section 3.2).
pub mod payload {
    /// No next payload.
    pub const NONE: u8 = 0;
    /// Security Association.
    pub const SA: u8 = 33;
    /// Key Exchange.
    pub const KE: u8 = 34;
    /// Identification of the initiator.
    pub const IDI: u8 = 35;
    /// Identification of the responder.
    pub const IDR: u8 = 36;
    /// Certificate.
    pub const CERT: u8 = 37;
    /// Certificate Request.
    pub const CERTREQ: u8 = 38;
    /// Authentication.
    pub const AUTH: u8 = 39;
    /// Nonce.
    pub const NONCE: u8 = 40;
    /// Notify.
    pub const NOTIFY: u8 = 41;
    /// Delete.
    pub const DELETE: u8 = 42;
    /// Vendor ID.
    pub const VENDOR_ID: u8 = 43;
    /// Traffic selectors of the initiator.
    pub const TSI: u8 = 44;
    /// Traffic selectors of the responder.
    pub const TSR: u8 = 45;
    /// Encrypted and Authenticated.
    pub const SK: u8 = 46;
    /// Configuration.
    pub const CP: u8 = 47;
    /// Extensible Authentication.
    pub const EAP: u8 = 48;
    /// Encrypted and Authenticated Fragment (RFC 7383).
    pub const SKF: u8 = 53;
}

/// Security protocols (section 3.3.1).
pub mod protocol {
    /// None: for a notification without an SA.
    pub const NONE: u8 = 0;
    /// IKE.
    pub const IKE: u8 = 1;
    /// Authentication Header.
    pub const AH: u8 = 2;
    /// Encapsulating Security Payload.
    pub const ESP: u8 = 3;
}

/// Types of transforms (section 3.3.2).
pub mod transform {
    /// Encryption algorithm.
    pub const ENCRYPTION: u8 = 1;
    /// Pseudorandom function.
    pub const PRF: u8 = 2;
    /// Integrity algorithm.
    pub const INTEGRITY: u8 = 3;
    /// Diffie-Hellman group, by RFC 9370 key exchange method.
    pub const GROUP: u8 = 4;
    /// Extended sequence numbers.
    pub const ESN: u8 = 5;
    /// The only attribute: the key length in bits (section 3.3.5).
    pub const KEY_LENGTH: u16 = 14;
}

/// Encryption algorithms.
pub mod encryption {
    /// 3DES in CBC mode.
    pub const TRIPLE_DES: u16 = 3;
    /// None (RFC 2410).
    pub const NULL: u16 = 11;
    /// AES in CBC mode (RFC 3602).
    pub const AES_CBC: u16 = 12;
    /// AES in counter mode (RFC 3686, RFC 5930).
    pub const AES_CTR: u16 = 13;
    /// AES-CCM with a tag of 8 bytes (RFC 4309, RFC 5282).
    pub const AES_CCM_8: u16 = 14;
    /// AES-CCM with a tag of 12 bytes.
    pub const AES_CCM_12: u16 = 15;
    /// AES-CCM with a tag of 16 bytes.
    pub const AES_CCM_16: u16 = 16;
    /// AES-GCM with a tag of 8 bytes (RFC 4106, RFC 5282).
    pub const AES_GCM_8: u16 = 18;
    /// AES-GCM with a tag of 12 bytes.
    pub const AES_GCM_12: u16 = 19;
    /// AES-GCM with a tag of 16 bytes.
    pub const AES_GCM_16: u16 = 20;
    /// AES-GMAC, which does not encrypt (RFC 4543).
    pub const NULL_AES_GMAC: u16 = 21;
    /// ChaCha20-Poly1305 (RFC 7634).
    pub const CHACHA20_POLY1305: u16 = 28;
}

/// Pseudorandom functions.
pub mod prf {
    /// HMAC-SHA1 (RFC 2104).
    pub const HMAC_SHA1: u16 = 2;
    /// AES-XCBC-PRF-128 (RFC 4434).
    pub const AES_XCBC: u16 = 4;
    /// HMAC-SHA256 (RFC 4868).
    pub const HMAC_SHA256: u16 = 5;
    /// HMAC-SHA384.
    pub const HMAC_SHA384: u16 = 6;
    /// HMAC-SHA512.
    pub const HMAC_SHA512: u16 = 7;
}

/// Integrity algorithms.
pub mod integrity {
    /// None.
    pub const NONE: u16 = 0;
    /// HMAC-SHA1-96 (RFC 2404).
    pub const HMAC_SHA1_96: u16 = 2;
    /// AES-XCBC-96 (RFC 3566).
    pub const AES_XCBC_96: u16 = 5;
    /// HMAC-SHA256-128 (RFC 4868).
    pub const HMAC_SHA256_128: u16 = 12;
    /// HMAC-SHA384-192.
    pub const HMAC_SHA384_192: u16 = 13;
    /// HMAC-SHA512-256.
    pub const HMAC_SHA512_256: u16 = 14;
}

/// Diffie-Hellman groups.
pub mod group {
    /// None: a Child SA without a key exchange of its own.
    pub const NONE: u16 = 0;
    /// 1024-bit MODP.
    pub const MODP_1024: u16 = 2;
    /// 1536-bit MODP (RFC 3526).
    pub const MODP_1536: u16 = 5;
    /// 2048-bit MODP.
    pub const MODP_2048: u16 = 14;
    /// 3072-bit MODP.
    pub const MODP_3072: u16 = 15;
    /// 4096-bit MODP.
    pub const MODP_4096: u16 = 16;
    /// 6144-bit MODP.
    pub const MODP_6144: u16 = 17;
    /// 8192-bit MODP.
    pub const MODP_8192: u16 = 18;
    /// NIST P-256 (RFC 5903).
    pub const ECP_256: u16 = 19;
    /// NIST P-384.
    pub const ECP_384: u16 = 20;
    /// NIST P-521.
    pub const ECP_521: u16 = 21;
    /// Curve25519 (RFC 8031).
    pub const CURVE25519: u16 = 31;
}

/// Extended sequence numbers.
pub mod esn {
    /// Sequence numbers of 32 bits.
    pub const NO: u16 = 0;
    /// Sequence numbers of 64 bits.
    pub const YES: u16 = 1;
}

/// Types of identities (section 3.5).
pub mod identity {
    /// An IPv4 address.
    pub const IPV4: u8 = 1;
    /// A domain name.
    pub const FQDN: u8 = 2;
    /// An e-mail address.
    pub const RFC822: u8 = 3;
    /// An IPv6 address.
    pub const IPV6: u8 = 5;
    /// The subject of a certificate, in DER.
    pub const DER_ASN1_DN: u8 = 9;
    /// A general name, in DER.
    pub const DER_ASN1_GN: u8 = 10;
    /// Opaque bytes.
    pub const KEY_ID: u8 = 11;
}

/// Encodings of certificates (section 3.6).
pub mod certificate {
    /// An X.509 certificate, for signatures.
    pub const X509_SIGNATURE: u8 = 4;
    /// A certificate revocation list.
    pub const CRL: u8 = 7;
}

/// Authentication methods (section 3.8).
pub mod method {
    /// RSA with PKCS#1 v1.5 padding and SHA-1.
    pub const RSA: u8 = 1;
    /// A message integrity code made with a pre-shared key.
    pub const SHARED_KEY: u8 = 2;
    /// ECDSA with SHA-256 on P-256 (RFC 4754).
    pub const ECDSA_256: u8 = 9;
    /// ECDSA with SHA-384 on P-384.
    pub const ECDSA_384: u8 = 10;
    /// ECDSA with SHA-512 on P-521.
    pub const ECDSA_521: u8 = 11;
    /// No authentication, for EAP-only and childless set-ups (RFC 7619).
    pub const NULL: u8 = 13;
    /// A signature that names its algorithm (RFC 7427).
    pub const SIGNATURE: u8 = 14;
}

/// Types of traffic selectors (section 3.13.1).
pub mod selector {
    /// A range of IPv4 addresses.
    pub const IPV4_RANGE: u8 = 7;
    /// A range of IPv6 addresses.
    pub const IPV6_RANGE: u8 = 8;
}

/// Types of configuration payloads (section 3.15).
pub mod configuration {
    /// Asks for attributes.
    pub const REQUEST: u8 = 1;
    /// Answers a request.
    pub const REPLY: u8 = 2;
    /// Sets attributes without a request.
    pub const SET: u8 = 3;
    /// Answers a set.
    pub const ACK: u8 = 4;
}

/// Notify message types (section 3.10.1). Values below [`STATUS`](notify::STATUS) are errors.
pub mod notify {
    /// The first type that is not an error.
    pub const STATUS: u16 = 16384;
    /// A payload of an unknown type had its critical bit set.
    pub const UNSUPPORTED_CRITICAL_PAYLOAD: u16 = 1;
    /// The SPIs of the message belong to no SA.
    pub const INVALID_IKE_SPI: u16 = 4;
    /// The message is of a later major version.
    pub const INVALID_MAJOR_VERSION: u16 = 5;
    /// The message is malformed.
    pub const INVALID_SYNTAX: u16 = 7;
    /// The message ID is outside of the window.
    pub const INVALID_MESSAGE_ID: u16 = 9;
    /// An ESP packet had an unknown SPI.
    pub const INVALID_SPI: u16 = 11;
    /// No proposal is acceptable.
    pub const NO_PROPOSAL_CHOSEN: u16 = 14;
    /// The key exchange uses another group than the selected one.
    pub const INVALID_KE_PAYLOAD: u16 = 17;
    /// The peer failed to authenticate.
    pub const AUTHENTICATION_FAILED: u16 = 24;
    /// Only a single pair of addresses is acceptable.
    pub const SINGLE_PAIR_REQUIRED: u16 = 34;
    /// No further Child SA is acceptable.
    pub const NO_ADDITIONAL_SAS: u16 = 35;
    /// No address can be assigned.
    pub const INTERNAL_ADDRESS_FAILURE: u16 = 36;
    /// The peer did not ask for an address, and must.
    pub const FAILED_CP_REQUIRED: u16 = 37;
    /// No traffic selectors are acceptable.
    pub const TS_UNACCEPTABLE: u16 = 38;
    /// An ESP packet did not match its selectors.
    pub const INVALID_SELECTORS: u16 = 39;
    /// The request collides with another exchange (section 2.25).
    pub const TEMPORARY_FAILURE: u16 = 43;
    /// The Child SA to be rekeyed does not exist (section 2.25).
    pub const CHILD_SA_NOT_FOUND: u16 = 44;
    /// The sender knows of no other SAs between these identities.
    pub const INITIAL_CONTACT: u16 = 16384;
    /// The number of outstanding requests that is supported.
    pub const SET_WINDOW_SIZE: u16 = 16385;
    /// Further selectors may be requested separately.
    pub const ADDITIONAL_TS_POSSIBLE: u16 = 16386;
    /// IPComp is supported.
    pub const IPCOMP_SUPPORTED: u16 = 16387;
    /// A hash of the sender's address (section 2.23).
    pub const NAT_DETECTION_SOURCE_IP: u16 = 16388;
    /// A hash of the receiver's address (section 2.23).
    pub const NAT_DETECTION_DESTINATION_IP: u16 = 16389;
    /// To be returned, as proof of the source address (section 2.6).
    pub const COOKIE: u16 = 16390;
    /// The Child SA uses transport mode (section 1.3.1).
    pub const USE_TRANSPORT_MODE: u16 = 16391;
    /// Names the SA to be rekeyed (section 1.3.3).
    pub const REKEY_SA: u16 = 16393;
    /// ESP packets are not padded for traffic flow confidentiality.
    pub const ESP_TFC_PADDING_NOT_SUPPORTED: u16 = 16394;
    /// Non-first fragments are carried although their ports are unknown.
    pub const NON_FIRST_FRAGMENTS_ALSO: u16 = 16395;
    /// MOBIKE is supported (RFC 4555).
    pub const MOBIKE_SUPPORTED: u16 = 16396;
    /// Reauthentication is required after this number of seconds (RFC 4478).
    pub const AUTH_LIFETIME: u16 = 16403;
    /// Several rounds of authentication are supported (RFC 4739).
    pub const MULTIPLE_AUTH_SUPPORTED: u16 = 16404;
    /// The sender authenticates once more (RFC 4739).
    pub const ANOTHER_AUTH_FOLLOWS: u16 = 16405;
    /// Only EAP authenticates (RFC 5998).
    pub const EAP_ONLY_AUTHENTICATION: u16 = 16417;
    /// An SA without a Child SA is acceptable (RFC 6023).
    pub const CHILDLESS_IKEV2_SUPPORTED: u16 = 16418;
    /// Fragmentation is supported (RFC 7383).
    pub const IKEV2_FRAGMENTATION_SUPPORTED: u16 = 16430;
    /// The supported hashes of signatures (RFC 7427).
    pub const SIGNATURE_HASH_ALGORITHMS: u16 = 16431;

    /// Whether a notification of this type reports an error.
    pub fn is_error(kind: u16) -> bool {
        kind < STATUS
    }

    /// The name of a type, for reports.
    pub fn name(kind: u16) -> String {
        let name = match kind {
            UNSUPPORTED_CRITICAL_PAYLOAD => "UNSUPPORTED_CRITICAL_PAYLOAD",
            INVALID_IKE_SPI => "INVALID_IKE_SPI",
            INVALID_MAJOR_VERSION => "INVALID_MAJOR_VERSION",
            INVALID_SYNTAX => "INVALID_SYNTAX",
            INVALID_MESSAGE_ID => "INVALID_MESSAGE_ID",
            INVALID_SPI => "INVALID_SPI",
            NO_PROPOSAL_CHOSEN => "NO_PROPOSAL_CHOSEN",
            INVALID_KE_PAYLOAD => "INVALID_KE_PAYLOAD",
            AUTHENTICATION_FAILED => "AUTHENTICATION_FAILED",
            SINGLE_PAIR_REQUIRED => "SINGLE_PAIR_REQUIRED",
            NO_ADDITIONAL_SAS => "NO_ADDITIONAL_SAS",
            INTERNAL_ADDRESS_FAILURE => "INTERNAL_ADDRESS_FAILURE",
            FAILED_CP_REQUIRED => "FAILED_CP_REQUIRED",
            TS_UNACCEPTABLE => "TS_UNACCEPTABLE",
            INVALID_SELECTORS => "INVALID_SELECTORS",
            TEMPORARY_FAILURE => "TEMPORARY_FAILURE",
            CHILD_SA_NOT_FOUND => "CHILD_SA_NOT_FOUND",
            other => return format!("notification {other}"),
        };
        name.to_owned()
    }
}
