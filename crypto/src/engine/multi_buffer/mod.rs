//! ChaCha20-Poly1305 (RFC 8439) for many packets at once: a vector lane for each.
//!
//! A library seals one packet after the other, and pays for each of them before the first byte: the key of the MAC, powers of it, and the
//! end of the packet. Here the packets of a burst share the vectors. Their ChaCha20 blocks, those for the keys of the MACs first, are put
//! into lanes whatever packets they are of ([`chacha20`]), and Poly1305 has one packet a lane ([`poly1305`]).
//!
//! ```text
//! seal   blocks of all packets, from 0 on ──> text encrypted, keys of MACs ──> tags
//! open   blocks 0 ──> keys of MACs ──> tags compared ──> blocks from 1 on ──> text decrypted
//! ```
//! One file has the instructions of each processor: `avx2`, `avx512`, `avx512_ifma`, `neon`; `portable` is what the compiler makes
//! vectors of. No branch and no address depends on a key or a text, only on lengths. What is computed of keys is erased.

mod chacha20;
mod poly1305;
mod portable;
mod radix26;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512_ifma;
#[cfg(target_arch = "aarch64")]
mod neon;

use super::{Engine, EngineFailure, Job, Key, LoadError};
use crate::cipher::Cipher;
use crate::secret::Secret;
use arrayvec::ArrayVec;
use chacha20::{BLOCK, Blocks, Nonce};
use poly1305::{Message, TAG};
use std::sync::Arc;
use subtle::ConstantTimeEq;
use zerocopy::IntoBytes;
use zeroize::Zeroize;

/// Packets whose blocks share vectors.
const BURST: usize = 32;

/// The functions for an instruction set.
struct Kernel {
    name: &'static str,
    /// Blocks that are computed at once.
    blocks: usize,
    /// Computes blocks for any packets, XORs them into their texts, and clears the list.
    any: fn(&[u32; 8], &mut Blocks<'_>),
    /// The same for consecutive blocks of one packet, from this counter on.
    row: fn(&[u32; 8], &Nonce, u32, &mut [u8]),
    /// Computes tags.
    tags: fn(&[Message<'_>], &mut [[u8; TAG]]),
}

/// The engine.
pub struct MultiBuffer {
    kernel: &'static Kernel,
}

impl MultiBuffer {
    /// With the best instructions that this processor has.
    pub fn here() -> Self {
        Self { kernel: kernels().next().unwrap_or(&portable::KERNEL) }
    }

    /// With each instruction set of this processor, the best first.
    pub fn all() -> impl Iterator<Item = Self> {
        kernels().map(|kernel| Self { kernel })
    }
}

/// What this processor can run, the best first.
fn kernels() -> impl Iterator<Item = &'static Kernel> {
    let mut all = ArrayVec::<&'static Kernel, 4>::new();
    #[cfg(target_arch = "x86_64")]
    {
        all.extend(avx512_ifma::kernel());
        all.extend(avx512::kernel());
        all.extend(avx2::kernel());
    }
    #[cfg(target_arch = "aarch64")]
    all.push(&neon::KERNEL);
    all.push(&portable::KERNEL);
    all.into_iter()
}

impl Engine for MultiBuffer {
    fn name(&self) -> &'static str {
        "multi-buffer"
    }

    fn version(&self) -> String {
        self.kernel.name.to_owned()
    }

    fn load(&self, cipher: Cipher, secret: &[u8]) -> Result<Arc<dyn Key>, LoadError> {
        LoadError::check(cipher, cipher.key_length(), secret)?;
        if cipher != Cipher::ChaCha20Poly1305 {
            return Err(LoadError::Unsupported { engine: self.name(), cipher: cipher.to_string() });
        }
        let mut bytes = [0; 32];
        bytes.copy_from_slice(secret);
        let loaded = LoadedKey { secret: Secret::new(bytes), kernel: self.kernel };
        bytes.zeroize();
        Ok(Arc::new(loaded))
    }
}

struct LoadedKey {
    secret: Secret,
    kernel: &'static Kernel,
}

/// The first block of each packet, which has the key of its MAC. In words, as they are erased one by one.
type Firsts = [[u64; BLOCK / 8]; BURST];

impl LoadedKey {
    /// The key as words, which the caller erases.
    fn words(&self) -> [u32; 8] {
        let (words, _) = self.secret.expose().as_chunks::<4>();
        std::array::from_fn(|at| u32::from_le_bytes(words[at]))
    }

    /// Computes the first blocks.
    fn first_blocks(&self, key: &[u32; 8], jobs: &[Job<'_>], firsts: &mut Firsts) {
        let mut blocks = Blocks::new();
        for (job, first) in jobs.iter().zip(firsts) {
            self.push(key, &mut blocks, &chacha20::nonce(&job.nonce), 0, first.as_mut_bytes());
        }
        (self.kernel.any)(key, &mut blocks);
    }

    /// Encrypts or decrypts all texts.
    fn cipher(&self, key: &[u32; 8], jobs: &mut [Job<'_>]) {
        let mut blocks = Blocks::new();
        let row = self.kernel.blocks * BLOCK;
        for job in jobs {
            let nonce = chacha20::nonce(&job.nonce);
            let mut counter = 1;
            let mut rest = &mut *job.text;
            while let Some(text) = rest.split_off_mut(..row) {
                (self.kernel.row)(key, &nonce, counter, text);
                counter += self.kernel.blocks as u32;
            }
            for text in rest.chunks_mut(BLOCK) {
                self.push(key, &mut blocks, &nonce, counter, text);
                counter += 1;
            }
        }
        (self.kernel.any)(key, &mut blocks);
    }

    /// Adds a block, and computes all if they fill the vectors.
    #[inline]
    fn push<'a>(
        &self,
        key: &[u32; 8],
        blocks: &mut Blocks<'a>,
        nonce: &Nonce,
        counter: u32,
        text: &'a mut [u8],
    ) {
        blocks.push(nonce, counter, text);
        if blocks.len() == self.kernel.blocks {
            (self.kernel.any)(key, blocks);
        }
    }

    /// The tags of all texts as they are, ciphertexts.
    fn tags(&self, jobs: &[Job<'_>], firsts: &Firsts) -> [[u8; TAG]; BURST] {
        let mut tags = [[0; TAG]; BURST];
        let mut messages = ArrayVec::<Message<'_>, BURST>::new();
        messages.extend(jobs.iter().zip(firsts).map(|(job, first)| Message {
            key: first.as_bytes().first_chunk().expect("a block has 64 bytes"),
            aad: job.aad,
            text: &*job.text,
        }));
        (self.kernel.tags)(&messages, &mut tags[..jobs.len()]);
        tags
    }
}

impl Key for LoadedKey {
    fn seal(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        let mut key = self.words();
        for jobs in jobs.chunks_mut(BURST) {
            let mut firsts = [[0; BLOCK / 8]; BURST];
            self.first_blocks(&key, jobs, &mut firsts);
            self.cipher(&key, jobs);
            let tags = self.tags(jobs, &firsts);
            for (job, tag) in jobs.iter_mut().zip(&tags) {
                let length = job.tag.len();
                job.tag.copy_from_slice(&tag[..length]);
            }
            firsts[..jobs.len()].as_flattened_mut().zeroize();
        }
        key.zeroize();
        Ok(())
    }

    fn open(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        let mut key = self.words();
        for jobs in jobs.chunks_mut(BURST) {
            let mut firsts = [[0; BLOCK / 8]; BURST];
            self.first_blocks(&key, jobs, &mut firsts);
            let tags = self.tags(jobs, &firsts);
            for (job, tag) in jobs.iter_mut().zip(&tags) {
                job.authentic = match <&[u8; TAG]>::try_from(&*job.tag) {
                    // One comparison of a number instead of one a byte.
                    Ok(got) => u128::from_ne_bytes(*got).ct_eq(&u128::from_ne_bytes(*tag)).into(),
                    Err(_) => tag[..job.tag.len()].ct_eq(job.tag).into(),
                };
            }
            self.cipher(&key, jobs);
            firsts[..jobs.len()].as_flattened_mut().zeroize();
        }
        key.zeroize();
        Ok(())
    }
}
