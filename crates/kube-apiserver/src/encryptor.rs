//! Encryption at rest: selects the encryption provider of a store key, and manages KMS plugins and configuration
//! reloads.

mod kms;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use api::kind::Kind;
use apimachinery::Str;
use bytes::Bytes;
use encryption::config::Reload;
use encryption::kms::Keyring;
use encryption::{Configuration, Decryption, Transformers};
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::storage_format::{self, Layout};
use client::clock::now;

/// Interval at which the configuration file is read again; upstream's interval.
const RELOAD: Duration = Duration::from_secs(60);
/// Maximum number of times a key is fetched for one value: one, unless the cache evicts it before it is used.
const FETCHES_MAX: usize = 3;

/// The configuration file.
#[derive(Clone, Debug)]
pub struct File {
    /// `--encryption-provider-config`.
    pub path: PathBuf,
    /// `--encryption-provider-config-automatic-reload`.
    pub reload: bool,
}

/// Reasons why a value cannot be encrypted or decrypted, or a configuration cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to read the encryption configuration {path}")]
    File {
        /// Path of the configuration file.
        path: PathBuf,
        source: Arc<std::io::Error>,
    },
    #[error("the encryption configuration {path} is invalid")]
    Configuration {
        /// Path of the configuration file.
        path: PathBuf,
        source: Arc<encryption::config::Error>,
    },
    /// The value has an unexpected format, or its key is unknown.
    #[error(transparent)]
    Cipher(#[from] encryption::Error),
    /// A KMS plugin call failed.
    #[error("the key management service {name} failed: {problem}")]
    Service {
        name: Str,
        /// The plugin's error message.
        problem: String,
    },
}

/// The active encryption configuration and the keys from KMS plugins.
pub struct Encryptor {
    file: File,
    layout: Layout,
    /// Group and resource of the built-in kinds by key prefix.
    resources_by_prefix: BTreeMap<String, (Str, Str)>,
    rules: RwLock<Arc<Rules>>,
    keyring: Arc<RwLock<Keyring>>,
}

/// The parsed configuration file.
struct Rules {
    text: Vec<u8>,
    configuration: Configuration,
    services: BTreeMap<Str, kms::Service>,
    transformers: RwLock<BTreeMap<(Str, Str), Arc<Transformers>>>,
}

/// Random bytes from the TLS provider.
pub struct Draws;

impl encryption::Random for Draws {
    fn fill(&mut self, bytes: &mut [u8]) {
        // The generator fails only if the kernel cannot provide randomness.
        aws_lc_rs::rand::fill(bytes).expect("the kernel gives random bytes");
    }
}

impl Encryptor {
    /// Reads the configuration and gets a seed from every KMS plugin, without which nothing could be written.
    pub async fn open_file(file: File, layout: Layout, kinds: &[Arc<Kind>]) -> Result<Self, Error> {
        let rules = Rules::read(&file)?;
        let keyring = Arc::new(RwLock::new(Keyring::default()));
        for service in rules.services.values() {
            service.refresh(&keyring).await?;
        }
        let prefix_entry =
            |kind: &Arc<Kind>| (storage_format::prefix(kind).to_owned(), (kind.group.clone(), kind.plural.clone()));
        let resources_by_prefix = kinds.iter().map(prefix_entry).collect();
        Ok(Self { file, layout, resources_by_prefix, rules: RwLock::new(Arc::new(rules)), keyring })
    }

    /// Refreshes the seeds, and reloads the configuration if that is enabled; never returns.
    pub async fn run(self: Arc<Self>) {
        loop {
            let mut seeds = JoinSet::new();
            for service in self.rules().services.values() {
                seeds.spawn(service.clone().keep_seed(self.keyring.clone()).in_current_span());
            }
            while !self.reload().await {}
        }
    }

    /// Waits for the reload interval and reads the file again. Returns whether the configuration changed. An invalid
    /// file is logged and the previous configuration stays active.
    async fn reload(&self) -> bool {
        if !self.file.reload {
            return std::future::pending().await;
        }
        tokio::time::sleep(RELOAD).await;
        let unchanged = std::fs::read(&self.file.path).is_ok_and(|text| text == self.rules().text);
        if unchanged {
            return false;
        }
        let rules = match Rules::read(&self.file) {
            Ok(rules) => rules,
            Err(error) => {
                tracing::error!(%error, "failed to reload the encryption configuration; keeping the previous one");
                return false;
            }
        };
        for service in rules.services.values() {
            if let Err(error) = service.refresh(&self.keyring).await {
                tracing::error!(%error, "failed to reload the encryption configuration; keeping the previous one");
                return false;
            }
        }
        *self.rules.write().expect("no holder panics") = Arc::new(rules);
        tracing::info!("reloaded the encryption configuration");
        true
    }

    /// Encrypts the value of a store key.
    pub fn encrypt(&self, key: &[u8], value: Bytes) -> Result<Bytes, Error> {
        let rules = self.rules();
        let transformers = rules.transformers(self.resource(key));
        let keyring = self.keyring.read().expect("no holder panics");
        let sealed = transformers.encrypt(&value, key, &keyring, &mut Draws, now())?;
        Ok(match sealed {
            Cow::Borrowed(_) => value,
            Cow::Owned(sealed) => sealed.into(),
        })
    }

    /// Decrypts the value of a store key. Also returns whether the value should be written again with a newer key.
    pub async fn open(&self, key: &[u8], stored: Bytes) -> Result<(Bytes, bool), Error> {
        let rules = self.rules();
        let transformers = rules.transformers(self.resource(key));
        let mut fetches = 0;
        loop {
            let request = {
                let keyring = self.keyring.read().expect("no holder panics");
                match transformers.open(&stored, key, &keyring)? {
                    Decryption::Value { bytes: Cow::Borrowed(bytes), stale } => {
                        return Ok((stored.slice_ref(bytes), stale));
                    }
                    Decryption::Value { bytes: Cow::Owned(bytes), stale } => return Ok((bytes.into(), stale)),
                    Decryption::NeedsKey(request) => request,
                }
            };
            let service = rules.services.get(&request.service).filter(|_| fetches < FETCHES_MAX);
            let service = service.ok_or(Error::Cipher(encryption::Error::NoPrefix))?;
            service.learn(&request, &self.keyring).await?;
            fetches += 1;
        }
    }

    fn rules(&self) -> Arc<Rules> {
        self.rules.read().expect("no holder panics").clone()
    }

    /// Returns the group and resource of a store key: those of the built-in kind with that prefix, otherwise those in
    /// the key, as for custom resources.
    fn resource(&self, key: &[u8]) -> (Str, Str) {
        let text = std::str::from_utf8(key).unwrap_or_default();
        let below = text.strip_prefix(&self.layout.root).unwrap_or_default().trim_start_matches('/');
        let mut parts = below.splitn(3, '/');
        let (first, second) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let known =
            self.resources_by_prefix.get(&format!("{first}/{second}")).or_else(|| self.resources_by_prefix.get(first));
        known.cloned().unwrap_or_else(|| (first.into(), second.into()))
    }
}

impl Rules {
    fn read(file: &File) -> Result<Self, Error> {
        let path: &Path = &file.path;
        let text =
            std::fs::read(path).map_err(|error| Error::File { path: path.to_owned(), source: Arc::new(error) })?;
        let reload = if file.reload { Reload::Automatic } else { Reload::Never };
        let configuration = Configuration::parse(&text, reload)
            .map_err(|error| Error::Configuration { path: path.to_owned(), source: Arc::new(error) })?;
        let services = kms::services(&configuration);
        Ok(Self { text, configuration, services, transformers: RwLock::default() })
    }

    fn transformers(&self, resource: (Str, Str)) -> Arc<Transformers> {
        if let Some(found) = self.transformers.read().expect("no holder panics").get(&resource) {
            return found.clone();
        }
        let made = Arc::new(Transformers::for_resource(&self.configuration, &resource.0, &resource.1));
        self.transformers.write().expect("no holder panics").insert(resource, made.clone());
        made
    }
}
