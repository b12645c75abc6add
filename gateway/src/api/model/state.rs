//! States and choices of the API as types: each variant has one JSON word, which is also the word that people read.

use serde::{Deserialize, Serialize};
use std::fmt;

/// An enumeration whose variants travel as words; the variant marked as default stands for a field that is missing.
macro_rules! words {
    ($($(#[$about:meta])* $name:ident { $($(#[$means:meta])* $variant:ident = $word:literal,)+ })+) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$means])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// The word for it, the same as in JSON.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.pad(self.name())
            }
        }
    )+};
}

words! {
    /// The result of reading the configuration again.
    ReloadOutcome {
        /// All of the new configuration is in force.
        #[default]
        InForce = "in-force",
        /// Some of it is.
        PartlyInForce = "partly-in-force",
        /// Nothing of it is: the old one stays.
        Refused = "refused",
    }

    /// Whether a WireGuard peer is up.
    PeerState {
        /// It has keys, and answers.
        Up = "up",
        /// It had keys, and there is no traffic.
        Idle = "idle",
        /// There was no handshake yet, and no failed one.
        #[default]
        Waiting = "waiting",
        /// It does not answer, or cannot be reached as configured.
        Down = "down",
    }

    /// Whether an offload is in use.
    OffloadState {
        /// Not asked for yet.
        #[default]
        Unprobed = "unprobed",
        /// In use.
        On = "on",
        /// Switched off by the configuration.
        SwitchedOff = "switched off",
        /// This kernel does not have it.
        Unsupported = "unsupported",
        /// The kernel offered it, and then refused it at run time.
        Failed = "failed",
    }

    /// What an engine was measured for.
    CryptoDirection {
        /// Encryption.
        #[default]
        Seal = "seal",
        /// Decryption.
        Open = "open",
    }

    /// Which side starts an IPsec connection, and when.
    ConnectionType {
        /// This gateway, at once.
        #[default]
        Initiate = "initiate",
        /// This gateway, on the first matching packet.
        Trap = "trap",
        /// The peer.
        None = "none",
    }

    /// How an IPsec peer authenticates.
    AuthenticationMethod {
        /// With a pre-shared secret.
        #[default]
        Secret = "secret",
        /// With an X.509 certificate.
        Certificate = "certificate",
        /// With a raw public key.
        Key = "key",
    }

    /// The state of a pair of SAs.
    SaState {
        /// In use.
        #[default]
        Installed = "installed",
        /// The peer has replaced it, and has yet to delete it.
        Rekeyed = "rekeyed",
        /// This gateway is deleting it.
        Deleting = "deleting",
    }

    /// What an SA carries.
    SaMode {
        /// Whole packets.
        #[default]
        Tunnel = "tunnel",
        /// What follows the IP header.
        Transport = "transport",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::DeserializeOwned;

    /// Clients of other versions, and scripts, read these words.
    fn travel<T>(words: &[(T, &str)])
    where
        T: Copy + PartialEq + fmt::Debug + fmt::Display + Serialize + DeserializeOwned,
    {
        for &(state, word) in words {
            let json = format!("\"{word}\"");
            assert_eq!(serde_json::to_string(&state).expect("it is a word"), json);
            assert_eq!(serde_json::from_str::<T>(&json).expect(word), state);
            assert_eq!(state.to_string(), word);
        }
        assert!(serde_json::from_str::<T>("\"another\"").is_err());
    }

    #[test]
    fn every_state_has_its_json_word() {
        use {ConnectionType as C, OffloadState as O, PeerState as P};
        travel(&[
            (ReloadOutcome::InForce, "in-force"),
            (ReloadOutcome::PartlyInForce, "partly-in-force"),
            (ReloadOutcome::Refused, "refused"),
        ]);
        travel(&[(P::Up, "up"), (P::Idle, "idle"), (P::Waiting, "waiting"), (P::Down, "down")]);
        travel(&[
            (O::Unprobed, "unprobed"),
            (O::On, "on"),
            (O::SwitchedOff, "switched off"),
            (O::Unsupported, "unsupported"),
            (O::Failed, "failed"),
        ]);
        travel(&[(CryptoDirection::Seal, "seal"), (CryptoDirection::Open, "open")]);
        travel(&[(C::Initiate, "initiate"), (C::Trap, "trap"), (C::None, "none")]);
        travel(&[
            (AuthenticationMethod::Secret, "secret"),
            (AuthenticationMethod::Certificate, "certificate"),
            (AuthenticationMethod::Key, "key"),
        ]);
        travel(&[
            (SaState::Installed, "installed"),
            (SaState::Rekeyed, "rekeyed"),
            (SaState::Deleting, "deleting"),
        ]);
        travel(&[(SaMode::Tunnel, "tunnel"), (SaMode::Transport, "transport")]);
    }
}
