//! Manifests, indexes and configurations: what is read of them, in the OCI form and in Docker's.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;

/// Manifests and configurations are small: what is larger is refused before it is parsed.
pub const DOCUMENT_BYTES_MAX: u64 = 8 << 20;
/// No real image has more layers; overlayfs itself takes 500.
pub const LAYERS_MAX: usize = 500;

pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
pub const LAYER_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
pub const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

/// Why a document is of no use.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// Not JSON of the shape it should have.
    #[error("{what} {digest} cannot be read")]
    Malformed {
        /// Which kind of document.
        what: &'static str,
        /// Which one.
        digest: Digest,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// An index without an image for this machine.
    #[error("the index has no image for {os}/{architecture}")]
    NoPlatform {
        /// The operating system looked for.
        os: String,
        /// The architecture looked for.
        architecture: String,
    },
    /// Layers and diff ids do not pair up.
    #[error("the manifest has {layers} layers, its configuration {diff_ids} diff ids")]
    Unpaired {
        /// How many the manifest has.
        layers: usize,
        /// How many the configuration has.
        diff_ids: usize,
    },
    /// More layers than any file system takes.
    #[error("the manifest has {0} layers, more than {LAYERS_MAX}")]
    TooManyLayers(usize),
    /// An index within an index within an index.
    #[error("indexes nest too deeply")]
    Nested,
}

/// A reference to content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// What the content is.
    #[serde(default)]
    pub media_type: String,
    /// Which content.
    pub digest: Digest,
    /// How many bytes.
    pub size: u64,
    /// Names and the like.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The machine it is for, in an index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
}

/// The machine an image is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// In Go's words: `amd64`, `arm64`.
    #[serde(default)]
    pub architecture: String,
    /// In Go's words: `linux`.
    #[serde(default)]
    pub os: String,
    /// `v8` of arm64 and the like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

impl Platform {
    /// The platform of this machine.
    pub fn host() -> Platform {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "powerpc64" => "ppc64le",
            other => other,
        };
        Platform { architecture: architecture.to_owned(), os: "linux".to_owned(), variant: None }
    }
}

/// One image: its configuration and its layers, lowest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// 2 in both forms.
    pub schema_version: u32,
    /// What it says it is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub media_type: String,
    /// The configuration.
    pub config: Descriptor,
    /// The layers.
    pub layers: Vec<Descriptor>,
}

/// Images for several machines, or the content of a layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Index {
    pub schema_version: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub media_type: String,
    pub manifests: Vec<Descriptor>,
}

/// What a manifest's bytes turn out to be.
pub enum Document {
    Image(Manifest),
    Index(Index),
}

/// An image's configuration, as far as a runtime cares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageConfig {
    /// The machine it is for.
    #[serde(flatten)]
    pub platform: Platform,
    /// How to run it.
    #[serde(default)]
    pub config: Config,
    /// The layers by the digest of their tar archives.
    pub rootfs: RootFs,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
}

/// The layers by the digest of their uncompressed archives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootFs {
    /// Always `layers`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Lowest first.
    #[serde(default)]
    pub diff_ids: Vec<Digest>,
}

/// How to run an image unless told otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Config {
    /// User, by name or number, and group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// `NAME=value`.
    #[serde(deserialize_with = "null_is_default")]
    pub env: Vec<String>,
    /// The command's first words.
    #[serde(deserialize_with = "null_is_default")]
    pub entrypoint: Vec<String>,
    /// The command's other words.
    #[serde(deserialize_with = "null_is_default")]
    pub cmd: Vec<String>,
    /// Where it starts.
    pub working_dir: String,
    /// What stops it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stop_signal: String,
    /// Paths that want a volume.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub volumes: BTreeMap<String, serde_json::Value>,
    /// Free-form.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// Go prints empty lists and maps as `null`.
fn null_is_default<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(input: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(input).map(Option::unwrap_or_default)
}

/// Reads a manifest or an index; which of the two, its content says, for media types are often left out.
pub fn document(digest: &Digest, bytes: &[u8]) -> Result<Document, ManifestError> {
    #[derive(Deserialize)]
    struct Shape {
        manifests: Option<serde::de::IgnoredAny>,
    }
    let malformed = |source| ManifestError::Malformed { what: "manifest", digest: digest.clone(), source };
    let shape: Shape = serde_json::from_slice(bytes).map_err(malformed)?;
    if shape.manifests.is_some() {
        return serde_json::from_slice(bytes).map(Document::Index).map_err(malformed);
    }
    let manifest: Manifest = serde_json::from_slice(bytes).map_err(malformed)?;
    if manifest.layers.len() > LAYERS_MAX {
        return Err(ManifestError::TooManyLayers(manifest.layers.len()));
    }
    Ok(Document::Image(manifest))
}

/// Reads a configuration and checks it against its manifest.
pub fn config(manifest: &Manifest, bytes: &[u8]) -> Result<ImageConfig, ManifestError> {
    let config: ImageConfig = serde_json::from_slice(bytes).map_err(|source| ManifestError::Malformed {
        what: "configuration",
        digest: manifest.config.digest.clone(),
        source,
    })?;
    let (layers, diff_ids) = (manifest.layers.len(), config.rootfs.diff_ids.len());
    if layers != diff_ids {
        return Err(ManifestError::Unpaired { layers, diff_ids });
    }
    Ok(config)
}

impl Index {
    /// The entry for a machine; one without a platform counts when it is the only one.
    pub fn entry_for(&self, platform: &Platform) -> Result<&Descriptor, ManifestError> {
        let fits = |entry: &&Descriptor| {
            entry.platform.as_ref().is_some_and(|of| of.os == platform.os && of.architecture == platform.architecture)
        };
        let only = || self.manifests.first().filter(|entry| self.manifests.len() == 1 && entry.platform.is_none());
        self.manifests.iter().find(fits).or_else(only).ok_or_else(|| ManifestError::NoPlatform {
            os: platform.os.clone(),
            architecture: platform.architecture.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(n: u8) -> Digest {
        Digest::of(&[n])
    }

    fn entry(n: u8, os: &str, architecture: &str) -> Descriptor {
        let platform = Platform { architecture: architecture.into(), os: os.into(), variant: None };
        Descriptor {
            media_type: MANIFEST.into(),
            digest: digest(n),
            size: 1,
            annotations: BTreeMap::new(),
            platform: Some(platform),
        }
    }

    #[test]
    fn an_index_is_searched_by_platform() {
        let index = Index {
            schema_version: 2,
            media_type: String::new(),
            manifests: vec![entry(1, "windows", "amd64"), entry(2, "linux", "arm64"), entry(3, "linux", "amd64")],
        };
        let host = Platform { architecture: "amd64".into(), os: "linux".into(), variant: None };
        assert_eq!(index.entry_for(&host).unwrap().digest, digest(3));
        let other = Platform { architecture: "s390x".into(), ..host };
        assert_eq!(index.entry_for(&other).unwrap_err().to_string(), "the index has no image for linux/s390x");
    }

    #[test]
    fn a_configuration_written_by_go_with_nulls_is_read() {
        let manifest = Manifest {
            schema_version: 2,
            media_type: String::new(),
            config: entry(1, "", ""),
            layers: vec![entry(2, "", "")],
        };
        let text = format!(
            r#"{{"architecture":"amd64","os":"linux","config":{{"Env":null,"Cmd":["sh"],"Volumes":null}},"rootfs":{{"type":"layers","diff_ids":["{}"]}}}}"#,
            digest(9)
        );
        let read = config(&manifest, text.as_bytes()).unwrap();
        assert_eq!((read.config.cmd, read.config.env), (vec!["sh".to_owned()], Vec::new()));
        let error = config(&manifest, br#"{"rootfs":{"type":"layers","diff_ids":[]}}"#).unwrap_err();
        assert_eq!(error.to_string(), "the manifest has 1 layers, its configuration 0 diff ids");
    }
}
