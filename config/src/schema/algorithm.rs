//! The names of algorithms in `vpn ipsec`: all that VyOS has, served or not.

/// Presets of an `esp-group`.
pub const ESP_PRESETS: &[&str] = &["bulk", "low-latency", "max-security"];

/// Presets of an `ike-group`.
pub const IKE_PRESETS: &[&str] = &["low-latency", "max-security"];

/// Ciphers, by their names in VyOS; those with `gcm16` and the like are strongSwan's names of the same. The first are what is
/// suggested.
pub const ENCRYPTIONS: &[&str] = &[
    "aes256gcm128",
    "aes128gcm128",
    "aes192gcm128",
    "chacha20poly1305",
    "aes256",
    "aes192",
    "aes128",
    "aes256ctr",
    "aes128ctr",
    "aes256ccm128",
    "aes128ccm128",
    "3des",
    "aes128ccm12",
    "aes128ccm16",
    "aes128ccm64",
    "aes128ccm8",
    "aes128ccm96",
    "aes128gcm12",
    "aes128gcm16",
    "aes128gcm64",
    "aes128gcm8",
    "aes128gcm96",
    "aes128gmac",
    "aes192ccm12",
    "aes192ccm128",
    "aes192ccm16",
    "aes192ccm64",
    "aes192ccm8",
    "aes192ccm96",
    "aes192ctr",
    "aes192gcm12",
    "aes192gcm16",
    "aes192gcm64",
    "aes192gcm8",
    "aes192gcm96",
    "aes192gmac",
    "aes256ccm12",
    "aes256ccm16",
    "aes256ccm64",
    "aes256ccm8",
    "aes256ccm96",
    "aes256gcm12",
    "aes256gcm16",
    "aes256gcm64",
    "aes256gcm8",
    "aes256gcm96",
    "aes256gmac",
    "blowfish128",
    "blowfish192",
    "blowfish256",
    "camellia128",
    "camellia128ccm128",
    "camellia128ccm64",
    "camellia128ccm96",
    "camellia128ctr",
    "camellia192",
    "camellia192ccm128",
    "camellia192ccm64",
    "camellia192ccm96",
    "camellia192ctr",
    "camellia256",
    "camellia256ccm128",
    "camellia256ccm64",
    "camellia256ccm96",
    "camellia256ctr",
    "cast128",
    "null",
    "serpent128",
    "serpent192",
    "serpent256",
    "twofish128",
    "twofish192",
    "twofish256",
];

/// MACs, by their names in VyOS.
pub const HASHES: &[&str] = &[
    "aes128gmac",
    "aes192gmac",
    "aes256gmac",
    "aescmac",
    "aesxcbc",
    "md5",
    "md5_128",
    "sha1",
    "sha1_160",
    "sha256",
    "sha256_96",
    "sha384",
    "sha512",
];

/// Pseudorandom functions, by their names in VyOS.
pub const PRFS: &[&str] =
    &["prfaescmac", "prfaesxcbc", "prfmd5", "prfsha1", "prfsha256", "prfsha384", "prfsha512"];

/// Diffie-Hellman groups, by their numbers in IKE.
pub const DH_GROUPS: &[&str] = &[
    "1", "2", "5", "14", "15", "16", "17", "18", "19", "20", "21", "22", "23", "24", "25", "26", "27", "28",
    "29", "30", "31", "32",
];

/// Versions of IKE.
pub const KEY_EXCHANGES: &[&str] = &["ikev1", "ikev2"];

/// Perfect forward secrecy: whether, and with which group.
pub(super) const PFS: &[&str] = &[
    "enable",
    "disable",
    "dh-group1",
    "dh-group2",
    "dh-group5",
    "dh-group14",
    "dh-group15",
    "dh-group16",
    "dh-group17",
    "dh-group18",
    "dh-group19",
    "dh-group20",
    "dh-group21",
    "dh-group22",
    "dh-group23",
    "dh-group24",
    "dh-group25",
    "dh-group26",
    "dh-group27",
    "dh-group28",
    "dh-group29",
    "dh-group30",
    "dh-group31",
    "dh-group32",
];
