//! Test cluster: an in-process store and API server whose users have one role each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use apimachinery::{Value, json};
use auth::{Attributes, Authorizer, Decision, Target, User};
use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use kube_apiserver::authentication::Peer;
use kube_apiserver::server::{Custom, Mode};
use kube_apiserver::{Config, Server, request, runtime_config};
use mvcc::{Delete, Operation, Put, Range, Revision, Span, Txn};
use store::Node;
use store::backend::Backend;
use store::client::{Client, Freshness};
use tempfile::TempDir;

/// The namespace in which a tenant has all permissions, and another one.
pub(crate) const TENANT: &str = "tenant";
pub(crate) const OTHER: &str = "other";
const DEADLINE: Duration = Duration::from_secs(60);
/// Timeout for the first event of a watch: a watch of an empty collection has none.
const FIRST_EVENT: Duration = Duration::from_millis(50);

/// A permission for all resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Role {
    pub user: &'static str,
    /// One verb, or `*`.
    pub verb: &'static str,
    /// All namespaces, or one.
    pub namespace: Option<&'static str>,
}

const fn everywhere(verb: &'static str) -> Role {
    Role { user: verb, verb, namespace: None }
}

pub(crate) const WATCHER: Role = everywhere("watch");
pub(crate) const TENANT_ADMIN: Role = Role { user: "tenant-admin", verb: "*", namespace: Some(TENANT) };
pub(crate) const ADMIN: Role = Role { user: "admin", verb: "*", namespace: None };
pub(crate) const ROLES: [Role; 12] = [
    WATCHER,
    TENANT_ADMIN,
    ADMIN,
    Role { user: "nobody", verb: "", namespace: None },
    everywhere("create"),
    everywhere("delete"),
    everywhere("deletecollection"),
    everywhere("get"),
    everywhere("list"),
    everywhere("patch"),
    everywhere("proxy"),
    everywhere("update"),
];

impl Role {
    /// Whether one of the verbs is permitted in a scope: a namespace, or the cluster if empty.
    pub(crate) fn permits(&self, verbs: &[&str], scope: &str) -> bool {
        (self.verb == "*" || verbs.contains(&self.verb)) && self.namespace.is_none_or(|namespace| namespace == scope)
    }
}

/// Authorizes by [`ROLES`].
pub(crate) struct Roles;

impl Authorizer for Roles {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let role = ROLES.iter().find(|role| role.user == attributes.user.name);
        match (role, &attributes.target) {
            (Some(role), Target::Resource(resource)) if role.permits(&[attributes.verb], resource.namespace) => {
                Decision::Allow(String::new())
            }
            _ => Decision::NoOpinion(String::new()),
        }
    }
}

pub(crate) struct ApiResponse {
    pub code: u16,
    pub body: Value,
    /// Whether the response is a watch stream.
    pub is_watch: bool,
}

impl ApiResponse {
    /// Returns code and message.
    pub(crate) fn code_and_message(&self) -> String {
        format!("{} {}", self.code, self.body.str_at(&["message"]).unwrap_or_default())
    }
}

/// The objects in the store, by key.
pub(crate) type Objects = BTreeMap<String, (Bytes, Revision)>;

pub(crate) struct Cluster {
    pub server: Server,
    store: Client,
    _node: Node,
    pub directory: TempDir,
}

impl Cluster {
    /// Starts a cluster that serves every version of every kind, authorized by [`ROLES`].
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (store, node) = store::single_member::open(directory.path().join("store")).await.unwrap();
        let mut config = Config::local(directory.path().join("certs"));
        config.modes = vec![Mode::Custom(Custom(Box::new(Roles)))];
        config.kinds = runtime_config::apply(config.kinds, &["api/all=true".to_owned()]).unwrap();
        // No controller creates the service accounts of pods here.
        config.admission.disable.push("ServiceAccount".to_owned());
        change(&mut config);
        let server = Server::start(config, store.clone()).await.unwrap();
        let cluster = Self { server, store, _node: node, directory };
        // Until then the server itself still writes bootstrap objects.
        cluster.until("/readyz", |response| response.code == 200).await;
        for namespace in [TENANT, OTHER] {
            let object = format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{namespace}"}}}}"#);
            let made = cluster.send(ADMIN, Method::POST, "/api/v1/namespaces", "application/json", object).await;
            assert_eq!(made.code, 201, "{}", made.body);
        }
        cluster
    }

    /// Sends a request as the user of a role.
    pub(crate) async fn send(
        &self,
        role: Role,
        method: Method,
        url: &str,
        media: &str,
        body: impl Into<Bytes>,
    ) -> ApiResponse {
        let headers = [("content-type".parse().unwrap(), media.parse().unwrap())].into_iter().collect();
        self.send_with(role, method, url, headers, body).await
    }

    pub(crate) async fn send_with(
        &self,
        role: Role,
        method: Method,
        url: &str,
        headers: HeaderMap,
        body: impl Into<Bytes>,
    ) -> ApiResponse {
        let groups = if role == ADMIN { vec!["system:masters".into()] } else { Vec::new() };
        let peer = Peer { user: Some(User::authenticated(role.user, groups)), ..Peer::default() };
        let mut request = Request::builder().method(method).uri(url).body(Full::new(body.into())).unwrap();
        *request.headers_mut() = headers;
        let serving = request::serve(Arc::clone(self.server.state()), peer, request);
        let response =
            tokio::time::timeout(DEADLINE, serving).await.unwrap_or_else(|_| panic!("{url} is not answered"));
        let (head, body) = response.into_parts();
        // Only a watch has a body of unknown length.
        let is_watch = head.status == 200 && http_body::Body::size_hint(&body).exact().is_none();
        let bytes = if is_watch {
            let mut body = Box::pin(body);
            let first = tokio::time::timeout(FIRST_EVENT, body.frame()).await.ok().flatten();
            first.and_then(|frame| frame.unwrap().into_data().ok()).unwrap_or_default()
        } else {
            body.collect().await.unwrap().to_bytes()
        };
        let line = bytes.split(|byte| is_watch && *byte == b'\n').next().unwrap_or_default();
        let body = json::parse(line).unwrap_or_else(|_| Value::from(&*String::from_utf8_lossy(line)));
        ApiResponse { code: head.status.as_u16(), body, is_watch }
    }

    /// Sends requests as administrator until the response matches; waits for a cache change between attempts.
    pub(crate) async fn until(&self, url: &str, right: impl Fn(&ApiResponse) -> bool) -> ApiResponse {
        let mut reached = self.server.state().storage.cache.follow();
        let waiting = async {
            loop {
                reached.borrow_and_update();
                let response = self.send(ADMIN, Method::GET, url, "", "").await;
                if right(&response) {
                    return response;
                }
                let _ = tokio::time::timeout(Duration::from_millis(20), reached.changed()).await;
            }
        };
        tokio::time::timeout(DEADLINE, waiting).await.expect(url)
    }

    /// Returns the revision of the store.
    pub(crate) fn revision(&self) -> Revision {
        match &self.store {
            Client::Local(backend) => backend.view(mvcc::State::revision),
            Client::Remote(_) => unreachable!("the store is in this process"),
        }
    }

    /// Returns all objects in the store.
    pub(crate) async fn objects(&self) -> Objects {
        let all = self.server.state().storage.layout.all();
        let reply = self.store.range(Range::of(all), Freshness::Linearizable).await.unwrap();
        let entry = |record: &Arc<mvcc::Record>| {
            let key = String::from_utf8(record.key().to_vec()).unwrap();
            (key, (record.value_bytes(), record.mod_revision))
        };
        reply.records.iter().map(entry).collect()
    }

    /// Restores the store's contents, bypassing the API.
    pub(crate) async fn restore(&self, to: &Objects) {
        let now = self.objects().await;
        let removed = now
            .keys()
            .filter(|key| !to.contains_key(*key))
            .map(|key| Operation::Delete(Delete { span: Span::key(Bytes::from(key.clone())), want_previous: false }));
        let put = to.iter().filter(|(key, (value, _))| now.get(*key).is_none_or(|(found, _)| found != value));
        let put = put.map(|(key, (value, _))| {
            let (key, value) = (Bytes::from(key.clone()), Some(value.clone()));
            Operation::Put(Put { key, value, lease: Some(0), want_previous: false })
        });
        let success: Vec<Operation> = removed.chain(put).collect();
        if !success.is_empty() {
            self.store.txn(Txn { compare: Vec::new(), success, failure: Vec::new() }).await.unwrap();
        }
        self.server.state().storage.catch_up().await.unwrap();
    }
}
