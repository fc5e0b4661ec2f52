//! Test cluster: an in-process store and API server with a request client.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use apimachinery::{Value, json};
use auth::User;
use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use kube_apiserver::authentication::Peer;
use kube_apiserver::{Config, Server, request, request_trace};
use store::Node;
use tempfile::TempDir;

pub(crate) struct ApiResponse {
    pub code: u16,
    pub body: Value,
    pub headers: HeaderMap,
}

/// A running server; it stops when dropped.
pub(crate) struct Cluster {
    pub server: Server,
    _node: Node,
    _directory: TempDir,
}

impl ApiResponse {
    /// Returns the body of a success; panics on a failure.
    pub(crate) fn ok(self) -> Value {
        assert!(self.code < 300, "{} {}", self.code, self.body);
        self.body
    }

    /// Returns code and message of a failure.
    pub(crate) fn error_message(&self) -> String {
        format!("{} {}", self.code, self.body.str_at(&["message"]).unwrap_or_default())
    }

    /// Returns the texts of the warnings.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let all = self.headers.get_all(http::header::WARNING).iter();
        all.map(|value| value.to_str().unwrap().trim_start_matches("299 - ").trim_matches('"').to_owned()).collect()
    }
}

/// The events of a watch.
pub(crate) struct Lines {
    body: Pin<Box<request_trace::TracedBody>>,
    rest: Vec<u8>,
}

impl Lines {
    /// Waits for the end of the stream; panics if another event arrives.
    pub(crate) async fn end(&mut self) {
        let frame = tokio::time::timeout(Duration::from_secs(60), self.body.frame()).await.expect("an end");
        assert!(frame.is_none() && self.rest.is_empty(), "{frame:?}");
    }

    pub(crate) async fn next(&mut self) -> Value {
        json::parse(self.next_line().await.as_bytes()).unwrap()
    }

    /// Returns the bytes of the next event.
    pub(crate) async fn next_line(&mut self) -> String {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                return String::from_utf8(self.rest.drain(..=end).collect()).unwrap();
            }
            let frame = tokio::time::timeout(Duration::from_secs(60), self.body.frame()).await.expect("an event");
            self.rest.extend_from_slice(&frame.expect("the watch continues").unwrap().into_data().unwrap());
        }
    }
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// Starts with a configuration that `change` adjusts.
    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        Self::on(&[], change).await
    }

    /// Starts on a store that contains these keys.
    pub(crate) async fn on(stored: &[(&'static str, &'static str)], change: impl FnOnce(&mut Config)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (store, node) = store::single_member::open(directory.path().join("store")).await.unwrap();
        for (key, value) in stored {
            store
                .txn(kube_apiserver::storage_format::create(Bytes::from_static(key.as_bytes()), (*value).into()))
                .await
                .unwrap();
        }
        let mut config = Config { aggregator_routing: true, ..Config::local(directory.path().join("certs")) };
        // No controller creates the service accounts of pods here.
        config.admission.disable.push("ServiceAccount".to_owned());
        change(&mut config);
        let server = Server::start(config, store).await.unwrap();
        let cluster = Self { server, _node: node, _directory: directory };
        cluster.until("/api/v1/namespaces/default?resourceVersion=0", |response| response.code == 200).await;
        cluster
    }

    /// Sends a request as administrator.
    pub(crate) async fn send(&self, method: Method, path: &str, media: &str, body: impl Into<Bytes>) -> ApiResponse {
        let admin = User::authenticated("admin", ["system:masters".into()]);
        let peer = Peer { user: Some(admin), ..Peer::default() };
        self.send_as(peer, method, path, media, body).await
    }

    /// Sends a request with the identity of `peer`.
    pub(crate) async fn send_as(
        &self,
        peer: Peer,
        method: Method,
        path: &str,
        media: &str,
        body: impl Into<Bytes>,
    ) -> ApiResponse {
        let request = Request::builder().method(method).uri(path).header("content-type", media);
        let request = request.body(Full::new(body.into())).unwrap();
        let response = request::serve(Arc::clone(self.server.state()), peer, request).await;
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body = json::parse(&body).unwrap_or_else(|_| Value::from(&*String::from_utf8_lossy(&body)));
        ApiResponse { code: head.status.as_u16(), body, headers: head.headers }
    }

    /// Starts a watch as administrator.
    pub(crate) async fn watch(&self, path: &str) -> Lines {
        let admin = User::authenticated("admin", ["system:masters".into()]);
        let peer = Peer { user: Some(admin), ..Peer::default() };
        let request = Request::get(path).body(Full::new(Bytes::new())).unwrap();
        let response = request::serve(Arc::clone(self.server.state()), peer, request).await;
        assert_eq!(response.status().as_u16(), 200);
        Lines { body: Box::pin(response.into_body()), rest: Vec::new() }
    }

    /// Sends a GET with an Accept header.
    pub(crate) async fn get_as(&self, path: &str, accept: &str) -> ApiResponse {
        self.send_request(Request::get(path).header("accept", accept), Bytes::new()).await
    }

    /// Sends a POST with an Accept header.
    pub(crate) async fn post_as(&self, path: &str, accept: &str, body: &Value) -> ApiResponse {
        let request = Request::post(path).header("accept", accept).header("content-type", "application/json");
        self.send_request(request, json::to_vec(body)).await
    }

    async fn send_request(&self, request: http::request::Builder, body: impl Into<Bytes>) -> ApiResponse {
        let (code, headers, body) = self.exchange(request, body).await;
        ApiResponse { code, body: json::parse(&body).unwrap(), headers }
    }

    /// Sends a request as administrator and returns the body.
    pub(crate) async fn bytes(&self, request: http::request::Builder, body: impl Into<Bytes>) -> String {
        let (_, _, body) = self.exchange(request, body).await;
        String::from_utf8(body.to_vec()).unwrap()
    }

    async fn exchange(&self, request: http::request::Builder, body: impl Into<Bytes>) -> (u16, HeaderMap, Bytes) {
        let admin = User::authenticated("admin", ["system:masters".into()]);
        let peer = Peer { user: Some(admin), ..Peer::default() };
        let request = request.body(Full::new(body.into())).unwrap();
        let (head, body) = request::serve(Arc::clone(self.server.state()), peer, request).await.into_parts();
        (head.status.as_u16(), head.headers, body.collect().await.unwrap().to_bytes())
    }

    pub(crate) async fn get(&self, path: &str) -> ApiResponse {
        self.send(Method::GET, path, "", Bytes::new()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> ApiResponse {
        self.send(Method::POST, path, "application/json", json::to_vec(body)).await
    }

    pub(crate) async fn merge(&self, path: &str, body: &Value) -> ApiResponse {
        self.send(Method::PATCH, path, "application/merge-patch+json", json::to_vec(body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> ApiResponse {
        self.send(Method::DELETE, path, "", Bytes::new()).await
    }

    /// Sends requests until the response matches; waits for a cache change between attempts.
    pub(crate) async fn until(&self, path: &str, right: impl Fn(&ApiResponse) -> bool) -> ApiResponse {
        let mut reached = self.server.state().storage.cache.follow();
        let waiting = async {
            loop {
                reached.borrow_and_update();
                let response = self.get(path).await;
                if right(&response) {
                    return response;
                }
                // The kind table is updated shortly after the cache, so an attempt may come too early.
                let _ = tokio::time::timeout(Duration::from_millis(20), reached.changed()).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), waiting).await.expect(path)
    }
}
