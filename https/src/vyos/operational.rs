//! `/show`, `/generate`, `/reset`: operational commands, whose text is the answer.

use super::changes::apart;
use super::only::{only, unknown};
use crate::app::App;
use crate::daemon::Refused;
use crate::request::Operations;
use axum::http::StatusCode;
use serde_json::Value;
use std::sync::Arc;

pub(super) async fn run(app: &App, verb: &'static str, asked: &Operations) -> Result<Value, Refused> {
    let operation = only(asked)?;
    if operation.op() != verb {
        return Err(unknown(operation.op(), verb));
    }
    let words = operation.words().map_err(|error| Refused::bad(error.error))?;
    let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
    let _permit = app
        .local_permits
        .acquire()
        .await
        .map_err(|_| Refused::new(StatusCode::SERVICE_UNAVAILABLE, "the server ends"))?;
    let local = Arc::clone(&app.local);
    let said = apart(move || {
        let words: Vec<&str> = std::iter::once(verb).chain(words.iter().map(String::as_str)).collect();
        local.operate(&words)
    });
    said.await?.map(Value::from).map_err(Refused::bad)
}
