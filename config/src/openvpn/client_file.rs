//! The file of a client in `client-config-dir`, and what `client-connect` writes: the same directives.

use super::given::Given;
use super::row::{Fate, Scope};
use super::settings::ClientFile;
use super::source::{Read, Source};
use super::table;
use super::verdict::{Refusal, Remark, Wrong};
use crate::import::Files;
use crate::text::Text;

/// Reads the file of a client.
///
/// # Errors
/// All errors at once, in the order of the file.
pub fn client_file(
    name: &str,
    text: &Text,
    files: &dyn Files,
) -> Result<(ClientFile, Vec<Remark>), Vec<Refusal>> {
    let mut source = Source::new(files);
    source.client(name, text);
    let Read { directives, folder, mut verdict } = source.finish();
    let mut client = ClientFile::default();
    for directive in &directives {
        let position = &directive.position;
        let Some(row) = table::find(&directive.name) else { continue };
        let applied = match (row.fate, row.client_file) {
            (Fate::Refused { why, fix }, _) => Err(Wrong::new(why, fix)),
            (Fate::Harmless { why }, _) => {
                verdict.remark(position, row.name, why, false);
                Ok(())
            }
            (Fate::Served { .. }, None) => row.check(directive, Scope::CLIENT_FILE),
            (Fate::Served { .. }, Some(by)) => {
                let (name, usage) = (row.name, row.usage);
                let given = Given { directive, name, usage, files, folder: &folder, root: None };
                row.check(directive, Scope::CLIENT_FILE).and_then(|()| by(&mut client, &given))
            }
        };
        if let Err(wrong) = applied {
            verdict.refuse(position, row.name, wrong);
        }
    }
    if verdict.refusals.is_empty() { Ok((client, verdict.remarks)) } else { Err(verdict.refusals) }
}
