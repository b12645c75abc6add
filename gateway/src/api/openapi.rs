//! The OpenAPI document of the API: its requests from one table, its types from the model, and the configuration from the grammar.

mod configuration;

use super::model::{
    Bottlenecks, Commit, CommitErrors, Committed, Confirm, Confirmed, Conflicts, Crypto, Drops, InForce, Log,
    Offloads, Problem, Reloaded, Revision, RevisionText, Saved, Stages, Status, Threads, Workers,
};
use super::server::TREE;
use crate::{
    dhcp, facts, failover, firewall, health, https, ipsec, machine, nat, openvpn, path, secgw, snmp,
    wireguard,
};
use axum::Json;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// Where the document is.
pub(super) const PLACE: &str = "/v1/openapi.json";
/// The type of a body of PATCH.
const MERGE_PATCH: &str = "application/merge-patch+json";

type MakeSchema = fn(&mut SchemaGenerator) -> Schema;

/// A request that the API answers.
struct Operation {
    method: &'static str,
    path: &'static str,
    about: &'static str,
    body: Option<MakeSchema>,
    answer: MakeSchema,
    errors: &'static [Error],
    /// Whether it takes what belongs to a commit as parameters.
    is_edit: bool,
}

/// An answer to a request that is refused.
struct Error {
    status: u16,
    about: &'static str,
    answer: MakeSchema,
}

const fn get<T: JsonSchema>(path: &'static str, about: &'static str) -> Operation {
    let answer = SchemaGenerator::subschema_for::<T>;
    Operation { method: "get", path, about, body: None, answer, errors: &[], is_edit: false }
}

const fn post<T: JsonSchema>(path: &'static str, about: &'static str) -> Operation {
    Operation { method: "post", ..get::<T>(path, about) }
}

impl Operation {
    const fn takes<T: JsonSchema>(self) -> Self {
        Self { body: Some(SchemaGenerator::subschema_for::<T>), ..self }
    }

    const fn fails(self, errors: &'static [Error]) -> Self {
        Self { errors, ..self }
    }

    const fn edit(self, method: &'static str) -> Self {
        Self { method, is_edit: true, ..self }
    }
}

const fn error<T: JsonSchema>(status: u16, about: &'static str) -> Error {
    Error { status, about, answer: SchemaGenerator::subschema_for::<T> }
}

/// Two sessions of a conflict, or a daemon without a configuration file.
struct Refused;

impl JsonSchema for Refused {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Refused".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (conflicts, problem) =
            (generator.subschema_for::<Conflicts>(), generator.subschema_for::<Problem>());
        schemars::json_schema!({ "anyOf": [conflicts, problem] })
    }
}

const NO_FILE: Error = error::<Problem>(409, "This daemon has no configuration file");
const COMMIT_ERRORS: &[Error] = &[
    error::<Refused>(409, "Others have changed the same meanwhile; or this daemon has no configuration file"),
    error::<Problem>(410, "The base is no longer in the archive"),
    error::<CommitErrors>(422, "The configuration is wrong: all errors"),
    error::<Problem>(423, "Another commit must be confirmed first"),
    error::<Problem>(503, "Nothing can be committed now"),
    error::<Problem>(507, "The disk is full"),
];
const EDIT_ERRORS: &[Error] = &[
    error::<Refused>(409, "Others have changed the same meanwhile; or this daemon has no configuration file"),
    error::<Problem>(410, "The base is no longer in the archive"),
    error::<CommitErrors>(422, "The configuration is wrong: all errors"),
    error::<Problem>(423, "Another commit must be confirmed first"),
    error::<Problem>(428, "The header If-Match is missing"),
    error::<Problem>(503, "Nothing can be committed now"),
    error::<Problem>(507, "The disk is full"),
];

/// The type of the configuration: its schema is made from the grammar.
struct ConfigurationTree;

impl JsonSchema for ConfigurationTree {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ConfigurationTree".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        configuration::schema()
    }
}

/// A merge patch (RFC 7396) has the members of the configuration, and `null` for what goes.
struct Patch;

impl JsonSchema for Patch {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ConfigurationPatch".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "type": "object",
            "description": "Members of ConfigurationTree that change, as a merge patch (RFC 7396): null deletes, lists are replaced.",
        })
    }
}

static OPERATIONS: &[Operation] = &[
    get::<Status>("/v1/status", "The daemon, its last reload, and what is not in force"),
    post::<Reloaded>("/v1/reload", "Read the configuration file again").fails(&[NO_FILE]),
    get::<ConfigurationTree>(TREE, "The configuration in force, typed; its revision is the ETag")
        .fails(&[NO_FILE]),
    get::<Committed>(TREE, "Replace the configuration; If-Match names the revision that it is based on")
        .edit("put")
        .takes::<ConfigurationTree>()
        .fails(EDIT_ERRORS),
    get::<Committed>(TREE, "Change a part of the configuration by a merge patch (RFC 7396)")
        .edit("patch")
        .takes::<Patch>()
        .fails(COMMIT_ERRORS),
    get::<InForce>("/v1/configuration", "The configuration in force as lines of set").fails(&[NO_FILE]),
    get::<Vec<Revision>>("/v1/configuration/revisions", "All revisions, the newest first").fails(&[NO_FILE]),
    get::<RevisionText>("/v1/configuration/revisions/{number}", "A revision as lines of set")
        .fails(&[NO_FILE, error::<Problem>(404, "There is no such revision")]),
    post::<Committed>("/v1/configuration/commit", "Change the configuration by lines of set and delete")
        .takes::<Commit>()
        .fails(COMMIT_ERRORS),
    post::<Confirmed>("/v1/configuration/confirm", "Keep a commit that has to be confirmed")
        .takes::<Confirm>()
        .fails(&[NO_FILE, error::<Problem>(423, "No commit waits to be confirmed")]),
    post::<()>("/v1/configuration/saved", "Tell that the configuration was written to the file")
        .takes::<Saved>(),
    get::<wireguard::model::Interfaces>("/v1/interfaces/wireguard", "WireGuard interfaces and their peers"),
    get::<wireguard::model::Explanations>(
        "/v1/interfaces/wireguard/{name}/explain",
        "Why the peers of an interface are up or down",
    ),
    get::<openvpn::model::Interfaces>("/v1/interfaces/openvpn", "OpenVPN interfaces and their sessions"),
    get::<openvpn::model::Explanations>(
        "/v1/interfaces/openvpn/{name}/explain",
        "Which sessions of an interface were refused or failed, and why",
    ),
    post::<bool>("/v1/interfaces/openvpn/reset", "End sessions, which clients begin again")
        .takes::<openvpn::model::Reset>(),
    get::<ipsec::model::Ipsec>("/v1/vpn/ipsec", "IPsec peers, IKE SAs and tunnels"),
    post::<bool>("/v1/vpn/ipsec/reset", "Re-establish a connection or a tunnel")
        .takes::<ipsec::model::Reset>(),
    get::<Vec<secgw::model::Secgw>>(
        "/v1/secgw",
        "Gateways between Ethernet ports: ports, SAs, policies, drops",
    ),
    post::<Reloaded>("/v1/secgw/reload", "Make postern secgw read its files again"),
    post::<bool>("/v1/secgw/reset", "Re-establish the connection to a peer that policies name")
        .takes::<ipsec::model::Reset>(),
    get::<machine::model::Machine>("/v1/machine", "Settings of the machine that are in force"),
    get::<dhcp::model::Leases>("/v1/dhcp/client", "What interfaces have got by DHCP"),
    get::<firewall::model::Firewall>(
        "/v1/firewall",
        "Zones and rule sets of the firewall, with their counters",
    ),
    get::<failover::model::Failover>(
        "/v1/failover",
        "Groups of tunnels that stand in for each other, and which of them is used",
    ),
    get::<nat::model::Nat>("/v1/nat", "Rules of NAT, and the connections that each has translated"),
    get::<https::model::Https>("/v1/service/https", "The HTTPS server, its keys by name and its certificate"),
    get::<https::model::Metrics>("/v1/service/metrics", "Where metrics are, and the certificate"),
    get::<https::model::Metrics>("/v1/service/page", "Where the status page is, and the certificate"),
    get::<https::model::Enrollment>("/v1/service/enrollment", "Where branches join, and the pin of tokens"),
    get::<snmp::model::Snmp>("/v1/service/snmp", "The sub-agent of snmpd, and what snmpd lacks"),
    get::<facts::model::Facts>(
        "/v1/facts",
        "A snapshot of all counters and states, made at most once a second",
    ),
    get::<health::model::Health>(
        "/v1/health",
        "The rules of health, the alerts that came of them, and who hears of those",
    ),
    get::<path::model::Paths>("/v1/path", "Round-trip time, loss and MTU of the tunnels that are probed"),
    get::<facts::model::History>(
        "/v1/facts/history",
        "What interfaces carried and lost in the last ten minutes",
    ),
    get::<Crypto>("/v1/crypto", "Crypto engines, their measured cost and the choice"),
    get::<Drops>("/v1/drops", "Lost packets by reason"),
    get::<Offloads>("/v1/offloads", "Offloads of the kernel by interface"),
    get::<Threads>("/v1/threads", "The threads that carry packets, and what workers hand off"),
    get::<Workers>("/v1/workers", "System calls, wake-ups and bursts of the workers by interface"),
    get::<Stages>("/v1/stages", "What the stages of interfaces take, of one burst in 64"),
    get::<Bottlenecks>("/v1/bottleneck", "What limits the speed of interfaces, looked at for a second"),
    get::<Log>("/v1/log", "The last lines of the log"),
    get::<Log>("/v1/log/{after}", "The lines of the log after a number"),
];

const KEY: &str = "A key of `service https api keys`, over HTTPS; the Unix socket needs none";

/// Answers the request for it.
pub(super) async fn serve() -> Json<Value> {
    Json(document())
}

/// The document, for OpenAPI 3.1.
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let mut paths: Map<String, Value> = Map::new();
    for operation in OPERATIONS {
        let described = operation.describe(&mut generator);
        let place = paths.entry(operation.path).or_insert_with(|| json!({}));
        place[operation.method] = described;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Postern",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0 OR MIT" },
            "description": "The API of a gateway. A commit names the revision that it is based on: changes of others since \
                            then are kept, and a conflict is refused.",
        },
        "paths": paths,
        "security": [{}, { "bearer": [] }, { "header": [] }],
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer", "description": KEY },
                "header": { "type": "apiKey", "in": "header", "name": "X-API-Key", "description": KEY },
            },
        },
    })
}

impl Operation {
    fn describe(&self, generator: &mut SchemaGenerator) -> Value {
        let mut answers = Map::new();
        answers.insert("200".to_owned(), self.success(generator));
        for error in self.errors {
            answers.insert(error.status.to_string(), content(error.about, (error.answer)(generator)));
        }
        let other = content("Any other error", generator.subschema_for::<Problem>());
        answers.insert("default".to_owned(), other);
        let mut described = json!({ "summary": self.about, "operationId": self.id(), "responses": answers });
        let parameters = self.parameters();
        if !parameters.is_empty() {
            described["parameters"] = Value::Array(parameters);
        }
        if let Some(body) = self.body {
            let kind = if self.method == "patch" { MERGE_PATCH } else { "application/json" };
            described["requestBody"] =
                json!({ "required": true, "content": { kind: { "schema": body(generator) } } });
        }
        described
    }

    fn success(&self, generator: &mut SchemaGenerator) -> Value {
        let mut answer = content("The answer", (self.answer)(generator));
        if self.path == TREE {
            let about = "The revision, in quotes: for If-Match";
            answer["headers"] = json!({ "ETag": { "description": about, "schema": { "type": "string" } } });
        }
        answer
    }

    /// A name for clients that are made from the document: `get_configuration_revisions_number`.
    fn id(&self) -> String {
        let words =
            self.path.split(['/', '{', '}', '-', '.']).filter(|word| !word.is_empty() && *word != "v1");
        std::iter::once(self.method).chain(words).collect::<Vec<_>>().join("_")
    }

    fn parameters(&self) -> Vec<Value> {
        let names = self.path.split('/').filter_map(|word| word.strip_prefix('{')?.strip_suffix('}'));
        let in_path = names.map(|name| {
            let kind = if name == "name" { "string" } else { "integer" };
            json!({ "name": name, "in": "path", "required": true, "schema": { "type": kind } })
        });
        let in_edit = self.is_edit.then(|| edit_parameters(self.method == "put")).into_iter().flatten();
        in_path.chain(in_edit).collect()
    }
}

/// The parameters of a commit beside the configuration.
fn edit_parameters(needs_base: bool) -> Vec<Value> {
    let in_query = |name: &str, kind: &str, about: &str| json!({ "name": name, "in": "query", "description": about, "schema": { "type": kind } });
    let about = "The ETag of the configuration that was read";
    vec![
        json!({
            "name": "If-Match", "in": "header", "required": needs_base, "description": about,
            "schema": { "type": "string" }
        }),
        in_query(
            "user",
            "string",
            "The user who commits, for the list of revisions; over HTTPS, the name of the key",
        ),
        in_query("comment", "string", "The comment of the commit, for the list of revisions"),
        in_query("confirm_minutes", "integer", "Undo it after so many minutes unless it is confirmed"),
        in_query("check_only", "boolean", "Only validate"),
    ]
}

fn content(about: &str, schema: Schema) -> Value {
    json!({ "description": about, "content": { "application/json": { "schema": schema } } })
}

#[cfg(test)]
#[path = "openapi/tests.rs"]
mod tests;
