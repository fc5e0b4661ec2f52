//! Built-in images from files of this host, without a registry, and hard-linked instead of copied if possible.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::build::{BuildError, descriptor};
use crate::digest::Digest;
use crate::index::Image;
use crate::manifest::{self, Config};
use crate::name::Name;
use crate::store::{Store, StoreError};

/// Reserved registry name: its images are built on every node and never pulled.
pub const BUILTIN: &str = "knarr.local";

/// Label that identifies the files that a built-in image was built from.
const ORIGIN: &str = "knarr.local/origin";

/// An image that every host can build from its own files.
#[derive(Clone, Debug)]
pub struct Builtin {
    pub name: Name,
    /// Host files with their paths in the image.
    pub files: Vec<(PathBuf, PathBuf)>,
    pub config: Config,
}

impl Builtin {
    /// Whether a name refers to this image.
    pub fn is_called(&self, name: &str) -> bool {
        Name::parse(name).is_ok_and(|name| name.tagged().is_some() && name.tagged() == self.name.tagged())
    }

    /// Returns the total size of the files; unreadable files count as zero.
    pub fn bytes(&self) -> u64 {
        self.files.iter().filter_map(|(from, _)| Some(std::fs::metadata(from).ok()?.len())).sum()
    }

    /// Returns a text that changes when a file is replaced, without reading the files.
    fn origin(&self) -> Result<String, BuildError> {
        let mut text = format!("{:?}", self.config);
        for (from, to) in &self.files {
            let at = |source| BuildError::Add { path: from.clone(), source };
            let metadata = std::fs::metadata(from).map_err(at)?;
            let times = (metadata.mtime(), metadata.mtime_nsec());
            text += &format!(" {} {} {times:?}", to.display(), metadata.len());
        }
        Ok(Digest::of(text.as_bytes()).to_string())
    }
}

impl Store {
    /// Returns a built-in image; builds it on first use and again after its files changed.
    pub async fn provide(&self, builtin: &Builtin) -> Result<Arc<Image>, BuildError> {
        let name = builtin.name.to_string();
        let lock = self.lock_of(&Digest::of(name.as_bytes()));
        let _alone = lock.lock().await;
        let origin = builtin.origin()?;
        let known = self.find(&name);
        if let Some(image) = known.as_ref().filter(|image| image.config.config.labels.get(ORIGIN) == Some(&origin)) {
            return Ok(Arc::clone(image));
        }
        let _arriving = self.arriving().await?;
        let (layers, files) = (Arc::clone(&self.layers), builtin.files.clone());
        let work = move || {
            let (layer, length) = layers.link(&files)?;
            let diff_id = layer.diff_id().clone();
            layers.publish(layer, std::slice::from_ref(&diff_id))?;
            Ok::<_, StoreError>((diff_id, length))
        };
        let (diff_id, length) = tokio::task::spawn_blocking(work).await.expect("linking does not panic")?;
        let layer = descriptor(manifest::LAYER, diff_id.clone(), length);
        let mut config = builtin.config.clone();
        config.labels.insert(ORIGIN.to_owned(), origin);
        let image = self.of_one_layer(&builtin.name, layer, diff_id, &config, true).await?;
        if let Some(old) = known.filter(|old| old.id != image.id && old.config.config.labels.contains_key(ORIGIN)) {
            self.remove(old.id.as_str())?;
        }
        Ok(image)
    }
}
