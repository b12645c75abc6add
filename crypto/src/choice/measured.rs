//! The result of measuring an engine for one cipher.

use super::slot::{SLOTS, Slot};

/// The cost of a cipher in an engine, in ns per packet for each slot.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost(pub(super) Box<[f64; SLOTS]>);

impl Cost {
    /// ns per packet.
    pub fn at(&self, slot: Slot) -> f64 {
        self.0[slot.index()]
    }
}

/// The result of checking and measuring an engine for one cipher.
#[derive(Clone, Debug, PartialEq)]
pub enum Measured {
    /// The engine works, at this cost.
    Works(Cost),
    /// The engine does not support the cipher.
    Lacks,
    /// The engine failed: it loaded no key, returned an error, or took too long.
    Failed,
    /// The engine computed something else than the first engine.
    Wrong,
}

impl Measured {
    /// The cost, if the engine works.
    pub fn cost(&self) -> Option<&Cost> {
        match self {
            Self::Works(cost) => Some(cost),
            Self::Lacks | Self::Failed | Self::Wrong => None,
        }
    }
}
