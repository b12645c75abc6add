//! Hashes of passwords, as other programs print them: parsed and bounded once, then compared with passwords.
//!
//! ```text
//! text ──> parse: method, cost, salt, digest ──> matches(password): the digest again, compared in constant time
//! ```

mod sha512_crypt;

use argon2::{Algorithm, Argon2, Params, Version};
use base64ct::{Base64Bcrypt, Base64ShaCrypt, Base64Unpadded, Encoding};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// The longest password that is compared. The cost of sha512-crypt grows with the length.
pub const LONGEST: usize = 512;

/// What bcrypt reads of a password, with the zero byte at its end.
const BCRYPT_READS: usize = 72;
/// 2^15 takes about two seconds.
const BCRYPT_COST: RangeInclusive<u32> = 4..=15;
const SHA512_ROUNDS: RangeInclusive<u32> = 1000..=1_000_000;
/// KiB of memory.
const ARGON2_MEMORY: RangeInclusive<u32> = 8..=131_072;
const ARGON2_PASSES: RangeInclusive<u32> = 1..=16;
const ARGON2_LANES: RangeInclusive<u32> = 1..=16;
/// Bytes of a salt.
const ARGON2_SALT: RangeInclusive<usize> = 8..=64;

/// Why a text is no hash that is served. The text is not in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PasswordHashError {
    /// Another method, or none.
    #[error("{0} is not served: bcrypt ($2y$), sha512-crypt ($6$) and argon2id are")]
    Method(&'static str),
    /// The rest does not fit the method.
    #[error("it is no whole hash of {0}")]
    Malformed(&'static str),
    /// It would take too much time or memory, or has no effect.
    #[error("the {0} is not from {1} to {2}")]
    Cost(&'static str, u32, u32),
}

use PasswordHashError::{Cost, Malformed, Method};

/// A hash of a password.
#[derive(Clone, PartialEq, Eq)]
pub enum PasswordHash {
    /// bcrypt: `$2a$`, `$2b$`, `$2y$`, which differ in old mistakes of programs alone.
    Bcrypt {
        /// The logarithm of the rounds.
        cost: u32,
        /// The salt.
        salt: [u8; 16],
        /// The digest without its last byte, which the text leaves out.
        digest: [u8; 23],
    },
    /// SHA-512 crypt: `$6$`.
    Sha512Crypt {
        /// How often the digest is made.
        rounds: u32,
        /// The salt, as characters.
        salt: String,
        /// The digest, in the order of the text.
        digest: [u8; 64],
    },
    /// Argon2id (RFC 9106): `$argon2id$`.
    Argon2id {
        /// Memory, passes and lanes.
        params: Params,
        /// The salt.
        salt: Vec<u8>,
        /// The digest, with the length that programs choose unless told otherwise.
        digest: [u8; 32],
    },
}

// A digest can be searched for its password.
impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bcrypt { .. } => "Bcrypt(..)",
            Self::Sha512Crypt { .. } => "Sha512Crypt(..)",
            Self::Argon2id { .. } => "Argon2id(..)",
        })
    }
}

impl FromStr for PasswordHash {
    type Err = PasswordHashError;

    fn from_str(text: &str) -> Result<Self, PasswordHashError> {
        let (method, rest) =
            text.strip_prefix('$').and_then(|rest| rest.split_once('$')).ok_or_else(|| {
                Method(if text.starts_with("{SHA}") { "{SHA}" } else { "a text without $METHOD$" })
            })?;
        match method {
            "2a" | "2b" | "2y" => bcrypt(rest).ok_or(Malformed("bcrypt"))?,
            "6" => sha512(rest).ok_or(Malformed("sha512-crypt"))?,
            "argon2id" => argon2id(rest).ok_or(Malformed("argon2id"))?,
            "1" => Err(Method("md5-crypt")),
            "5" => Err(Method("sha256-crypt")),
            "apr1" => Err(Method("Apache's MD5")),
            "y" => Err(Method("yescrypt")),
            _ => Err(Method("this method")),
        }
    }
}

type Parsed = Option<Result<PasswordHash, PasswordHashError>>;

/// `COST$SALTDIGEST`.
fn bcrypt(rest: &str) -> Parsed {
    let (cost, both) = rest.split_once('$')?;
    let cost = Some(cost).filter(|cost| cost.len() == 2)?.parse().ok()?;
    let (salt, digest) = (both.len() == 53).then(|| both.split_at_checked(22))??;
    let salt = Base64Bcrypt::decode_vec(salt).ok()?.try_into().ok()?;
    let digest = Base64Bcrypt::decode_vec(digest).ok()?.try_into().ok()?;
    Some(within("cost", cost, &BCRYPT_COST).map(|()| PasswordHash::Bcrypt { cost, salt, digest }))
}

/// `[rounds=N$]SALT$DIGEST`.
fn sha512(rest: &str) -> Parsed {
    let (rounds, rest) = match rest.strip_prefix("rounds=") {
        Some(rest) => {
            let (rounds, rest) = rest.split_once('$')?;
            (rounds.parse().ok()?, rest)
        }
        None => (5000, rest),
    };
    let (salt, digest) = rest.split_once('$')?;
    let salt = Some(salt).filter(|salt| salt.len() <= 16)?.to_owned();
    let digest = Base64ShaCrypt::decode_vec(digest).ok()?.try_into().ok()?;
    let wanted = PasswordHash::Sha512Crypt { rounds, salt, digest };
    Some(within("number of rounds", rounds, &SHA512_ROUNDS).map(|()| wanted))
}

/// `v=19$m=KIB,t=PASSES,p=LANES$SALT$DIGEST`.
fn argon2id(rest: &str) -> Parsed {
    let mut fields = rest.strip_prefix("v=19$")?.split('$');
    let [costs, salt, digest] = [fields.next()?, fields.next()?, fields.next()?];
    let mut costs = costs.split(',');
    let mut cost = |name| costs.next()?.strip_prefix(name)?.parse().ok();
    let (memory, passes, lanes) = (cost("m=")?, cost("t=")?, cost("p=")?);
    let [salt, digest] = [salt, digest].map(|text| Base64Unpadded::decode_vec(text).ok());
    let salt = salt.filter(|salt| ARGON2_SALT.contains(&salt.len()))?;
    let digest: [u8; 32] = digest?.try_into().ok()?;
    if fields.next().is_some() || costs.next().is_some() {
        return None;
    }
    let bounded = within("memory in KiB", memory, &ARGON2_MEMORY)
        .and_then(|()| within("number of passes", passes, &ARGON2_PASSES))
        .and_then(|()| within("number of lanes", lanes, &ARGON2_LANES));
    // Less than 8 KiB a lane is refused there.
    let params = Params::new(memory, passes, lanes, Some(digest.len())).ok()?;
    Some(bounded.map(|()| PasswordHash::Argon2id { params, salt, digest }))
}

fn within(what: &'static str, value: u32, range: &RangeInclusive<u32>) -> Result<(), PasswordHashError> {
    if range.contains(&value) { Ok(()) } else { Err(Cost(what, *range.start(), *range.end())) }
}

impl PasswordHash {
    /// Whether it is the hash of this password. It takes as long for a wrong one, and for one that is too long or has a zero
    /// byte, neither of which any hash fits.
    pub fn matches(&self, password: &[u8]) -> bool {
        let is_sound = password.len() <= LONGEST && !password.contains(&0);
        let password = if is_sound { password } else { &[] };
        let is_equal = match self {
            Self::Bcrypt { cost, salt, digest } => {
                let mut key = Zeroizing::new(Vec::with_capacity(LONGEST + 1));
                key.extend_from_slice(password);
                key.push(0);
                key.truncate(BCRYPT_READS);
                bcrypt::bcrypt(*cost, *salt, &key)[..23].ct_eq(digest)
            }
            Self::Sha512Crypt { rounds, salt, digest } => {
                sha512_crypt::digest(password, salt.as_bytes(), *rounds).ct_eq(digest)
            }
            Self::Argon2id { params, salt, digest } => {
                let mut own = [0; 32];
                let method = Argon2::new(Algorithm::Argon2id, Version::V0x13, params.clone());
                let made = method.hash_password_into(password, salt, &mut own).is_ok();
                own.ct_eq(digest) & subtle::Choice::from(u8::from(made))
            }
        };
        is_sound && bool::from(is_equal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(text: &str) -> PasswordHash {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn hashes_of_other_programs_match_their_passwords_alone() {
        for (text, password) in [
            // htpasswd -nbB -C 5, and -C 8.
            ("$2y$05$uWaclRAwv79iwo34Bt0lF.W2Ga09F7BynQGQlVFzukfun.8xgNhPi", "Hello world!"),
            ("$2y$08$dOPACLeicLCgxsApw0oQiesZwoIEGE90xIPjuG3Sf5jwKEYK9ZfLS", "Hello world!"),
            // htpasswd -nb5.
            (
                "$6$knAl7avipyRWCdPV$/LPtu9Mdk9HoDXSqyTmbv255RAh3XKWkdCFoWOjZewB88LP.arIXdTZx.et8hN/NjzNxIfjRTPHAASul3h/.Q1",
                "secret",
            ),
            // openssl passwd -6 -salt, with the salts saltstring and rasmuslerdorf.
            (
                "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1",
                "Hello world!",
            ),
            (
                "$6$rasmuslerdorf$Dr4zoNrOG9AvM8zC.ahnzVVKx6OI0fIydWRXadOGT2.ryZTqgZ1MJL1sHdWyVLaIKbPix6DV8dNld/i7WAZfa1",
                "pa:ss word",
            ),
            // argon2 somesalt -id -t 2 -k 64 -p 2 -l 32 -e.
            (
                "$argon2id$v=19$m=64,t=2,p=2$c29tZXNhbHQ$08kYGD8IoIbrIUzXxYvUXNh6gEycypDCMfitAsxBNyM",
                "pässword",
            ),
        ] {
            let hash = hash(text);
            assert!(hash.matches(password.as_bytes()), "{text}");
            let (shorter, longer) = (&password[..password.len() - 1], format!("{password} "));
            for wrong in ["", shorter, &longer, "other", &format!("{password}\0")] {
                assert!(!hash.matches(wrong.as_bytes()), "{text}: {wrong}");
            }
            assert!(!format!("{hash:?}").contains('$'));
        }
    }

    #[test]
    fn the_vectors_of_the_specification_of_sha512_crypt_match() {
        // SHA-crypt.txt, with a salt of 16 characters there; rounds and a long password.
        let text = "$6$rounds=1400$anotherlongsalts$POfYwTEok97VWcjxIiSOjiykti.o/pQs.wPvMxQ6Fm7I6IoYN3CmLs66x9t0oSwbtEW7o7UmJEiDwGqd8p4ur1";
        let password = "a very much longer text to encrypt.  This one even stretches over morethan one line.";
        assert!(hash(text).matches(password.as_bytes()));
    }

    #[test]
    fn bcrypt_reads_72_bytes_and_a_password_cannot_repeat_itself() {
        // htpasswd -nbB -C 5, which reads as much.
        let long = "0123456789012345678901234567890123456789012345678901234567890123456789ABCDEF";
        let text = "$2y$05$WqlRaspHCFzaOuY59eCykutdyx/.5wGJyao2oAjsOo62AjqK2g4Bi";
        assert!(hash(text).matches(long.as_bytes()));
        assert!(hash(text).matches(&long.as_bytes()[..72]));
        assert!(!hash(text).matches(&long.as_bytes()[..71]));
        let text = "$2y$05$uWaclRAwv79iwo34Bt0lF.W2Ga09F7BynQGQlVFzukfun.8xgNhPi";
        assert!(!hash(text).matches(b"Hello world!\0Hello world!"));
        assert!(!hash(text).matches(&[b'x'; LONGEST + 1]));
    }

    #[test]
    fn other_methods_broken_hashes_and_endless_ones_are_refused() {
        let parsed = |text: &str| text.parse::<PasswordHash>().expect_err(text);
        assert_eq!(parsed("{SHA}fEqNCco3Yq9h5ZUglD3CZJT4lBs="), Method("{SHA}"));
        assert_eq!(parsed("$apr1$x$y"), Method("Apache's MD5"));
        assert_eq!(parsed("$y$j9T$x$y"), Method("yescrypt"));
        assert_eq!(parsed("$9$x"), Method("this method"));
        for plain in ["", "secret", "*", "!$6$x$y"] {
            assert_eq!(parsed(plain), Method("a text without $METHOD$"), "{plain}");
        }
        let bcrypt = "$2y$05$uWaclRAwv79iwo34Bt0lF.W2Ga09F7BynQGQlVFzukfun.8xgNhPi";
        let sha512 = "$6$rounds=1400$anotherlongsalts$POfYwTEok97VWcjxIiSOjiykti.o/pQs.wPvMxQ6Fm7I6IoYN3CmLs66x9t0oSwbtEW7o7UmJEiDwGqd8p4ur1";
        let argon2 = "$argon2id$v=19$m=64,t=2,p=2$c29tZXNhbHQ$08kYGD8IoIbrIUzXxYvUXNh6gEycypDCMfitAsxBNyM";
        for whole in [bcrypt, sha512, argon2] {
            assert!(whole.parse::<PasswordHash>().is_ok(), "{whole}");
            for end in 3..whole.len() {
                assert!(whole[..end].parse::<PasswordHash>().is_err(), "{whole} to {end}");
            }
            for more in ["x", ":0", "$x", " "] {
                assert!(format!("{whole}{more}").parse::<PasswordHash>().is_err(), "{whole}{more}");
            }
        }
        assert_eq!(parsed(&bcrypt.replace("$05$", "$31$")), Cost("cost", 4, 15));
        let rounds = parsed(&sha512.replace("1400", "999999999"));
        assert_eq!(rounds, Cost("number of rounds", 1000, 1_000_000));
        assert_eq!(parsed(&argon2.replace("m=64", "m=4194304")), Cost("memory in KiB", 8, 131_072));
        assert_eq!(parsed(&argon2.replace("t=2", "t=100")), Cost("number of passes", 1, 16));
    }
}
