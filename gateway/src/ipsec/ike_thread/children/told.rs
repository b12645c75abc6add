//! The failure of a peer that was logged last: a peer that is tried again and again fails in the same way each time.

use crate::ipsec::model::IpsecFailure;

/// Seconds between two lines about the same failure of a peer.
const AGAIN: u64 = 3600;

/// A failure that was logged.
pub(super) struct Told {
    what: String,
    /// Seconds since 1970.
    at: u64,
    left_out: u64,
}

impl Told {
    /// Whether to log a failure after the last one, and how often it was left out since then.
    pub(super) fn tell(last: &mut Option<Self>, failure: &IpsecFailure) -> Option<u64> {
        let same = last.as_mut().filter(|told| told.what == failure.what);
        let left_out = match same {
            Some(told) if failure.at.saturating_sub(told.at) < AGAIN => {
                told.left_out += 1;
                return None;
            }
            Some(told) => told.left_out,
            None => 0,
        };
        *last = Some(Self { what: failure.what.clone(), at: failure.at, left_out: 0 });
        Some(left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_once_and_then_hourly_with_a_count() {
        let mut last = None;
        let mut tell = |at, what: &str| {
            let failure = IpsecFailure { at, what: what.to_owned(), ..IpsecFailure::default() };
            Told::tell(&mut last, &failure)
        };
        assert_eq!(tell(0, "no common proposal"), Some(0));
        assert_eq!([tell(10, "no common proposal"), tell(20, "no common proposal")], [None; 2]);
        assert_eq!(tell(3600, "no common proposal"), Some(2));
        assert_eq!(tell(3610, "another"), Some(0));
        assert_eq!(tell(3620, "no common proposal"), Some(0), "it has come back");
    }
}
