//! Libraries that are used when the machine has them: loaded at run time, never needed to build or to start.

#![expect(unsafe_code, reason = "loads a library and takes functions out of it")]

pub use libloading::Library;

/// Why an engine cannot be used on this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// Its library is not installed.
    #[error("{0} is not installed")]
    Missing(&'static str),
    /// Its library is one this program has not learnt to call.
    #[error("version {0} of its library is unknown to this program")]
    Version(String),
    /// Its library lacks a function that every known version has.
    #[error("its library has no function {0}")]
    Symbol(&'static str),
    /// It is made for another processor.
    #[error("it needs a processor of the kind {0}")]
    Processor(&'static str),
    /// It is there and does not work.
    #[error("{0}")]
    Refused(String),
}

/// Opens the first of `names` that the system's loader finds, for as long as the program runs.
pub fn open(names: &[&'static str]) -> Result<&'static Library, Unavailable> {
    for name in names {
        // SAFETY: the libraries named here are the system's own, whose initialisers are made to be run.
        if let Ok(library) = unsafe { Library::new(name) } {
            return Ok(Box::leak(Box::new(library)));
        }
    }
    Err(Unavailable::Missing(names.last().copied().unwrap_or_default()))
}

/// The function called `name`.
///
/// # Safety
/// `T` must be the type of a pointer to that function.
pub unsafe fn symbol<T: Copy>(library: &'static Library, name: &'static str) -> Result<T, Unavailable> {
    // SAFETY: the caller knows the type, and the library is never unloaded.
    unsafe { library.get::<T>(name.as_bytes()) }.map(|symbol| *symbol).map_err(|_| Unavailable::Symbol(name))
}
