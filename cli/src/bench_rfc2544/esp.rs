//! The keys of `postern bench rfc2544 --esp`: `sa` lines of ipsec-secgw, from the file of the device or from the command line.

use super::policies::{Covered, Frames};
use bench::Outcome;
use bench::rfc2544::{Esp, EspSa, OuterAddresses, Stream};
use clap::{Args, ValueEnum};
use config::secgw::settings::{Direction, Mode, Sa, Settings};
use config::secgw::{self, Context, Severity};
use crypto::SecretBytes;
use std::fmt::Write as _;
use std::path::PathBuf;

#[derive(Args)]
pub(super) struct EspArguments {
    /// The device encrypts: its file for ipsec-secgw, of which `sa` lines have SPIs and keys, and `sp` lines say which SA is used
    #[arg(long, value_name = "FILE")]
    esp: Option<PathBuf>,
    /// A line of such a file without the word sa; may be given more than once. Other users of the machine see its keys
    #[arg(long, value_name = "LINE")]
    sa: Vec<String>,
    /// The port behind the encrypting side of the device; both if ESP goes through the device
    #[arg(long, value_enum)]
    esp_side: Option<Side>,
    /// The first ESP sequence number; more than that of the last run at a device with a replay window
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    esp_sequence: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Side {
    Tx,
    Rx,
    Both,
}

impl EspArguments {
    /// The ports with ESP, the SAs, and the streams that use them, by the port that they leave by; none without `--esp` and `--sa`.
    pub(super) fn read(&self, frames: &Frames) -> Outcome<Option<(Esp, [Vec<Stream>; 2])>> {
        if self.esp.is_none() && self.sa.is_empty() {
            if self.esp_side.is_some() || self.esp_sequence.is_some() {
                return Err("--esp-side and --esp-sequence need keys\n  fix: --esp FILE, or --sa LINE".into());
            }
            return Ok(None);
        }
        let side = self.esp_side.unwrap_or(if frames.in_memory { Side::Both } else { Side::Rx });
        if frames.in_memory && side != Side::Both {
            return Err(
                "the device in memory copies frames, and does not encrypt\n  fix: --esp-side both".into()
            );
        }
        let settings = self.settings()?;
        let mut esp = Esp {
            ports: [side != Side::Rx, side != Side::Tx],
            sealed_by_device: sealed_by_device(&settings, side)?,
            first_sequence: self.esp_sequence,
            ..Esp::default()
        };
        let mut streams = [Vec::new(), Vec::new()];
        for (from, streams) in streams.iter_mut().enumerate().take(1 + usize::from(frames.both)) {
            *streams = if esp.ports[from] {
                let part = (side == Side::Both && frames.both).then_some(from);
                opened_by_device(&mut esp, &settings, frames, from, part)?
            } else {
                marked(&mut esp, &settings, frames, from)?
            };
        }
        let spis = |from: usize| esp.opened_by_device[from].iter().map(|sa| sa.spi);
        if let Some(spi) = spis(0).find(|&spi| spis(1).any(|other| other == spi)) {
            return Err(format!(
                "both directions would use the sequence numbers of SPI {spi}\n  fix: a second line that begins with sa in"
            )
            .into());
        }
        if streams[1].is_empty() {
            streams[1] = streams[0].iter().map(|stream| stream.back()).collect();
        }
        Ok(Some((esp, streams)))
    }

    /// What the file and the lines of the command line say.
    fn settings(&self) -> Outcome<Settings> {
        let mut text = Vec::new();
        if let Some(path) = &self.esp {
            text = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
            text.push(b'\n');
        }
        let mut lines = String::new();
        for line in &self.sa {
            writeln!(lines, "sa {line}")?;
        }
        text.extend(lines.as_bytes());
        let loaded = secgw::read(&text, &Context::default());
        let name = self.esp.as_ref().map_or("--sa".into(), |path| path.display().to_string());
        match loaded.findings.iter().find(|finding| finding.severity == Severity::Error) {
            Some(error) => Err(error.in_file(&name).to_string().into()),
            None => Ok(loaded.settings),
        }
    }
}

/// The SAs that the device seals with.
fn sealed_by_device(settings: &Settings, side: Side) -> Outcome<Vec<EspSa>> {
    let outbound = settings.sas.iter().filter(|sa| sa.direction == Direction::Outbound);
    match side {
        // What goes through the device is what the tester has sealed.
        Side::Both => Ok(outbound.filter_map(|sa| esp_sa(sa).ok()).collect()),
        Side::Tx | Side::Rx => outbound.map(esp_sa).collect(),
    }
}

/// The streams that the tester seals, and their SAs. `part`: the policies or SAs are shared by both directions, and this is the one.
fn opened_by_device(
    esp: &mut Esp,
    settings: &Settings,
    frames: &Frames,
    from: usize,
    part: Option<usize>,
) -> Outcome<Vec<Stream>> {
    let Covered { streams, by_stream, notes } = frames.covered(settings, from, Direction::Inbound, part)?;
    esp.notes.extend(notes);
    let inbound = || settings.sas.iter().filter(|sa| sa.direction == Direction::Inbound);
    if by_stream.is_empty() {
        let sa = inbound().nth(part.unwrap_or_default());
        let sa = sa.ok_or(
            "no SA that the device opens\n  fix: a line that begins with sa in for each direction of ESP",
        )?;
        esp.opened_by_device[from] = vec![esp_sa(sa)?];
        return Ok(streams);
    }
    for (line, spi) in by_stream {
        let sas = &mut esp.opened_by_device[from];
        let place = sas.iter().position(|sa| sa.spi == spi);
        let place = place.map_or_else(
            || {
                let sa = settings.sas_with(Direction::Inbound, spi).next();
                let missing = format!("line {line} needs an SA in with SPI {spi}: there is none");
                sas.push(esp_sa(sa.ok_or(missing)?)?);
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(sas.len() - 1)
            },
            Ok,
        )?;
        esp.by_stream[from].push(place as u32);
    }
    Ok(streams)
}

/// The streams that the device seals, and the SAs that it has to take for them.
fn marked(esp: &mut Esp, settings: &Settings, frames: &Frames, from: usize) -> Outcome<Vec<Stream>> {
    if esp.sealed_by_device.is_empty() {
        return Err("no SA that the device seals with\n  fix: a line that begins with sa out".into());
    }
    let Covered { streams, by_stream, notes } = frames.covered(settings, from, Direction::Outbound, None)?;
    esp.notes.extend(notes);
    for (line, spi) in by_stream {
        let place = esp.sealed_by_device.iter().position(|sa| sa.spi == spi);
        let missing = format!("line {line} needs an SA out with SPI {spi}: there is none");
        esp.by_stream[from].push(place.ok_or(missing)? as u32);
    }
    Ok(streams)
}

/// An SA as the tester uses it.
fn esp_sa(sa: &Sa) -> Outcome<EspSa> {
    let tunnel = match sa.mode {
        Mode::Tunnel { source, destination } => Some(OuterAddresses { source, destination }),
        Mode::Transport => None,
    };
    let Some(transform) = sa.protection.transform() else {
        let name = sa.protection.name();
        let text =
            format!("line {}: {name} is not served\n  fix: a cipher other than DES, with a MAC", sa.line);
        return Err(text.into());
    };
    // CCM has 3 bytes of salt; the format has a fourth, which is not used.
    let keys = SecretBytes::new(sa.keys.expose()[..transform.key_material_length()].to_vec());
    let extended_from = (sa.extended_sequence > 0).then_some(sa.extended_sequence);
    Ok(EspSa { spi: sa.spi, transform, keys, extended_from, tunnel, in_udp: sa.udp_encapsulation })
}

#[cfg(test)]
mod tests;
