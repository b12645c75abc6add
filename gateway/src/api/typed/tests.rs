use super::*;
use serde_json::json;

const KEY: &str = "YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=";

fn tree(text: &str) -> Tree {
    config::parse(text).unwrap_or_else(|errors| panic!("{errors:?}"))
}

fn text() -> String {
    format!(
        "set interfaces wireguard wg0 address 10.0.0.1/8\nset interfaces wireguard wg0 address 10.0.0.2/8\n\
         set interfaces wireguard wg0 description 'it''s one'\nset interfaces wireguard wg0 disable\n\
         set interfaces wireguard wg0 port 51820\nset interfaces wireguard wg0 private-key {KEY}\n\
         set system allow-empty\nset vpn ipsec esp-group E proposal 1 encryption aes128gcm128\n"
    )
}

/// What a patch makes of a configuration.
fn patched(base: &Tree, patch: &Value) -> Tree {
    let lines = lines(patch, base).unwrap_or_else(|errors| panic!("{errors:?}"));
    let mut tree = base.clone();
    edits::carry_out(lines.iter().map(|line| line.as_str()), &mut tree)
        .unwrap_or_else(|errors| panic!("{errors:?}"));
    tree
}

#[test]
fn json_has_the_types_of_the_grammar() {
    let expected = json!({
        "interfaces": { "wireguard": { "wg0": {
            "address": ["10.0.0.1/8", "10.0.0.2/8"],
            "description": "its one",
            "disable": true,
            "port": 51820,
            "private-key": KEY,
        } } },
        "system": { "allow-empty": true },
        "vpn": { "ipsec": { "esp-group": { "E": { "proposal": { "1": { "encryption": "aes128gcm128" } } } } } },
    });
    assert_eq!(json(&tree(&text())), expected);
}

#[test]
fn what_is_read_can_be_written_again() {
    let before = tree(&text());
    assert_eq!(patched(&Tree::default(), &json(&before)), before);
    assert_eq!(patched(&before, &json(&before)), before);
}

#[test]
fn a_merge_patch_changes_its_members_only() {
    let before = tree(&text());
    let patch = json!({ "interfaces": { "wireguard": { "wg0": {
        "address": ["10.0.0.3/8"], "disable": null, "port": 51821, "mtu": null, "description": "a 'b' \"c\"",
    } } } });
    let after = patched(&before, &patch);
    let wg0 = after.at(&["interfaces", "wireguard", "wg0"]).expect("kept");
    assert_eq!(wg0.values("address"), ["10.0.0.3/8"]);
    assert_eq!((wg0.value("port"), wg0.value("description")), (Some("51821"), Some("a 'b' \"c\"")));
    assert_eq!((wg0.has("disable"), wg0.value("private-key")), (false, Some(KEY)));
    let gone = patched(&before, &json!({ "interfaces": { "wireguard": { "wg0": null, "wg1": null } } }));
    assert!(gone.at(&["interfaces", "wireguard", "wg0"]).is_none());
    assert!(gone.at(&["system"]).is_some_and(|system| system.has("allow-empty")));
}

#[test]
fn what_is_no_configuration_is_refused_with_its_place() {
    for (wrong, path) in [
        (json!([]), ""),
        (json!("a"), ""),
        (
            json!({ "interfaces": { "wireguard": { "wg0": { "address": [{}] } } } }),
            "interfaces wireguard wg0 address",
        ),
    ] {
        let errors = lines(&wrong, &Tree::default()).expect_err("refused");
        assert_eq!(errors.errors[0].path, path, "{wrong}");
    }
    // A line that ends within a value is no other line.
    let lines = lines(&json!({ "system": { "host-name": "a\nset system open-at-exit" } }), &Tree::default());
    let mut tree = Tree::default();
    let lines = lines.expect("the grammar refuses it");
    assert!(edits::carry_out(lines.iter().map(|line| line.as_str()), &mut tree).is_err());
    assert_eq!(tree, Tree::default());
}

#[test]
fn a_change_takes_neither_endless_lines_nor_endless_errors() {
    let wrong = json!({ "interfaces": vec![json!([]); MOST_ERRORS + 1] });
    assert_eq!(lines(&wrong, &Tree::default()).expect_err("refused").errors.len(), MOST_ERRORS);
    let members: Map<String, Value> = (0..100).map(|number| (number.to_string(), json!(1))).collect();
    let long = Value::from_iter([("x".repeat(1 << 20), Value::from(members))]);
    let errors = lines(&long, &Tree::default()).expect_err("refused").errors;
    assert!(errors.len() == 1 && errors[0].why.contains("more than 67108864 bytes"), "{}", errors.len());
}

#[test]
fn a_revision_is_an_entity_tag() {
    let mut headers = HeaderMap::new();
    assert_eq!(base_of(&headers).expect("none"), None);
    headers.insert(header::IF_MATCH, tag(17));
    assert_eq!(base_of(&headers).expect("right"), Some(17));
    for wrong in ["17", "\"x\"", "W/\"17\"", "\"1\", \"2\"", "*"] {
        headers.insert(header::IF_MATCH, HeaderValue::from_static(wrong));
        assert_eq!(Response::from(base_of(&headers).expect_err(wrong)).status(), StatusCode::BAD_REQUEST);
    }
}
