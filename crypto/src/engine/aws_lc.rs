//! AWS-LC: the engine that is always there.

use super::{Cipher, Engine, EngineFailure, Job, Key, LoadError};
use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use std::sync::Arc;

/// The engine.
pub struct AwsLc;

impl Engine for AwsLc {
    fn name(&self) -> &'static str {
        "aws-lc"
    }

    fn load(&self, cipher: Cipher, secret: &[u8]) -> Result<Arc<dyn Key>, LoadError> {
        let algorithm = match cipher {
            Cipher::ChaCha20Poly1305 => &CHACHA20_POLY1305,
            Cipher::Aes128Gcm => &AES_128_GCM,
            Cipher::Aes256Gcm => &AES_256_GCM,
        };
        let key = UnboundKey::new(algorithm, secret)
            .map_err(|_| LoadError::KeyLength { cipher, length: secret.len() })?;
        Ok(Arc::new(AwsLcKey(LessSafeKey::new(key))))
    }
}

struct AwsLcKey(LessSafeKey);

impl Key for AwsLcKey {
    fn seal(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        for job in jobs {
            let nonce = Nonce::assume_unique_for_key(job.nonce);
            let tag = self
                .0
                .seal_in_place_separate_tag(nonce, Aad::from(job.aad), job.text)
                .map_err(|_| EngineFailure)?;
            job.tag.copy_from_slice(tag.as_ref());
        }
        Ok(())
    }

    fn open(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        for job in jobs {
            let nonce = Nonce::assume_unique_for_key(job.nonce);
            let opened = self.0.open_in_place_separate_tag(nonce, Aad::from(job.aad), &*job.tag, job.text);
            job.authentic = opened.is_ok();
        }
        Ok(())
    }
}
