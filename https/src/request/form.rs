//! The fields of a request: of a form in either encoding, or the whole body as JSON.

use super::Unreadable;
use gateway::api::model::SecretText;
use serde::Deserialize;
use zeroize::Zeroizing;

/// Parts of a form: more than VyOS's clients send.
const MOST_PARTS: usize = 16;
/// Bytes of a boundary (RFC 2046 5.1.1).
const LONGEST_BOUNDARY: usize = 70;

/// The fields of a request.
#[derive(Default)]
pub struct Fields {
    /// JSON, not parsed yet.
    pub data: Zeroizing<String>,
    /// The key of the client.
    pub key: Option<Zeroizing<String>>,
}

/// The key, where it is part of the JSON.
#[derive(Deserialize)]
struct Keyed {
    #[serde(default)]
    key: Option<SecretText>,
}

/// Reads the fields of a body of this type. JSON is searched for a key, and nothing of it is kept.
pub fn fields(content_type: &str, body: &[u8]) -> Result<Fields, Unreadable> {
    let (kind, parameters) = content_type.split_once(';').unwrap_or((content_type, ""));
    let kind = kind.trim().to_ascii_lowercase();
    let mut fields = match kind.as_str() {
        "application/x-www-form-urlencoded" => urlencoded(body),
        "multipart/form-data" => multipart(parameters, body)?,
        "application/json" | "" => Fields { data: text(body)?, key: None },
        _ => return Err(Unreadable::new(415, "send a form with the fields data and key, or JSON")),
    };
    if fields.data.trim().is_empty() {
        return Err(Unreadable::new(422, "Non-empty data field is required"));
    }
    if fields.key.is_none() {
        let key = serde_json::from_str::<Keyed>(&fields.data).ok().and_then(|keyed| keyed.key);
        fields.key = key.map(|key| Zeroizing::new(key.as_str().to_owned()));
    }
    Ok(fields)
}

impl Fields {
    fn take(&mut self, name: &str, value: Zeroizing<String>) {
        match name {
            "data" => self.data = value,
            "key" => self.key = Some(value),
            _ => {}
        }
    }
}

fn text(bytes: &[u8]) -> Result<Zeroizing<String>, Unreadable> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(Zeroizing::new(text.to_owned())),
        Err(_) => Err(Unreadable::new(400, "the request is not UTF-8")),
    }
}

fn urlencoded(body: &[u8]) -> Fields {
    let mut fields = Fields::default();
    for (name, value) in form_urlencoded::parse(body).take(MOST_PARTS) {
        fields.take(&name, Zeroizing::new(value.into_owned()));
    }
    fields
}

/// Reads `multipart/form-data` (RFC 7578): parts between lines of the boundary, each with headers and a value.
fn multipart(parameters: &str, body: &[u8]) -> Result<Fields, Unreadable> {
    let broken = || Unreadable::new(400, "the form is broken: its parts do not end with the boundary");
    let boundary = parameter(parameters, "boundary")
        .filter(|boundary| (1..=LONGEST_BOUNDARY).contains(&boundary.len()))
        .ok_or_else(|| Unreadable::new(400, "the form has no boundary"))?;
    let delimiter = [b"\r\n--", boundary.as_bytes()].concat();
    // The first delimiter has no line end before it.
    let first = &delimiter[2..];
    let mut left = body.strip_prefix(first).ok_or_else(broken)?;
    let mut fields = Fields::default();
    for _ in 0..=MOST_PARTS {
        if left.starts_with(b"--") {
            return Ok(fields);
        }
        let part = left.strip_prefix(b"\r\n").ok_or_else(broken)?;
        let end = position(part, &delimiter).ok_or_else(broken)?;
        let (part, rest) = part.split_at(end);
        left = &rest[delimiter.len()..];
        let head = position(part, b"\r\n\r\n").ok_or_else(broken)?;
        let (head, value) = (text(&part[..head])?, text(&part[head + 4..])?);
        if let Some(name) = part_name(&head) {
            fields.take(&name, value);
        }
    }
    Err(Unreadable::new(400, format!("the form has more than {MOST_PARTS} parts")))
}

/// The name of a part, of its header Content-Disposition.
fn part_name(head: &str) -> Option<String> {
    head.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let value = name.trim().eq_ignore_ascii_case("content-disposition").then_some(value)?;
        parameter(value.split_once(';')?.1, "name")
    })
}

/// The value of a parameter: `name=value; other="value"`.
fn parameter(parameters: &str, wanted: &str) -> Option<String> {
    parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let value = value.trim();
        let plain = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
        name.trim().eq_ignore_ascii_case(wanted).then(|| plain.to_owned())
    })
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    // The first byte is looked for first: a window at each place would cost 70 times as much.
    let first = *wanted.first()?;
    let mut from = 0;
    loop {
        let at = from + bytes.get(from..)?.iter().position(|byte| *byte == first)?;
        if bytes[at..].starts_with(wanted) {
            return Some(at);
        }
        from = at + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MULTIPART: &str = "multipart/form-data; boundary=----x";
    const FORM: &str = "application/x-www-form-urlencoded";

    fn read(kind: &str, body: &str) -> (String, Option<String>) {
        let fields = fields(kind, body.as_bytes()).unwrap_or_else(|error| panic!("{body}: {error:?}"));
        (fields.data.to_string(), fields.key.as_ref().map(|key| key.to_string()))
    }

    fn status(kind: &str, body: &[u8]) -> u16 {
        fields(kind, body).err().map_or(200, |error| error.status)
    }

    fn part(name: &str, value: &str) -> String {
        format!("------x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    }

    #[test]
    fn both_encodings_of_forms_and_json_are_read() {
        let wanted = (r#"{"op": "show"}"#.to_owned(), Some("a+b &c".to_owned()));
        assert_eq!(read(FORM, "data=%7B%22op%22%3A+%22show%22%7D&key=a%2Bb+%26c"), wanted);
        let form = part("data", r#"{"op": "show"}"#) + &part("key", "a+b &c") + "------x--\r\n";
        assert_eq!(read(MULTIPART, &form), wanted);
        let (_, key) = read("application/json; charset=utf-8", r#"{"op": "show", "key": "a+b &c"}"#);
        assert_eq!(key, wanted.1);
        assert_eq!(read(FORM, "data=%7B%22key%22%3A%22k%22%7D").1.as_deref(), Some("k"));
        assert_eq!(read(FORM, "data=[]").1, None);
    }

    #[test]
    fn headers_of_parts_may_be_more_and_in_another_order() {
        let form = "------x\r\nContent-Type: text/plain\r\ncontent-disposition: form-data; filename=a; name=data\r\n\r\n\
                    {}\r\n------x--";
        assert_eq!(read(MULTIPART, form).0, "{}");
        assert_eq!(read("multipart/form-data; boundary=\"----x\"", form).0, "{}");
        let lines = part("data", "{\r\n\"a\":\r\n--1}") + "------x--";
        assert_eq!(read(MULTIPART, &lines).0, "{\r\n\"a\":\r\n--1}");
    }

    #[test]
    fn broken_forms_are_refused() {
        let good = part("data", "{}") + "------x--";
        for cut in 0..good.len() - 2 {
            assert_ne!(status(MULTIPART, &good.as_bytes()[..cut]), 200, "{cut}");
        }
        let many = part("a", "b").repeat(20) + "------x--";
        assert_eq!(status(MULTIPART, many.as_bytes()), 400);
        assert_eq!(status("multipart/form-data", good.as_bytes()), 400);
        assert_eq!(
            status(&format!("multipart/form-data; boundary={}", "x".repeat(71)), good.as_bytes()),
            400
        );
        assert_eq!(status("text/xml", b"<a/>"), 415);
        assert_eq!((status(FORM, b"key=a"), status("application/json", b" ")), (422, 422));
        assert_eq!(status("application/json", b"\xff{}"), 400);
    }
}
