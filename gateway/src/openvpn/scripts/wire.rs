//! Messages between the daemon and the process that runs programs: a length, then numbers and byte strings.

use super::{Answer, Deferral, Environment, Hook, Outcome, Program, Programs, Request, TemporaryFile};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;
use zeroize::Zeroizing;

/// The longest message: a revocation list of 16 MiB.
const LONGEST: usize = (16 << 20) + 4096;

/// A message that is erased when dropped: it may have passwords.
pub(super) type Message = Zeroizing<Vec<u8>>;

/// Sends a message.
pub(super) fn send(mut socket: impl Write, message: &[u8]) -> io::Result<()> {
    let mut framed = Zeroizing::new(Vec::with_capacity(4 + message.len()));
    framed.extend_from_slice(&(message.len() as u32).to_be_bytes());
    framed.extend_from_slice(message);
    socket.write_all(&framed)
}

/// Receives a message.
pub(super) fn receive(mut socket: impl Read) -> io::Result<Message> {
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut message = Zeroizing::new(vec![0; length]);
    socket.read_exact(&mut message)?;
    Ok(message)
}

#[derive(Default)]
struct Writer(Message);

impl Writer {
    fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_be_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn all<T>(&mut self, items: &[T], each: impl Fn(&mut Self, &T)) {
        self.number(items.len() as u64);
        for item in items {
            each(self, item);
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn number(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*first))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?.try_into().ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    fn all<T>(&mut self, mut each: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        (0..self.number()?).map(|_| each(self)).collect()
    }
}

/// The first message to the process.
pub(super) fn emit_programs(programs: &Programs) -> Message {
    let mut to = Writer::default();
    to.bytes(programs.folder.as_os_str().as_bytes());
    to.bytes(programs.temporary.as_os_str().as_bytes());
    to.all(programs.certificates.as_slice(), |to, folder| to.bytes(folder.as_os_str().as_bytes()));
    to.all(&programs.environment, |to, (name, value)| {
        to.bytes(name.as_bytes());
        to.bytes(value.as_bytes());
    });
    let by_hook: Vec<_> = programs.by_hook.iter().collect();
    to.all(&by_hook, |to, (hook, program)| {
        to.number(hook.number().into());
        to.bytes(program.path.as_os_str().as_bytes());
        to.all(&program.arguments, |to, argument| to.bytes(argument.as_bytes()));
        to.all(program.owner.as_slice(), |to, (user, group)| {
            to.number((*user).into());
            to.number((*group).into());
        });
    });
    to.0
}

fn path(bytes: &[u8]) -> PathBuf {
    std::ffi::OsString::from_vec(bytes.to_vec()).into()
}

pub(super) fn parse_programs(message: &[u8]) -> Option<Programs> {
    let mut from = Reader(message);
    let folder = path(from.bytes()?);
    let temporary = path(from.bytes()?);
    let certificates = from.all(|from| Some(path(from.bytes()?)))?.into_iter().next();
    let environment = from.all(|from| Some((from.text()?, from.text()?)))?;
    let by_hook = from.all(|from| {
        let hook = Hook::of(from.number()?.try_into().ok()?)?;
        let path = path(from.bytes()?);
        let arguments = from.all(Reader::text)?;
        let owner =
            from.all(|from| Some((from.number()?.try_into().ok()?, from.number()?.try_into().ok()?)))?;
        Some((hook, Program { path, arguments, owner: owner.into_iter().next() }))
    })?;
    Some(Programs { by_hook: by_hook.into_iter().collect(), folder, temporary, certificates, environment })
}

pub(super) fn emit_request(id: u64, request: &Request) -> Message {
    let mut to = Writer::default();
    to.number(id);
    to.number(request.hook.number().into());
    to.all(&request.arguments, |to, argument| to.bytes(argument.as_bytes()));
    let variables: Vec<(&str, &str)> = request.environment.iter().collect();
    to.all(&variables, |to, (name, value)| {
        to.bytes(name.as_bytes());
        to.bytes(value.as_bytes());
    });
    to.all(&request.files, |to, file| {
        to.bytes(file.variable.as_bytes());
        to.number(file.is_argument.into());
        to.bytes(&file.content);
    });
    let (kind, file) = match request.deferral {
        Deferral::None => (0, 0),
        Deferral::ByStatus(file) => (1, file),
        Deferral::ByFile(file) => (2, file),
    };
    to.number(kind);
    to.number(file.into());
    to.number(request.deadline.as_millis() as u64);
    to.all(request.pending.as_slice(), |to, (file, longest)| {
        to.number((*file).into());
        to.number(longest.as_millis() as u64);
    });
    to.number(request.line);
    to.number(request.answers);
    to.0
}

pub(super) fn parse_request(message: &[u8]) -> Option<(u64, Request)> {
    let mut from = Reader(message);
    let id = from.number()?;
    let hook = Hook::of(from.number()?.try_into().ok()?)?;
    let arguments = from.all(Reader::text)?;
    let mut environment = Environment::default();
    from.all(|from| {
        let name = from.text()?;
        environment.set(&name, &*Zeroizing::new(from.text()?));
        Some(())
    })?;
    let files = from.all(|from| {
        let variable = from.text()?;
        let is_argument = from.number()? != 0;
        Some(TemporaryFile { variable, is_argument, content: Zeroizing::new(from.bytes()?.to_vec()) })
    })?;
    let (kind, file) = (from.number()?, from.number()?.try_into().ok()?);
    let deferral = match kind {
        0 => Deferral::None,
        1 => Deferral::ByStatus(file),
        _ => Deferral::ByFile(file),
    };
    let deadline = Duration::from_millis(from.number()?);
    let pending =
        from.all(|from| Some((from.number()?.try_into().ok()?, Duration::from_millis(from.number()?))))?;
    let pending = pending.into_iter().next();
    let (line, answers) = (from.number()?, from.number()?);
    let request = Request { hook, arguments, environment, files, deferral, deadline, pending, line, answers };
    Some((id, request))
}

pub(super) fn emit_answer(id: u64, answer: &Answer) -> Message {
    let mut to = Writer::default();
    to.number(id);
    match &answer.outcome {
        Outcome::Ended(status) => {
            to.number(0);
            to.bytes(&status.to_be_bytes());
        }
        Outcome::Deferred => {
            to.number(1);
            to.bytes(&[]);
        }
        Outcome::Failed(reason) => {
            to.number(2);
            to.bytes(reason.as_bytes());
        }
    }
    to.all(&answer.files, |to, file| to.bytes(file));
    to.0
}

pub(super) fn parse_answer(message: &[u8]) -> Option<(u64, Answer)> {
    let mut from = Reader(message);
    let id = from.number()?;
    let kind = from.number()?;
    let value = from.bytes()?;
    let outcome = match kind {
        0 => Outcome::Ended(i32::from_be_bytes(value.try_into().ok()?)),
        1 => Outcome::Deferred,
        _ => Outcome::Failed(String::from_utf8_lossy(value).into_owned()),
    };
    let files = from.all(|from| from.bytes().map(<[u8]>::to_vec))?;
    Some((id, Answer { outcome, files }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written_and_no_part_of_one_is() {
        let program =
            Program { path: "/bin/check".into(), arguments: vec!["-x".into()], owner: Some((65_534, 7)) };
        let programs = Programs {
            by_hook: [(Hook::Up, program)].into(),
            folder: "/etc".into(),
            temporary: "/tmp".into(),
            certificates: Some("/var".into()),
            environment: vec![("A".into(), "b c".into())],
        };
        let message = emit_programs(&programs);
        assert_eq!(parse_programs(&message), Some(programs));
        let mut request =
            Request::new(Hook::AuthUserPassVerify, Environment::default(), Duration::from_secs(9));
        request.environment.set("username", "anna");
        request.arguments = vec!["one two".into()];
        request.deferral = Deferral::ByFile(1);
        request.pending = Some((2, Duration::from_secs(30)));
        request.line = 7;
        request.answers = 3;
        let content = Zeroizing::new(b"secret".to_vec());
        request.files = vec![TemporaryFile { variable: "auth".into(), is_argument: true, content }];
        let message = emit_request(5, &request);
        let (id, read) = parse_request(&message).expect("ours");
        assert_eq!((id, format!("{read:?}")), (5, format!("{request:?}")));
        assert_eq!(read.environment.value("username"), Some("anna"));
        let answer = Answer { outcome: Outcome::Ended(-3), files: vec![vec![1, 2], Vec::new()] };
        assert_eq!(parse_answer(&emit_answer(8, &answer)), Some((8, answer)));
        for length in 0..message.len() {
            assert!(parse_request(&message[..length]).is_none(), "{length}");
        }
    }
}
