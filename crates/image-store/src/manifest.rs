//! Image manifests, indexes and configurations, in the OCI and Docker formats.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;

/// Maximum size of manifests and configurations; larger ones are rejected before parsing.
pub(crate) const DOCUMENT_BYTES_MAX: u64 = 8 << 20;
/// Maximum number of layers, which is overlayfs's own limit.
pub(crate) const LAYERS_MAX: usize = 500;

pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(crate) const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
pub(crate) const LAYER_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
pub(crate) const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
pub(crate) const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

/// A document is invalid or unusable.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("{what} {digest} cannot be read")]
    Malformed {
        /// The kind of document.
        what: &'static str,
        digest: Digest,
        #[source]
        source: serde_json::Error,
    },
    #[error("the index has no image for {os}/{architecture}")]
    NoPlatform { os: String, architecture: String },
    /// The numbers of layers and diff IDs differ.
    #[error("the manifest has {layers} layers, its configuration {diff_ids} diff ids")]
    Unpaired {
        /// Number of layers in the manifest.
        layers: usize,
        /// Number of diff IDs in the configuration.
        diff_ids: usize,
    },
    #[error("the manifest has {0} layers, more than {LAYERS_MAX}")]
    TooManyLayers(usize),
    #[error("indexes nest too deeply")]
    Nested,
}

/// A reference to content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    #[serde(default)]
    pub media_type: String,
    pub digest: Digest,
    /// In bytes.
    pub size: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The platform, in an index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
}

/// The platform of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// GOARCH name: `amd64`, `arm64`.
    #[serde(default)]
    pub architecture: String,
    /// GOOS name: `linux`.
    #[serde(default)]
    pub os: String,
    /// CPU variant, such as `v8` of arm64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

impl Platform {
    /// Returns the platform of this host.
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

/// The manifest of one image: its configuration and its layers, lowest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Always 2.
    pub schema_version: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub media_type: String,
    pub config: Descriptor,
    pub layers: Vec<Descriptor>,
}

/// An index of images for several platforms, or the content of a layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Index {
    pub schema_version: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub media_type: String,
    pub manifests: Vec<Descriptor>,
}

/// A parsed manifest or index.
pub(crate) enum Document {
    Image(Manifest),
    Index(Index),
}

/// The parts of an image's configuration that a runtime uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageConfig {
    #[serde(flatten)]
    pub platform: Platform,
    /// Default settings of containers.
    #[serde(default)]
    pub config: Config,
    pub rootfs: RootFs,
    /// Creation time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
}

/// The layers by diff ID, the digest of the uncompressed archive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootFs {
    /// Always `layers`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Lowest first.
    #[serde(default)]
    pub diff_ids: Vec<Digest>,
}

/// Default settings of containers of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Config {
    /// User and optional group, by name or number.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// Entries of the form `NAME=value`.
    #[serde(deserialize_with = "null_is_default")]
    pub env: Vec<String>,
    /// First part of the command.
    #[serde(deserialize_with = "null_is_default")]
    pub entrypoint: Vec<String>,
    /// Default arguments of the command.
    #[serde(deserialize_with = "null_is_default")]
    pub cmd: Vec<String>,
    pub working_dir: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stop_signal: String,
    /// Paths at which the image expects volumes.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub volumes: BTreeMap<String, serde_json::Value>,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// Accepts `null`, which Go writes for empty lists and maps.
fn null_is_default<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(input: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(input).map(Option::unwrap_or_default)
}

/// Parses a manifest or an index, distinguished by content, since media types are often missing.
pub(crate) fn document(digest: &Digest, bytes: &[u8]) -> Result<Document, ManifestError> {
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

/// Parses a configuration and checks it against its manifest.
pub(crate) fn config(manifest: &Manifest, bytes: &[u8]) -> Result<ImageConfig, ManifestError> {
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
    /// Returns the entry for a platform; an entry without a platform matches if it is the only one.
    pub(crate) fn entry_for(&self, platform: &Platform) -> Result<&Descriptor, ManifestError> {
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
    fn index_entry_is_selected_by_platform() {
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
    fn configuration_with_nulls_is_parsed() {
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
