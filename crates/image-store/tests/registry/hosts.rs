//! Hosts of a registry: mirrors, credentials, redirects, TLS.

use std::path::PathBuf;
use std::sync::Arc;

use image_store::{Credentials, Host, HostSettings, Name, PullError, Registries, Rewrite, Store, Tls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use super::server::{Manners, Server};
use crate::source_image;

/// Name of the image at a registry that does not exist: only mirrors have it.
const IMAGE: &str = "registry.invalid/test/tool:1";

/// An image, and an empty store into which it is pulled.
struct Fixture {
    dir: tempfile::TempDir,
    manifest: String,
}

impl Fixture {
    async fn new() -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let (_store, built) = source_image(&dir.path().join("source")).await;
        Fixture { manifest: built.manifest.to_string(), dir }
    }

    fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    async fn server(&self, manners: Manners) -> Server {
        Server::start(&self.source(), self.manifest.clone(), manners).await
    }

    /// Pulls into an empty store.
    async fn pull(&self, name: &str, credentials: &Credentials, registries: &Registries) -> Result<(), PullError> {
        let into = tempfile::tempdir_in(self.dir.path()).unwrap();
        let store = Store::open(into.path()).unwrap();
        store.pull(&Name::parse(name).unwrap(), credentials, registries).await.map(drop)
    }
}

fn user(password: &str) -> Credentials {
    Credentials::Basic { user: "me".into(), password: password.into() }
}

fn registries(endpoints: &[&str]) -> Registries {
    let mut registries = Registries::default();
    registries.mirrors_mut("registry.invalid").hosts =
        endpoints.iter().map(|endpoint| Host::from_endpoint(endpoint).unwrap()).collect();
    registries
}

#[tokio::test(flavor = "multi_thread")]
async fn mirrors_are_tried_in_order_with_their_own_credentials() {
    let it = Fixture::new().await;
    let broken = it.server(Manners { fails: Some(503), ..Manners::default() }).await;
    let private = it.server(Manners { password: Some("secret"), ..Manners::default() }).await;
    let mut registries = registries(&[&broken.address, &private.address]);
    registries.set_host(&private.address, HostSettings { credentials: user("secret"), tls: None });
    it.pull(IMAGE, &user("of the pod"), &registries).await.unwrap();
    assert_eq!(broken.seen(), ["/v2/test/tool/manifests/1?ns=registry.invalid"]);
    let basic = "Basic bWU6c2VjcmV0";
    let manifest = "/v2/test/tool/manifests/1?ns=registry.invalid";
    assert_eq!(private.seen()[..2], [manifest.to_owned(), format!("{manifest} {basic}")]);
    assert!(private.seen()[1..].iter().all(|seen| seen.ends_with(basic)), "{:?}", private.seen());
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_of_all_hosts_names_each_of_them() {
    let it = Fixture::new().await;
    let broken = it.server(Manners { fails: Some(503), ..Manners::default() }).await;
    let own = it.server(Manners { password: Some("secret"), ..Manners::default() }).await;
    let mut registries = Registries::default();
    registries.mirrors_mut(&own.address).hosts = vec![Host::of(&broken.address)];
    let image = format!("{}/test/tool:1", own.address);
    let error = it.pull(&image, &user("wrong"), &registries).await.unwrap_err();
    assert!(error.is_unauthorized());
    let expect = format!(
        "cannot pull {image}: {}: 503 Service Unavailable: UNAVAILABLE; {}: 401 Unauthorized: UNAUTHORIZED; the given \
         credentials were rejected: check the image pull secret, or --creds",
        broken.address, own.address
    );
    assert_eq!(error.to_string(), expect);
    let error = it.pull(&image, &Credentials::Anonymous, &Registries::default()).await.unwrap_err().to_string();
    assert!(error.contains("use imagePullSecrets, or `auth` of "), "{error}");
    registries.set_host(&own.address, HostSettings { credentials: user("wrong"), tls: None });
    let error = it.pull(&image, &Credentials::Anonymous, &registries).await.unwrap_err().to_string();
    assert!(error.contains("check `auth` of ") && !error.contains("wrong"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_requested_with_a_password_or_an_identity_token() {
    let it = Fixture::new().await;
    let server = it.server(Manners { password: Some("secret"), token: true, ..Manners::default() }).await;
    let image = format!("{}/test/tool:1", server.address);
    it.pull(&image, &user("secret"), &Registries::default()).await.unwrap();
    let asked = "/token?scope=repository%3Atest%2Ftool%3Apull&service=test Basic bWU6c2VjcmV0";
    let tokens: Vec<String> = server.seen().into_iter().filter(|seen| seen.starts_with("/token")).collect();
    assert_eq!(tokens, [asked], "one token serves all requests of a pull");
    it.pull(&image, &Credentials::Identity("refresh".into()), &Registries::default()).await.unwrap();
    let error = it.pull(&image, &user("wrong"), &Registries::default()).await.unwrap_err();
    assert!(error.is_unauthorized() && error.to_string().contains("credentials were rejected"), "{error}");
    let error = it.pull(&image, &Credentials::Identity("other".into()), &Registries::default()).await.unwrap_err();
    assert!(error.is_unauthorized(), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn redirect_target_and_mirror_get_no_credentials() {
    let it = Fixture::new().await;
    let elsewhere = it.server(Manners::default()).await;
    let mirror = it.server(Manners { fails: Some(500), ..Manners::default() }).await;
    let blobs_at = Some(format!("http://{}", elsewhere.address));
    let own = it.server(Manners { password: Some("secret"), blobs_at, ..Manners::default() }).await;
    let mut registries = Registries::default();
    registries.mirrors_mut(&own.address).hosts = vec![Host::of(&mirror.address)];
    let header = ("x-key".parse().unwrap(), "secret".parse().unwrap());
    registries.mirrors_mut(&own.address).server = Some(Host { headers: vec![header], ..Host::of(&own.address) });
    it.pull(&format!("{}/test/tool:1", own.address), &user("secret"), &registries).await.unwrap();
    assert!(own.seen()[1..].iter().all(|seen| seen.ends_with("Basic bWU6c2VjcmV0 secret")), "{:?}", own.seen());
    assert_eq!(elsewhere.seen().len(), 2, "a layer and a configuration");
    for seen in elsewhere.seen().into_iter().chain(mirror.seen()) {
        assert!(!seen.contains("Basic") && !seen.contains("secret"), "{seen}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_end() {
    let it = Fixture::new().await;
    let looping = Manners { blobs_at: Some(String::new()), ..Manners::default() };
    let own = it.server(looping).await;
    let image = format!("{}/test/tool:1", own.address);
    let error = it.pull(&image, &Credentials::Anonymous, &Registries::default()).await.unwrap_err().to_string();
    assert!(error.ends_with("the registry redirects too often"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rewrite_rules_and_paths_apply_to_mirrors() {
    let it = Fixture::new().await;
    let server = it.server(Manners::default()).await;
    let mut host = Host::from_endpoint(&format!("http://{}/v2/test", server.address)).unwrap();
    host.rewrites = vec![Rewrite::new("^team/(.*)$", "$1").unwrap()];
    let mut registries = Registries::default();
    registries.mirrors_mut("*").hosts = vec![host];
    it.pull("registry.invalid/team/tool:1", &Credentials::Anonymous, &registries).await.unwrap();
    assert!(server.seen()[0].starts_with("/v2/test/tool/manifests/1"), "{:?}", server.seen());
}

#[tokio::test(flavor = "multi_thread")]
async fn tag_is_resolved_only_by_hosts_that_may() {
    let it = Fixture::new().await;
    let (mirror, own) = (it.server(Manners::default()).await, it.server(Manners::default()).await);
    let mut registries = Registries::default();
    registries.mirrors_mut(&own.address).hosts = vec![Host { resolves: false, ..Host::of(&mirror.address) }];
    it.pull(&format!("{}/test/tool:1", own.address), &Credentials::Anonymous, &registries).await.unwrap();
    assert_eq!(own.seen(), ["/v2/test/tool/manifests/1"]);
    assert!(mirror.seen().len() == 3 && mirror.seen()[0].contains("/manifests/sha256:"), "{:?}", mirror.seen());
}

/// A CA, and certificates of it for the server and for a client.
struct Certificates {
    ca: String,
    server: ServerConfig,
    client: String,
}

fn certificates(requires_client: bool) -> Certificates {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let leaf = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
        (certificate, key)
    };
    let (server, key) = leaf("127.0.0.1");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions().unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(ca.der().clone()).unwrap();
    let builder = if requires_client {
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build().unwrap();
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let server = builder.with_single_cert(vec![server.der().clone()], key).unwrap();
    let (client, key) = leaf("client");
    Certificates { ca: ca.pem(), server, client: client.pem() + &key.serialize_pem() }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_needs_a_trusted_ca_or_no_verification() {
    let it = Fixture::new().await;
    let certificates = certificates(false);
    let tls = Some(Arc::new(certificates.server));
    let server = it.server(Manners { tls, password: Some("secret"), token: true, ..Manners::default() }).await;
    let mut trusting = Tls::default();
    trusting.trust(certificates.ca.as_bytes()).unwrap();
    let mut careless = Tls::default();
    careless.skip_verify();
    for (tls, expect) in
        [(Some(trusting), Ok(())), (Some(careless), Ok(())), (Some(Tls::default()), Err("set the CA of the host"))]
    {
        let mut registries = registries(&[&format!("https://{}", server.address)]);
        registries.mirrors_mut("registry.invalid").server =
            Some(Host::from_endpoint(&format!("https://{}", server.address)).unwrap());
        registries.set_host(&server.address, HostSettings { credentials: user("secret"), tls });
        let pulled = it.pull(IMAGE, &Credentials::Anonymous, &registries).await;
        match expect {
            Ok(()) => pulled.unwrap(),
            Err(part) => assert!(pulled.as_ref().unwrap_err().to_string().contains(part), "{pulled:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_certificate_is_presented_to_its_host_only() {
    let it = Fixture::new().await;
    let certificates = certificates(true);
    let server = it.server(Manners { tls: Some(Arc::new(certificates.server)), ..Manners::default() }).await;
    let mut tls = Tls::default();
    tls.trust(certificates.ca.as_bytes()).unwrap();
    let address = format!("https://{}", server.address);
    let with = |tls: Tls| {
        let address = format!("https://{}", server.address);
        let mut registries = Registries::default();
        registries.mirrors_mut("registry.invalid").server =
            Some(Host { tls: Some(tls), ..Host::from_endpoint(&address).unwrap() });
        registries
    };
    let error = it.pull(IMAGE, &Credentials::Anonymous, &with(tls.clone())).await.unwrap_err();
    assert!(!error.is_unauthorized(), "{error}");
    let mut identified = tls;
    identified.identify(certificates.client.as_bytes()).unwrap();
    it.pull(IMAGE, &Credentials::Anonymous, &with(identified.clone())).await.unwrap();
    // A host that redirects to the server has the client certificate, but must not present it there.
    let front = it.server(Manners { blobs_at: Some(address), ..Manners::default() }).await;
    let mut registries = Registries::default();
    registries.mirrors_mut("registry.invalid").server =
        Some(Host { tls: Some(identified), ..Host::from_endpoint(&format!("http://{}", front.address)).unwrap() });
    it.pull(IMAGE, &Credentials::Anonymous, &registries).await.unwrap_err();
}
