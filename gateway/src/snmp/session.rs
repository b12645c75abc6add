//! What snmpd is answered.

use super::agentx::{Header, Message, Oid, Range, Value, VarBind, response};
use super::mib::Mib;

/// Names of one answer to GetBulk.
const MOST: usize = 1024;

const UNSUPPORTED_CONTEXT: u16 = 262;
/// RFC 3416: nothing can be changed here.
const NOT_WRITABLE: u16 = 17;

/// What comes of a message.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// This is sent.
    Send(Vec<u8>),
    /// Nothing is.
    Nothing,
    /// The session has ended.
    End,
}

/// Answers a message from the objects as they are now.
pub fn answer(header: &Header, message: &Message, mib: &Mib) -> Next {
    let send = |binds: &[VarBind]| Next::Send(response(header, 0, 0, binds));
    match message {
        Message::Get(ranges) => {
            send(&ranges.iter().map(|range| (range.start.clone(), mib.get(&range.start))).collect::<Vec<_>>())
        }
        Message::GetNext(ranges) => send(&ranges.iter().map(|range| next(mib, range)).collect::<Vec<_>>()),
        Message::GetBulk { single, repetitions, ranges } => send(&bulk(mib, *single, *repetitions, ranges)),
        Message::Set => Next::Send(response(header, NOT_WRITABLE, 1, &[])),
        Message::OtherContext => Next::Send(response(header, UNSUPPORTED_CONTEXT, 0, &[])),
        Message::Ping => send(&[]),
        Message::CleanUp | Message::Response(_) | Message::Unknown => Next::Nothing,
        Message::Close => Next::End,
    }
}

fn next(mib: &Mib, range: &Range) -> VarBind {
    mib.next(&range.start, range.includes_start, &range.end)
        .unwrap_or_else(|| (range.start.clone(), Value::EndOfView))
}

/// RFC 2741 7.2.3.3: the names of all ranges for the first repetition, then for the second one.
fn bulk(mib: &Mib, single: usize, repetitions: usize, ranges: &[Range]) -> Vec<VarBind> {
    let (single, repeated) = ranges.split_at(single.min(ranges.len()));
    let mut binds: Vec<VarBind> = single.iter().map(|range| next(mib, range)).collect();
    let mut repeated: Vec<Range> = repeated.to_vec();
    for _ in 0..repetitions {
        if repeated.is_empty() || binds.len() + repeated.len() > MOST {
            break;
        }
        let mut is_over = true;
        for range in &mut repeated {
            let (name, value): (Oid, Value) = next(mib, range);
            is_over &= value == Value::EndOfView;
            range.start.clone_from(&name);
            range.includes_start = false;
            binds.push((name, value));
        }
        if is_over {
            break;
        }
    }
    binds
}
