//! Images made of files of this machine, without a registry and without a copy where the disk allows links.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::build::{BuildError, descriptor};
use crate::digest::Digest;
use crate::index::Image;
use crate::manifest::{self, Config};
use crate::name::Name;
use crate::store::{Store, StoreError};

/// The registry that is no machine: what is called after it is on every node or nowhere.
pub const BUILTIN: &str = "knarr.local";

/// The label that says what such an image was made of.
const ORIGIN: &str = "knarr.local/origin";

/// An image of which every machine has what it takes.
#[derive(Clone, Debug)]
pub struct Builtin {
    /// What it is called.
    pub name: Name,
    /// Files of this machine, and where they are in the image.
    pub files: Vec<(PathBuf, PathBuf)>,
    /// How to run it.
    pub config: Config,
}

impl Builtin {
    /// Whether it is meant by a name.
    pub fn is_called(&self, name: &str) -> bool {
        Name::parse(name).is_ok_and(|name| name.tagged().is_some() && name.tagged() == self.name.tagged())
    }

    /// How many bytes its files have; those that cannot be read have none.
    pub fn bytes(&self) -> u64 {
        self.files.iter().filter_map(|(from, _)| Some(std::fs::metadata(from).ok()?.len())).sum()
    }

    /// Tells files from those that take their place, without reading them.
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
    /// A built-in image as it should be now: made when it is first asked for, and made anew when its files are others.
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
