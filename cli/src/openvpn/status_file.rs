//! The file of `status`, written again and again in its place: the process may have become a user that cannot make it.

use config::openvpn::settings::{Log, Status};
use gateway::openvpn::status::Format;
use std::fs::File;
use std::io::{Seek, Write};
use std::time::Duration;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// The file, and how often it is written.
pub(super) struct StatusFile {
    file: File,
    status: Status,
    pub(super) format: Format,
}

impl StatusFile {
    /// Opens the file. As in OpenVPN, a file that cannot be written is reported, and left out.
    pub(super) fn open(log: &Log) -> Option<Self> {
        let status = log.status.clone()?;
        let path = status.file.display();
        match disk::output(&status.file, false) {
            Ok(file) => Some(Self { file, format: format(log), status }),
            Err(error) => {
                tracing::warn!(
                    "status {path}: {error}\n  fix: make the folder, or name a file that can be written"
                );
                None
            }
        }
    }

    /// After the files were read again: the same file stays open.
    pub(super) fn follow(own: &mut Option<Self>, log: &Log) {
        match own {
            Some(own) if log.status.as_ref().is_some_and(|it| it.file == own.status.file) => {
                own.format = format(log);
                own.status.clone_from(log.status.as_ref().unwrap_or(&own.status.clone()));
            }
            _ => *own = Self::open(log),
        }
    }

    /// The time between writing it; `status FILE 0` never writes it.
    pub(super) fn interval(own: Option<&Self>) -> Option<Interval> {
        let seconds = own.map(|own| own.status.every_seconds).filter(|seconds| *seconds != 0)?;
        let mut interval = interval(Duration::from_secs(seconds.into()));
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Some(interval)
    }

    /// Replaces the content.
    pub(super) fn write(&mut self, text: &str) {
        let written = self.file.rewind().and_then(|()| self.file.write_all(text.as_bytes()));
        if let Err(error) = written.and_then(|()| self.file.set_len(text.len() as u64)) {
            tracing::warn!("status {}: {error}", self.status.file.display());
        }
    }
}

/// The format of `status-version`.
pub(super) fn format(log: &Log) -> Format {
    Format::numbered(log.status_version).unwrap_or_default()
}
