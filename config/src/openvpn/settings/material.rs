//! What files and inline blocks hold.

use crate::text::Text;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The content of a file, or of an inline block. It may be a secret: it is erased when dropped, and not printed.
#[derive(Clone)]
pub struct Material {
    /// The file; none for an inline block.
    pub file: Option<PathBuf>,
    text: Arc<Text>,
}

impl Material {
    pub(crate) fn new(file: Option<&Path>, text: Arc<Text>) -> Self {
        Self { file: file.map(Path::to_owned), text }
    }

    /// What is made of files, such as a key without its password.
    pub fn made(text: Text) -> Self {
        Self { file: None, text: Arc::new(text) }
    }

    /// The content.
    pub fn bytes(&self) -> &[u8] {
        self.text.bytes()
    }

    /// The content as characters; none if it is not UTF-8.
    pub fn text(&self) -> Option<&str> {
        self.text.as_str().ok()
    }
}

impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "Material({})", file.display()),
            None => f.write_str("Material(inline)"),
        }
    }
}
