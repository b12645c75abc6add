//! Ports of `net_pcap`: frames of capture files in, and capture files of frames out.

use super::plan::PortPlan;
use super::ports::{Opened, PortError, Queue};
use config::secgw::{Device, Driver};
use port::Transmit;
use port::frame_files::{FileReceive, FileTransmit};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The files of a port.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// What is received, one file a queue.
    pub received: Vec<PathBuf>,
    /// Where frames go; without it, they are dropped.
    pub sent: Option<PathBuf>,
    /// Whether what is received comes again and again.
    pub is_endless: bool,
}

impl Files {
    /// The files of a device from which so many queues are received; none for another device.
    pub(super) fn of(device: &Device, queues: usize) -> Result<Self, (String, String)> {
        let mut files = Self::default();
        if device.driver != Driver::Pcap {
            return Ok(files);
        }
        let name = &device.name;
        for (key, value) in &device.arguments {
            match (key.as_str(), value.as_str()) {
                ("rx_pcap" | "tx_pcap", "") => {
                    return Err((format!("--vdev {name}: {key} names no file"), format!("write {key}=FILE")));
                }
                ("rx_pcap", file) => files.received.push(file.into()),
                ("tx_pcap", file) => {
                    if let Some(other) = files.sent.replace(file.into()) {
                        let text = format!("--vdev {name} writes {} and {file}", other.display());
                        return Err((text, "write tx_pcap once: all lcores write to one file".to_owned()));
                    }
                }
                ("infinite_rx", "0" | "1") => files.is_endless = value == "1",
                ("infinite_rx", _) => {
                    let text = format!("--vdev {name}: infinite_rx={value}");
                    return Err((text, "it is 0 or 1".to_owned()));
                }
                ("rx_iface" | "rx_iface_in" | "tx_iface", interface) => {
                    let text = format!("--vdev {name}: {key}={value} is not served");
                    return Err((text, format!("write iface={interface} for both directions")));
                }
                _ => {
                    let text = format!("--vdev {name}: {key}={value} is not served");
                    return Err((text, "delete it".to_owned()));
                }
            }
        }
        // A port without any has no frames.
        if !files.received.is_empty() && queues > 0 && files.received.len() != queues {
            let (count, plural) = (files.received.len(), if files.received.len() == 1 { "" } else { "s" });
            let text = format!(
                "--vdev {name} has {count} rx_pcap file{plural}, and --config names {queues} queues of it"
            );
            return Err((text, "write rx_pcap once for each queue".to_owned()));
        }
        Ok(files)
    }
}

/// Refuses a file that one port writes and any port reads or writes: it is emptied at the start.
pub(super) fn check(plans: &[PortPlan]) -> Result<(), PortError> {
    let mut known: BTreeMap<File, u16> = BTreeMap::new();
    for plan in plans {
        for file in &plan.files.received {
            known.insert(File::of(file), plan.number);
        }
    }
    for plan in plans {
        let Some(path) = &plan.files.sent else { continue };
        // What is no regular file, such as /dev/null, can be written by all.
        if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
            continue;
        }
        if let Some(other) = known.insert(File::of(path), plan.number) {
            return Err(PortError::SameFile { number: plan.number, other, path: path.clone() });
        }
    }
    Ok(())
}

/// What tells files apart.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum File {
    /// One that is there, by its place on the disk.
    There(u64, u64),
    /// One that is not there, by its folder and its name.
    Missing(PathBuf),
}

impl File {
    fn of(path: &Path) -> Self {
        if let Ok(metadata) = path.metadata() {
            return Self::There(metadata.dev(), metadata.ino());
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).canonicalize();
        Self::Missing(match (folder, path.file_name()) {
            (Ok(folder), Some(name)) => folder.join(name),
            _ => path.to_owned(),
        })
    }
}

/// Opens the files of a port.
pub(super) fn open(plan: &PortPlan, workers: usize) -> Result<Opened, PortError> {
    let of_port = |error| PortError::File(plan.number, error);
    let open = if plan.files.is_endless { FileReceive::open_endless } else { FileReceive::open };
    let received = plan.files.received.iter().map(|path| open(path));
    let mut received = received.collect::<Result<Vec<_>, _>>().map_err(of_port)?;
    if received.is_empty() {
        received.extend(plan.queues.receivers.iter().map(|_| FileReceive::none()));
    }
    let sent = plan.files.sent.as_deref().map_or_else(|| Ok(FileTransmit::none()), FileTransmit::create);
    let sent = sent.map_err(of_port)?;
    Ok(Opened {
        name: plan.interface.clone(),
        address: plan.address.unwrap_or_default(),
        queues: received.into_iter().map(Queue::new).collect(),
        transmits: (0..workers).map(|_| Box::new(sent.clone()) as Box<dyn Transmit>).collect(),
        link: None,
    })
}

/// The address that DPDK gives to the port of `net_pcap` with this place among them.
pub(super) fn address(place: u8) -> [u8; 6] {
    [0x02, b'p', b'c', b'a', b'p', place]
}
