//! Test cluster: an in-process store and API server with a request client.

use std::net::SocketAddr;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use apimachinery::{Value, json, value};
use auth::User;
use bytes::Bytes;
use client::config::Tls;
use client::transport::Wire;
use http::Request;
use http_body_util::{BodyExt, Full};
use kube_apiserver::authentication::{Authenticators, Peer};
use kube_apiserver::backend::{self, Route};
use kube_apiserver::proxy::Kubelets;
use kube_apiserver::{Server, request};
use store::Node;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// The token of an administrator.
pub(crate) const TOKEN: &str = "a-token-for-tests";
const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) struct Cluster {
    server: Server,
    _node: Node,
    pub directory: TempDir,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        Self::with(|_| Kubelets::default()).await
    }

    /// Starts a cluster with the kubelet settings that `kubelets` returns for the cluster's directory.
    pub(crate) async fn with(kubelets: impl FnOnce(&TempDir) -> Kubelets) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (store, node) = store::single_member::open(directory.path().join("store")).await.unwrap();
        let admin = User::authenticated("admin", ["system:masters".into()]);
        let viewer = User::authenticated("viewer", []);
        let tokens = [(TOKEN.into(), admin), ("of-viewer".into(), viewer)].into();
        let authenticators = Authenticators { tokens, ..Authenticators::default() };
        let mut config = kube_apiserver::Config {
            authenticators,
            kubelets: kubelets(&directory),
            ..kube_apiserver::Config::local(directory.path().join("certs"))
        };
        // No controller creates the service accounts of pods here.
        config.admission.disable.push("ServiceAccount".to_owned());
        let server = Server::start(config, store).await.unwrap();
        let cluster = Self { server, _node: node, directory };
        cluster.until("/api/v1/namespaces/default", |_| true).await;
        cluster
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Sends an in-process request as administrator.
    pub(crate) async fn call(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let (code, bytes) = self.raw(method, path, body).await;
        (code, json::parse(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into_owned().into()))
    }

    pub(crate) async fn raw(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Bytes) {
        let body = body.map(|body| Bytes::from(json::to_vec(&body))).unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header("host", "knarr.test");
        let request = request.header("content-type", "application/json").body(Full::new(body)).unwrap();
        let user = User::authenticated("admin", ["system:masters".into()]);
        let peer = Peer { user: Some(user), ..Peer::default() };
        let response = request::serve(Arc::clone(self.server.state()), peer, request).await;
        let code = response.status().as_u16();
        (code, response.into_body().collect().await.unwrap().to_bytes())
    }

    /// Creates an object and panics on a rejection.
    pub(crate) async fn create(&self, path: &str, object: Value) -> Value {
        let (code, response) = self.call("POST", path, Some(object)).await;
        assert_eq!(code, 201, "{response}");
        response
    }

    pub(crate) async fn set_status(&self, path: &str, status: Value) {
        let (code, mut object) = self.call("GET", path, None).await;
        assert_eq!(code, 200, "{object}");
        object.as_object_mut().unwrap().insert("status", status);
        let (code, response) = self.call("PUT", &format!("{path}/status"), Some(object)).await;
        assert_eq!(code, 200, "{response}");
    }

    /// Waits until an object exists and matches.
    pub(crate) async fn until(&self, path: &str, as_it_should: impl Fn(&Value) -> bool) -> Value {
        let mut reached = self.server.state().storage.cache.follow();
        let mut last = Value::Null;
        let waited = async {
            loop {
                reached.borrow_and_update();
                let (code, object) = self.call("GET", path, None).await;
                if code == 200 && as_it_should(&object) {
                    return object;
                }
                last = object;
                reached.changed().await.unwrap();
            }
        };
        match tokio::time::timeout(DEADLINE, waited).await {
            Ok(object) => object,
            Err(_) => panic!("{path} did not reach the expected state; it is {last}"),
        }
    }

    /// Opens a TLS connection to the server.
    pub(crate) async fn connect(&self) -> Wire {
        let dial = self.address().to_string();
        let url = format!("https://{dial}/").parse().unwrap();
        let tls = Tls { insecure_skip_verify: true, ..Tls::default() };
        backend::connect(&Route { url, dial, server_name: "localhost".into() }, &tls, &[b"http/1.1"]).await.unwrap()
    }

    /// Runs the real kubectl with stdin.
    pub(crate) async fn kubectl(
        &self,
        environment: (&'static str, &'static str),
        arguments: &[&str],
        input: &'static str,
    ) -> Output {
        let mut command = Command::new(test_requirements::program("kubectl", "kubernetes-client"));
        let cache = self.directory.path().join("kubectl");
        command.args([
            "--server",
            &format!("https://{}", self.address()),
            "--insecure-skip-tls-verify",
            "--token",
            TOKEN,
        ]);
        command
            .arg("--cache-dir")
            .arg(cache)
            .args(arguments)
            .env("KUBECONFIG", "/dev/null")
            .env(environment.0, environment.1);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        let output = tokio::time::timeout(DEADLINE, child.wait_with_output()).await;
        output.expect("kubectl exits in time").unwrap()
    }

    /// Adds a node whose kubelet listens in this process.
    pub(crate) async fn add_node(&self, name: &str, port: u16, features: &[&str]) {
        let node = value!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        self.create("/api/v1/nodes", node).await;
        let features: Vec<Value> = features.iter().map(|feature| Value::from(*feature)).collect();
        let status = value!({
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": (i64::from(port))}},
            "declaredFeatures": features,
        });
        self.set_status(&format!("/api/v1/nodes/{name}"), status).await;
    }

    /// Adds a pod with one container; an empty node leaves it unscheduled.
    pub(crate) async fn add_pod(&self, name: &str, node: &str) {
        let mut pod = value!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]},
        });
        if !node.is_empty() {
            pod.get_mut("spec").unwrap().as_object_mut().unwrap().insert("nodeName", node);
        }
        self.create("/api/v1/namespaces/default/pods", pod).await;
    }
}
