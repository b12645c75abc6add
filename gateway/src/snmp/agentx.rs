//! AgentX, version 1 (RFC 2741): the protocol between snmpd and its sub-agents.
//!
//! Bytes are read in the order that their header names, and written in network byte order. All lengths are bounded: a request has
//! at most [`LONGEST`] bytes, and an object identifier at most [`MOST_NUMBERS`] numbers.

/// Bytes of a header.
pub const HEADER: usize = 20;
/// Bytes behind the header of a message that is read.
pub const LONGEST: usize = 64 << 10;
/// Numbers of an object identifier (RFC 2578 3.5).
pub const MOST_NUMBERS: usize = 128;

const VERSION: u8 = 1;
const NON_DEFAULT_CONTEXT: u8 = 0x08;
const NETWORK_BYTE_ORDER: u8 = 0x10;
/// Numbers that one byte stands for: 1.3.6.1 (RFC 2741 5.1).
const INTERNET: [u32; 4] = [1, 3, 6, 1];

const OPEN: u8 = 1;
const CLOSE: u8 = 2;
const REGISTER: u8 = 3;
const GET: u8 = 5;
const GET_NEXT: u8 = 6;
const GET_BULK: u8 = 7;
const TEST_SET: u8 = 8;
const CLEANUP_SET: u8 = 11;
const NOTIFY: u8 = 12;
const PING: u8 = 13;
const RESPONSE: u8 = 18;

/// An object identifier. Their order is that of a walk.
pub type Oid = Vec<u32>;

/// Why bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AgentXError {
    /// They end before the message does.
    #[error("the message is too short")]
    Truncated,
    /// It is longer than any request.
    #[error("the message is too long")]
    TooLong,
    /// Another version of the protocol.
    #[error("version {0} of AgentX")]
    Version(u8),
    /// An object identifier with too many numbers.
    #[error("an object identifier with too many numbers")]
    Oid,
}

/// The header of a message (RFC 2741 6.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Header {
    /// What the message is.
    pub kind: u8,
    /// How it is written.
    pub flags: u8,
    /// The session, which snmpd numbers.
    pub session: u32,
    /// The request of a manager that it belongs to.
    pub transaction: u32,
    /// Comes back in the response.
    pub packet: u32,
    /// Bytes behind the header.
    pub length: usize,
}

/// Names that are asked for: from `start` on, before `end` unless that is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// Where it begins.
    pub start: Oid,
    /// Whether `start` is a part of it.
    pub includes_start: bool,
    /// Where it ends; empty for nowhere.
    pub end: Oid,
}

/// What snmpd sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// The values of names.
    Get(Vec<Range>),
    /// The first name in each range.
    GetNext(Vec<Range>),
    /// The first name in some ranges, and several in the others.
    GetBulk {
        /// Ranges of which the first name is wanted.
        single: usize,
        /// Names of each other range.
        repetitions: usize,
        /// All ranges.
        ranges: Vec<Range>,
    },
    /// To change something.
    Set,
    /// The end of a change, which is not answered.
    CleanUp,
    /// Of a context that the sub-agent does not have.
    OtherContext,
    /// The session ends.
    Close,
    /// Nothing, as to see whether the sub-agent is there.
    Ping,
    /// What became of a message of the sub-agent: an error, or 0.
    Response(u16),
    /// Anything else.
    Unknown,
}

/// A value of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// `INTEGER`
    Integer(i32),
    /// `OCTET STRING`
    Text(String),
    /// `OBJECT IDENTIFIER`
    Name(Oid),
    /// `Gauge32`, `Unsigned32`
    Gauge(u32),
    /// Hundredths of a second.
    Ticks(u32),
    /// `Counter64`
    Counter(u64),
    /// There is no such object.
    NoSuchObject,
    /// There is no such row.
    NoSuchInstance,
    /// There is nothing behind a name.
    EndOfView,
}

/// A name and its value.
pub type VarBind = (Oid, Value);

impl Header {
    /// Reads a header; none if more bytes are needed.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, AgentXError> {
        let Some(bytes) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
        if bytes[0] != VERSION {
            return Err(AgentXError::Version(bytes[0]));
        }
        let mut reader = Reader { bytes: &bytes[4..], is_big: bytes[2] & NETWORK_BYTE_ORDER != 0 };
        let (session, transaction) = (reader.number()?, reader.number()?);
        let (packet, length) = (reader.number()?, reader.number()? as usize);
        if length > LONGEST {
            return Err(AgentXError::TooLong);
        }
        Ok(Some(Self { kind: bytes[1], flags: bytes[2], session, transaction, packet, length }))
    }

    /// Reads what is behind the header.
    pub fn message(&self, payload: &[u8]) -> Result<Message, AgentXError> {
        let mut reader = Reader { bytes: payload, is_big: self.flags & NETWORK_BYTE_ORDER != 0 };
        if self.flags & NON_DEFAULT_CONTEXT != 0 {
            return Ok(Message::OtherContext);
        }
        Ok(match self.kind {
            GET => Message::Get(reader.ranges()?),
            GET_NEXT => Message::GetNext(reader.ranges()?),
            GET_BULK => Message::GetBulk {
                single: reader.short()?.into(),
                repetitions: reader.short()?.into(),
                ranges: reader.ranges()?,
            },
            TEST_SET..CLEANUP_SET => Message::Set,
            CLEANUP_SET => Message::CleanUp,
            CLOSE => Message::Close,
            PING => Message::Ping,
            RESPONSE => {
                reader.number()?;
                Message::Response(reader.short()?)
            }
            _ => Message::Unknown,
        })
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    is_big: bool,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], AgentXError> {
        let (taken, rest) = self.bytes.split_first_chunk::<N>().ok_or(AgentXError::Truncated)?;
        self.bytes = rest;
        Ok(*taken)
    }

    fn number(&mut self) -> Result<u32, AgentXError> {
        let bytes = self.take()?;
        Ok(if self.is_big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn short(&mut self) -> Result<u16, AgentXError> {
        let bytes = self.take()?;
        Ok(if self.is_big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    /// An object identifier, and its field `include`.
    fn oid(&mut self) -> Result<(Oid, bool), AgentXError> {
        let [count, prefix, include, _] = self.take()?;
        let mut oid = Oid::new();
        if prefix != 0 {
            oid.extend(INTERNET);
            oid.push(prefix.into());
        }
        if oid.len() + usize::from(count) > MOST_NUMBERS {
            return Err(AgentXError::Oid);
        }
        for _ in 0..count {
            oid.push(self.number()?);
        }
        Ok((oid, include != 0))
    }

    fn ranges(&mut self) -> Result<Vec<Range>, AgentXError> {
        let mut ranges = Vec::new();
        while !self.bytes.is_empty() {
            let (start, includes_start) = self.oid()?;
            let (end, _) = self.oid()?;
            ranges.push(Range { start, includes_start, end });
        }
        Ok(ranges)
    }
}

/// A message of the sub-agent.
struct Writer(Vec<u8>);

impl Writer {
    fn new(kind: u8, session: u32, transaction: u32, packet: u32) -> Self {
        let mut writer = Self(vec![VERSION, kind, NETWORK_BYTE_ORDER, 0]);
        // The length is written last.
        for number in [session, transaction, packet, 0] {
            writer.number(number);
        }
        writer
    }

    fn number(&mut self, number: u32) {
        self.0.extend(number.to_be_bytes());
    }

    fn oid(&mut self, oid: &[u32]) {
        let oid = &oid[..oid.len().min(MOST_NUMBERS)];
        self.0.extend([oid.len() as u8, 0, 0, 0]);
        for number in oid {
            self.number(*number);
        }
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u32);
        self.0.extend(text.as_bytes());
        let padded = self.0.len().next_multiple_of(4);
        self.0.resize(padded, 0);
    }

    fn bind(&mut self, (name, value): &VarBind) {
        let kind: u16 = match value {
            Value::Integer(_) => 2,
            Value::Text(_) => 4,
            Value::Name(_) => 6,
            Value::Gauge(_) => 66,
            Value::Ticks(_) => 67,
            Value::Counter(_) => 70,
            Value::NoSuchObject => 128,
            Value::NoSuchInstance => 129,
            Value::EndOfView => 130,
        };
        self.0.extend(kind.to_be_bytes());
        self.0.extend([0, 0]);
        self.oid(name);
        match value {
            Value::Integer(number) => self.0.extend(number.to_be_bytes()),
            Value::Text(text) => self.text(text),
            Value::Name(oid) => self.oid(oid),
            Value::Gauge(number) | Value::Ticks(number) => self.number(*number),
            Value::Counter(number) => self.0.extend(number.to_be_bytes()),
            Value::NoSuchObject | Value::NoSuchInstance | Value::EndOfView => {}
        }
    }

    fn finish(mut self) -> Vec<u8> {
        let length = (self.0.len() - HEADER) as u32;
        self.0[HEADER - 4..HEADER].copy_from_slice(&length.to_be_bytes());
        self.0
    }
}

/// Opens a session; snmpd waits so many seconds for each answer.
pub fn open(packet: u32, seconds: u8, description: &str) -> Vec<u8> {
    let mut writer = Writer::new(OPEN, 0, 0, packet);
    writer.0.extend([seconds, 0, 0, 0]);
    writer.oid(&[]);
    writer.text(description);
    writer.finish()
}

/// Takes over all names below one.
pub fn register(session: u32, packet: u32, tree: &[u32]) -> Vec<u8> {
    /// RFC 2741 6.2.3: the default.
    const PRIORITY: u8 = 127;
    let mut writer = Writer::new(REGISTER, session, 0, packet);
    writer.0.extend([0, PRIORITY, 0, 0]);
    writer.oid(tree);
    writer.finish()
}

/// Tells the receivers of traps that something has happened.
pub fn notify(session: u32, packet: u32, event: &[u32], binds: &[VarBind]) -> Vec<u8> {
    // RFC 2741 6.2.10: snmpd adds sysUpTime.
    let trap = (vec![1, 3, 6, 1, 6, 3, 1, 1, 4, 1, 0], Value::Name(event.to_vec()));
    let mut writer = Writer::new(NOTIFY, session, 0, packet);
    for bind in std::iter::once(&trap).chain(binds) {
        writer.bind(bind);
    }
    writer.finish()
}

/// Answers a message of snmpd. `index` is the number of the name that has the error, from 1 on.
pub fn response(to: &Header, error: u16, index: u16, binds: &[VarBind]) -> Vec<u8> {
    let mut writer = Writer::new(RESPONSE, to.session, to.transaction, to.packet);
    // RFC 2741 6.2.16: only snmpd has a sysUpTime to say.
    writer.number(0);
    writer.0.extend(error.to_be_bytes());
    writer.0.extend(index.to_be_bytes());
    for bind in binds {
        writer.bind(bind);
    }
    writer.finish()
}
