//! Engines that encrypt packets, and the primitives that handshakes are made of.
//!
//! The data path knows only [`Key`] and [`Job`]: one dynamic call seals or opens a whole burst under one key. Who
//! makes keys chooses the [`Engine`](engine::Engine).

pub mod aead;
pub mod agreement;
pub mod choice;
pub mod cipher;
pub mod engine;
pub mod exchange;
pub mod hash;
pub mod machine;
mod pem;
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

/// What a thread that panicked has left is as good as before: nothing here is half changed under a lock.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
