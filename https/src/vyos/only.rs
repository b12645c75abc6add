//! Requests of one operation.

use crate::daemon::Refused;
use crate::request::{Operation, Operations};

/// The only operation of a request that has no list of them.
pub(super) fn only(asked: &Operations) -> Result<&Operation, Refused> {
    match &asked.operations[..] {
        [one] => Ok(one),
        _ => Err(Refused::bad("one operation at a time\n  fix: send a request for each")),
    }
}

/// The refusal of an operation that an endpoint does not have.
pub(super) fn unknown(op: &str, known: &str) -> Refused {
    Refused::bad(format!("'{op}' is not a valid operation\n  fix: {known}"))
}
