//! What the kernel has said about routes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;

/// Whether the kernel has a route to an address: it is asked once about each.
pub(super) struct KnownRoutes<Ask> {
    known: RefCell<HashMap<IpAddr, bool>>,
    ask_kernel: RefCell<Ask>,
}

impl<Ask: FnMut(IpAddr) -> bool> KnownRoutes<Ask> {
    pub(super) fn new(ask_kernel: Ask) -> Self {
        Self { known: RefCell::default(), ask_kernel: RefCell::new(ask_kernel) }
    }

    pub(super) fn has_route(&self, to: IpAddr) -> bool {
        *self.known.borrow_mut().entry(to).or_insert_with(|| (self.ask_kernel.borrow_mut())(to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_asked_once_about_an_address() {
        let asked = RefCell::new(Vec::new());
        let routes = KnownRoutes::new(|to: IpAddr| {
            asked.borrow_mut().push(to);
            to.is_ipv4()
        });
        let [v4, v6]: [IpAddr; 2] = [[192, 0, 2, 1].into(), [0; 16].into()];
        assert_eq!([v4, v6, v4, v6].map(|to| routes.has_route(to)), [true, false, true, false]);
        assert_eq!(*asked.borrow(), [v4, v6]);
    }
}
