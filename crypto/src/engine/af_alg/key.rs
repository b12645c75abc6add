//! Keys of the AF_ALG engine, and how bursts of packets are turned into requests.

use super::super::{EngineFailure, Job, Key, PairJob, PairKey};
use super::Served;
use super::socket::Kind;
use super::transform::{Answers, IoContext, Request, Transform};
use crate::cipher::{Cipher, Encryption};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// A key of an AEAD cipher.
pub(super) struct AfAlgKey {
    pub(super) cipher: Cipher,
    pub(super) served: Served,
    pub(super) secret: Zeroizing<Vec<u8>>,
    /// By tag length: the kernel sets it per key, not per packet.
    pub(super) transforms: Mutex<BTreeMap<usize, Arc<Transform>>>,
}

impl AfAlgKey {
    fn transform(&self, tag: usize) -> Result<Arc<Transform>, EngineFailure> {
        let mut transforms = self.transforms.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(transform) = transforms.get(&tag) {
            return Ok(Arc::clone(transform));
        }
        let new = self.served.transform(Kind::Aead, &self.secret, Some(tag)).map_err(|_| EngineFailure)?;
        let new = Arc::new(new);
        transforms.insert(tag, Arc::clone(&new));
        Ok(new)
    }

    fn iv(&self, nonce: [u8; 12]) -> ([u8; 16], usize) {
        let mut iv = [0; 16];
        if self.cipher.is_ccm() {
            // RFC 3610, section 2.3: the length of the counter field less one, then the nonce.
            iv[0] = 3;
            iv[1..12].copy_from_slice(&nonce[..11]);
            return (iv, 16);
        }
        iv[..12].copy_from_slice(&nonce);
        (iv, 12)
    }

    fn request<'j>(&self, encrypts: bool, job: &'j Job<'_>) -> Request<'j> {
        Request::authenticated(encrypts, self.iv(job.nonce), job.aad, job.text, job.tag)
    }

    fn run(&self, encrypts: bool, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        let Some(tag) = jobs.first().map(|job| job.tag.len()) else { return Ok(()) };
        if jobs.iter().any(|job| job.tag.len() != tag) {
            return self.run_mixed(encrypts, jobs);
        }
        let transform = self.transform(tag)?;
        IoContext::with(|context| {
            let requests: Vec<_> = jobs.iter().map(|job| self.request(encrypts, job)).collect();
            let answers = transform.run(context, &requests)?;
            drop(requests);
            for (job, answer) in jobs.iter_mut().zip(answers) {
                job.authentic = answer.is_some();
                let Some(answer) = answer else { continue };
                let (text, tag) = answer[job.aad.len()..].split_at(job.text.len());
                job.text.copy_from_slice(text);
                if encrypts {
                    job.tag.copy_from_slice(tag);
                }
            }
            Ok(())
        })
    }

    /// As [`run`](Self::run), for jobs with different tag lengths: one call for each run of equal lengths.
    #[cold]
    fn run_mixed(&self, encrypts: bool, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        let before: Vec<_> = jobs.iter().map(|job| (job.text.to_vec(), job.tag.to_vec())).collect();
        let mut parts = jobs.chunk_by_mut(|a, b| a.tag.len() == b.tag.len());
        if parts.all(|part| self.run(encrypts, part).is_ok()) {
            return Ok(());
        }
        for (job, (text, tag)) in jobs.iter_mut().zip(before) {
            job.text.copy_from_slice(&text);
            job.tag.copy_from_slice(&tag);
        }
        Err(EngineFailure)
    }
}

impl Key for AfAlgKey {
    fn seal(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        self.run(true, jobs)
    }

    fn open(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        self.run(false, jobs)
    }
}

/// The keys of a cipher and a MAC.
pub(super) struct AfAlgPairKey {
    pub(super) encryption: Encryption,
    pub(super) cipher: Option<Transform>,
    pub(super) mac: Transform,
    /// Cipher and MAC combined (`authenc`), which halves the system calls. It cannot be used with a suffix, because
    /// `authenc` authenticates nothing after the text.
    pub(super) both: Option<Transform>,
}

impl AfAlgPairKey {
    fn iv(&self, job: &PairJob<'_>) -> ([u8; 16], usize) {
        (job.iv, if self.encryption == Encryption::TripleDesCbc { 8 } else { 16 })
    }

    /// A request to `authenc`.
    fn request<'j>(&self, encrypts: bool, job: &'j PairJob<'_>) -> Request<'j> {
        let (header, text) = job.packet.split_at(job.text);
        Request::authenticated(encrypts, self.iv(job), header, text, job.tag)
    }

    /// Encrypts or decrypts the texts of the `wanted` jobs, and returns one answer per job.
    fn crypt<'d>(
        &self,
        context: &'d mut IoContext,
        encrypts: bool,
        jobs: &[PairJob<'_>],
        wanted: impl Fn(&PairJob<'_>) -> bool,
    ) -> Result<Answers<'d>, EngineFailure> {
        let Some(cipher) = &self.cipher else { return Ok(vec![None; jobs.len()]) };
        let wanted = |job: &PairJob<'_>| job.text < job.packet.len() && wanted(job);
        let requests: Vec<_> = jobs
            .iter()
            .filter(|job| wanted(job))
            .map(|job| Request::plain(encrypts, self.iv(job), &job.packet[job.text..]))
            .collect();
        let mut answers = cipher.run(context, &requests)?.into_iter();
        Ok(jobs.iter().map(|job| if wanted(job) { answers.next().flatten() } else { None }).collect())
    }

    fn run_both(
        &self,
        both: &Transform,
        encrypts: bool,
        jobs: &mut [PairJob<'_>],
    ) -> Result<(), EngineFailure> {
        IoContext::with(|context| {
            let requests: Vec<_> = jobs.iter().map(|job| self.request(encrypts, job)).collect();
            let answers = both.run(context, &requests)?;
            drop(requests);
            for (job, answer) in jobs.iter_mut().zip(answers) {
                job.authentic = answer.is_some();
                let Some(answer) = answer else { continue };
                let (packet, tag) = answer.split_at(job.packet.len());
                job.packet.copy_from_slice(packet);
                if encrypts {
                    job.tag.copy_from_slice(tag);
                }
            }
            Ok(())
        })
    }

    /// The combined key, if all of `jobs` can use it.
    fn both(&self, jobs: &[PairJob<'_>]) -> Option<&Transform> {
        self.both.as_ref().filter(|_| jobs.iter().all(|job| job.suffix.is_empty()))
    }
}

impl PairKey for AfAlgPairKey {
    fn seal(&self, jobs: &mut [PairJob<'_>]) -> Result<(), EngineFailure> {
        if let Some(both) = self.both(jobs) {
            return self.run_both(both, true, jobs);
        }
        IoContext::with(|context| {
            let texts = self.crypt(context, true, jobs, |_| true)?;
            let digest = |(job, text): (&PairJob<'_>, Option<&[u8]>)| {
                let (header, plain) = job.packet.split_at(job.text);
                self.mac.digest([header, text.unwrap_or(plain), job.suffix], job.tag.len())
            };
            let digests =
                jobs.iter().zip(texts.iter().copied()).map(digest).collect::<Result<Vec<_>, _>>()?;
            for ((job, text), digest) in jobs.iter_mut().zip(texts).zip(digests) {
                if let Some(text) = text {
                    job.packet[job.text..].copy_from_slice(text);
                }
                job.tag.copy_from_slice(&digest[..job.tag.len()]);
            }
            Ok(())
        })
    }

    fn open(&self, jobs: &mut [PairJob<'_>]) -> Result<(), EngineFailure> {
        if let Some(both) = self.both(jobs) {
            return self.run_both(both, false, jobs);
        }
        for job in jobs.iter_mut() {
            let digest = self.mac.digest([&*job.packet, &[], job.suffix], job.tag.len())?;
            job.authentic = digest[..job.tag.len()].ct_eq(job.tag).into();
        }
        IoContext::with(|context| {
            for (job, text) in jobs_with(self.crypt(context, false, jobs, |job| job.authentic)?, jobs) {
                job.packet[job.text..].copy_from_slice(text);
            }
            Ok(())
        })
    }
}

/// The jobs that have an answer, with their answers.
fn jobs_with<'j, 'd, 'a>(
    answers: Answers<'d>,
    jobs: &'j mut [PairJob<'a>],
) -> impl Iterator<Item = (&'j mut PairJob<'a>, &'d [u8])> {
    jobs.iter_mut().zip(answers).filter_map(|(job, answer)| Some((job, answer?)))
}
