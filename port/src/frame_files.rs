//! Ethernet frames of capture files, as a port without an interface: what one file has is received, and what is sent goes to another.
//!
//! ```text
//! receive:  file → batch, 256 frames at a time, up to the end of the file; or again and again from memory
//! transmit: batch → file, which is whole after each burst
//! ```
//!
//! Files are read as fast as frames are carried: the times in them have no effect.

use crate::pcap::to_io;
use crate::{Receive, Transmit, Wake};
use packet::{Batch, DropCounters, DropReason};
use pcap_file::pcap::{PcapHeader, PcapReader, RawPcapPacket};
use pcap_file::{DataLink, Endianness};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Frames that are received at once: a port beside it has its turn.
const BURST: usize = 256;
/// The longest frame: the longest IP packet, with two VLAN tags.
const LONGEST: usize = 65_535 + 14 + 8;
/// The most bytes of a file that is received again and again: it is kept in memory.
const MOST_KEPT: usize = 64 << 20;

/// Why a capture file is no port.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be opened, read or made.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is no capture file that is understood.
    #[error("{}: {error}\n  fix: a file of tcpdump -w; editcap -F pcap makes one of a pcapng file", path.display())]
    NoCapture {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Its packets are no Ethernet frames.
    #[error("{}: its link type is {link:?}, and ports carry Ethernet frames\n  fix: capture on an interface of Ethernet", path.display())]
    NoEthernet {
        /// The file.
        path: PathBuf,
        /// What they are.
        link: DataLink,
    },
    /// It is a pipe, a folder or a device.
    #[error("{}: it is no regular file\n  fix: write it to a file first", path.display())]
    NoFile {
        /// The file.
        path: PathBuf,
    },
    /// It does not fit into the memory for it.
    #[error("{}: more than {} MiB, which are too many to keep\n  fix: leave out infinite_rx, or shorten it", path.display(), MOST_KEPT >> 20)]
    TooLong {
        /// The file.
        path: PathBuf,
    },
}

/// The receiving half.
pub struct FileReceive(Source);

enum Source {
    /// Read from its begin to its end.
    Once(Box<PcapReader<File>>),
    /// Received again and again; there is at least one frame. Those that were cut are left out, and counted once.
    Again { frames: Vec<Box<[u8]>>, next: usize, cut: usize },
    /// Behind a broken frame nothing is known.
    Broken(io::Error),
    /// There is nothing more.
    Ended,
}

/// A capture file that is written (libpcap's format, version 2.4, microseconds).
struct Written {
    file: File,
    /// What a burst adds to it, so that one call writes it.
    burst: Vec<u8>,
    /// The end of the last burst that was written whole.
    end: u64,
}

/// The sending half. Several share a file.
#[derive(Clone)]
pub struct FileTransmit {
    /// None: there is no file to write to.
    file: Option<Arc<Mutex<Written>>>,
    refusal: Option<Errno>,
    refused: u64,
}

impl FileReceive {
    /// A port without a file: nothing is received.
    pub fn none() -> Self {
        Self(Source::Ended)
    }

    /// Opens a capture file of Ethernet frames.
    ///
    /// # Errors
    /// It is not there, or no capture file of Ethernet frames.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        Ok(Self(Source::Once(Box::new(reader(path)?))))
    }

    /// Opens one whose frames come again and again. An empty one has an end.
    ///
    /// # Errors
    /// As [`open`](Self::open), or it is too long.
    pub fn open_endless(path: &Path) -> Result<Self, FileError> {
        let mut reader = reader(path)?;
        let (mut frames, mut bytes, mut cut) = (Vec::new(), 0, 0);
        while let Some(frame) = reader.next_raw_packet() {
            let frame =
                frame.map_err(|error| FileError::NoCapture { path: path.to_owned(), error: to_io(error) })?;
            if frame.data.is_empty() || is_cut(&frame) {
                cut += 1;
                continue;
            }
            bytes += frame.data.len();
            if bytes > MOST_KEPT {
                return Err(FileError::TooLong { path: path.to_owned() });
            }
            frames.push(frame.data.into());
        }
        Ok(Self(if frames.is_empty() { Source::Ended } else { Source::Again { frames, next: 0, cut } }))
    }
}

fn reader(path: &Path) -> Result<PcapReader<File>, FileError> {
    let of_file = |error| FileError::Io { path: path.to_owned(), error };
    // A pipe would hold up the worker: it is not even opened, which waits for its writer.
    if !std::fs::metadata(path).map_err(of_file)?.is_file() {
        return Err(FileError::NoFile { path: path.to_owned() });
    }
    let file = File::open(path).map_err(of_file)?;
    let reader = PcapReader::new(file)
        .map_err(|error| FileError::NoCapture { path: path.to_owned(), error: to_io(error) })?;
    match reader.header().datalink {
        DataLink::ETHERNET => Ok(reader),
        link => Err(FileError::NoEthernet { path: path.to_owned(), link }),
    }
}

impl FileTransmit {
    /// A port without a file: what is sent is dropped.
    pub fn none() -> Self {
        Self { file: None, refusal: None, refused: 0 }
    }

    /// Makes a capture file that only its owner may read, or empties one, which keeps its permissions.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(path: &Path) -> Result<Self, FileError> {
        let written =
            Written::create(path).map_err(|error| FileError::Io { path: path.to_owned(), error })?;
        Ok(Self { file: Some(Arc::new(Mutex::new(written))), ..Self::none() })
    }
}

impl Written {
    fn create(path: &Path) -> io::Result<Self> {
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        let mut head = Vec::new();
        let (datalink, snaplen, endianness) = (DataLink::ETHERNET, LONGEST as u32, Endianness::native());
        PcapHeader { datalink, snaplen, endianness, ..PcapHeader::default() }
            .write_to(&mut head)
            .map_err(to_io)?;
        file.write_all(&head)?;
        Ok(Self { file, burst: Vec::new(), end: head.len() as u64 })
    }

    /// Writes the live frames of a batch. A burst that the disk has no room for is written over by the next one.
    fn write(&mut self, batch: &Batch) -> io::Result<()> {
        // One time for all: they leave at once.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.burst.clear();
        for index in batch.live(0..batch.len()) {
            let frame = batch.packet(index);
            let length = frame.len() as u32;
            for field in [now.as_secs() as u32, now.subsec_micros(), length, length] {
                self.burst.extend(field.to_ne_bytes());
            }
            self.burst.extend(frame);
        }
        let outcome = self.file.write_all(&self.burst);
        match outcome {
            Ok(()) => self.end += self.burst.len() as u64,
            Err(_) => drop(self.file.seek(SeekFrom::Start(self.end))),
        }
        outcome
    }
}

impl Receive for FileReceive {
    fn receive(&mut self, batch: &mut Batch, drops: &DropCounters) -> io::Result<usize> {
        let first = batch.len();
        if let Source::Broken(_) = self.0
            && let Source::Broken(error) = std::mem::replace(&mut self.0, Source::Ended)
        {
            return Err(error);
        }
        self.0.receive(batch, first + BURST, drops);
        batch.close_train(first, None, 0);
        Ok(batch.len() - first)
    }

    /// Frames are there at once, up to the end.
    fn wait(&mut self, wake: &Wake) -> io::Result<()> {
        if self.has_ended() { wake.wait([]).map(|[]| ()) } else { Ok(()) }
    }

    fn has_ended(&self) -> bool {
        matches!(self.0, Source::Ended)
    }
}

impl Source {
    /// Appends frames until the batch has `until` of them, or no room for the longest.
    fn receive(&mut self, batch: &mut Batch, until: usize, drops: &DropCounters) {
        while batch.len() < until && batch.free() >= Batch::footprint(LONGEST) {
            let reader = match self {
                Self::Broken(_) | Self::Ended => break,
                Self::Again { frames, next, cut } => {
                    drops.count(DropReason::Truncated, std::mem::take(cut));
                    let frame = &frames[*next];
                    *next = (*next + 1) % frames.len();
                    batch.append(frame.len()).expect("there is room for the longest").copy_from_slice(frame);
                    continue;
                }
                Self::Once(reader) => reader,
            };
            let end = match reader.next_raw_packet() {
                None => Self::Ended,
                Some(Ok(frame)) => {
                    append(&frame, batch, drops);
                    continue;
                }
                // What was read before is carried first.
                Some(Err(error)) => {
                    let text =
                        format!("the capture file is broken here, and is not read on: {}", to_io(error));
                    Self::Broken(io::Error::new(io::ErrorKind::InvalidData, text))
                }
            };
            *self = end;
        }
    }
}

/// Appends a frame, for which there is room, or drops it.
fn append(frame: &RawPcapPacket<'_>, batch: &mut Batch, drops: &DropCounters) {
    if frame.data.is_empty() {
        drops.count(DropReason::TooShort, 1);
    } else if is_cut(frame) {
        drops.count(DropReason::Truncated, 1);
    } else {
        let packet = batch.append(frame.data.len()).expect("there is room for the longest");
        packet.copy_from_slice(&frame.data);
    }
}

/// Whether a frame was cut when it was captured, or is longer than any.
fn is_cut(frame: &RawPcapPacket<'_>) -> bool {
    frame.data.len() > LONGEST || frame.orig_len > frame.incl_len
}

impl Transmit for FileTransmit {
    fn transmit(&mut self, batch: &mut Batch, drops: &DropCounters) {
        let outcome = match &self.file {
            Some(file) => file.lock().unwrap_or_else(PoisonError::into_inner).write(batch),
            None => Err(io::Error::from(Errno::NXIO)),
        };
        let Err(error) = outcome else { return };
        self.refusal = Errno::from_io_error(&error).or(Some(Errno::IO));
        for index in 0..batch.len() {
            if batch.is_live(index) {
                self.refused += 1;
                batch.drop_packet(index, DropReason::SendFailed, drops);
            }
        }
    }

    fn take_refusal(&mut self) -> Option<Errno> {
        self.refusal.take()
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        vec![("tx_refused", self.refused)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcap::{Capture, write_frames};

    fn batch_of(frames: &[Vec<u8>]) -> Batch {
        let mut batch = Batch::new(512 * 1024);
        for frame in frames {
            batch.append(frame.len()).expect("it fits").copy_from_slice(frame);
        }
        batch.close_train(0, None, 0);
        batch
    }

    fn all_of(receive: &mut FileReceive, drops: &DropCounters) -> Vec<Vec<u8>> {
        let (mut batch, mut frames) = (Batch::new(512 * 1024), Vec::new());
        while !receive.has_ended() {
            batch.clear();
            match receive.receive(&mut batch, drops) {
                Ok(_) => {}
                Err(error) => assert!(error.to_string().contains("broken here"), "{error}"),
            }
            frames.extend((0..batch.len()).map(|index| batch.packet(index).to_vec()));
        }
        frames
    }

    #[test]
    fn what_a_port_writes_another_reads_to_the_end_and_the_file_is_whole_after_each_burst() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x");
        let frames: Vec<Vec<u8>> = (0..600).map(|size| vec![size as u8; 60 + size]).collect();
        let (mut transmit, drops) =
            (FileTransmit::create(&path).expect("it is made"), DropCounters::default());
        let mut another = transmit.clone();
        transmit.transmit(&mut batch_of(&frames[..300]), &drops);
        let mut gaps = batch_of(&[vec![9; 60], frames[300].clone()]);
        gaps.discard(0);
        another.transmit(&mut gaps, &drops);
        transmit.transmit(&mut batch_of(&frames[301..]), &drops);
        // Neither half was dropped yet.
        let mut receive = FileReceive::open(&path).expect("it is a capture");
        let mut burst = Batch::new(512 * 1024);
        assert_eq!(receive.receive(&mut burst, &drops).expect("it is read"), BURST, "not all at once");
        assert_eq!(all_of(&mut receive, &drops), frames[BURST..]);
        assert_eq!(receive.receive(&mut burst, &drops).expect("it has ended"), 0);
        assert_eq!((drops.read(DropReason::SendFailed), transmit.counters()[0].1), (0, 0));
    }

    #[test]
    fn frames_come_again_and_again_but_an_empty_file_ends() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x");
        write_frames(&path, [&[1; 60][..], &[2; 60]]).expect("it is made");
        let mut receive = FileReceive::open_endless(&path).expect("it is a capture");
        let (mut batch, drops) = (Batch::new(512 * 1024), DropCounters::default());
        assert_eq!(receive.receive(&mut batch, &drops).expect("it is read"), BURST);
        assert_eq!((batch.packet(254)[0], batch.packet(255)[0]), (1, 2));
        write_frames(&path, []).expect("it is made");
        assert!(FileReceive::open_endless(&path).expect("it is a capture").has_ended());
    }

    #[test]
    fn frames_that_were_cut_are_dropped_and_a_file_that_breaks_off_ends() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x");
        write_frames(&path, [&[1; 60][..], &[2; 70], &[3; 80]]).expect("it is made");
        let mut bytes = std::fs::read(&path).expect("it is there");
        // The second one: 24 bytes of head, 16 and 60 of the first; its length on the wire was larger.
        bytes[24 + 76 + 12] = 71;
        std::fs::write(&path, &bytes).expect("it can be written");
        let drops = DropCounters::default();
        let read_all = |bytes: &[u8]| {
            std::fs::write(&path, bytes).expect("it can be written");
            all_of(&mut FileReceive::open(&path).expect("it is a capture"), &drops)
        };
        assert_eq!(read_all(&bytes), [vec![1; 60], vec![3; 80]]);
        assert_eq!(drops.read(DropReason::Truncated), 1);
        for length in 24..24 + 76 {
            assert!(read_all(&bytes[..length]).is_empty(), "{length} bytes");
        }
        // A length that no file has.
        bytes[24 + 8..24 + 12].fill(0xff);
        assert!(read_all(&bytes).is_empty());
    }

    #[test]
    fn what_is_no_capture_of_frames_is_refused_with_what_to_do() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x");
        let said = || FileReceive::open(&path).map(drop).expect_err("it is refused").to_string();
        assert!(said().contains("No such file"));
        drop(Capture::create(&path).expect("it is made"));
        assert!(said().contains("link type is RAW"), "{}", said());
        std::fs::write(&path, [0x0a, 0x0d, 0x0d, 0x0a].repeat(9)).expect("it can be written");
        assert!(said().contains("editcap"), "{}", said());
        std::fs::write(&path, "").expect("it can be written");
        assert!(said().contains("editcap"), "{}", said());
        std::fs::remove_file(&path).expect("it is there");
        std::fs::create_dir(&path).expect("a folder");
        assert!(said().contains("no regular file"));
        assert!(FileTransmit::create(&path).is_err());
    }

    #[test]
    fn without_a_file_nothing_comes_and_what_is_sent_is_counted() {
        let drops = DropCounters::default();
        let mut batch = batch_of(&[vec![1; 60]]);
        let mut transmit = FileTransmit::none();
        transmit.transmit(&mut batch, &drops);
        assert_eq!((drops.read(DropReason::SendFailed), transmit.take_refusal()), (1, Some(Errno::NXIO)));
        assert!(!batch.is_live(0) && FileReceive::none().has_ended());
    }

    #[test]
    fn a_full_disk_is_counted_and_does_not_end_the_port() {
        let Ok(file) = File::options().write(true).open("/dev/full") else { return };
        let drops = DropCounters::default();
        let written = Written { file, burst: Vec::new(), end: 24 };
        let mut transmit =
            FileTransmit { file: Some(Arc::new(Mutex::new(written))), refusal: None, refused: 0 };
        for lost in [2, 4] {
            transmit.transmit(&mut batch_of(&[vec![1; 60], vec![2; 60]]), &drops);
            assert_eq!(
                (drops.read(DropReason::SendFailed), transmit.take_refusal()),
                (lost, Some(Errno::NOSPC))
            );
        }
        assert!(FileTransmit::create(Path::new("/dev/full")).is_err(), "its head does not fit");
    }
}
