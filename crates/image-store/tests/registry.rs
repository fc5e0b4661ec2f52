//! Tests of pulls from a registry on the loopback interface that can stall, disconnect and send wrong content.

#![expect(clippy::unwrap_used, reason = "what a test prepares must work")]

mod registry {
    mod hosts;
    pub(crate) mod server;
}

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use image_store::{Credentials, Host, Image, Name, PullError, Recipe, Registries, Store};
use registry::server::{Manners, Server};

async fn source_image(dir: &Path) -> (Store, std::sync::Arc<Image>) {
    let store = Store::open(dir).unwrap();
    let recipe = Recipe {
        dirs: vec![("/bin".into(), 0o755)],
        files: vec![("/bin/tool".into(), (0..200_000u32).flat_map(u32::to_le_bytes).collect(), 0o755)],
        ..Recipe::default()
    };
    let built = store.build(&Name::parse("test/tool:1").unwrap(), &recipe).await.unwrap();
    (store, built)
}

async fn pull(server: &Server, into: &Path, credentials: Credentials) -> Result<(Store, String), PullError> {
    let store = Store::open(into).unwrap();
    let name = Name::parse(&format!("{}/test/tool:1", server.address)).unwrap();
    let mut registries = Registries::default();
    registries.stall = Duration::from_millis(400);
    let image = store.pull(&name, &credentials, &registries).await?;
    assert_eq!(store.find(&name.to_string()).unwrap().id, image.id);
    Ok((store, image.id.to_string()))
}

async fn pulled(manners: Manners, credentials: Credentials) -> Result<(tempfile::TempDir, Store, Server), PullError> {
    let dir = tempfile::tempdir().unwrap();
    let (_source, built) = source_image(&dir.path().join("source")).await;
    let server = Server::start(&dir.path().join("source"), built.manifest.to_string(), manners).await;
    let (store, id) = pull(&server, &dir.path().join("store"), credentials).await?;
    assert_eq!(id, built.id.to_string());
    Ok((dir, store, server))
}

#[tokio::test(flavor = "multi_thread")]
async fn image_is_pulled_verified_unpacked_and_found() {
    let (_dir, store, _server) = pulled(Manners::default(), Credentials::Anonymous).await.unwrap();
    let image = &store.list()[0];
    let lower = store.lower_dirs(image);
    assert_eq!(lower.len(), 1);
    assert_eq!(fs::metadata(lower[0].join("bin/tool")).unwrap().len(), 800_000);
    assert!(store.usage().unwrap().bytes > 800_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn pull_reports_progress() {
    let dir = tempfile::tempdir().unwrap();
    let (_source, built) = source_image(&dir.path().join("source")).await;
    let server = Server::start(&dir.path().join("source"), built.manifest.to_string(), Manners::default()).await;
    let store = Store::open(&dir.path().join("store")).unwrap();
    let name = Name::parse(&format!("{}/test/tool:1", server.address)).unwrap();
    let steps = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let recorded = std::sync::Arc::clone(&steps);
    let on_progress = std::sync::Arc::new(move |step: image_store::PullProgress| recorded.lock().unwrap().push(step));
    store.pull_telling(&name, &Credentials::Anonymous, &Registries::default(), on_progress).await.unwrap();
    let steps = steps.lock().unwrap();
    let parts: BTreeSet<String> = steps.iter().map(|step| step.digest.to_string()).collect();
    assert_eq!(parts.len(), 2, "a layer and a configuration");
    for part in parts {
        let of_part: Vec<_> = steps.iter().filter(|step| step.digest.to_string() == part).collect();
        assert!(of_part.windows(2).all(|pair| pair[0].arrived <= pair[1].arrived), "{of_part:?}");
        assert_eq!(of_part.last().unwrap().arrived, of_part[0].size, "{part}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn index_is_resolved_to_the_host_platform() {
    let manners = Manners { index: true, ..Manners::default() };
    let (_dir, store, _server) = pulled(manners, Credentials::Anonymous).await.unwrap();
    let image = &store.list()[0];
    let digest = image.digests.first().unwrap();
    assert!(!digest.ends_with(image.manifest.as_str()), "a name by digest is the index's: {digest}");
    assert!(store.find(digest).is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn basic_credentials_are_sent_and_wrong_ones_are_rejected() {
    let manners = Manners { password: Some("secret"), ..Manners::default() };
    let right = Credentials::Basic { user: "me".into(), password: "secret".into() };
    pulled(manners.clone(), right).await.unwrap();
    for wrong in [Credentials::Anonymous, Credentials::Basic { user: "me".into(), password: "guess".into() }] {
        let error = pulled(manners.clone(), wrong).await.err().unwrap();
        assert!(error.is_unauthorized(), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_download_is_resumed() {
    let manners = Manners { break_after: Some(10_000), ..Manners::default() };
    let (_dir, _store, server) = pulled(manners, Credentials::Anonymous).await.unwrap();
    assert!(server.ranges() >= 1, "the rest was asked for by range");
}

#[tokio::test(flavor = "multi_thread")]
async fn content_with_wrong_digest_is_rejected() {
    let manners = Manners { corrupt: true, ..Manners::default() };
    let error = pulled(manners, Credentials::Anonymous).await.err().unwrap();
    let mut text = error.to_string();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(next) = cause.source() {
        cause = next;
        text = format!("{text}: {cause}");
    }
    assert!(text.to_lowercase().contains("digest"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_registry_times_out() {
    let manners = Manners { stall: true, ..Manners::default() };
    let error = pulled(manners, Credentials::Anonymous).await.err().unwrap();
    assert!(matches!(error, PullError::Interrupted { attempts: 5, .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_image_is_reported_as_not_found() {
    let dir = tempfile::tempdir().unwrap();
    let (_source, built) = source_image(&dir.path().join("source")).await;
    let server = Server::start(&dir.path().join("source"), built.manifest.to_string(), Manners::default()).await;
    let store = Store::open(&dir.path().join("store")).unwrap();
    let name = Name::parse(&format!("{}/test/other:1", server.address)).unwrap();
    let error = store.pull(&name, &Credentials::Anonymous, &Registries::default()).await.unwrap_err();
    assert!(error.is_not_found(), "{error}");
    assert!(store.list().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn mirror_replaces_an_unreachable_registry() {
    let dir = tempfile::tempdir().unwrap();
    let (_source, built) = source_image(&dir.path().join("source")).await;
    let server = Server::start(&dir.path().join("source"), built.manifest.to_string(), Manners::default()).await;
    let store = Store::open(&dir.path().join("store")).unwrap();
    let mut registries = Registries::default();
    registries.mirrors_mut("registry.invalid").hosts = vec![Host::of("127.0.0.1:1"), Host::of(&server.address)];
    let name = Name::parse("registry.invalid/test/tool:1").unwrap();
    store.pull(&name, &Credentials::Anonymous, &registries).await.unwrap();
    assert!(store.find("registry.invalid/test/tool:1").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn unreferenced_content_is_collected_and_layers_in_use_are_retained() {
    let (_dir, store, _server) = pulled(Manners::default(), Credentials::Anonymous).await.unwrap();
    let image = store.list().remove(0);
    assert_eq!(store.collect(&BTreeSet::new()).await.unwrap().bytes, 0);
    store.remove(image.id.as_str()).unwrap();
    let in_use: BTreeSet<_> = image.layers.iter().cloned().collect();
    store.collect(&in_use).await.unwrap();
    assert!(store.lower_dirs(&image)[0].join("bin/tool").exists());
    assert!(store.collect(&BTreeSet::new()).await.unwrap().bytes >= 800_000);
    assert_eq!(store.usage().unwrap().bytes, 0);
}
