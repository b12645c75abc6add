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
    first(names, Ok)
}

/// Makes something of the first of `names` that can be used: another may be of a version that is unknown. When there is
/// none the reason is that of the first which is here at all.
pub fn first<T>(
    names: &[&'static str],
    make: impl Fn(&'static Library) -> Result<T, Unavailable>,
) -> Result<T, Unavailable> {
    let mut refused = None;
    for &name in names {
        match open_one(name).and_then(&make) {
            Ok(made) => return Ok(made),
            Err(Unavailable::Missing(_)) => {}
            Err(reason) => refused = refused.or(Some(reason)),
        }
    }
    Err(refused.unwrap_or_else(|| Unavailable::Missing(names.last().copied().unwrap_or_default())))
}

fn open_one(name: &'static str) -> Result<&'static Library, Unavailable> {
    // SAFETY: the libraries named here are the system's own, whose initialisers are made to be run.
    match unsafe { Library::new(name) } {
        Ok(library) => Ok(Box::leak(Box::new(library))),
        Err(error) => Err(reason(name, &error.to_string())),
    }
}

/// What the loader's words mean. Of a library that is there it says the same about another that this one needs.
fn reason(name: &'static str, error: &str) -> Unavailable {
    // glibc: `NAME: cannot open shared object file: No such file`; musl: `Error loading shared library NAME: No such file`.
    let is_missing = [format!("{name}: cannot open shared"), format!("shared library {name}: No such")];
    let is_needed = error.contains("(needed by");
    if is_missing.iter().any(|words| error.contains(words.as_str()))
        && error.contains("No such file")
        && !is_needed
    {
        return Unavailable::Missing(name);
    }
    Unavailable::Refused(format!("it cannot be loaded: {error}"))
}

/// The function called `name`.
///
/// # Safety
/// `T` must be the type of a pointer to that function.
pub unsafe fn symbol<T: Copy>(library: &'static Library, name: &'static str) -> Result<T, Unavailable> {
    // SAFETY: the caller knows the type, and the library is never unloaded.
    unsafe { library.get::<T>(name.as_bytes()) }.map(|symbol| *symbol).map_err(|_| Unavailable::Symbol(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_told_from_one_that_cannot_be_loaded() {
        let name = "libnot-there.so.7";
        assert_eq!(open(&[name]).err(), Some(Unavailable::Missing(name)));
        for error in [
            "libother.so.1: cannot open shared object file: No such file or directory",
            "libnot-there.so.7: cannot open shared object file: Permission denied",
            "libnot-there.so.7: undefined symbol: abc",
            "Error loading shared library libother.so: No such file or directory (needed by libnot-there.so.7)",
        ] {
            assert_eq!(reason(name, error), Unavailable::Refused(format!("it cannot be loaded: {error}")));
        }
        let musl = "Error loading shared library libnot-there.so.7: No such file or directory";
        assert_eq!(reason(name, musl), Unavailable::Missing(name));
    }

    #[test]
    fn the_next_name_is_tried_when_a_version_is_unknown() {
        let names = ["libnot-there.so.7", "libc.so.6", "libm.so.6"];
        let Ok(_) = open(&["libm.so.6"]) else { return eprintln!("skipped: not glibc") };
        let tried = std::cell::Cell::new(0);
        let second = |_| {
            tried.set(tried.get() + 1);
            if tried.get() == 2 { Ok(()) } else { Err(Unavailable::Version("0.1".to_owned())) }
        };
        assert_eq!(first(&names, second), Ok(()));
        let never = |_| Err::<(), _>(Unavailable::Version("0.1".to_owned()));
        assert_eq!(first(&names, never), Err(Unavailable::Version("0.1".to_owned())));
    }
}
