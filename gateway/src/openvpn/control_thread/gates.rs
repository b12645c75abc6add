//! What an attempt of a client to connect waits for.

/// What the management interface is asked before an attempt to connect.
#[allow(clippy::struct_excessive_bools, reason = "each is a question of its own")]
pub(super) struct Gates {
    /// Whether it is there.
    pub(super) is_managed: bool,
    /// Whether it is asked where to connect to (`management-query-remote`).
    pub(super) asks_remote: bool,
    /// Whether this attempt does not wait for `hold release`: it was given, as before the first attempt.
    pub(super) is_released: bool,
    /// Whether it has answered where to connect to.
    pub(super) is_chosen: bool,
    pub(super) waits: Waits,
}

/// What an attempt waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Waits {
    /// Nothing, or there is none.
    #[default]
    Nothing,
    /// `hold release`.
    Release,
    /// The answer where to connect to.
    Choice,
    /// The user name and the password.
    User,
}

impl Gates {
    /// The attempt begins; the next one asks again.
    pub(super) fn passed(&mut self) {
        (self.is_released, self.is_chosen) = (false, false);
    }
    /// The answer to what an attempt waits for has come; false if it comes too late or twice: a session may be up.
    pub(super) fn answered(&mut self, what: Waits) -> bool {
        let is_awaited = self.waits == what;
        if is_awaited {
            self.waits = Waits::Nothing;
        }
        is_awaited
    }
}
