//! What was measured of an engine for one cipher.

use super::slot::{SLOTS, Slot};

/// What an engine costs for one cipher, in ns a packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost(pub(super) Box<[f64; SLOTS]>);

impl Cost {
    /// ns a packet.
    pub fn at(&self, slot: Slot) -> f64 {
        self.0[slot.index()]
    }
}

/// What was found of an engine for one cipher.
#[derive(Clone, Debug, PartialEq)]
pub enum Measured {
    /// It works, and this is what it costs.
    Works(Cost),
    /// It does not have the cipher.
    Lacks,
    /// It has failed: loaded no key, gave an error or took too long.
    Failed,
    /// It computed something else than the engine that is built in.
    Wrong,
}

impl Measured {
    /// What it costs, if it works.
    pub fn cost(&self) -> Option<&Cost> {
        match self {
            Self::Works(cost) => Some(cost),
            Self::Lacks | Self::Failed | Self::Wrong => None,
        }
    }
}
