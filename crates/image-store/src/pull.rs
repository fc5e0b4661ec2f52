//! Image pulls from registries.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use oci_client::client::{BlobResponse, Client, ClientConfig, ClientProtocol};
use oci_client::errors::OciDistributionError;
use oci_client::manifest::OciDescriptor;
use oci_client::secrets::RegistryAuth;

use crate::blobs::{BlobError, Ingest};
use crate::digest::Digest;
use crate::index::Image;
use crate::manifest::{self, Descriptor, Document, ManifestError, Platform};
use crate::name::Name;
use crate::store::{Names, Store, StoreError};

/// Maximum number of concurrent layer downloads.
const DOWNLOADS_MAX: usize = 4;
/// Maximum number of attempts to download a layer; each resumes the previous one.
const ATTEMPTS_MAX: u32 = 5;
/// Maximum nesting depth of image indexes.
const INDEX_DEPTH_MAX: u8 = 2;

/// An image could not be pulled.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// The registry and all of its mirrors failed; the error is that of the last host.
    #[error("cannot pull {name} from {host}: {}", root_cause(source))]
    Registry {
        name: String,
        host: String,
        #[source]
        source: OciDistributionError,
    },
    /// A download failed after the maximum number of attempts.
    #[error("the transfer of {digest} from {host} broke {attempts} times")]
    Interrupted {
        digest: Digest,
        host: String,
        attempts: u32,
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The content does not match its digest or cannot be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl PullError {
    /// Whether the registry reported that the image does not exist.
    pub fn is_not_found(&self) -> bool {
        use oci_client::errors::OciErrorCode::{ManifestUnknown, NameUnknown, NotFound};
        match self {
            PullError::Registry { source: OciDistributionError::ImageManifestNotFoundError(_), .. } => true,
            PullError::Registry { source: OciDistributionError::ServerError { code, .. }, .. } => *code == 404,
            PullError::Registry { source: OciDistributionError::RegistryError { envelope, .. }, .. } => {
                envelope.errors.iter().any(|error| matches!(error.code, ManifestUnknown | NameUnknown | NotFound))
            }
            _ => false,
        }
    }

    /// Whether the registry rejected the credentials.
    pub fn is_unauthorized(&self) -> bool {
        use oci_client::errors::OciErrorCode::{Denied, Unauthorized};
        match self {
            PullError::Registry { source, .. } => match source {
                OciDistributionError::AuthenticationFailure(_) | OciDistributionError::UnauthorizedError { .. } => true,
                OciDistributionError::RegistryError { envelope, .. } => {
                    envelope.errors.iter().any(|error| matches!(error.code, Denied | Unauthorized))
                }
                _ => false,
            },
            _ => false,
        }
    }
}

impl From<BlobError> for PullError {
    fn from(error: BlobError) -> PullError {
        StoreError::from(error).into()
    }
}

impl From<ManifestError> for PullError {
    fn from(error: ManifestError) -> PullError {
        StoreError::from(error).into()
    }
}

/// Registry credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Credentials {
    #[default]
    Anonymous,
    Basic {
        user: String,
        /// Password or access token.
        password: String,
    },
    /// A bearer token.
    Token(String),
}

/// A registry host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Host name or address, with a port if it is not the default.
    pub address: String,
    /// Whether to use HTTP instead of HTTPS.
    pub plain_http: bool,
}

impl Host {
    /// Returns a host that uses HTTPS, or HTTP on a loopback address.
    pub fn of(address: &str) -> Host {
        Host { address: address.to_owned(), plain_http: is_loopback(address) }
    }
}

/// Mirrors and timeouts of registries.
#[derive(Clone, Debug)]
pub struct Registries {
    /// Mirrors by registry, tried in order before the registry itself; `*` applies to registries without an entry.
    pub mirrors: BTreeMap<String, Vec<Host>>,
    /// Timeout for a registry that sends no data.
    pub stall: Duration,
    /// Connection timeout.
    pub connect: Duration,
}

impl Default for Registries {
    fn default() -> Registries {
        Registries { mirrors: BTreeMap::new(), stall: Duration::from_secs(60), connect: Duration::from_secs(15) }
    }
}

impl Registries {
    fn hosts(&self, registry: &str) -> Vec<Host> {
        let mirrors = self.mirrors.get(registry).or_else(|| self.mirrors.get("*"));
        mirrors.into_iter().flatten().cloned().chain([Host::of(registry)]).collect()
    }

    /// Returns a separate client per pull: a client caches credentials by host, which must not be shared between pulls.
    fn client(&self, host: &Host) -> Client {
        let protocol = if host.plain_http { ClientProtocol::Http } else { ClientProtocol::Https };
        Client::new(ClientConfig {
            protocol,
            read_timeout: Some(self.stall),
            connect_timeout: Some(self.connect),
            user_agent: concat!("knarr/", env!("CARGO_PKG_VERSION")),
            ..ClientConfig::default()
        })
    }
}

/// Progress of one download of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullProgress {
    pub digest: Digest,
    /// Bytes received.
    pub arrived: u64,
    /// Total bytes.
    pub size: u64,
}

/// Receives the progress of a pull.
pub type Tell = Arc<dyn Fn(PullProgress) + Send + Sync>;

impl Store {
    /// Pulls an image from the first host that has it. A failed pull adds no image.
    pub async fn pull(
        &self,
        name: &Name,
        credentials: &Credentials,
        registries: &Registries,
    ) -> Result<Arc<Image>, PullError> {
        self.pull_telling(name, credentials, registries, Arc::new(|_: PullProgress| {})).await
    }

    /// Pulls an image and reports progress to `on_progress`.
    pub async fn pull_telling(
        &self,
        name: &Name,
        credentials: &Credentials,
        registries: &Registries,
        on_progress: Tell,
    ) -> Result<Arc<Image>, PullError> {
        let _arriving = self.arriving().await?;
        let mut last = None;
        for host in registries.hosts(name.registry()) {
            let mut source = Source::new(name, &host, credentials, registries);
            source.on_progress = Arc::clone(&on_progress);
            match self.pull_from(&source, name).await {
                Ok(image) => return Ok(image),
                Err(error) => {
                    tracing::debug!(%name, host = host.address, %error, "failed to pull from this host");
                    last = Some(error);
                }
            }
        }
        Err(last.expect("a registry is its own last host"))
    }

    async fn pull_from(&self, source: &Source, name: &Name) -> Result<Arc<Image>, PullError> {
        let (mut digest, mut bytes) = source.manifest(name.digest()).await?;
        let mut names = Names::default();
        names.tags.extend(name.tagged());
        names.digests.insert(name.by_digest(&digest));
        let mut depth = 0;
        let manifest = loop {
            self.blobs.put_as(&digest, &bytes)?;
            match manifest::document(&digest, &bytes)? {
                Document::Image(manifest) => break manifest,
                Document::Index(_) if depth == INDEX_DEPTH_MAX => return Err(ManifestError::Nested.into()),
                Document::Index(index) => {
                    depth += 1;
                    names.blobs.insert(digest);
                    let entry = index.entry_for(&Platform::host())?;
                    (digest, bytes) = source.manifest(Some(entry.digest.clone())).await?;
                }
            }
        };
        if manifest.config.size > manifest::DOCUMENT_BYTES_MAX {
            return Err(BlobError::Document { digest: manifest.config.digest }.into());
        }
        let mut fetches = Vec::new();
        for content in manifest.layers.iter().chain([&manifest.config]) {
            fetches.push(self.fetch(source, content));
        }
        stream::iter(fetches).buffer_unordered(DOWNLOADS_MAX).try_collect::<()>().await?;
        Ok(self.adopt(&digest, &names).await?)
    }

    /// Downloads content unless it is present; a failed download is resumed.
    async fn fetch(&self, source: &Source, content: &Descriptor) -> Result<(), PullError> {
        let lock = self.lock_of(&content.digest);
        let _alone = lock.lock().await;
        if self.blobs.has(&content.digest) {
            source.report_progress(content, content.size);
            return Ok(());
        }
        let mut attempts = 0;
        loop {
            attempts += 1;
            let mut ingest = self.blobs.ingest(&content.digest, content.size)?;
            match source.transfer(content, &mut ingest).await {
                Ok(()) => return Ok(ingest.finish()?),
                Err(TransferError::Fatal(error)) => return Err(error),
                Err(TransferError::Retryable(error)) if attempts == ATTEMPTS_MAX => {
                    let (digest, host) = (content.digest.clone(), source.host.clone());
                    return Err(PullError::Interrupted { digest, host, attempts, source: error });
                }
                Err(TransferError::Retryable(error)) => {
                    tracing::debug!(digest = %content.digest, %error, attempts, "the download was interrupted");
                }
            }
        }
    }
}

/// A failed download attempt: `Fatal` is final, `Retryable` is retried.
enum TransferError {
    Fatal(PullError),
    Retryable(Box<dyn Error + Send + Sync>),
}

/// One host and the image requested from it.
struct Source {
    name: String,
    host: String,
    reference: oci_client::Reference,
    auth: RegistryAuth,
    client: Client,
    on_progress: Tell,
}

impl Source {
    fn new(name: &Name, host: &Host, credentials: &Credentials, registries: &Registries) -> Source {
        let mut reference = name.reference().clone();
        if host.address != name.registry() {
            reference.set_mirror_registry(host.address.clone());
        }
        let auth = match credentials {
            Credentials::Anonymous => RegistryAuth::Anonymous,
            Credentials::Basic { user, password } => RegistryAuth::Basic(user.clone(), password.clone()),
            Credentials::Token(token) => RegistryAuth::Bearer(token.clone()),
        };
        Source {
            name: name.to_string(),
            host: host.address.clone(),
            reference,
            auth,
            client: registries.client(host),
            on_progress: Arc::new(|_: PullProgress| {}),
        }
    }

    fn report_progress(&self, content: &Descriptor, arrived: u64) {
        (self.on_progress)(PullProgress { digest: content.digest.clone(), arrived, size: content.size });
    }

    async fn manifest(&self, digest: Option<Digest>) -> Result<(Digest, Vec<u8>), PullError> {
        let kinds = [manifest::MANIFEST, manifest::INDEX, manifest::DOCKER_MANIFEST, manifest::DOCKER_LIST];
        let reference = match &digest {
            Some(digest) => self.reference.clone_with_digest(digest.to_string()),
            None => self.reference.clone(),
        };
        let registry_error = |source| self.registry_error(source);
        let (bytes, claimed) =
            self.client.pull_manifest_raw(&reference, &self.auth, &kinds).await.map_err(registry_error)?;
        let digest = digest.or_else(|| Digest::parse(&claimed).ok()).unwrap_or_else(|| Digest::of(&bytes));
        Ok((digest, bytes.to_vec()))
    }

    async fn transfer(&self, content: &Descriptor, ingest: &mut Ingest) -> Result<(), TransferError> {
        let transfer_error = |error: BlobError| TransferError::Fatal(error.into());
        if ingest.arrived() == content.size && content.size > 0 {
            return Ok(());
        }
        let descriptor = OciDescriptor { digest: content.digest.to_string(), ..OciDescriptor::default() };
        self.client.store_auth_if_needed(self.reference.resolve_registry(), &self.auth).await;
        let mut bytes = match ingest.arrived() {
            0 => self.client.pull_blob_stream(&self.reference, &descriptor).await.map_err(|e| self.failed(e))?,
            offset => match self.resumed(&descriptor, offset).await? {
                BlobResponse::Partial(rest) => rest,
                BlobResponse::Full(whole) => {
                    ingest.restart().map_err(transfer_error)?;
                    whole
                }
            },
        };
        self.report_progress(content, ingest.arrived());
        while let Some(piece) = bytes.next().await {
            let piece = piece.map_err(|error| TransferError::Retryable(Box::new(error)))?;
            ingest.write(&piece).map_err(|error| TransferError::Fatal(error.into()))?;
            self.report_progress(content, ingest.arrived());
        }
        Ok(())
    }

    async fn resumed(&self, descriptor: &OciDescriptor, offset: u64) -> Result<BlobResponse, TransferError> {
        let response = self.client.pull_blob_stream_partial(&self.reference, descriptor, offset, None).await;
        response.map_err(|error| self.failed(error))
    }

    /// Classifies an error: a rejection by the registry is final, a failed connection is retried.
    fn failed(&self, error: OciDistributionError) -> TransferError {
        match error {
            OciDistributionError::RequestError(_) | OciDistributionError::IoError(_) => {
                TransferError::Retryable(Box::new(error))
            }
            other => TransferError::Fatal(self.registry_error(other)),
        }
    }

    fn registry_error(&self, source: OciDistributionError) -> PullError {
        PullError::Registry { name: self.name.clone(), host: self.host.clone(), source }
    }
}

fn is_loopback(address: &str) -> bool {
    let host = match address.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => address.split(':').next().unwrap_or(address),
    };
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Returns the innermost error, which contains the registry's own message.
fn root_cause(error: &OciDistributionError) -> String {
    let mut cause: &dyn Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_hosts_use_plain_http() {
        let check = |address: &str, plain: bool| assert_eq!(Host::of(address).plain_http, plain, "{address}");
        check("localhost:5000", true);
        check("127.0.0.1:5000", true);
        check("[::1]:5000", true);
        check("registry.k8s.io", false);
        check("10.0.0.1:5000", false);
        check("localhost.example.com", false);
    }

    #[test]
    fn mirrors_are_tried_before_the_registry() {
        let mut registries = Registries::default();
        registries.mirrors.insert("docker.io".into(), vec![Host::of("127.0.0.1:1")]);
        let hosts = |registry| registries.hosts(registry).into_iter().map(|host| host.address).collect::<Vec<_>>();
        assert_eq!(hosts("docker.io"), ["127.0.0.1:1", "docker.io"]);
        assert_eq!(hosts("quay.io"), ["quay.io"]);
    }
}
