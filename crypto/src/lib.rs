//! Engines that encrypt packets, and the cryptographic primitives of the handshakes.
//!
//! The data path uses only [`Key`] and [`Job`]: one dynamic call seals or opens a burst of packets under one key. An
//! [`Engine`](engine::Engine) makes the keys.

pub mod aead;
pub mod age;
pub mod agreement;
pub mod choice;
pub mod cipher;
pub mod ctr;
pub mod engine;
pub mod exchange;
pub mod hash;
pub mod machine;
pub mod password;
pub mod pem;
pub mod pki;
pub mod prf;
pub mod random;
pub mod secret;
pub mod signature;

pub use agreement::{PrivateKey, PublicKey};
pub use cipher::Cipher;
pub use engine::{Engine, EngineFailure, Job, Key};
pub use random::Random;
pub use secret::{Secret, SecretBytes};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex and ignores poisoning: no code here leaves protected data half changed when it panics.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
