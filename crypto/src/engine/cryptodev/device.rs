//! The ioctl interface of `/dev/crypto` of cryptodev-linux, with its structures (crypto/cryptodev.h, public domain).

#![expect(unsafe_code, reason = "ioctls whose arguments hold pointers")]

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::ioctl::{Opcode, Updater, opcode};
use std::ffi::CStr;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::{null, null_mut};
use std::sync::Arc;

/// The used values of `enum cryptodev_crypto_op_t`.
pub(super) mod algorithm {
    pub(in super::super) const TRIPLE_DES_CBC: u32 = 2;
    pub(in super::super) const SHA1_HMAC: u32 = 7;
    pub(in super::super) const AES_CBC: u32 = 11;
    pub(in super::super) const SHA256_HMAC: u32 = 18;
    pub(in super::super) const SHA384_HMAC: u32 = 19;
    pub(in super::super) const SHA512_HMAC: u32 = 20;
    pub(in super::super) const AES_CTR: u32 = 21;
    pub(in super::super) const AES_GCM: u32 = 50;
}

/// `struct session_op`.
#[repr(C)]
struct SessionOperation {
    cipher: u32,
    mac: u32,
    key_length: u32,
    key: *const u8,
    mac_key_length: u32,
    mac_key: *const u8,
    session: u32,
}

/// `struct alg_info`.
#[repr(C)]
struct AlgorithmInformation {
    algorithm: [u8; 64],
    driver: [u8; 64],
}

/// `struct session_info_op`.
#[repr(C)]
struct SessionInformation {
    session: u32,
    cipher: AlgorithmInformation,
    hash: AlgorithmInformation,
    alignment_mask: u16,
    flags: u32,
}

/// `struct crypt_op`.
#[repr(C)]
struct CryptOperation {
    session: u32,
    operation: u16,
    flags: u16,
    length: u32,
    from: *const u8,
    to: *mut u8,
    mac: *mut u8,
    iv: *const u8,
}

/// `struct crypt_auth_op`.
#[repr(C)]
struct AuthenticatedOperation {
    session: u32,
    operation: u16,
    flags: u16,
    length: u32,
    associated_length: u32,
    associated: *const u8,
    from: *const u8,
    to: *mut u8,
    tag: *mut u8,
    tag_length: u32,
    iv: *const u8,
    iv_length: u32,
}

// The structure sizes are part of the ioctl numbers: a driver with other structures refuses the call.
#[cfg(target_pointer_width = "64")]
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<SessionOperation>() == 48 && offset_of!(SessionOperation, session) == 40);
    assert!(offset_of!(SessionOperation, key) == 16 && offset_of!(SessionOperation, mac_key) == 32);
    assert!(size_of::<SessionInformation>() == 268 && offset_of!(SessionInformation, flags) == 264);
    assert!(size_of::<CryptOperation>() == 48 && offset_of!(CryptOperation, iv) == 40);
    assert!(size_of::<AuthenticatedOperation>() == 72);
    assert!(offset_of!(AuthenticatedOperation, tag_length) == 48);
    assert!(offset_of!(AuthenticatedOperation, iv_length) == 64);
};

const CLONE: Opcode = opcode::read_write::<u32>(b'c', 101);
const NEW_SESSION: Opcode = opcode::read_write::<SessionOperation>(b'c', 102);
const END_SESSION: Opcode = opcode::write::<u32>(b'c', 103);
const CRYPT: Opcode = opcode::read_write::<CryptOperation>(b'c', 104);
const INFORMATION: Opcode = opcode::read_write::<SessionInformation>(b'c', 107);
const CRYPT_AUTHENTICATED: Opcode = opcode::read_write::<AuthenticatedOperation>(b'c', 109);

const ENCRYPT: u16 = 0;
const DECRYPT: u16 = 1;
/// `SIOP_FLAG_KERNEL_DRIVER_ONLY`: the implementation is only reachable through a kernel driver, as that of a device
/// is.
const DRIVER_ONLY: u32 = 1;

/// The open device.
pub(super) struct Device(OwnedFd);

impl Device {
    pub(super) fn open() -> Result<Self> {
        let device = rustix::fs::open("/dev/crypto", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let mut clone: i32 = -1;
        // SAFETY: the call writes a descriptor that we then own; another kind of device refuses the call.
        unsafe {
            rustix::ioctl::ioctl(&device, Updater::<CLONE, i32>::new(&mut clone))?;
            drop(OwnedFd::from_raw_fd(clone));
        }
        Ok(Self(device))
    }

    /// # Safety
    /// `value` must be the structure of the call `CODE`, and its pointers must be to live memory of the given lengths.
    unsafe fn call<const CODE: Opcode, T>(&self, value: &mut T) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        rustix::io::retry_on_intr(|| unsafe { rustix::ioctl::ioctl(&self.0, Updater::<CODE, T>::new(value)) })
    }
}

/// The implementation that serves a session.
pub(super) struct Implementation {
    /// The driver names of cipher and hash; one may be empty.
    pub(super) drivers: [String; 2],
    pub(super) is_driver_only: bool,
}

/// A key in the driver.
pub(super) struct Session {
    device: Arc<Device>,
    id: u32,
}

impl Session {
    /// Creates a session for a cipher with its key, or for a MAC with its key.
    pub(super) fn new(device: &Arc<Device>, cipher: (u32, &[u8]), mac: (u32, &[u8])) -> Result<Self> {
        let mut operation = SessionOperation {
            cipher: cipher.0,
            mac: mac.0,
            key_length: cipher.1.len() as u32,
            key: pointer(cipher.1),
            mac_key_length: mac.1.len() as u32,
            mac_key: pointer(mac.1),
            session: 0,
        };
        // SAFETY: both keys are live and of the given lengths.
        unsafe { device.call::<NEW_SESSION, _>(&mut operation)? };
        Ok(Self { device: Arc::clone(device), id: operation.session })
    }

    pub(super) fn implementation(&self) -> Result<Implementation> {
        let none = || AlgorithmInformation { algorithm: [0; 64], driver: [0; 64] };
        let mut information = SessionInformation {
            session: self.id,
            cipher: none(),
            hash: none(),
            alignment_mask: 0,
            flags: 0,
        };
        // SAFETY: the structure holds no pointers.
        unsafe { self.device.call::<INFORMATION, _>(&mut information)? };
        let name = |bytes: &[u8; 64]| {
            CStr::from_bytes_until_nul(bytes).unwrap_or_default().to_string_lossy().into_owned()
        };
        Ok(Implementation {
            drivers: [name(&information.cipher.driver), name(&information.hash.driver)],
            is_driver_only: information.flags & DRIVER_ONLY != 0,
        })
    }

    /// Encrypts or decrypts `text` in place.
    pub(super) fn crypt(&self, encrypts: bool, iv: &[u8; 16], text: &mut [u8]) -> Result<()> {
        let mut operation = self.operation(encrypts, text);
        operation.to = text.as_mut_ptr();
        operation.iv = iv.as_ptr();
        // SAFETY: the text is live and exclusively ours, and no IV is longer than 16 bytes.
        unsafe { self.device.call::<CRYPT, _>(&mut operation) }
    }

    /// The MAC of `message`.
    pub(super) fn mac(&self, message: &mut [u8]) -> Result<[u8; 64]> {
        let mut mac = [0; 64];
        let mut operation = self.operation(true, message);
        operation.mac = mac.as_mut_ptr();
        // SAFETY: the message is live, and no MAC is longer than 64 bytes (`AALG_MAX_RESULT_LEN`).
        unsafe { self.device.call::<CRYPT, _>(&mut operation)? };
        Ok(mac)
    }

    fn operation(&self, encrypts: bool, text: &mut [u8]) -> CryptOperation {
        CryptOperation {
            session: self.id,
            operation: if encrypts { ENCRYPT } else { DECRYPT },
            flags: 0,
            length: text.len() as u32,
            from: text.as_mut_ptr(),
            to: null_mut(),
            mac: null_mut(),
            iv: null(),
        }
    }

    /// Seals or opens in place. `message` is the text followed by the tag, or when sealing by room for a tag of `tag`
    /// bytes. `BADMSG` if it is not authentic.
    pub(super) fn crypt_authenticated(
        &self,
        encrypts: bool,
        iv: &[u8; 12],
        associated: &[u8],
        message: &mut [u8],
        tag: usize,
    ) -> Result<()> {
        let mut operation = self.authenticated_operation(encrypts, iv, associated, message, tag);
        if operation.length as usize > message.len() {
            return Err(Errno::INVAL);
        }
        // SAFETY: all buffers are live and of the given lengths. When sealing, the tag is written after the text, where
        // `message` has room for it.
        unsafe { self.device.call::<CRYPT_AUTHENTICATED, _>(&mut operation) }
    }

    fn authenticated_operation(
        &self,
        encrypts: bool,
        iv: &[u8; 12],
        associated: &[u8],
        message: &mut [u8],
        tag: usize,
    ) -> AuthenticatedOperation {
        let length = if encrypts { message.len().saturating_sub(tag) } else { message.len() };
        AuthenticatedOperation {
            session: self.id,
            operation: if encrypts { ENCRYPT } else { DECRYPT },
            flags: 0,
            length: length as u32,
            associated_length: associated.len() as u32,
            associated: pointer(associated),
            from: message.as_ptr(),
            to: message.as_mut_ptr(),
            // Not used in this mode.
            tag: null_mut(),
            tag_length: tag as u32,
            iv: iv.as_ptr(),
            iv_length: iv.len() as u32,
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: the session was created on this descriptor.
        let _ = unsafe { self.device.call::<END_SESSION, _>(&mut self.id.clone()) };
    }
}

fn pointer(bytes: &[u8]) -> *const u8 {
    if bytes.is_empty() { null() } else { bytes.as_ptr() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn ioctl_numbers_are_those_of_the_header() {
        let calls = [CLONE, NEW_SESSION, END_SESSION, CRYPT, INFORMATION, CRYPT_AUTHENTICATED];
        let expected = [0xc004_6365, 0xc030_6366, 0x4004_6367, 0xc030_6368, 0xc10c_636b, 0xc048_636d];
        assert_eq!(calls.map(u64::from), expected);
    }

    /// A session on a device that has no sessions.
    fn session() -> Session {
        let file = std::fs::File::open("/dev/null").expect("it is there");
        Session { device: Arc::new(Device(file.into())), id: 7 }
    }

    #[test]
    fn the_length_excludes_the_tag_when_sealing_and_includes_it_when_opening() {
        let (session, mut message) = (session(), [0; 116]);
        let at = message.as_ptr();
        let seals = session.authenticated_operation(true, &[1; 12], b"head", &mut message, 16);
        assert_eq!((seals.session, seals.operation, seals.flags), (7, ENCRYPT, 0));
        assert_eq!(
            (seals.length, seals.tag_length, seals.associated_length, seals.iv_length),
            (100, 16, 4, 12)
        );
        assert!(seals.from == at && seals.to.cast_const() == at && seals.tag.is_null());
        let opens = session.authenticated_operation(false, &[1; 12], b"", &mut message, 8);
        assert_eq!((opens.operation, opens.length, opens.tag_length), (DECRYPT, 116, 8));
        assert!(opens.associated.is_null() && opens.associated_length == 0);
    }

    #[test]
    fn a_device_of_another_kind_refuses() {
        let (session, mut message) = (session(), [0; 32]);
        assert!(session.crypt(true, &[0; 16], &mut message).is_err());
        assert!(session.mac(&mut message).is_err());
        assert!(session.crypt_authenticated(true, &[0; 12], b"", &mut message, 16).is_err());
        assert!(session.crypt_authenticated(false, &[0; 12], b"", &mut message, 16).is_err());
        assert!(session.implementation().is_err());
        assert!(Session::new(&session.device, (algorithm::AES_CBC, &[1; 16]), (0, &[])).is_err());
    }
}
