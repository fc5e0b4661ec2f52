//! Image import from OCI layouts and docker archives, as directories or tar archives of any compression.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use tar::{Archive, EntryType};

use crate::archive;
use crate::blobs::BlobError;
use crate::digest::{Digest, Hasher, Hashing};
use crate::index::Image;
use crate::manifest::{self, Descriptor, Document, Manifest, ManifestError, Platform};
use crate::name::{Name, NameError};
use crate::store::{Names, Store, StoreError};
use crate::unpack::ArchiveLimits;

/// Maximum number of entries that are spooled, in case the archive does not contain an image.
const ENTRIES_MAX: usize = 100_000;

/// Images could not be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("cannot read {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{0} is neither an OCI layout nor a docker archive")]
    Unknown(PathBuf),
    /// A referenced file is missing.
    #[error("the archive lacks {0}")]
    MissingFile(String),
    #[error("{name} of the archive cannot be read")]
    Malformed {
        name: String,
        #[source]
        source: serde_json::Error,
    },
    #[error(transparent)]
    Name(#[from] NameError),
    /// An image in the archive has no name, and none was given.
    #[error("image {0} has no name in the archive: give one")]
    Unnamed(Digest),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<BlobError> for ImportError {
    fn from(error: BlobError) -> ImportError {
        StoreError::from(error).into()
    }
}

impl From<ManifestError> for ImportError {
    fn from(error: ManifestError) -> ImportError {
        StoreError::from(error).into()
    }
}

impl Store {
    /// Imports every image of a directory or archive; `name` is used for images without a name.
    pub async fn import(&self, path: &Path, name: Option<&Name>) -> Result<Vec<Arc<Image>>, ImportError> {
        let _arriving = self.arriving().await?;
        let owned = path.to_owned();
        let spool_in = self.root().to_owned();
        let files = tokio::task::spawn_blocking(move || Files::open(&owned, &spool_in))
            .await
            .expect("reading an archive does not panic")?;
        let found = if files.has("index.json") {
            self.take_layout(&files, name)?
        } else if files.has("manifest.json") {
            self.take_docker(&files, name)?
        } else {
            return Err(ImportError::Unknown(path.to_owned()));
        };
        let mut images = Vec::new();
        for (manifest, names) in found {
            images.push(self.adopt(&manifest, &names).await?);
        }
        Ok(images)
    }

    fn take_layout(&self, files: &Files, name: Option<&Name>) -> Result<Vec<(Digest, Names)>, ImportError> {
        let index: manifest::Index = files.json("index.json")?;
        let mut found: BTreeMap<Digest, Names> = BTreeMap::new();
        for entry in &index.manifests {
            let Some((manifest, above)) = self.take_entry(files, entry, 0)? else { continue };
            let names = found.entry(manifest).or_default();
            names.blobs.extend(above);
            let annotated = ["io.containerd.image.name", "org.opencontainers.image.ref.name"]
                .into_iter()
                .find_map(|key| entry.annotations.get(key));
            let name = match (name, annotated) {
                (Some(name), _) => name.clone(),
                (None, Some(text)) => Name::parse(text)?,
                (None, None) => return Err(ImportError::Unnamed(entry.digest.clone())),
            };
            names.tags.extend(name.tagged());
            names.digests.insert(name.by_digest(&entry.digest));
        }
        Ok(found.into_iter().collect())
    }

    /// Imports the content of an index entry. Follows an index to the image for this platform; skips an index without
    /// one.
    fn take_entry(
        &self,
        files: &Files,
        entry: &Descriptor,
        depth: u8,
    ) -> Result<Option<(Digest, BTreeSet<Digest>)>, ImportError> {
        let bytes = files.document(&entry.digest)?;
        match manifest::document(&entry.digest, &bytes)? {
            Document::Image(manifest) => {
                self.blobs.put_as(&entry.digest, &bytes)?;
                self.blobs.put_as(&manifest.config.digest, &files.document(&manifest.config.digest)?)?;
                for layer in &manifest.layers {
                    self.take_blob(files, layer)?;
                }
                Ok(Some((entry.digest.clone(), BTreeSet::new())))
            }
            Document::Index(_) if depth > 2 => Err(ManifestError::Nested.into()),
            Document::Index(index) => {
                let Ok(inner) = index.entry_for(&Platform::host()) else { return Ok(None) };
                self.blobs.put_as(&entry.digest, &bytes)?;
                let found = self.take_entry(files, inner, depth + 1)?;
                Ok(found.map(|(manifest, mut above)| {
                    above.insert(entry.digest.clone());
                    (manifest, above)
                }))
            }
        }
    }

    fn take_blob(&self, files: &Files, descriptor: &Descriptor) -> Result<(), ImportError> {
        self.take_file(files.path(&blob_name(&descriptor.digest))?, descriptor)
    }

    /// Imports a docker archive, which refers to files instead of digests, and builds the manifest.
    fn take_docker(&self, files: &Files, name: Option<&Name>) -> Result<Vec<(Digest, Names)>, ImportError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Entry {
            config: String,
            #[serde(default)]
            repo_tags: Option<Vec<String>>,
            layers: Vec<String>,
        }
        let entries: Vec<Entry> = files.json("manifest.json")?;
        let mut found = Vec::new();
        for entry in entries {
            let config = files.bytes(&entry.config)?;
            let mut layers = Vec::new();
            for layer in &entry.layers {
                let (digest, size) = files.digest(layer)?;
                let descriptor = describe(manifest::LAYER, digest, size);
                self.take_file(files.path(layer)?, &descriptor)?;
                layers.push(descriptor);
            }
            let config_digest = self.blobs.put(&config)?;
            let manifest = Manifest {
                schema_version: 2,
                media_type: manifest::MANIFEST.to_owned(),
                config: describe(manifest::CONFIG, config_digest, config.len() as u64),
                layers,
            };
            let digest = self.blobs.put(&serde_json::to_vec(&manifest).expect("a manifest is JSON"))?;
            let mut names = Names::default();
            let given = name.map(|name| vec![name.to_string()]);
            let tags = given.or(entry.repo_tags).filter(|tags| !tags.is_empty());
            for tag in tags.ok_or_else(|| ImportError::Unnamed(digest.clone()))? {
                let name = Name::parse(&tag)?;
                names.tags.extend(name.tagged());
                names.digests.insert(name.by_digest(&digest));
            }
            found.push((digest, names));
        }
        Ok(found)
    }

    fn take_file(&self, path: &Path, descriptor: &Descriptor) -> Result<(), ImportError> {
        if self.blobs.has(&descriptor.digest) {
            return Ok(());
        }
        let io = |source| ImportError::Io { path: path.to_owned(), source };
        let mut ingest = self.blobs.ingest(&descriptor.digest, descriptor.size)?;
        ingest.restart()?;
        let mut file = File::open(path).map_err(io)?;
        let mut buffer = vec![0; 256 << 10];
        loop {
            let count = file.read(&mut buffer).map_err(io)?;
            if count == 0 {
                return Ok(ingest.finish()?);
            }
            ingest.write(&buffer[..count])?;
        }
    }
}

fn describe(media_type: &str, digest: Digest, size: u64) -> Descriptor {
    Descriptor { media_type: media_type.to_owned(), digest, size, annotations: BTreeMap::new(), platform: None }
}

fn blob_name(digest: &Digest) -> String {
    format!("blobs/{}/{}", digest.algorithm(), digest.hex())
}

/// The files of a layout or archive by name. Those of an archive are spooled, since its entries have no fixed order.
struct Files {
    names: BTreeMap<String, PathBuf>,
    _spool: Option<tempfile::TempDir>,
}

impl Files {
    fn open(path: &Path, spool_in: &Path) -> Result<Files, ImportError> {
        let io = |source| ImportError::Io { path: path.to_owned(), source };
        if fs::metadata(path).map_err(io)?.is_dir() {
            let mut names = BTreeMap::new();
            list(path, path, &mut names).map_err(io)?;
            return Ok(Files { names, _spool: None });
        }
        let spool = tempfile::Builder::new().prefix(".tmp-import-").tempdir_in(spool_in).map_err(io)?;
        let raw = File::open(path).map_err(io)?;
        let packed = raw.metadata().map_err(io)?.len();
        let limits = ArchiveLimits::of(packed, spool.path()).map_err(io)?;
        let mut spooled = 0u64;
        let mut archive = Archive::new(archive::decompress(raw).map_err(io)?);
        let mut names = BTreeMap::new();
        let mut links = Vec::new();
        for (n, entry) in archive.entries().map_err(io)?.enumerate() {
            let mut entry = entry.map_err(io)?;
            let name = clean(&entry.path().map_err(io)?);
            match entry.header().entry_type() {
                _ if n > ENTRIES_MAX => return Err(ImportError::Unknown(path.to_owned())),
                EntryType::Regular | EntryType::Continuous => {
                    spooled = spooled.saturating_add(entry.size());
                    if spooled > limits.bytes {
                        return Err(io(io::Error::other(format!("the archive is larger than {}", limits.bound))));
                    }
                    // Spooled files have generated names, so that no name of the archive can lead out of the directory.
                    let spool_path = spool.path().join(n.to_string());
                    io::copy(&mut entry, &mut File::create(&spool_path).map_err(io)?).map_err(io)?;
                    names.insert(name, spool_path);
                }
                EntryType::Symlink | EntryType::Link => {
                    if let Some(target) = entry.link_name().map_err(io)? {
                        let base = Path::new(&name).parent().unwrap_or(Path::new(""));
                        links.push((name.clone(), clean(&base.join(&target)), clean(&target)));
                    }
                }
                _ => {}
            }
        }
        for (name, beside, whole) in links {
            if let Some(spool_path) = names.get(&beside).or_else(|| names.get(&whole)).cloned() {
                names.insert(name, spool_path);
            }
        }
        Ok(Files { names, _spool: Some(spool) })
    }

    fn has(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    fn path(&self, name: &str) -> Result<&Path, ImportError> {
        let found = self.names.get(&clean(Path::new(name)));
        found.map(PathBuf::as_path).ok_or_else(|| ImportError::MissingFile(name.to_owned()))
    }

    fn bytes(&self, name: &str) -> Result<Vec<u8>, ImportError> {
        let path = self.path(name)?;
        let io = |source| ImportError::Io { path: path.to_owned(), source };
        let mut bytes = Vec::new();
        let limit = manifest::DOCUMENT_BYTES_MAX;
        File::open(path).map_err(io)?.take(limit + 1).read_to_end(&mut bytes).map_err(io)?;
        if bytes.len() as u64 > limit {
            return Err(io(io::Error::other("it is too large for a document")));
        }
        Ok(bytes)
    }

    fn json<T: for<'de> Deserialize<'de>>(&self, name: &str) -> Result<T, ImportError> {
        let bytes = self.bytes(name)?;
        serde_json::from_slice(&bytes).map_err(|source| ImportError::Malformed { name: name.to_owned(), source })
    }

    fn document(&self, digest: &Digest) -> Result<Vec<u8>, ImportError> {
        self.bytes(&blob_name(digest))
    }

    fn digest(&self, name: &str) -> Result<(Digest, u64), ImportError> {
        let path = self.path(name)?;
        let io = |source| ImportError::Io { path: path.to_owned(), source };
        let mut reader = Hashing::new(File::open(path).map_err(io)?, Hasher::sha256());
        io::copy(&mut reader, &mut io::sink()).map_err(io)?;
        let (_, digest, size) = reader.finish();
        Ok((digest, size))
    }
}

fn list(root: &Path, dir: &Path, names: &mut BTreeMap<String, PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        // Paths of a layout have at most three parts (`blobs/sha256/<hash>`). Deeper directories are ignored, so that
        // symlinks cannot cause a loop.
        let name = clean(path.strip_prefix(root).expect("listed files are below the root"));
        if path.is_dir() {
            if name.split('/').count() < 3 {
                list(root, &path, names)?;
            }
        } else if path.is_file() {
            names.insert(name, path);
        }
    }
    Ok(())
}

/// Normalizes a name of an archive: removes `./` and resolves `..`.
fn clean(path: &Path) -> String {
    let mut parts: Vec<String> = Vec::new();
    for component in path.components() {
        match component {
            std::path::Component::Normal(name) => parts.push(name.to_string_lossy().into_owned()),
            std::path::Component::ParentDir => {
                parts.pop();
            }
            _ => {}
        }
    }
    parts.join("/")
}
