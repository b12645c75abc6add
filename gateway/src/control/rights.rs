//! What a thread may do: no more than its work needs, since what it reads may come from strangers.

use caps::errors::CapsError;
use caps::{CapSet, Capability};

/// Which of the process's capabilities a thread keeps.
#[derive(Clone, Copy)]
pub(in crate::control) enum Rights {
    /// None: it carries packets, between descriptors that are open.
    None,
    /// Those that concern the network namespace it is in, to bind and to mark sockets.
    OwnNamespace,
    /// Also that of going to another namespace.
    All,
}

impl Rights {
    /// Gives up all others, for the thread that calls it.
    pub(in crate::control) fn keep(self) {
        if let Err(error) = self.drop_others() {
            tracing::warn!("a thread keeps more rights than it needs: {error}");
        }
    }

    fn drop_others(self) -> Result<(), CapsError> {
        match self {
            Self::None => {
                caps::clear(None, CapSet::Effective)?;
                caps::clear(None, CapSet::Permitted)
            }
            Self::OwnNamespace => {
                caps::drop(None, CapSet::Effective, Capability::CAP_SYS_ADMIN)?;
                caps::drop(None, CapSet::Permitted, Capability::CAP_SYS_ADMIN)
            }
            Self::All => Ok(()),
        }
    }
}
