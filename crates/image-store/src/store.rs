//! The image store of a host.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::fs::FlockOperation;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::blobs::{BlobError, Blobs};
use crate::digest::Digest;
use crate::index::{Image, Index, IndexError};
use crate::layers::{LayerError, Layers};
use crate::manifest::{self, ManifestError};
use crate::name::Name;

/// Maximum number of layers that unpack concurrently; more would only cause disk seeks.
const UNPACKING_MAX: usize = 3;

/// An operation of the image store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(transparent)]
    Blob(#[from] BlobError),
    #[error(transparent)]
    Layer(#[from] LayerError),
    #[error(transparent)]
    Index(#[from] IndexError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("cannot use {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Disk usage of images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of unpacked layers and of content.
    pub bytes: u64,
    /// Inodes of unpacked layers and of content.
    pub inodes: u64,
}

/// The image store of a host. Several processes may use a store: changing the index takes one file lock, adding or
/// collecting images takes another.
pub struct Store {
    root: PathBuf,
    pub(crate) blobs: Blobs,
    pub(crate) layers: Arc<Layers>,
    index: Mutex<Index>,
    unpacking: Arc<Semaphore>,
    /// Held for reading while an image is added and for writing during collection, since content being added is not yet
    /// in the index.
    arrivals: tokio::sync::RwLock<()>,
    /// Serializes downloads per digest.
    locks: Mutex<BTreeMap<Digest, Arc<tokio::sync::Mutex<()>>>>,
}

impl Store {
    /// Opens or creates the store in a directory, and removes leftovers of a crash.
    pub fn open(root: &Path) -> Result<Store, StoreError> {
        let private = || {
            fs::create_dir_all(root)?;
            fs::set_permissions(root, std::os::unix::fs::PermissionsExt::from_mode(0o700))
        };
        private().map_err(|source| StoreError::Io { path: root.to_owned(), source })?;
        let blobs = Blobs::open(&root.join("blobs"))?;
        let layers = Layers::open(&root.join("layers"))?;
        layers.sweep().map_err(|source| StoreError::Io { path: root.join("layers"), source })?;
        let index = Index::open(&root.join("images.json"))?;
        Ok(Store {
            root: root.to_owned(),
            blobs,
            layers: Arc::new(layers),
            index: Mutex::new(index),
            unpacking: Arc::new(Semaphore::new(UNPACKING_MAX)),
            arrivals: tokio::sync::RwLock::new(()),
            locks: Mutex::new(BTreeMap::new()),
        })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn list(&self) -> Vec<Arc<Image>> {
        self.index().all().cloned().collect()
    }

    /// Finds an image by ID or name.
    pub fn find(&self, given: &str) -> Option<Arc<Image>> {
        self.index().find(given)
    }

    /// Returns the directories of an image's layers for overlayfs, topmost first.
    pub fn lower_dirs(&self, image: &Image) -> Vec<PathBuf> {
        image.layers.iter().rev().map(|key| self.layers.files(key)).collect()
    }

    /// Removes an image with all its names from the index; [`Store::collect`] frees its disk space. A missing image is
    /// not an error.
    pub fn remove(&self, given: &str) -> Result<Option<Arc<Image>>, StoreError> {
        let _alone = self.file_lock("index.lock", FlockOperation::LockExclusive)?;
        let mut index = self.index();
        let Some(image) = index.find(given) else { return Ok(None) };
        Ok(index.remove(&image.id)?)
    }

    /// Excludes an image from garbage collection.
    pub fn pin(&self, image: &Image) -> Result<(), StoreError> {
        let _alone = self.file_lock("index.lock", FlockOperation::LockExclusive)?;
        Ok(self.index().pin(&image.id)?)
    }

    /// Copies an image with its names from another store of this host.
    pub async fn take_from(&self, other: &Store, image: &Image) -> Result<Arc<Image>, StoreError> {
        let _arriving = self.arriving().await?;
        let _guard = other.arriving().await?;
        for digest in &image.blobs {
            self.blobs.take_from(&other.blobs, digest)?;
        }
        let (tags, digests) = (image.names.clone(), image.digests.clone());
        let names = Names { tags, digests, blobs: image.blobs.clone(), pinned: image.pinned };
        self.adopt(&image.manifest, &names).await
    }

    /// Removes one tag of an image. Removes the image if it has no other tag.
    pub fn untag(&self, name: &Name) -> Result<(), StoreError> {
        let _alone = self.file_lock("index.lock", FlockOperation::LockExclusive)?;
        let mut index = self.index();
        if let (Some(image), Some(tagged)) = (index.find(&name.to_string()), name.tagged()) {
            index.untag(&tagged, &image.id)?;
        }
        Ok(())
    }

    /// Frees content and layers that neither an image nor `in_use`, the layer keys of containers, refers to.
    pub async fn collect(&self, in_use: &BTreeSet<Digest>) -> Result<Usage, StoreError> {
        let _alone = self.arrivals.write().await;
        let Some(_others) = self.try_file_lock(FlockOperation::NonBlockingLockExclusive)? else {
            tracing::debug!("skipping image collection: another process is adding an image");
            return Ok(Usage::default());
        };
        let (mut blobs, mut layers) = (BTreeSet::new(), in_use.clone());
        for image in self.list() {
            blobs.extend(image.blobs.iter().cloned());
            layers.extend(image.layers.iter().cloned());
        }
        let mut freed = Usage::default();
        let at = |path: PathBuf| move |source| StoreError::Io { path, source };
        for digest in self.blobs.all().map_err(at(self.root.join("blobs")))? {
            if !blobs.contains(&digest) {
                let path = self.blobs.path(&digest);
                freed.bytes += fs::metadata(&path).map_or(0, |metadata| metadata.len());
                freed.inodes += 1;
                self.blobs.remove(&digest).map_err(at(path))?;
            }
        }
        for key in self.layers.all().map_err(at(self.root.join("layers")))? {
            if !layers.contains(&key) {
                let layer = self.layers.describe(&key)?;
                freed.bytes += layer.bytes;
                freed.inodes += layer.inodes;
                self.layers.remove(&key).map_err(at(self.layers.files(&key)))?;
            }
        }
        Ok(freed)
    }

    /// Returns the disk usage of content and layers. Layers count as measured when they were unpacked.
    pub fn usage(&self) -> Result<Usage, StoreError> {
        let mut usage = Usage::default();
        for digest in self.blobs.all().map_err(|source| StoreError::Io { path: self.root.join("blobs"), source })? {
            usage.bytes += fs::metadata(self.blobs.path(&digest)).map_or(0, |metadata| metadata.len());
            usage.inodes += 1;
        }
        for key in self.layers.all().map_err(|source| StoreError::Io { path: self.root.join("layers"), source })? {
            let layer = self.layers.describe(&key)?;
            usage.bytes += layer.bytes;
            usage.inodes += layer.inodes;
        }
        Ok(usage)
    }

    /// Unpacks an image whose content is present, and names it: the last step of pull, import and build.
    pub(crate) async fn adopt(&self, manifest: &Digest, names: &Names) -> Result<Arc<Image>, StoreError> {
        let document = self.blobs.document(manifest)?;
        let manifest::Document::Image(parsed) = manifest::document(manifest, &document)? else {
            return Err(ManifestError::Nested.into());
        };
        let config = manifest::config(&parsed, &self.blobs.document(&parsed.config.digest)?)?;
        let layers = self.unpack(&parsed, &config.rootfs.diff_ids).await?;
        let layer_bytes: u64 = parsed.layers.iter().map(|layer| layer.size).sum();
        let mut blobs: BTreeSet<Digest> = parsed.layers.iter().map(|layer| layer.digest.clone()).collect();
        blobs.extend([manifest.clone(), parsed.config.digest.clone()]);
        blobs.extend(names.blobs.iter().cloned());
        let image = Image {
            id: parsed.config.digest.clone(),
            manifest: manifest.clone(),
            names: names.tags.clone(),
            digests: names.digests.clone(),
            size: document.len() as u64 + parsed.config.size + layer_bytes,
            config,
            layers,
            blobs,
            pinned: names.pinned,
        };
        let _alone = self.file_lock("index.lock", FlockOperation::LockExclusive)?;
        Ok(self.index().insert(image)?)
    }

    /// Blocks garbage collection until the guard is dropped, since content being added is not yet in the index.
    pub(crate) async fn arriving(&self) -> Result<Arriving<'_>, StoreError> {
        let own = self.arrivals.read().await;
        // The wait is short: the exclusive lock is held only by a collection.
        let others = self.file_lock("arrivals.lock", FlockOperation::LockShared)?;
        Ok(Arriving { _own: own, _others: others })
    }

    /// Returns the lock for adding content of a digest: the second caller finds the content present.
    pub(crate) fn lock_of(&self, digest: &Digest) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.locks.lock().expect("no holder of the locks panics");
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(locks.entry(digest.clone()).or_default())
    }

    /// Unpacks missing layers concurrently, and publishes them from the lowest up.
    async fn unpack(&self, manifest: &manifest::Manifest, diff_ids: &[Digest]) -> Result<Vec<Digest>, StoreError> {
        let mut tasks = JoinSet::new();
        for (n, (descriptor, diff_id)) in manifest.layers.iter().zip(diff_ids).enumerate() {
            if self.layers.key(&diff_ids[..=n]).is_some() {
                continue;
            }
            let (layers, unpacking) = (Arc::clone(&self.layers), Arc::clone(&self.unpacking));
            let (blob, diff_id) = (self.blobs.path(&descriptor.digest), diff_id.clone());
            tasks.spawn(async move {
                let permit = unpacking.acquire_owned().await.expect("the semaphore is never closed");
                let work = move || {
                    let _permit = permit;
                    layers.prepare(&blob, &diff_id)
                };
                (n, tokio::task::spawn_blocking(work).await.expect("unpacking does not panic"))
            });
        }
        let mut prepared = BTreeMap::new();
        while let Some(done) = tasks.join_next().await {
            let (n, layer) = done.expect("unpacking does not panic");
            prepared.insert(n, layer?);
        }
        let mut keys = Vec::with_capacity(diff_ids.len());
        for n in 0..diff_ids.len() {
            let chain = &diff_ids[..=n];
            let key = match (self.layers.key(chain), prepared.remove(&n)) {
                (Some(key), _) => key,
                (None, Some(layer)) => self.layers.publish(layer, chain)?,
                (None, None) => return Err(LayerError::Missing(diff_ids[n].clone()).into()),
            };
            keys.push(key);
        }
        Ok(keys)
    }

    /// Returns the current index; if it cannot be read, the last known one.
    fn index(&self) -> MutexGuard<'_, Index> {
        let mut index = self.index.lock().expect("no holder of the index panics");
        if let Err(error) = index.refresh() {
            tracing::error!(%error, "failed to read the image index");
        }
        index
    }

    fn file_lock(&self, name: &str, kind: FlockOperation) -> Result<fs::File, StoreError> {
        let path = self.root.join(name);
        let file = fs::File::create(&path).map_err(|source| StoreError::Io { path: path.clone(), source })?;
        rustix::fs::flock(&file, kind).map_err(|error| StoreError::Io { path, source: error.into() })?;
        Ok(file)
    }

    fn try_file_lock(&self, kind: FlockOperation) -> Result<Option<fs::File>, StoreError> {
        match self.file_lock("arrivals.lock", kind) {
            Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::WouldBlock => Ok(None),
            locked => locked.map(Some),
        }
    }
}

/// Guard that blocks garbage collection while an image is added.
pub(crate) struct Arriving<'a> {
    _own: tokio::sync::RwLockReadGuard<'a, ()>,
    _others: fs::File,
}

/// The names of an image that is added.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    pub tags: BTreeSet<String>,
    pub digests: BTreeSet<String>,
    /// Digests of the image indexes from which the image was selected.
    pub blobs: BTreeSet<Digest>,
    pub pinned: bool,
}
