//! Image index: all images by name and by ID, in one small file that is replaced atomically.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::durable;
use crate::manifest::ImageConfig;
use crate::name::Name;

/// The index could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    #[error("cannot read or write the image index {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// A complete image: all of its layers are unpacked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The digest of the configuration, which runtimes use as image ID.
    pub id: Digest,
    pub manifest: Digest,
    /// Full names with a tag.
    pub names: BTreeSet<String>,
    /// Full names with a digest.
    pub digests: BTreeSet<String>,
    /// Size of manifest, configuration and layers as downloaded.
    pub size: u64,
    pub config: ImageConfig,
    /// The keys of the unpacked layers, lowest first.
    pub layers: Vec<Digest>,
    /// All digests in the content store that belong to the image.
    pub blobs: BTreeSet<Digest>,
    /// Whether the image is excluded from garbage collection.
    #[serde(default)]
    pub pinned: bool,
}

/// The images, in memory and on disk. The file is authoritative, since another process may have replaced it.
pub(crate) struct Index {
    path: PathBuf,
    images: BTreeMap<Digest, Arc<Image>>,
    seen: Option<(u64, SystemTime)>,
}

impl Index {
    pub(crate) fn open(path: &Path) -> Result<Index, IndexError> {
        let mut index = Index { path: path.to_owned(), images: BTreeMap::new(), seen: None };
        index.refresh()?;
        Ok(index)
    }

    /// Reads the file again if it was replaced.
    pub(crate) fn refresh(&mut self) -> Result<(), IndexError> {
        let seen = self.version();
        if seen.is_some() && seen == self.seen {
            return Ok(());
        }
        let io = |source| IndexError::Io { path: self.path.clone(), source };
        let images: Vec<Image> = match fs::read(&self.path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| io(error.into()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(io(error)),
        };
        self.images = images.into_iter().map(|image| (image.id.clone(), Arc::new(image))).collect();
        self.seen = seen;
        Ok(())
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Image>> {
        self.images.values()
    }

    /// Finds an image by ID, by a unique prefix of its ID, or by name.
    pub(crate) fn find(&self, given: &str) -> Option<Arc<Image>> {
        if let Some(image) = Digest::parse(given).ok().and_then(|id| self.images.get(&id)) {
            return Some(Arc::clone(image));
        }
        let by_name = Name::parse(given).ok().and_then(|name| self.by_name(&name));
        by_name.or_else(|| self.by_short_id(given))
    }

    /// Adds an image, or adds names to an existing image. A tag of another image moves to this one.
    pub(crate) fn insert(&mut self, mut image: Image) -> Result<Arc<Image>, IndexError> {
        let mut next = self.images.clone();
        for other in next.values_mut().filter(|other| other.id != image.id) {
            if !other.names.is_disjoint(&image.names) {
                Arc::make_mut(other).names.retain(|name| !image.names.contains(name));
            }
        }
        if let Some(known) = next.get(&image.id) {
            image.names.extend(known.names.iter().cloned());
            image.digests.extend(known.digests.iter().cloned());
            image.blobs.extend(known.blobs.iter().cloned());
            image.pinned |= known.pinned;
        }
        let image = Arc::new(image);
        next.insert(image.id.clone(), Arc::clone(&image));
        self.replace(next)?;
        Ok(image)
    }

    /// Removes an image with all its names. Returns the image, if it existed.
    pub(crate) fn remove(&mut self, id: &Digest) -> Result<Option<Arc<Image>>, IndexError> {
        let mut next = self.images.clone();
        let removed = next.remove(id);
        if removed.is_some() {
            self.replace(next)?;
        }
        Ok(removed)
    }

    /// Excludes an image from garbage collection, if it exists.
    pub(crate) fn pin(&mut self, id: &Digest) -> Result<(), IndexError> {
        let mut next = self.images.clone();
        match next.get_mut(id) {
            Some(image) if !image.pinned => Arc::make_mut(image).pinned = true,
            _ => return Ok(()),
        }
        self.replace(next)
    }

    /// Removes one tag of an image. Removes the image if it has no other tag.
    pub(crate) fn untag(&mut self, name: &str, id: &Digest) -> Result<(), IndexError> {
        let mut next = self.images.clone();
        if let Some(image) = next.get_mut(id) {
            let image = Arc::make_mut(image);
            image.names.remove(name);
            if image.names.is_empty() {
                next.remove(id);
            }
            self.replace(next)?;
        }
        Ok(())
    }

    fn by_name(&self, name: &Name) -> Option<Arc<Image>> {
        let found = match (name.digest(), name.tagged()) {
            (Some(digest), _) => {
                let full = name.by_digest(&digest);
                self.images.values().find(|image| image.digests.contains(&full))
            }
            (None, Some(tagged)) => self.images.values().find(|image| image.names.contains(&tagged)),
            (None, None) => None,
        };
        found.cloned()
    }

    fn by_short_id(&self, given: &str) -> Option<Arc<Image>> {
        let prefix = given.strip_prefix("sha256:").unwrap_or(given);
        if prefix.len() < 4 {
            return None;
        }
        let mut matches = self.images.values().filter(|image| image.id.hex().starts_with(prefix));
        let first = matches.next()?;
        matches.next().is_none().then(|| Arc::clone(first))
    }

    /// Writes the index and then updates memory, so that a failed write changes nothing.
    fn replace(&mut self, next: BTreeMap<Digest, Arc<Image>>) -> Result<(), IndexError> {
        let list: Vec<&Image> = next.values().map(Arc::as_ref).collect();
        let text = serde_json::to_vec(&list).expect("the index is JSON");
        durable::write(&self.path, &text).map_err(|source| IndexError::Io { path: self.path.clone(), source })?;
        self.images = next;
        self.seen = self.version();
        Ok(())
    }

    /// Identifies the current file, to detect its replacement.
    fn version(&self) -> Option<(u64, SystemTime)> {
        let metadata = fs::metadata(&self.path).ok()?;
        Some((metadata.ino(), metadata.modified().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(n: u8, name: &str) -> Image {
        Image {
            id: Digest::of(&[n]),
            manifest: Digest::of(&[n, n]),
            names: BTreeSet::from([Name::parse(name).unwrap().tagged().unwrap()]),
            digests: BTreeSet::new(),
            size: 1,
            config: ImageConfig::default(),
            layers: Vec::new(),
            blobs: BTreeSet::new(),
            pinned: false,
        }
    }

    #[test]
    fn tag_moves_between_images_and_index_survives_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("images.json");
        let mut index = Index::open(&path).unwrap();
        index.insert(image(1, "tool:1")).unwrap();
        index.insert(image(2, "tool:1")).unwrap();
        let index = Index::open(&path).unwrap();
        assert_eq!(index.find("tool:1").unwrap().id, Digest::of(&[2]));
        assert!(index.find(Digest::of(&[1]).as_str()).unwrap().names.is_empty());
        assert_eq!(index.find(&Digest::of(&[2]).hex()[..12]).unwrap().id, Digest::of(&[2]));
        assert!(index.find("tool:2").is_none());
    }

    #[test]
    fn removing_the_last_name_removes_the_image() {
        let dir = tempfile::tempdir().unwrap();
        let mut index = Index::open(&dir.path().join("images.json")).unwrap();
        let id = index.insert(image(1, "tool:1")).unwrap().id.clone();
        index.insert(image(1, "tool:2")).unwrap();
        index.untag("docker.io/library/tool:1", &id).unwrap();
        assert!(index.find("tool:2").is_some() && index.find("tool:1").is_none());
        index.untag("docker.io/library/tool:2", &id).unwrap();
        assert!(index.find(id.as_str()).is_none());
    }
}
