//! A reader that takes bytes from the front and checks each length once.

use super::ParseError;

/// The unread bytes.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Everything that is left.
    pub(super) fn rest(self) -> &'a [u8] {
        self.0
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], ParseError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(ParseError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(ParseError::Truncated)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, ParseError> {
        self.chunk::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, ParseError> {
        self.chunk().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, ParseError> {
        self.chunk().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, ParseError> {
        self.chunk().map(u64::from_be_bytes)
    }

    pub(super) fn u128(&mut self) -> Result<u128, ParseError> {
        self.chunk().map(u128::from_be_bytes)
    }

    /// The body of a substructure whose length field counts itself and `head` bytes in all before the body.
    pub(super) fn body(&mut self, length: u16, head: usize) -> Result<Self, ParseError> {
        let body = usize::from(length).checked_sub(head).ok_or(ParseError::Truncated)?;
        self.take(body).map(Self)
    }
}
