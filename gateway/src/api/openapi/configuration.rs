//! The schema of the configuration, from the table of the grammar.

use config::schema::{Cursor, Kind, Place, Type};
use schemars::Schema;
use serde_json::{Map, Value, json};

/// The whole configuration, as `typed` reads and writes it.
pub(super) fn schema() -> Schema {
    let schema = at(Cursor::root()).expect("the root has words");
    Schema::try_from(schema).expect("an object is a schema")
}

/// What may be at a place; `None` where nothing is supported.
fn at(cursor: Cursor) -> Option<Value> {
    let mut schema = match cursor.place() {
        Place::Unsupported(_) => return None,
        Place::Inner(_) | Place::Tag(_) => object(cursor)?,
        Place::Node(node) => match node.kind {
            Kind::Flag => json!({ "const": true }),
            Kind::Branch => object(cursor).unwrap_or_else(|| json!({ "type": "object", "maxProperties": 0 })),
            Kind::FlagOr(kind) => json!({ "anyOf": [{ "const": true }, scalar(kind, node.secret)] }),
            Kind::Value(kind) => scalar(kind, node.secret),
            Kind::Values(kind) => json!({ "type": "array", "items": scalar(kind, node.secret) }),
        },
    };
    if let Place::Node(node) = cursor.place()
        && let Some(default) = node.default
    {
        schema["default"] = default.parse::<u64>().map_or_else(|_| default.into(), Value::from);
    }
    if !cursor.help().is_empty() {
        schema["description"] = cursor.help().into();
    }
    Some(schema)
}

/// The words below a place. Where a name may be chosen, its schema is that of all other members.
fn object(cursor: Cursor) -> Option<Value> {
    let (mut members, mut others, mut names) = (Map::new(), Value::Bool(false), None);
    for next in cursor.next() {
        let Some(schema) = at(next) else { continue };
        match next.tag() {
            Some(tag) => (others, names) = (schema, Some(tag.kind.expected())),
            None => _ = members.insert(next.word().to_owned(), schema),
        }
    }
    if members.is_empty() && names.is_none() {
        return None;
    }
    let mut object = json!({ "type": "object", "additionalProperties": others });
    if !members.is_empty() {
        object["properties"] = members.into();
    }
    if let Some(names) = names {
        object["propertyNames"] = json!({ "description": names });
    }
    Some(object)
}

fn scalar(kind: Type, is_secret: bool) -> Value {
    let mut schema = match kind {
        Type::Number(low, high) => json!({ "type": "integer", "minimum": low, "maximum": high }),
        Type::Word(words) => json!({ "enum": words }),
        Type::Text(longest) => json!({ "type": "string", "maxLength": longest }),
        Type::Secret(longest) => json!({ "type": "string", "minLength": 1, "maxLength": longest }),
        Type::Reference(path) => json!({ "type": "string", "title": format!("the name of a {path}") }),
        other => json!({ "type": "string", "title": other.expected() }),
    };
    if is_secret {
        schema["format"] = "password".into();
    }
    schema
}
