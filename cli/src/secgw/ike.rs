//! `--ike FILE`: the peers of IKE that policies name, from a configuration of Postern.

use crate::Failure;
use config::Text;
use gateway::secgw::Peers;
use std::path::Path;

/// All peers of the file; none without one.
pub(super) fn peers(file: Option<&str>) -> Result<Peers, Failure> {
    let Some(file) = file else { return Ok(Peers::new()) };
    let text = Text::read(Path::new(file)).map_err(|error| format!("{file}: {error}"))?;
    let text = text.as_str().map_err(|error| format!("{file}: {error}"))?;
    let checked = config::parse(text).and_then(|tree| config::Settings::new(&tree));
    let (settings, _) = checked.map_err(|errors| {
        let errors: Vec<String> = errors.iter().map(|error| format!("{file}: {error}")).collect();
        errors.join("\n")
    })?;
    Ok(settings.ipsec.peers)
}
