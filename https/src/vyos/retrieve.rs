//! `/retrieve`: what is in force.

use super::changes::{apart, parse};
use super::only::{only, unknown};
use crate::app::App;
use crate::daemon::Refused;
use crate::request::{Operation, Operations};
use config::{Tree, print};
use serde_json::{Map, Value};

/// VyOS's error for a place without anything: clients look for it.
const EMPTY: &str = "Configuration under specified path is empty\n";

pub(super) async fn retrieve(app: &App, asked: &Operations) -> Result<Value, Refused> {
    let operation = only(asked)?.clone();
    let in_force = app.daemon.in_force().await?;
    apart(move || found(&parse(in_force.text.as_str())?, &operation)).await?
}

fn found(tree: &Tree, operation: &Operation) -> Result<Value, Refused> {
    // VyOS wants a path, which pyvyos leaves out where it is empty.
    let path = match (&operation.path, operation.op()) {
        (None, "showConfig") => Vec::new(),
        _ => operation.words().map_err(|error| Refused::bad(error.error))?,
    };
    match operation.op() {
        "showConfig" => match operation.config_format.as_deref().unwrap_or("json") {
            "json" => shown(tree, &path).ok_or_else(|| Refused::bad(EMPTY)),
            "raw" => raw(tree, &path).ok_or_else(|| Refused::bad(EMPTY)),
            other => Err(Refused::bad(format!("'{other}' is not a valid config format\n  fix: json or raw"))),
        },
        "returnValue" => Ok(values(tree, &path).first().map_or(Value::Null, |value| (*value).into())),
        "returnValues" => Ok(values(tree, &path).into()),
        "exists" => Ok(exists(tree, &path).into()),
        other => Err(unknown(other, "showConfig, returnValue, returnValues or exists")),
    }
}

fn values<'a>(tree: &'a Tree, path: &[&str]) -> Vec<&'a str> {
    tree.at(path).map(Tree::own_values).unwrap_or_default()
}

fn exists(tree: &Tree, path: &[&str]) -> bool {
    let is_value = || {
        let (value, above) = path.split_last()?;
        tree.at(above).map(|above| above.own_values().contains(value))
    };
    tree.at(path).is_some() || is_value().unwrap_or(false)
}

/// The branch at a path, with secrets: a client with a key is an administrator. A leaf is shown with its name.
fn shown(tree: &Tree, path: &[&str]) -> Option<Value> {
    let branch = tree.at(path)?;
    let value = value(branch);
    match (&value, path.last()) {
        (Value::Object(_), _) | (_, None) => Some(value),
        (_, Some(name)) => Some(Value::Object(Map::from_iter([((*name).to_owned(), value)]))),
    }
}

/// As VyOS writes it: one value is a text and several are a list, whatever the node may have; an empty object is set only.
fn value(branch: &Tree) -> Value {
    match &branch.own_values()[..] {
        [] => branch
            .children()
            .map(|(word, below)| (word.to_owned(), value(below)))
            .collect::<Map<_, _>>()
            .into(),
        [one] => (*one).into(),
        several => several.to_vec().into(),
    }
}

/// The same in braces.
fn raw(tree: &Tree, path: &[&str]) -> Option<Value> {
    tree.at(path)?;
    let mut only = Tree::default();
    if path.is_empty() {
        only = tree.clone();
    } else {
        only.take_over(&config::Path::new(path.iter().copied()), tree);
    }
    Some(print::braces(&only, true).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::operations;
    use serde_json::json;

    const TEXT: &str = "set interfaces wireguard wg0 address 10.0.0.1/24\n\
        set interfaces wireguard wg0 peer a allowed-ips 10.1.0.0/24\n\
        set interfaces wireguard wg0 peer a allowed-ips 10.2.0.0/24\n\
        set interfaces wireguard wg0 peer a disable\n";

    fn ask(op: &str, path: &str) -> Result<Value, String> {
        let tree = config::parse(TEXT).expect("right");
        let path: Vec<&str> = path.split_whitespace().collect();
        let asked = operations(&json!({ "op": op, "path": path }).to_string()).expect("right");
        found(&tree, &asked.operations[0]).map_err(|refused| refused.error)
    }

    #[test]
    fn a_configuration_is_shown_as_vyos_shows_it() {
        let peer = json!({ "allowed-ips": ["10.1.0.0/24", "10.2.0.0/24"], "disable": {} });
        let whole = json!({ "interfaces": { "wireguard": { "wg0": { "address": "10.0.0.1/24", "peer": { "a": peer } } } } });
        assert_eq!(ask("showConfig", "").as_ref(), Ok(&whole));
        assert_eq!(ask("showConfig", "interfaces wireguard wg0 peer a"), Ok(peer));
        assert_eq!(
            ask("showConfig", "interfaces wireguard wg0 address"),
            Ok(json!({ "address": "10.0.0.1/24" }))
        );
        assert_eq!(ask("showConfig", "interfaces wireguard wg7"), Err(EMPTY.to_owned()));
    }

    #[test]
    fn values_and_places_are_found() {
        let ips = "interfaces wireguard wg0 peer a allowed-ips";
        assert_eq!(ask("returnValues", ips), Ok(json!(["10.1.0.0/24", "10.2.0.0/24"])));
        assert_eq!(ask("returnValue", ips), Ok(json!("10.1.0.0/24")));
        assert_eq!(ask("returnValue", "interfaces wireguard wg0 mtu"), Ok(Value::Null));
        assert_eq!(ask("returnValues", "interfaces wireguard wg0 mtu"), Ok(json!([])));
        for (path, there) in
            [("interfaces wireguard wg0", true), ("interfaces wireguard wg7", false), ("", true)]
        {
            assert_eq!(ask("exists", path), Ok(there.into()), "{path}");
        }
        assert_eq!(ask("exists", &format!("{ips} 10.2.0.0/24")), Ok(true.into()));
        assert!(ask("showconfig", "").is_err_and(|error| error.contains("is not a valid operation")));
    }

    #[test]
    fn the_raw_form_is_in_braces() {
        let tree = config::parse(TEXT).expect("right");
        let text = raw(&tree, &["interfaces"]).expect("there");
        assert!(text.as_str().is_some_and(|text| text.starts_with("interfaces {\n")), "{text}");
    }
}
