use super::*;
use crate::api::{Shown, router};
use crate::service::Service;
use crypto::choice::Choice;
use crypto::engine::none;
use std::collections::BTreeSet;
use std::sync::Arc;
use tower::ServiceExt;

/// The files with routes of the daemon.
const ROUTES: &[&str] = &[
    include_str!("../mod.rs"),
    include_str!("../configuration.rs"),
    include_str!("../../wireguard/api.rs"),
    include_str!("../../openvpn/api.rs"),
    include_str!("../../ipsec/api.rs"),
    include_str!("../../https/api.rs"),
    include_str!("../../secgw/api.rs"),
    include_str!("../../machine/service.rs"),
    include_str!("../../machine/api.rs"),
    include_str!("../../path/service.rs"),
];

#[test]
fn every_route_is_in_the_document() {
    let routes = ROUTES
        .iter()
        .flat_map(|file| file.split(".route(\"").skip(1))
        .filter_map(|rest| rest.split('"').next());
    let routes: BTreeSet<&str> = routes.collect();
    assert!(routes.contains("/v1/vpn/ipsec") && routes.contains("/v1/status"), "{routes:?}");
    let described: BTreeSet<&str> = OPERATIONS.iter().map(|operation| operation.path).collect();
    // Streams for clients on the machine have no schema: docs/api.md has them.
    let missing = routes.difference(&described).filter(|route| !route.starts_with("/v1/local/"));
    let missing: Vec<_> = missing.collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[tokio::test]
async fn every_operation_of_the_document_is_served() {
    let shown = Shown::new(
        Arc::new(Choice::among(vec![Arc::new(none::None)])),
        vec![
            Arc::new(ipsec::api::Peers::default()),
            Arc::new(openvpn::api::Interfaces::default()),
            Arc::new(secgw::api::Gateways::default()),
            Arc::new(wireguard::api::Interfaces::default()),
            path::service::PathService::default().view(),
            failover::FailoverService::default().view(),
        ],
    );
    let router = router(shown);
    for operation in OPERATIONS.iter().filter(|it| {
        // Parts of the configuration of which there is none here.
        !matches!(it.path, "/v1/machine" | "/v1/nat" | "/v1/firewall" | "/v1/dhcp/client")
            && !it.path.starts_with("/v1/service/")
    }) {
        let path = operation.path.replace("{name}", "wg0").replace("{number}", "1").replace("{after}", "1");
        let request =
            axum::http::Request::builder().method(operation.method.to_uppercase().as_str()).uri(&path);
        let request = request.body(axum::body::Body::empty()).expect("right");
        let status = router.clone().oneshot(request).await.expect("an answer").status().as_u16();
        assert!(!matches!(status, 404 | 405), "{} {path}: {status}", operation.method);
    }
}

/// All references in a document.
fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(to)) = members.get("$ref") {
                found.insert(to);
            }
            members.values().for_each(|value| references(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn every_reference_leads_to_a_schema() {
    let document = document();
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.contains("#/components/schemas/ConfigurationTree"), "{found:?}");
    for reference in found {
        let name = reference.strip_prefix("#/components/schemas/").expect(reference);
        assert!(document["components"]["schemas"][name].is_object(), "{reference}");
    }
}

#[test]
fn the_schema_of_the_configuration_is_that_of_the_grammar() {
    let document = document();
    let at = |path: &str| {
        let start = &document["components"]["schemas"]["ConfigurationTree"];
        path.split(' ').fold(start, |schema, word| {
            let named = &schema["properties"][word];
            if named.is_object() { named } else { &schema["additionalProperties"] }
        })
    };
    for node in config::schema::nodes() {
        let schema = at(node.path);
        assert_eq!(schema["description"], node.help, "{}: {schema}", node.path);
    }
    let mtu = at("interfaces wireguard <interface> mtu");
    assert_eq!((&mtu["type"], mtu["minimum"].is_u64()), (&json!("integer"), true), "{mtu}");
    assert_eq!(at("interfaces wireguard <interface> private-key")["format"], "password");
    assert_eq!(at("interfaces")["additionalProperties"], false);
}

#[test]
fn every_operation_has_an_answer_for_any_other_error_and_a_key() {
    let document = document();
    for (path, operations) in document["paths"].as_object().expect("paths") {
        for (method, operation) in operations.as_object().expect("operations") {
            let other = &operation["responses"]["default"]["content"]["application/json"]["schema"]["$ref"];
            assert_eq!(other, "#/components/schemas/Problem", "{method} {path}");
        }
    }
    assert_eq!(document["components"]["securitySchemes"]["bearer"]["scheme"], "bearer");
    assert_eq!(document["security"], json!([{}, { "bearer": [] }, { "header": [] }]));
}

#[test]
fn operations_have_names_of_their_own() {
    let names: BTreeSet<String> = OPERATIONS.iter().map(Operation::id).collect();
    assert_eq!(names.len(), OPERATIONS.len());
}
