//! Image builds from directories and single binaries: one layer, without a Dockerfile.

mod copy;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::EntryType;

use crate::build::copy::Copier;
use crate::digest::{Digest, Hasher, Hashing};
use crate::index::Image;
use crate::manifest::{self, Config, Descriptor, ImageConfig, Manifest, Platform, RootFs};
use crate::name::Name;
use crate::store::{Names, Store, StoreError};
use crate::tar_header::header;

/// An image could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("cannot add {path}")]
    Add {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The content and configuration of an image.
#[derive(Clone, Debug, Default)]
pub struct Recipe {
    /// Host files and directories with their destinations. Modes, owners, hard links and portable extended attributes
    /// are kept, times are not. A directory copied to the root contributes its content, not its own mode.
    pub copies: Vec<(PathBuf, PathBuf)>,
    /// Symbolic links: path, target.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Small files: path, content, mode.
    pub files: Vec<(PathBuf, Vec<u8>, u32)>,
    /// Empty directories and their modes.
    pub dirs: Vec<(PathBuf, u32)>,
    pub config: Config,
    /// Whether the image is excluded from garbage collection.
    pub pinned: bool,
}

impl Store {
    /// Builds an image of one layer and names it.
    pub async fn build(&self, name: &Name, recipe: &Recipe) -> Result<Arc<Image>, BuildError> {
        let _arriving = self.arriving().await?;
        let (blob, diff_id) = recipe.layer()?;
        let size = blob.len() as u64;
        let digest = self.blobs.put(&blob).map_err(StoreError::from)?;
        let layer = descriptor(manifest::LAYER_GZIP, digest, size);
        self.of_one_layer(name, layer, diff_id, &recipe.config, recipe.pinned).await
    }

    /// Writes configuration and manifest of an image whose only layer is present, and names it.
    pub(crate) async fn of_one_layer(
        &self,
        name: &Name,
        layer: Descriptor,
        diff_id: Digest,
        config: &Config,
        pinned: bool,
    ) -> Result<Arc<Image>, BuildError> {
        let put = |bytes: &[u8]| self.blobs.put(bytes).map_err(StoreError::from);
        let config = ImageConfig {
            platform: Platform::host(),
            config: config.clone(),
            rootfs: RootFs { kind: "layers".to_owned(), diff_ids: vec![diff_id] },
            created: None,
        };
        let config = serde_json::to_vec(&config).expect("a configuration is JSON");
        let manifest = Manifest {
            schema_version: 2,
            media_type: manifest::MANIFEST.to_owned(),
            config: descriptor(manifest::CONFIG, put(&config)?, config.len() as u64),
            layers: vec![layer],
        };
        let digest = put(&serde_json::to_vec(&manifest).expect("a manifest is JSON"))?;
        let mut names = Names { pinned, ..Names::default() };
        names.tags.extend(name.tagged());
        names.digests.insert(name.by_digest(&digest));
        Ok(self.adopt(&digest, &names).await?)
    }
}

impl Recipe {
    /// Returns the compressed archive and the digest of the uncompressed archive. The build is reproducible: equal
    /// files give equal digests.
    fn layer(&self) -> Result<(Vec<u8>, Digest), BuildError> {
        let gzip = GzEncoder::new(Vec::new(), Compression::default());
        let mut tar = tar::Builder::new(Hashing::new(gzip, Hasher::sha256()));
        for (path, mode) in &self.dirs {
            let at = |source| BuildError::Add { path: path.clone(), source };
            tar.append_data(&mut header(EntryType::Directory, *mode, 0), relative(path), io::empty()).map_err(at)?;
        }
        let mut copier = Copier::new(&mut tar);
        for (from, to) in &self.copies {
            copier.copy(from, to)?;
        }
        for (path, content, mode) in &self.files {
            let at = |source| BuildError::Add { path: path.clone(), source };
            let mut header = header(EntryType::Regular, *mode, content.len() as u64);
            tar.append_data(&mut header, relative(path), content.as_slice()).map_err(at)?;
        }
        for (path, target) in &self.links {
            let at = |source| BuildError::Add { path: path.clone(), source };
            tar.append_link(&mut header(EntryType::Symlink, 0o777, 0), relative(path), target).map_err(at)?;
        }
        let at = |source| BuildError::Add { path: PathBuf::from("/"), source };
        let mut hashing = tar.into_inner().map_err(at)?;
        hashing.flush().map_err(at)?;
        let (gzip, diff_id, _) = hashing.finish();
        Ok((gzip.finish().map_err(at)?, diff_id))
    }
}

fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

pub(crate) fn descriptor(media_type: &str, digest: Digest, size: u64) -> Descriptor {
    let media_type = media_type.to_owned();
    Descriptor { media_type, digest, size, annotations: std::collections::BTreeMap::new(), platform: None }
}
