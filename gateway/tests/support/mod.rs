//! What the tests of the data path share: packets, and an engine that fails.

use crypto::Cipher;
use crypto::engine::{Engine, EngineFailure, Job, Key, LoadError};
use packet::header::ip::{Ipv4Header, Ipv6Header, UDP};
use std::net::Ipv6Addr;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// An IPv4 packet from 10.1.0.1 to 10.2.0.`host`.
pub fn v4(host: u8, length: usize, ds_field: u8) -> Vec<u8> {
    let mut header = Ipv4Header {
        version_ihl: 0x45,
        ds_field,
        total_length: (length as u16).into(),
        identification: 1.into(),
        fragment: Ipv4Header::DONT_FRAGMENT.into(),
        ttl: 64,
        protocol: UDP,
        checksum: [0; 2],
        source: [10, 1, 0, 1],
        destination: [10, 2, 0, host],
    };
    header.finish();
    let mut packet = header.as_bytes().to_vec();
    packet.resize(length, host);
    packet
}

pub fn v6(length: usize, ds_field: u8) -> Vec<u8> {
    let header = Ipv6Header {
        version_class_flow: (0x6000_0000 | u32::from(ds_field) << 20).into(),
        payload_length: ((length - Ipv6Header::LENGTH) as u16).into(),
        next_header: UDP,
        hop_limit: 64,
        source: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).octets(),
        destination: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2).octets(),
    };
    let mut packet = header.as_bytes().to_vec();
    packet.resize(length, 6);
    packet
}

/// An engine that fails every call.
pub struct Broken;

impl Engine for Broken {
    fn name(&self) -> &'static str {
        "broken"
    }

    fn version(&self) -> String {
        String::new()
    }

    fn load(&self, _: Cipher, _: &[u8]) -> Result<Arc<dyn Key>, LoadError> {
        Ok(Arc::new(Self))
    }
}

impl Key for Broken {
    fn seal(&self, _: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        Err(EngineFailure)
    }

    fn open(&self, _: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        Err(EngineFailure)
    }
}
