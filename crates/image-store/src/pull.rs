//! Image pulls from registries.

use std::error::Error;
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};

use crate::blobs::{BlobError, Ingest};
use crate::digest::Digest;
use crate::index::Image;
use crate::manifest::{self, Descriptor, Document, ManifestError, Platform};
use crate::name::Name;
use crate::registries::{Attempt, Credentials, Registries};
use crate::registry::{self, RegistryError, Session};
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
    #[error("cannot pull {name} from {host}: {source}")]
    Registry {
        name: String,
        host: String,
        #[source]
        source: RegistryError,
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
    /// The mirrors and the registry, which is the last one, all failed.
    #[error("cannot pull {name}: {}", failures.iter().map(PullError::of_host).collect::<Vec<_>>().join("; "))]
    Hosts { name: String, failures: Vec<PullError> },
}

impl PullError {
    /// Whether the registry reported that the image does not exist.
    pub fn is_not_found(&self) -> bool {
        match self {
            PullError::Registry { source, .. } => source.is_not_found(),
            PullError::Hosts { failures, .. } => failures.last().is_some_and(PullError::is_not_found),
            PullError::Interrupted { .. } | PullError::Store(_) => false,
        }
    }

    /// Whether the registry rejected the credentials.
    pub fn is_unauthorized(&self) -> bool {
        match self {
            PullError::Registry { source, .. } => source.is_unauthorized(),
            PullError::Hosts { failures, .. } => failures.last().is_some_and(PullError::is_unauthorized),
            PullError::Interrupted { .. } | PullError::Store(_) => false,
        }
    }

    /// Formats the failure of one of several hosts.
    fn of_host(&self) -> String {
        match self {
            PullError::Registry { host, source, .. } => format!("{host}: {source}"),
            other => {
                let (mut text, mut cause) = (other.to_string(), other.source());
                while let Some(next) = cause {
                    text = format!("{text}: {next}");
                    cause = next.source();
                }
                text
            }
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
        let attempts = registries.attempts(name.registry(), credentials);
        let mut failures = Vec::new();
        for attempt in attempts.iter().filter(|attempt| attempt.host.pulls) {
            let pulled = async {
                let source = Source::open(name, attempt.clone(), registries, Arc::clone(&on_progress))?;
                let known = match name.digest() {
                    None if !attempt.host.resolves => Some(resolve(name, &attempts, registries).await?),
                    known => known,
                };
                self.pull_from(&source, name, known).await
            };
            match pulled.await {
                Ok(image) => return Ok(image),
                Err(error) => {
                    tracing::debug!(%name, host = attempt.host.address, %error, "failed to pull from this host");
                    failures.push(error);
                }
            }
        }
        match failures.len() {
            1 => Err(failures.remove(0)),
            _ => Err(PullError::Hosts { name: name.to_string(), failures }),
        }
    }

    async fn pull_from(&self, source: &Source, name: &Name, known: Option<Digest>) -> Result<Arc<Image>, PullError> {
        let (mut digest, mut bytes) = source.manifest(known).await?;
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
                    let (digest, host) = (content.digest.clone(), source.session.address().to_owned());
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

/// Resolves a tag at the first host that may do so and has it.
async fn resolve(name: &Name, attempts: &[Attempt], registries: &Registries) -> Result<Digest, PullError> {
    let unresolvable = RegistryError::Unresolvable;
    let mut failure =
        PullError::Registry { name: name.to_string(), host: name.registry().to_owned(), source: unresolvable };
    for attempt in attempts.iter().filter(|attempt| attempt.host.resolves) {
        let source = Source::open(name, attempt.clone(), registries, Arc::new(|_: PullProgress| {}))?;
        match source.manifest(None).await {
            Ok((digest, _)) => return Ok(digest),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// One host and the image requested from it.
struct Source {
    name: String,
    tag: String,
    session: Session,
    on_progress: Tell,
}

impl Source {
    fn open(name: &Name, attempt: Attempt, registries: &Registries, on_progress: Tell) -> Result<Source, PullError> {
        let host = attempt.host.address.clone();
        let session = Session::open(attempt, name.registry(), name.path(), registries);
        let session = session.map_err(|source| PullError::Registry { name: name.to_string(), host, source })?;
        Ok(Source { name: name.to_string(), tag: name.tag().to_owned(), session, on_progress })
    }

    fn report_progress(&self, content: &Descriptor, arrived: u64) {
        (self.on_progress)(PullProgress { digest: content.digest.clone(), arrived, size: content.size });
    }

    async fn manifest(&self, digest: Option<Digest>) -> Result<(Digest, Vec<u8>), PullError> {
        let kinds = [manifest::MANIFEST, manifest::INDEX, manifest::DOCKER_MANIFEST, manifest::DOCKER_LIST];
        let reference = digest.as_ref().map_or(self.tag.as_str(), Digest::as_str);
        let answer = self.session.manifest(reference, &kinds).await;
        let (bytes, claimed) = answer.map_err(|source| self.registry_error(source))?;
        let claimed = claimed.and_then(|claimed| Digest::parse(&claimed).ok());
        let digest = digest.or(claimed).unwrap_or_else(|| Digest::of(&bytes));
        Ok((digest, bytes))
    }

    async fn transfer(&self, content: &Descriptor, ingest: &mut Ingest) -> Result<(), TransferError> {
        let transfer_error = |error: BlobError| TransferError::Fatal(error.into());
        if ingest.arrived() == content.size && content.size > 0 {
            return Ok(());
        }
        let answer = self.session.blob(content.digest.as_str(), ingest.arrived()).await;
        let (mut response, is_partial) = answer.map_err(|error| self.failed(error))?;
        if ingest.arrived() > 0 && !is_partial {
            ingest.restart().map_err(transfer_error)?;
        }
        self.report_progress(content, ingest.arrived());
        while let Some(piece) = response.chunk().await.map_err(|error| self.failed(registry::connection(error)))? {
            ingest.write(&piece).map_err(transfer_error)?;
            self.report_progress(content, ingest.arrived());
        }
        Ok(())
    }

    /// Classifies an error: a rejection by the registry is final, a failed connection is retried.
    fn failed(&self, error: RegistryError) -> TransferError {
        match error {
            RegistryError::Connection(_) => TransferError::Retryable(Box::new(error)),
            other => TransferError::Fatal(self.registry_error(other)),
        }
    }

    fn registry_error(&self, source: RegistryError) -> PullError {
        PullError::Registry { name: self.name.clone(), host: self.session.address().to_owned(), source }
    }
}
