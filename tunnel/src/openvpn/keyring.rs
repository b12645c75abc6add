//! The data keys of a session: when each opens packets, and which one seals them.
//!
//! A new key opens packets at once. It seals them when the peer has used it, or when the peer has surely admitted it: after
//! the handshake window, or half of the lifetime of keys if that is shorter. The replaced key still opens packets for the
//! transition window.

use super::action::{Action, Outbox, SessionNumber};
use super::data::{AeadData, CbcData, DataKey, EpochData, Header};
use super::keys::{DataKeys, Direction};
use super::limits::{END_BYTES, END_PACKET, EPOCH_PACKETS, RENEW_BYTES, RENEW_EPOCH, RENEW_PACKET};
use super::negotiate::{DataCipher, Suite};
use super::wrap::Role;
use crate::Time;
use crate::protection::Protection;
use crate::sa::{InboundSa, Lifetime, OutboundSa, Volume};
use crypto::cipher::Pair;
use crypto::engine::LoadError;
use crypto::{Engine, Random};
use std::sync::Arc;
use std::time::Duration;

/// An installed key.
struct Installed {
    index: u32,
    outbound: Arc<OutboundSa>,
    /// When the key is used to send at the latest; `None` if it was.
    use_at: Option<Time>,
    /// When the key is retired.
    retire_at: Option<Time>,
}

/// The data keys of a session.
pub struct Keyring {
    session: SessionNumber,
    role: Role,
    engine: Arc<dyn Engine>,
    /// The oldest first.
    keys: Vec<Installed>,
}

impl Keyring {
    /// Without keys.
    pub fn new(session: SessionNumber, role: Role, engine: Arc<dyn Engine>) -> Self {
        Self { session, role, engine, keys: Vec::new() }
    }

    /// Whether a key is installed.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Installs a key. The first is used to send at once, another from `use_at` on, or when the peer uses it.
    pub fn install(
        &mut self,
        keys: &DataKeys,
        suite: Suite,
        header: Header,
        use_at: Time,
        random: &mut dyn Random,
        out: &mut Outbox,
    ) -> Result<(), LoadError> {
        let other = if self.role == Role::Client { Role::Server } else { Role::Client };
        let outbound = self.protection(keys.of_sender(self.role), suite, header, random)?;
        let inbound = self.inbound_protection(keys.of_sender(other), suite, header, random)?;
        let [renew_sequence, end_sequence] = if suite.epochs {
            [RENEW_EPOCH * EPOCH_PACKETS, (u64::from(u16::MAX) - 1) * EPOCH_PACKETS]
        } else {
            [RENEW_PACKET, END_PACKET]
        };
        let expires = Time::from_nanoseconds(u64::MAX);
        let lifetime = Lifetime { renew: None, renew_sequence, expires, end_sequence };
        // Each epoch has a key of its own, which ends before its volume.
        let bytes = if suite.epochs { [u64::MAX; 2] } else { [RENEW_BYTES, END_BYTES] };
        let volume = || Volume::new(bytes[0], bytes[1]);
        let index = header.word();
        let outbound = Arc::new(OutboundSa::new(outbound, index, lifetime).with_volume(volume()));
        let is_first = self.keys.is_empty();
        let inbound = InboundSa::new(inbound, index, lifetime, !is_first).with_volume(volume());
        // A key ID is used again after seven others; that key is long gone.
        self.retire(index, out);
        out.push(Action::Install { session: self.session, sa: Arc::new(inbound) });
        let use_at = if is_first {
            out.push(Action::Use { session: self.session, sa: Arc::clone(&outbound) });
            None
        } else {
            Some(use_at)
        };
        self.keys.push(Installed { index, outbound, use_at, retire_at: None });
        Ok(())
    }

    fn protection(
        &self,
        keys: Direction<'_>,
        suite: Suite,
        header: Header,
        random: &mut dyn Random,
    ) -> Result<Protection, LoadError> {
        Ok(framed(
            suite,
            match suite.cipher {
                DataCipher::Aead(aead) if suite.epochs => {
                    DataKey::Epoch(EpochData::sending(Arc::clone(&self.engine), aead, keys.cipher, header)?)
                }
                DataCipher::Aead(aead) => {
                    let key = self.engine.load(aead, &keys.cipher[..aead.key_length()])?;
                    let constant = *keys.hmac.first_chunk().expect("HMAC keys have 64 bytes");
                    DataKey::Aead(AeadData::new(key, constant, header))
                }
                DataCipher::WithHmac(encryption) => {
                    let pair = Pair { encryption, integrity: suite.auth };
                    DataKey::Cbc(CbcData::load(pair, keys, header, random)?)
                }
            },
        ))
    }

    /// Epoch keys to receive with are many at once, unlike those to send with.
    fn inbound_protection(
        &self,
        keys: Direction<'_>,
        suite: Suite,
        header: Header,
        random: &mut dyn Random,
    ) -> Result<Protection, LoadError> {
        match suite.cipher {
            DataCipher::Aead(aead) if suite.epochs => {
                let data = EpochData::receiving(Arc::clone(&self.engine), aead, keys.cipher, header)?;
                Ok(framed(suite, DataKey::Epoch(data)))
            }
            _ => self.protection(keys, suite, header, random),
        }
    }

    /// The peer has used the key with this index: it is used to send.
    pub fn confirm(&mut self, now: Time, index: u32, transition: Duration, out: &mut Outbox) {
        if let Some(position) = self.keys.iter().position(|key| key.index == index && key.use_at.is_some()) {
            self.promote(now, position, transition, out);
        }
    }

    /// Uses the newest key to send, before another is negotiated.
    pub fn use_newest(&mut self, now: Time, transition: Duration, out: &mut Outbox) {
        if let Some(position) =
            self.keys.len().checked_sub(1).filter(|last| self.keys[*last].use_at.is_some())
        {
            self.promote(now, position, transition, out);
        }
    }

    fn promote(&mut self, now: Time, position: usize, transition: Duration, out: &mut Outbox) {
        let key = &mut self.keys[position];
        key.use_at = None;
        out.push(Action::Use { session: self.session, sa: Arc::clone(&key.outbound) });
        for earlier in &mut self.keys[..position] {
            earlier.use_at = None;
            earlier.retire_at.get_or_insert(now + transition);
        }
        // Only one replaced key is kept.
        while self.keys.len() > 1 && self.keys.iter().filter(|key| key.retire_at.is_some()).count() > 1 {
            let index = self.keys[0].index;
            self.retire(index, out);
        }
    }

    /// Retires keys whose time is over, and uses the one whose time has come.
    pub fn handle_timeout(&mut self, now: Time, transition: Duration, out: &mut Outbox) {
        while let Some(position) =
            self.keys.iter().rposition(|key| key.use_at.is_some_and(|use_at| now >= use_at))
        {
            self.promote(now, position, transition, out);
        }
        while let Some(key) = self.keys.iter().find(|key| key.retire_at.is_some_and(|at| now >= at)) {
            let index = key.index;
            self.retire(index, out);
        }
    }

    /// When a key is used or retired.
    pub fn next_timeout(&self) -> Option<Time> {
        self.keys.iter().filter_map(|key| key.use_at.into_iter().chain(key.retire_at).min()).min()
    }

    fn retire(&mut self, index: u32, out: &mut Outbox) {
        if let Some(position) = self.keys.iter().position(|key| key.index == index) {
            self.keys.remove(position);
            out.push(Action::Retire { index });
        }
    }

    /// Retires all keys.
    pub fn clear(&mut self, out: &mut Outbox) {
        out.extend(self.keys.drain(..).map(|key| Action::Retire { index: key.index }));
    }
}

fn framed(suite: Suite, key: DataKey) -> Protection {
    Protection::OpenVpn(match suite.framing {
        None => key,
        Some(framing) => DataKey::Framed(Box::new(key), framing),
    })
}
