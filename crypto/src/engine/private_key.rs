//! Private keys in PEM with a password: PKCS#8, and the older headers of OpenSSL (RFC 1421). AWS-LC's safe interface reads
//! neither.

#![expect(unsafe_code, reason = "calls a C library for what its safe interface does not offer")]

use crate::SecretBytes;
use aws_lc_sys as sys;
use std::ffi::{c_char, c_int, c_void};
use std::ptr;

/// Copies the password, if it fits.
unsafe extern "C" fn password(to: *mut c_char, size: c_int, _: c_int, given: *mut c_void) -> c_int {
    // SAFETY: `open` gives a pointer to a slice, which lives as long as the call that calls this.
    let given = unsafe { *given.cast::<&[u8]>() };
    match c_int::try_from(given.len()) {
        Ok(length) if length <= size => {
            // SAFETY: the library gives room for `size` bytes, and does not have the bytes of the password.
            unsafe { ptr::copy_nonoverlapping(given.as_ptr(), to.cast::<u8>(), given.len()) };
            length
        }
        _ => -1,
    }
}

/// The private key of a PEM file, as PKCS#8 in DER. `None` if the password is wrong, or if there is no such key.
pub(crate) fn open(file: &[u8], given: &[u8]) -> Option<SecretBytes> {
    let length = file.len().try_into().ok()?;
    let mut given: &[u8] = given;
    // SAFETY: the bytes of the file outlive the BIO, which only reads them and is freed below.
    let bio = unsafe { sys::BIO_new_mem_buf(file.as_ptr().cast(), length) };
    if bio.is_null() {
        return None;
    }
    // SAFETY: the BIO is valid, and the callback gets a pointer to a slice that outlives the call.
    let key = unsafe {
        sys::PEM_read_bio_PrivateKey(bio, ptr::null_mut(), Some(password), ptr::from_mut(&mut given).cast())
    };
    // SAFETY: it was made above, and nothing uses it any more.
    unsafe { sys::BIO_free(bio) };
    if key.is_null() {
        return None;
    }
    let der = marshal(key);
    // SAFETY: it was made above, and nothing uses it any more.
    unsafe { sys::EVP_PKEY_free(key) };
    der
}

fn marshal(key: *const sys::EVP_PKEY) -> Option<SecretBytes> {
    let mut builder = sys::CBB::default();
    let (mut bytes, mut length) = (ptr::null_mut(), 0);
    // SAFETY: CBB_init makes the builder valid for the calls after it, and CBB_cleanup frees what one that failed leaves.
    unsafe {
        if sys::CBB_init(&raw mut builder, 1024) != 1 {
            return None;
        }
        if sys::EVP_marshal_private_key(&raw mut builder, key) != 1
            || sys::CBB_finish(&raw mut builder, &raw mut bytes, &raw mut length) != 1
        {
            sys::CBB_cleanup(&raw mut builder);
            return None;
        }
    }
    // SAFETY: CBB_finish gives so many bytes, which are ours.
    let der = SecretBytes::new(unsafe { std::slice::from_raw_parts(bytes, length) }.to_vec());
    // SAFETY: they are freed once; OPENSSL_free erases them.
    unsafe { sys::OPENSSL_free(bytes.cast()) };
    Some(der)
}
