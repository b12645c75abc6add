//! Addresses of views of the status page, which browsers send and links of other sites may have.

use https::page::place;

/// A path, and a query behind the first question mark.
pub fn places(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (path, query) = text.split_once('?').unwrap_or((&text, ""));
    let Some(own) = place(path, query) else { return };
    assert!(own.is_ascii() && !own.contains(['<', '"', '\'', ' ']), "it needs no escape: {own}");
    let (path, query) = own.split_once('?').unwrap_or((&own, ""));
    assert_eq!(place(path, query).as_deref(), Some(&*own), "it leads to the same view");
}
