//! Encryption at rest with a KMS plugin on a real socket.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::kms::proto::key_management_service_server::{KeyManagementService, KeyManagementServiceServer};
use super::kms::proto::{
    DecryptRequest, DecryptResponse, EncryptRequest, EncryptResponse, StatusRequest, StatusResponse,
};
use super::*;

/// A KMS plugin whose cipher reverses bytes; it counts its calls.
#[derive(Default)]
struct Mirror {
    encrypted: AtomicUsize,
    decrypted: AtomicUsize,
}

#[tonic::async_trait]
impl KeyManagementService for Arc<Mirror> {
    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        Ok(Response::new(StatusResponse { version: "v2".into(), healthz: "ok".into(), key_id: "k1".into() }))
    }

    async fn encrypt(&self, request: Request<EncryptRequest>) -> Result<Response<EncryptResponse>, Status> {
        self.encrypted.fetch_add(1, Ordering::Relaxed);
        let ciphertext = request.into_inner().plaintext.into_iter().rev().collect();
        Ok(Response::new(EncryptResponse { ciphertext, key_id: "k1".into(), annotations: Default::default() }))
    }

    async fn decrypt(&self, request: Request<DecryptRequest>) -> Result<Response<DecryptResponse>, Status> {
        self.decrypted.fetch_add(1, Ordering::Relaxed);
        let plaintext = request.into_inner().ciphertext.into_iter().rev().collect();
        Ok(Response::new(DecryptResponse { plaintext }))
    }
}

async fn open_encryptor(path: &Path) -> Result<Encryptor, Error> {
    let layout = Layout { root: "/registry".into() };
    Encryptor::open_file(File { path: path.to_owned(), reload: false }, layout, &api::kinds::all()).await
}

#[tokio::test]
async fn kms_plugin_encrypts_one_seed_and_a_new_server_decrypts_it_once() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("kms.sock");
    let file = dir.path().join("encryption.json");
    let text = format!(
        r#"{{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": [{{
            "resources": ["secrets"],
            "providers": [{{"kms": {{"apiVersion": "v2", "name": "mirror", "endpoint": "unix://{}"}}}}]}}]}}"#,
        socket.display()
    );
    std::fs::write(&file, text).unwrap();
    assert!(matches!(open_encryptor(&file).await, Err(Error::Service { .. })), "the plugin does not listen yet");

    let mirror = Arc::new(Mirror::default());
    let incoming = UnixListenerStream::new(UnixListener::bind(&socket).unwrap());
    let service = KeyManagementServiceServer::new(mirror.clone());
    let serving = tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));

    let first = open_encryptor(&file).await.unwrap();
    let key = b"/registry/secrets/default/s";
    let sealed = first.encrypt(key, Bytes::from_static(b"hidden")).unwrap();
    assert!(sealed.starts_with(b"k8s:enc:kms:v2:mirror:"));
    assert_eq!(first.open(key, sealed.clone()).await.unwrap(), (Bytes::from_static(b"hidden"), false));
    let plain = first.encrypt(b"/registry/configmaps/default/c", Bytes::from_static(b"{}")).unwrap();
    assert_eq!(plain, "{}", "only what the configuration names is sealed");
    assert_eq!((mirror.encrypted.load(Ordering::Relaxed), mirror.decrypted.load(Ordering::Relaxed)), (1, 0));

    let second = open_encryptor(&file).await.unwrap();
    for _ in 0..3 {
        assert_eq!(second.open(key, sealed.clone()).await.unwrap().0, "hidden");
    }
    assert_eq!(mirror.decrypted.load(Ordering::Relaxed), 1);
    assert!(second.open(b"/registry/secrets/default/other", sealed).await.is_err(), "a ciphertext is bound to its key");
    serving.abort();
}

#[tokio::test]
async fn store_keys_map_to_the_resource_of_their_kind() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("encryption.json");
    let text = r#"{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": [{
        "resources": ["secrets"], "providers": [{"identity": {}}]}]}"#;
    std::fs::write(&file, text).unwrap();
    let encryptor = open_encryptor(&file).await.unwrap();
    let check = |key: &str, group: &str, resource: &str| {
        assert_eq!(encryptor.resource(key.as_bytes()), (group.into(), resource.into()), "{key}");
    };
    check("/registry/secrets/default/s", "", "secrets");
    check("/registry/services/specs/default/s", "", "services");
    check("/registry/deployments/default/d", "apps", "deployments");
    check("/registry/example.com/widgets/default/w", "example.com", "widgets");
}
