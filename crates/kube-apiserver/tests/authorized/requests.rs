//! Authorization regressions: requests that once did something other than what was authorized.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use api::kind::Kind;
use apimachinery::meta::Scope;
use apimachinery::time::Time;
use apimachinery::{Value, json, value};
use auth::{Attributes, Authorizer, Decision, User, request_header};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request};
use http_body_util::{BodyExt, Full};
use kube_apiserver::authentication::Peer;
use kube_apiserver::kind_table::Table;
use kube_apiserver::request;
use kube_apiserver::server::{Custom, Mode};
use kube_apiserver::state::State;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::cluster::{ADMIN, Cluster, OTHER, ROLES, Role, Roles, TENANT, TENANT_ADMIN, WATCHER};

const JSON: &str = "application/json";
const APPLY: &str = "application/apply-patch+yaml";
const CONFIG_MAPS: &str = "/api/v1/namespaces/tenant/configmaps";

fn role(verb: &str) -> Role {
    *ROLES.iter().find(|role| role.user == verb).unwrap()
}

fn config_map(name: &str) -> Vec<u8> {
    json::to_vec(&value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}}))
}

/// Authorizes by [`ROLES`], and makes ConfigMaps cluster-scoped meanwhile, as the author of a CRD can do with its kind.
struct ChangesScope(Arc<OnceLock<Arc<State>>>);

impl Authorizer for ChangesScope {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        if let (Some(state), true) = (self.0.get(), attributes.user.name == TENANT_ADMIN.user) {
            let widened = |kind: &Arc<Kind>| match kind.kind.as_str() {
                "ConfigMap" => Arc::new(Kind { scope: Scope::Cluster, ..Kind::clone(kind) }),
                _ => kind.clone(),
            };
            let kinds = state.storage.table().kinds.iter().map(widened).collect();
            *state.storage.table.write().unwrap() = Arc::new(Table::new(kinds));
        }
        Roles.authorize(attributes)
    }
}

#[tokio::test]
async fn kind_whose_scope_changes_during_authorization_is_served_in_the_authorized_scope() {
    let state = Arc::new(OnceLock::new());
    let authorizer = ChangesScope(state.clone());
    let cluster = Cluster::with(|config| config.modes = vec![Mode::Custom(Custom(Box::new(authorizer)))]).await;
    for namespace in [TENANT, OTHER] {
        let url = format!("/api/v1/namespaces/{namespace}/configmaps");
        let made = cluster.send(ADMIN, Method::POST, &url, JSON, config_map(namespace)).await;
        assert_eq!(made.code, 201, "{}", made.code_and_message());
    }
    state.set(cluster.server.state().clone()).ok().unwrap();
    let listed = cluster.send(TENANT_ADMIN, Method::GET, CONFIG_MAPS, "", "").await;
    assert_eq!(listed.code, 200, "{}", listed.code_and_message());
    let items = listed.body.get("items").and_then(Value::as_array).unwrap();
    assert!(items.iter().all(|item| item.str_at(&["metadata", "namespace"]) == Some(TENANT)), "{}", listed.body);
}

#[tokio::test]
async fn watch_user_cannot_write_through_the_watch_prefix() {
    let cluster = Cluster::start().await;
    let made = cluster.send(ADMIN, Method::POST, CONFIG_MAPS, JSON, config_map("c")).await;
    assert_eq!(made.code, 201, "{}", made.code_and_message());
    let before = cluster.objects().await;
    let (all, one) = ("/api/v1/watch/namespaces/tenant/configmaps", "/api/v1/watch/namespaces/tenant/configmaps/c");
    let merge = "application/merge-patch+json";
    for (method, url, media, body) in [
        (Method::POST, all, JSON, config_map("d")),
        (Method::PUT, one, JSON, config_map("c")),
        (Method::PATCH, one, merge, br#"{"data": {"k": "w"}}"#.to_vec()),
        (Method::DELETE, one, "", Vec::new()),
        (Method::DELETE, all, "", Vec::new()),
        (Method::POST, "/api/v1/watch/namespaces/tenant/serviceaccounts/default/token", JSON, b"{}".to_vec()),
        (Method::POST, "/api/v1/proxy/namespaces/tenant/configmaps", JSON, config_map("d")),
    ] {
        for role in [WATCHER, role("proxy"), ADMIN] {
            let response = cluster.send(role, method.clone(), url, media, body.clone()).await;
            assert_eq!(response.code, 405, "{} {method} {url}: {}", role.user, response.code_and_message());
        }
    }
    assert_eq!(cluster.objects().await, before);
    assert!(cluster.send(WATCHER, Method::GET, one, "", "").await.is_watch);
    // No resource is served below /proxy/, and no subresource below /watch/.
    for url in ["/api/v1/proxy/namespaces/tenant/configmaps/c", "/api/v1/watch/namespaces/tenant/pods/p/log"] {
        assert_eq!(cluster.send(ADMIN, Method::GET, url, "", "").await.code, 404, "{url}");
    }
}

#[tokio::test]
async fn cluster_scoped_objects_are_not_served_below_a_namespace() {
    let cluster = Cluster::start().await;
    let node = r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}"#;
    assert_eq!(cluster.send(ADMIN, Method::POST, "/api/v1/nodes", JSON, node).await.code, 201);
    let binding = r#"{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}}"#;
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/tenant/clusterrolebindings";
    for (method, url, body) in [
        (Method::GET, "/api/v1/namespaces/tenant/nodes", ""),
        (Method::GET, "/api/v1/namespaces/tenant/nodes/n1", ""),
        (Method::POST, "/api/v1/namespaces/tenant/nodes/n1/proxy/run/default/p/c", ""),
        (Method::GET, "/api/v1/watch/namespaces/tenant/nodes", ""),
        (Method::GET, "/api/v1/namespaces/tenant/namespaces/other", ""),
        (Method::DELETE, "/api/v1/namespaces/tenant/namespaces/tenant", ""),
        (Method::POST, bindings, binding),
    ] {
        for role in [TENANT_ADMIN, ADMIN, role("nobody")] {
            let response = cluster.send(role, method.clone(), url, JSON, body).await;
            assert_eq!(response.code, 404, "{} {method} {url}: {}", role.user, response.code_and_message());
        }
    }
    assert_eq!(cluster.send(TENANT_ADMIN, Method::GET, "/api/v1/namespaces/tenant", "", "").await.code, 200);
    assert_eq!(cluster.send(TENANT_ADMIN, Method::GET, "/api/v1/namespaces/other", "", "").await.code, 403);
}

#[tokio::test]
async fn namespaced_objects_are_not_served_without_a_namespace() {
    let cluster = Cluster::start().await;
    for (method, url) in [
        (Method::GET, "/api/v1/configmaps/c"),
        (Method::GET, "/api/v1/watch/configmaps/c"),
        (Method::PUT, "/api/v1/pods/p/status"),
        (Method::GET, "/api/v1/namespaces//configmaps"),
        (Method::POST, "/api/v1/bindings"),
        (Method::POST, "/apis/authorization.k8s.io/v1/localsubjectaccessreviews"),
    ] {
        for role in [ADMIN, role("nobody")] {
            let response = cluster.send(role, method.clone(), url, JSON, "{}").await;
            assert_eq!(response.code, 404, "{} {method} {url}: {}", role.user, response.code_and_message());
        }
    }
    // The collection across all namespaces is read-only.
    assert_eq!(cluster.send(ADMIN, Method::GET, "/api/v1/configmaps", "", "").await.code, 200);
    assert_eq!(cluster.send(ADMIN, Method::DELETE, "/api/v1/configmaps", "", "").await.code, 405);
    assert_eq!(cluster.send(ADMIN, Method::POST, "/api/v1/configmaps", JSON, config_map("c")).await.code, 405);
}

#[tokio::test]
async fn put_and_apply_that_create_need_the_create_permission() {
    let cluster = Cluster::start().await;
    let lease = r#"{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}}"#;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/tenant/leases/l";
    let put = cluster.send(role("update"), Method::PUT, leases, JSON, lease).await;
    let cannot = "User \"update\" cannot create resource \"leases\" in API group \"coordination.k8s.io\" in the namespace \"tenant\"";
    assert!(
        put.code_and_message().starts_with("403") && put.code_and_message().contains(cannot),
        "{}",
        put.code_and_message()
    );
    let (one, query) = (format!("{CONFIG_MAPS}/c"), "?fieldManager=m");
    let applied = cluster.send(role("patch"), Method::PATCH, &format!("{one}{query}"), APPLY, config_map("c")).await;
    assert_eq!(applied.code, 403, "{}", applied.code_and_message());
    assert_eq!(cluster.send(ADMIN, Method::GET, leases, "", "").await.code, 404);
    assert_eq!(cluster.send(ADMIN, Method::GET, &one, "", "").await.code, 404);
    // With both permissions the request creates; an existing object only needs the request's own verb.
    let applied = cluster.send(TENANT_ADMIN, Method::PATCH, &format!("{one}{query}"), APPLY, config_map("c")).await;
    assert_eq!(applied.code, 201, "{}", applied.code_and_message());
    let applied = cluster.send(role("patch"), Method::PATCH, &format!("{one}{query}"), APPLY, config_map("c")).await;
    assert_eq!(applied.code, 200, "{}", applied.code_and_message());
    let made = cluster.send(TENANT_ADMIN, Method::PUT, leases, JSON, lease).await;
    assert_eq!(made.code, 201, "{}", made.code_and_message());
    let put = cluster.send(role("update"), Method::PUT, leases, JSON, json::to_vec(&made.body)).await;
    assert_eq!(put.code, 200, "{}", put.code_and_message());
}

#[tokio::test]
async fn local_subject_access_review_is_evaluated_for_its_own_namespace_only() {
    let cluster = Cluster::start().await;
    let url = "/apis/authorization.k8s.io/v1/namespaces/tenant/localsubjectaccessreviews";
    let review = |metadata: &str, about: &str| {
        json::to_vec(&value!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview",
            "metadata": {"namespace": metadata},
            "spec": {"user": "get", "resourceAttributes": {"verb": "get", "resource": "secrets", "namespace": about}},
        }))
    };
    let own = cluster.send(TENANT_ADMIN, Method::POST, url, JSON, review(TENANT, TENANT)).await;
    assert_eq!((own.code, own.body.at(&["status", "allowed"])), (201, Some(&true.into())), "{}", own.body);
    assert_eq!(own.body.str_at(&["metadata", "namespace"]), Some(TENANT));
    let foreign = cluster.send(TENANT_ADMIN, Method::POST, url, JSON, review(OTHER, OTHER)).await;
    assert_eq!(
        foreign.code_and_message(),
        "400 the namespace of the provided object does not match the namespace sent on the request"
    );
    assert_eq!(cluster.send(TENANT_ADMIN, Method::POST, url, JSON, review("", OTHER)).await.code, 422);
}

#[tokio::test]
async fn longest_timeout_and_grace_period_do_not_panic() {
    let cluster = Cluster::start().await;
    let pods = "/api/v1/namespaces/tenant/pods";
    let pod = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}}"#;
    assert_eq!(cluster.send(ADMIN, Method::POST, pods, JSON, pod).await.code, 201);
    for (method, url) in [
        (Method::GET, format!("{pods}?watch=1&timeoutSeconds=9223372036854775807")),
        (Method::GET, format!("{pods}?watch=1&timeoutSeconds=-9223372036854775808")),
        (Method::GET, format!("{pods}?limit=9223372036854775807&timeoutSeconds=9223372036854775807")),
        (Method::GET, format!("{pods}?limit=-9223372036854775808")),
        (Method::GET, format!("{pods}?timeout=2562047h")),
        (Method::DELETE, format!("{pods}/p?gracePeriodSeconds=9223372036854775807")),
        (Method::DELETE, format!("{pods}/p?gracePeriodSeconds=-9223372036854775808")),
    ] {
        let response = cluster.send(ADMIN, method.clone(), &url, "", "").await;
        assert!(response.code < 300, "{method} {url}: {}", response.code_and_message());
    }
}

#[tokio::test]
async fn impersonation_header_that_cannot_be_read_is_a_bad_request() {
    let cluster = Cluster::start().await;
    let headers = |name: &'static str, value: &[u8]| -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.append(name, HeaderValue::from_bytes(value).unwrap());
        headers.append("impersonate-user", HeaderValue::from_static("nobody"));
        headers
    };
    let url = "/api/v1/namespaces/tenant/secrets";
    for name in ["impersonate-user", "impersonate-group", "impersonate-uid", "impersonate-extra-scopes"] {
        let response = cluster.send_with(ADMIN, Method::GET, url, headers(name, b"j\xf6rg"), "").await;
        assert_eq!(response.code_and_message(), format!("400 the value of header {name:?} is not UTF-8"));
    }
    // Header values are decoded as UTF-8, as upstream does.
    let response = cluster.send_with(ADMIN, Method::GET, url, headers("impersonate-user", "jörg".as_bytes()), "").await;
    assert!(
        response.code_and_message().starts_with("403") && response.code_and_message().contains("User \"jörg\""),
        "{}",
        response.code_and_message()
    );
}

#[tokio::test]
async fn front_proxy_header_that_cannot_be_read_is_a_bad_request() {
    let config = request_header::Config {
        username_headers: vec!["X-Remote-User".into()],
        group_headers: vec!["X-Remote-Group".into()],
        extra_header_prefixes: vec!["X-Remote-Extra-".into()],
        ..request_header::Config::default()
    };
    let cluster = Cluster::with(|start| start.authenticators.request_header = Some(config)).await;
    let send = async |name: &str, value: &[u8]| {
        // The proxy has its own client certificate, which permits everything.
        let own = User::authenticated("admin", ["system:masters".into()]);
        let peer = Peer { user: Some(own), proxy: Some("front".into()), ..Peer::default() };
        let request = Request::get("/api/v1/namespaces/tenant/secrets").header("x-remote-group", "g");
        let request =
            request.header(name, HeaderValue::from_bytes(value).unwrap()).body(Full::new(Bytes::new())).unwrap();
        let response = request::serve(Arc::clone(cluster.server.state()), peer, request).await;
        let code = response.status().as_u16();
        drop(response.into_body().collect().await);
        code
    };
    assert_eq!(send("x-remote-user", b"nobody").await, 403);
    assert_eq!(send("x-remote-user", b"j\xf6rg").await, 400);
    assert_eq!(send("x-remote-extra-scopes", b"\xff").await, 400);
}

#[tokio::test]
async fn expired_client_certificate_is_ignored_on_an_open_connection() {
    let cluster = Cluster::start().await;
    let send = async |expires: i64| {
        let user = User::authenticated("admin", ["system:masters".into()]);
        let peer = Peer { user: Some(user), expires: Some(Time::from_unix(expires, 0)), ..Peer::default() };
        let request = Request::get("/api/v1/namespaces/tenant").body(Full::new(Bytes::new())).unwrap();
        request::serve(Arc::clone(cluster.server.state()), peer, request).await.status().as_u16()
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs().cast_signed();
    assert_eq!(send(now + 3600).await, 200);
    assert_eq!(send(now - 1).await, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_is_closed_when_its_client_certificate_expires() {
    const LIFE: Duration = Duration::from_secs(4);
    let ca_key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::new(Vec::<String>::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
    let key = KeyPair::generate().unwrap();
    let mut client = CertificateParams::new(Vec::<String>::new()).unwrap();
    client.distinguished_name.push(DnType::CommonName, "admin");
    client.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
    client.not_after = (SystemTime::now() + LIFE).into();
    let certificate = client.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap();
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("ca.crt");
    std::fs::write(&file, ca_pem).unwrap();
    let cluster = Cluster::with(|config| config.tls.client_ca = Some(file)).await;
    let mut roots = RootCertStore::empty();
    let own = CertificateDer::from_pem_file(cluster.directory.path().join("certs/apiserver.crt")).unwrap();
    roots.add(own).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config =
        config.with_root_certificates(roots).with_client_auth_cert(vec![certificate.der().clone()], key).unwrap();
    let stream = TcpStream::connect(cluster.server.address()).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    let request = b"GET /api/v1/namespaces/tenant HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut all = Vec::new();
    // The read only returns when the connection is closed; without the certificate's expiry that would take half a
    // minute.
    let read = tokio::time::timeout(4 * LIFE, stream.read_to_end(&mut all)).await.expect("the connection is closed");
    let text = String::from_utf8_lossy(&all);
    assert!(text.starts_with("HTTP/1.1 200 OK"), "{text} {read:?}");
}
