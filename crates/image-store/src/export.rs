//! Image export as an OCI layout in a tar archive, which docker can also read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::json;
use tar::{Builder, Header};

use crate::blobs::BlobError;
use crate::digest::Digest;
use crate::index::Image;
use crate::layers::tree;
use crate::manifest::{self, Descriptor, Document, Index, ManifestError};
use crate::store::{Store, StoreError};

/// Images could not be exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot write the archive")]
    Write(#[source] io::Error),
}

impl Store {
    /// Writes images as one archive.
    pub fn export(&self, images: &[&Image], out: impl Write) -> Result<(), ExportError> {
        let mut tar = Builder::new(out);
        let mut written = BTreeSet::new();
        let mut index = Index { schema_version: 2, media_type: manifest::INDEX.to_owned(), manifests: Vec::new() };
        let mut docker = Vec::new();
        for image in images {
            let bytes = self.blobs.document(&image.manifest).map_err(StoreError::from)?;
            let parsed = manifest::document(&image.manifest, &bytes).map_err(StoreError::from)?;
            let Document::Image(parsed) = parsed else { return Err(StoreError::from(ManifestError::Nested).into()) };
            let layers = parsed.layers.iter().map(|layer| &layer.digest);
            for digest in layers.clone().chain([&parsed.config.digest, &image.manifest]) {
                if written.insert(digest.clone()) {
                    self.append(&mut tar, digest)?;
                }
            }
            for name in &image.names {
                index.manifests.push(Descriptor {
                    media_type: manifest::MANIFEST.to_owned(),
                    digest: image.manifest.clone(),
                    size: bytes.len() as u64,
                    annotations: BTreeMap::from([("io.containerd.image.name".to_owned(), name.clone())]),
                    platform: None,
                });
            }
            docker.push(json!({
                "Config": blob_path(&parsed.config.digest),
                "RepoTags": image.names,
                "Layers": layers.map(blob_path).collect::<Vec<_>>(),
            }));
        }
        small(&mut tar, "index.json", &serde_json::to_vec(&index).expect("an index is JSON"))?;
        small(&mut tar, "manifest.json", json!(docker).to_string().as_bytes())?;
        small(&mut tar, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        tar.finish().map_err(ExportError::Write)
    }

    fn append(&self, tar: &mut Builder<impl Write>, digest: &Digest) -> Result<(), ExportError> {
        let path = self.blobs.path(digest);
        let io = |path: PathBuf| move |source| StoreError::from(BlobError::Io { path, source });
        let file = match self.layers.key(std::slice::from_ref(digest)) {
            // The layer of a built-in image has no archive until it is exported.
            Some(key) if !path.exists() => tree::archived(&self.layers.files(&key), self.root()),
            _ => File::open(&path),
        };
        let file = file.map_err(io(path.clone()))?;
        let size = file.metadata().map_err(io(path))?.len();
        tar.append_data(&mut header(size), blob_path(digest), file).map_err(ExportError::Write)
    }
}

fn small(tar: &mut Builder<impl Write>, name: &str, content: &[u8]) -> Result<(), ExportError> {
    tar.append_data(&mut header(content.len() as u64), name, content).map_err(ExportError::Write)
}

fn header(size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_mode(0o644);
    header.set_size(size);
    header
}

fn blob_path(digest: &Digest) -> String {
    format!("blobs/{}/{}", digest.algorithm(), digest.hex())
}
