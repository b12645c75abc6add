//! `libpostern_dpdk.so`: where it is, its functions, and the version of DPDK that it was built for.

#![expect(unsafe_code, reason = "loads a library and takes functions out of it")]

use crate::crypto::{Job, Session};
use crate::port::Frame;
use std::ffi::{c_char, c_void};
use std::path::{Path, PathBuf};

/// The file.
const NAME: &str = "libpostern_dpdk.so";
/// `POSTERN_INTERFACE` of shim.h: a library with another number has other functions.
const INTERFACE: u32 = 2;
/// Where `make install` and packages put it.
const FOLDERS: [&str; 2] = ["/usr/local/lib/postern", "/usr/lib/postern"];

/// Why there is no DPDK.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// It is in none of the folders where it may be.
    #[error(
        "DPDK needs {NAME}, which is not installed\n  \
         fix: install DPDK and its headers (Debian: libdpdk-dev), and build with cargo build --features dpdk; looked in {}",
        folders(.0)
    )]
    Missing(Vec<PathBuf>),
    /// It needs libraries of an ABI of DPDK that are not installed.
    #[error("{}: it was built for ABI {abi} of DPDK, and {library} is not installed\n  fix: install DPDK with ABI {abi}, or build it again with the headers of the installed DPDK", .path.display())]
    Absent {
        /// The file.
        path: PathBuf,
        /// The library that it needs.
        library: String,
        /// The number at its end.
        abi: String,
    },
    /// It was built for another ABI of DPDK than the one that is installed.
    #[error("{}: it was built for ABI {built} of DPDK, and the installed DPDK has ABI {running}\n  fix: build it again with the headers of the installed DPDK", .path.display())]
    Abi {
        /// The file.
        path: PathBuf,
        /// The ABI of its headers.
        built: u32,
        /// The ABI of the libraries that it has loaded.
        running: u32,
    },
    /// It is of another version of this program.
    #[error("{}: its interface has number {found}, and this program needs number {INTERFACE}\n  fix: install the one that was built with this program", .path.display())]
    Interface {
        /// The file.
        path: PathBuf,
        /// Its number.
        found: u32,
    },
    /// It is no such library.
    #[error("{}: it cannot be loaded: {reason}\n  fix: install the one that was built with this program", .path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// What the dynamic loader says.
        reason: String,
    },
}

fn folders(paths: &[PathBuf]) -> String {
    let folders = paths.iter().filter_map(|path| path.parent());
    folders.map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// `struct postern_identity`.
#[repr(C)]
struct Identity {
    interface: u32,
    built: u32,
    running: u32,
    version: [u8; 64],
}

/// `struct postern_port`.
#[repr(C)]
pub(crate) struct PortRecord {
    pub(crate) name: [u8; 64],
    pub(crate) driver: [u8; 64],
    pub(crate) address: [u8; 6],
    pub(crate) mtu: u16,
    pub(crate) most_receive_queues: u16,
    pub(crate) most_transmit_queues: u16,
}

/// `struct postern_open`.
#[repr(C)]
pub(crate) struct OpenRecord {
    pub(crate) receive_queues: u16,
    pub(crate) transmit_queues: u16,
    pub(crate) mtu: u16,
    pub(crate) is_promiscuous: u16,
}

/// `struct postern_device`.
#[repr(C)]
pub(crate) struct DeviceRecord {
    pub(crate) name: [u8; 64],
    pub(crate) driver: [u8; 64],
    pub(crate) most_queue_pairs: u16,
    pub(crate) is_hardware: u16,
}

/// `struct postern_transform`.
#[repr(C)]
pub(crate) struct TransformRecord {
    pub(crate) cipher: u32,
    pub(crate) mac: u32,
    pub(crate) cipher_key: *const u8,
    pub(crate) mac_key: *const u8,
    pub(crate) cipher_key_length: u16,
    pub(crate) mac_key_length: u16,
    pub(crate) iv_length: u16,
    pub(crate) aad_length: u16,
    pub(crate) tag_length: u16,
    pub(crate) seals: u16,
}

/// The text of a zero-terminated array.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned()
}

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)+) => {
        /// The functions of the library, as shim.h declares them with `postern_` before their names.
        pub(crate) struct Functions {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)+
        }

        impl Functions {
            /// # Safety
            /// The library must be one of interface [`INTERFACE`], and never be unloaded.
            unsafe fn find(library: &libloading::Library) -> Result<Self, libloading::Error> {
                // SAFETY: the types are those of shim.h.
                unsafe {
                    Ok(Self { $($name: *library.get(concat!("postern_", stringify!($name)).as_bytes())?,)+ })
                }
            }
        }
    };
}

functions! {
    start: fn(i32, *mut *mut c_char) -> i32;
    enter_thread: fn() -> i32;
    leave_thread: fn();
    add_device: fn(*const c_char, *const c_char, *const c_char) -> i32;
    next_port: fn(u16) -> i32;
    describe_port: fn(u16, *mut PortRecord) -> i32;
    open_port: fn(u16, *const OpenRecord) -> i32;
    close_port: fn(u16);
    is_up: fn(u16) -> i32;
    count_port: fn(u16, *mut [u64; 6]) -> i32;
    receive: fn(u16, u16, *mut Frame<'static>, *mut *mut c_void, u32) -> u32;
    release: fn(*mut *mut c_void, u32);
    send: fn(u16, u16, *const Frame<'_>, u32) -> u32;
    count_devices: fn() -> i32;
    describe_device: fn(u8, *mut DeviceRecord) -> i32;
    open_device: fn(u8, u16) -> i32;
    load_key: fn(u8, *const TransformRecord, *mut *mut Session) -> i32;
    drop_key: fn(*mut Session) -> i32;
    run: fn(*mut Session, u16, *mut Job<'_>, u32, u64) -> i32;
}

/// The library, which stays loaded.
pub struct Library {
    pub(crate) functions: Functions,
    version: String,
}

impl Library {
    /// The library beside this program, or in a folder of libraries: `../lib/postern` from the program, `/usr/local/lib/postern`,
    /// `/usr/lib/postern`.
    ///
    /// # Errors
    /// It is nowhere, or the first one cannot be used.
    pub fn find() -> Result<&'static Self, LoadError> {
        let program = std::env::current_exe().ok();
        let beside = program.as_deref().and_then(Path::parent);
        let own = beside.into_iter().flat_map(|folder| [folder.to_owned(), folder.join("../lib/postern")]);
        let places: Vec<PathBuf> =
            own.chain(FOLDERS.map(PathBuf::from)).map(|folder| folder.join(NAME)).collect();
        match places.iter().find(|place| place.exists()) {
            Some(place) => Self::open(place),
            None => Err(LoadError::Missing(places)),
        }
    }

    /// The library at this path.
    ///
    /// # Errors
    /// It is none, or for another DPDK, or for another version of this program.
    pub fn open(path: &Path) -> Result<&'static Self, LoadError> {
        let path = path.to_owned();
        // SAFETY: its initializers, and those of DPDK, only register drivers.
        let library = match unsafe { libloading::Library::new(&path) } {
            // The functions stay valid for the life of the process.
            Ok(library) => Box::leak(Box::new(library)),
            Err(error) => return Err(reason(path, &error.to_string())),
        };
        let refused =
            |error: libloading::Error| LoadError::Refused { path: path.clone(), reason: error.to_string() };
        let mut identity = Identity { interface: 0, built: 0, running: 0, version: [0; 64] };
        // SAFETY: in every version of the interface, the function has this type, and its record begins with the three numbers.
        unsafe {
            let identify: unsafe extern "C" fn(*mut Identity) =
                *library.get(b"postern_identify").map_err(refused)?;
            identify(&raw mut identity);
        }
        let Identity { interface, built, running, version } = identity;
        if interface != INTERFACE {
            return Err(LoadError::Interface { path, found: interface });
        }
        if built != running {
            return Err(LoadError::Abi { path, built, running });
        }
        // SAFETY: it has the interface, and was leaked.
        let functions = unsafe { Functions::find(library) }.map_err(refused)?;
        Ok(Box::leak(Box::new(Self { functions, version: text(&version) })))
    }

    /// The version of DPDK, such as `DPDK 22.11.11`.
    pub fn version(&self) -> &str {
        &self.version
    }
}

/// Interprets what the dynamic loader says: a library of DPDK that is missing has its ABI behind its name.
fn reason(path: PathBuf, error: &str) -> LoadError {
    let missing =
        error.split(": cannot open shared object file").next().filter(|rest| rest.len() < error.len());
    let name = missing.and_then(|rest| rest.rsplit(' ').next()).filter(|name| name.starts_with("librte_"));
    match name.and_then(|name| name.split_once(".so.")) {
        Some((_, abi)) => {
            let abi = abi.to_owned();
            LoadError::Absent { path, library: name.unwrap_or_default().to_owned(), abi }
        }
        None => LoadError::Refused { path, reason: error.to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_of_dpdk_that_is_missing_is_named_with_its_abi() {
        let path = PathBuf::from("/x/libpostern_dpdk.so");
        let said = "librte_cryptodev.so.25: cannot open shared object file: No such file or directory";
        let expected = LoadError::Absent {
            path: path.clone(),
            library: "librte_cryptodev.so.25".to_owned(),
            abi: "25".to_owned(),
        };
        assert_eq!(reason(path.clone(), said), expected);
        for other in ["libbsd.so.0: cannot open shared object file: No such file", "/x: invalid ELF header"] {
            assert_eq!(
                reason(path.clone(), other),
                LoadError::Refused { path: path.clone(), reason: other.to_owned() }
            );
        }
    }

    #[test]
    fn records_have_the_layout_of_the_header() {
        use std::mem::offset_of;
        assert_eq!((size_of::<Identity>(), size_of::<PortRecord>()), (76, 140));
        assert_eq!((size_of::<OpenRecord>(), size_of::<DeviceRecord>()), (8, 132));
        #[cfg(target_pointer_width = "64")]
        {
            assert_eq!((size_of::<TransformRecord>(), offset_of!(TransformRecord, seals)), (40, 34));
            assert_eq!(size_of::<Frame<'_>>(), 16);
            assert_eq!((size_of::<Job<'_>>(), offset_of!(Job<'_>, tag)), (64, 32));
            assert_eq!(offset_of!(Job<'_>, is_authentic), 56);
        }
    }
}
