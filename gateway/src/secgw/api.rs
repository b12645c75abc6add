//! What the API shows of `postern secgw`.
//!
//! ```text
//! GET /v1/secgw    POST /v1/secgw/reload    POST /v1/secgw/reset
//! ```

use super::model;
use super::statistics::Statistics;
use crate::api::model::Reloaded;
use crate::api::server::{problem, unreadable};
use crate::ipsec::handle::IkeHandle;
use crate::ipsec::model::Reset;
use crate::service::View;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, oneshot};

/// A request to read the file again, which wants the result.
pub type ReloadOrder = oneshot::Sender<Reloaded>;

/// The gateways of a process, by the names of their interfaces. That of `postern secgw` has no name.
#[derive(Clone, Default)]
pub struct Gateways(Arc<Mutex<BTreeMap<String, Gateway>>>);

#[derive(Clone)]
struct Gateway {
    statistics: Arc<Statistics>,
    /// None where the daemon reads its configuration.
    reloads: Option<mpsc::Sender<ReloadOrder>>,
    ike: Option<IkeHandle>,
}

impl Gateways {
    /// Shows a gateway. Requests to read its file again go to `reloads`.
    pub fn new(
        statistics: Arc<Statistics>,
        reloads: mpsc::Sender<ReloadOrder>,
        ike: Option<IkeHandle>,
    ) -> Self {
        let gateway = Gateway { statistics, reloads: Some(reloads), ike };
        Self(Arc::new(Mutex::new(BTreeMap::from([(String::new(), gateway)]))))
    }

    /// Shows a gateway of the configuration.
    pub(super) fn show(&self, name: &str, statistics: Arc<Statistics>, ike: Option<IkeHandle>) {
        self.lock().insert(name.to_owned(), Gateway { statistics, reloads: None, ike });
    }

    /// Shows it no more.
    pub(super) fn hide(&self, name: &str) {
        self.lock().remove(name);
    }

    fn all(&self) -> Vec<Gateway> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Gateway>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl View for Gateways {
    fn routes(&self) -> Router {
        Router::new()
            .route("/v1/secgw", get(show))
            .route("/v1/secgw/reload", post(reload))
            .route("/v1/secgw/reset", post(reset))
            .with_state(self.clone())
    }
}

async fn show(State(gateways): State<Gateways>) -> Json<Vec<model::Secgw>> {
    let mut shown = Vec::new();
    for Gateway { statistics, ike, .. } in gateways.all() {
        let ike = match ike {
            Some(ike) => ike.status().await,
            None => Vec::new(),
        };
        shown.push(model::Secgw { ike, ..statistics.show() });
    }
    Json(shown)
}

async fn reset(
    State(gateways): State<Gateways>,
    which: Result<Json<Reset>, JsonRejection>,
) -> Result<Json<bool>, Response> {
    let Json(which) = which.map_err(|rejection| unreadable(&rejection))?;
    let mut known = false;
    for ike in gateways.all().into_iter().filter_map(|gateway| gateway.ike) {
        known |= ike.reset(&which.peer, which.tunnel).await;
    }
    Ok(Json(known))
}

async fn reload(State(gateways): State<Gateways>) -> Result<Json<Reloaded>, Response> {
    let unavailable = || {
        let error = "no gateway of postern secgw is here, or it is ending";
        let fix = "start postern secgw; gateways of the daemon change with its configuration: postern reload";
        problem(StatusCode::SERVICE_UNAVAILABLE, error, fix)
    };
    let reloads = gateways.all().into_iter().find_map(|gateway| gateway.reloads).ok_or_else(unavailable)?;
    let (reply, answer) = oneshot::channel();
    reloads.send(reply).await.map_err(|_| unavailable())?;
    answer.await.map(Json).map_err(|_| unavailable())
}
