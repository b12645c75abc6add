//! Optional libraries, loaded at run time: neither the build nor the start of the program needs them.

#![expect(unsafe_code, reason = "loads a library and takes functions out of it")]

pub use libloading::Library;

/// Why an engine cannot be used on this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The library is not installed.
    #[error("{0} is not installed")]
    Missing(&'static str),
    /// The library's version is not supported.
    #[error("version {0} of its library is not supported")]
    Version(String),
    /// The library lacks a function that every supported version has.
    #[error("its library has no function {0}")]
    Symbol(&'static str),
    /// The engine needs another processor architecture.
    #[error("it needs an {0} processor")]
    Processor(&'static str),
    /// This program is linked statically, and can load no library.
    #[error("this program is linked statically, and loads no libraries")]
    Static,
    /// The engine is present but does not work.
    #[error("{0}")]
    Refused(String),
}

/// Opens the first of `names` that the dynamic loader finds. The library is never unloaded.
pub fn open(names: &[&'static str]) -> Result<&'static Library, Unavailable> {
    first(names, Ok)
}

/// Calls `make` with each library of `names` that can be opened, and returns the first success: a version may be
/// unsupported while another works. If none does, the error is that of the first library that is installed.
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
    // SAFETY: these are libraries of the system, whose initializers are safe to run.
    match unsafe { Library::new(name) } {
        Ok(library) => Ok(Box::leak(Box::new(library))),
        Err(error) => Err(reason(name, &error.to_string())),
    }
}

/// Interprets the loader's error message. It has similar words for a missing dependency of an installed library.
fn reason(name: &'static str, error: &str) -> Unavailable {
    // glibc: `NAME: cannot open shared object file: No such file`.
    // musl: `Error loading shared library NAME: No such file`.
    let is_missing = [format!("{name}: cannot open shared"), format!("shared library {name}: No such")];
    let is_needed = error.contains("(needed by");
    // The loader of a program that musl is linked into statically.
    if error == "Dynamic loading not supported" {
        return Unavailable::Static;
    }
    if is_missing.iter().any(|words| error.contains(words.as_str()))
        && error.contains("No such file")
        && !is_needed
    {
        return Unavailable::Missing(name);
    }
    Unavailable::Refused(format!("it cannot be loaded: {error}"))
}

/// The function `name` of a library.
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
        assert_eq!(reason(name, "Dynamic loading not supported"), Unavailable::Static);
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
