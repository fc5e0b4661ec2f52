//! In-process client transport: requests pass through the same handler chain without a connection.

use std::sync::Arc;

use auth::User;
use bytes::Bytes;
use client::{Client, InProcess, Settings, Transport, transport};
use futures_util::FutureExt;
use http::Request;
use http_body_util::Full;

use crate::authentication::Peer;
use crate::request;
use crate::state::State;

/// Returns a transport that sends requests as `user`. Without a user, the request's credentials are authenticated.
pub fn transport(state: Arc<State>, user: Option<User>) -> Arc<dyn Transport> {
    let peer = Peer { user, ..Peer::default() };
    Arc::new(InProcess::new(peer, move |mut request: Request<Bytes>| {
        let peer = request.extensions_mut().remove::<Peer>().unwrap_or_default();
        let response = request::serve(Arc::clone(&state), peer, request.map(Full::new));
        response.map(|response| response.map(transport::body))
    }))
}

/// Returns a client in the group `system:masters`.
///
/// # Panics
/// Never: the client's settings are valid.
pub fn admin(state: Arc<State>) -> Client {
    let user = User::authenticated("admin", ["system:masters".into()]);
    Client::new(transport(state, Some(user)), Settings::default()).expect("constant settings are valid")
}
