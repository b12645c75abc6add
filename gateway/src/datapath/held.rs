//! How a burst has a peer or an SA: lent by tables that it holds for its whole way, or shared.
//!
//! A clone and its end are two locked instructions, which take as long as sealing a small packet and keep the processor from reading ahead.
//! Where each packet of a burst may be of another SA, SAs are lent. What goes to another thread is shared.

use std::ops::Deref;
use std::sync::Arc;

/// A value that a burst uses.
pub enum Held<'a, T> {
    /// By tables that outlive the burst.
    Lent(&'a T),
    /// With others: it may outlive its tables.
    Shared(Arc<T>),
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match self {
            Self::Lent(value) => value,
            Self::Shared(value) => value,
        }
    }
}

impl<T> Clone for Held<'_, T> {
    #[inline]
    fn clone(&self) -> Self {
        match self {
            Self::Lent(value) => Self::Lent(value),
            Self::Shared(value) => Self::Shared(Arc::clone(value)),
        }
    }
}

impl<T> From<Arc<T>> for Held<'_, T> {
    #[inline]
    fn from(value: Arc<T>) -> Self {
        Self::Shared(value)
    }
}

impl<'a, T> From<&'a T> for Held<'a, T> {
    #[inline]
    fn from(value: &'a T) -> Self {
        Self::Lent(value)
    }
}

impl<T> Held<'_, T> {
    /// Whether both are the same value.
    #[inline]
    pub fn is(&self, other: &T) -> bool {
        std::ptr::eq(&raw const **self, other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lent_is_not_counted_and_what_is_shared_is() {
        let value = Arc::new(7);
        let lent: Held<'_, i32> = Held::from(&*value);
        let again = lent.clone();
        assert_eq!((Arc::strong_count(&value), *again, lent.is(&value)), (1, 7, true));
        let shared = Held::from(Arc::clone(&value)).clone();
        assert_eq!((Arc::strong_count(&value), *shared, shared.is(&7)), (2, 7, false));
        drop(shared);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
