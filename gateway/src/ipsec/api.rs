//! What the API shows of IPsec.
//!
//! ```text
//! GET /v1/vpn/ipsec    POST /v1/vpn/ipsec/reset
//! ```

use super::handle::IkeHandle;
use super::{Gateway, facts, model};
use crate::api::server::unreadable;
use crate::clock::Clock;
use crate::facts::Tunnels;
use crate::service::View;
use crate::tunnel_interface::Counters;
use arc_swap::ArcSwapOption;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use std::sync::Arc;

/// The peers of the gateway, if there is one.
#[derive(Clone, Default)]
pub struct Peers {
    gateway: Arc<ArcSwapOption<Gateway>>,
    /// IKE without an interface.
    ike: Option<IkeHandle>,
    is_absent: bool,
}

impl Peers {
    /// Of a daemon without IPsec.
    pub fn absent() -> Self {
        Self { is_absent: true, ..Self::default() }
    }

    /// The peers of IKE for a gateway between ports.
    pub fn of(ike: IkeHandle) -> Self {
        Self { ike: Some(ike), ..Self::default() }
    }

    async fn peers(&self) -> Vec<model::IpsecPeer> {
        match (self.gateway.load_full(), &self.ike) {
            (Some(gateway), _) => gateway.status().await,
            (None, Some(ike)) => ike.status().await,
            (None, None) => Vec::new(),
        }
    }

    /// Shows the peers of this gateway, or none.
    pub fn show(&self, gateway: Option<Arc<Gateway>>) {
        self.gateway.store(gateway);
    }
}

impl View for Peers {
    fn interfaces(&self) -> Vec<Arc<dyn Counters>> {
        self.gateway.load_full().into_iter().map(|gateway| gateway as Arc<dyn Counters>).collect()
    }

    fn routes(&self) -> Router {
        Router::new()
            .route("/v1/vpn/ipsec", get(ipsec))
            .route("/v1/vpn/ipsec/reset", post(reset))
            .with_state(self.clone())
    }

    fn tunnels(&self) -> Tunnels<'_> {
        Box::pin(async { facts::tunnels(&self.peers().await, Clock.now().wall.as_secs()) })
    }
}

async fn ipsec(State(shown): State<Peers>) -> Json<model::Ipsec> {
    Json(model::Ipsec { peers: shown.peers().await, is_absent: shown.is_absent })
}

async fn reset(
    State(shown): State<Peers>,
    which: Result<Json<model::Reset>, JsonRejection>,
) -> Result<Json<bool>, Response> {
    let Json(which) = which.map_err(|rejection| unreadable(&rejection))?;
    let known = match (shown.gateway.load_full(), &shown.ike) {
        (Some(gateway), _) => gateway.reset(&which.peer, which.tunnel).await,
        (None, Some(ike)) => ike.reset(&which.peer, which.tunnel).await,
        (None, None) => false,
    };
    Ok(Json(known))
}
