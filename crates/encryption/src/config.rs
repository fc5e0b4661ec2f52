//! EncryptionConfiguration: resources and their encryption providers.

mod validate;

use std::fmt;
use std::sync::OnceLock;

use api::catalogue::{self, Catalogue};
use apimachinery::time::{Duration, DurationError};
use apimachinery::{Str, Value, field};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

pub use validate::Reload;

const FACTS: &str = include_str!("config.txt");

/// A parsed EncryptionConfiguration.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    rules: Vec<Rule>,
}

/// A group and resource, with `*` for any.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupResource {
    /// The group, empty for the core group.
    pub group: Str,
    /// The plural name.
    pub resource: Str,
}

/// Resources and their providers.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub resources: Vec<GroupResource>,
    /// The first provider encrypts, all decrypt.
    pub providers: Vec<Provider>,
}

/// An encryption provider.
#[derive(Clone, Debug, PartialEq)]
pub enum Provider {
    AesGcm(Vec<Key>),
    AesCbc(Vec<Key>),
    /// XSalsa20 and Poly1305.
    Secretbox(Vec<Key>),
    /// A KMS v2 plugin.
    Kms(Kms),
    /// No encryption.
    Identity,
}

/// A key with its name, which is stored with the values it encrypts.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    pub name: Str,
    // Zeroed on drop, so that unused keys do not stay in memory.
    secret: Zeroizing<Vec<u8>>,
}

/// A KMS v2 plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kms {
    /// The name, which is stored with the encrypted values.
    pub name: Str,
    /// The socket: `unix:///…`.
    pub endpoint: Str,
    /// The timeout of a call.
    pub timeout: Duration,
}

/// Reasons why a configuration file is invalid.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("encryption provider configuration file is empty")]
    Empty,
    #[error("error while parsing file: {0}")]
    Read(#[from] api::config::Error),
    #[error("error while parsing file: {0}")]
    Timeout(#[from] DurationError),
    /// Validation failed.
    #[error("{}", field::aggregate(.0).unwrap_or_default())]
    Invalid(field::Errors),
    /// The file configures KMS v1, which upstream disables by default.
    #[error(
        "KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead. Set --feature-gates=KMSv1=true to use the deprecated KMSv1 feature."
    )]
    KmsV1,
}

impl Configuration {
    /// Parses and validates a configuration file.
    pub fn parse(bytes: &[u8], reload: Reload) -> Result<Self, Error> {
        if bytes.is_empty() {
            return Err(Error::Empty);
        }
        let (_, mut object) = api::config::read(facts(), bytes)?;
        default(&mut object);
        let timeouts = timeouts(&object)?;
        let findings = validate::configuration(&object, &timeouts, reload);
        if !findings.is_empty() {
            return Err(Error::Invalid(findings));
        }
        let rules = object.list_at(&["resources"]).iter().map(Rule::from_value).collect::<Result<_, _>>()?;
        Ok(Self { rules })
    }

    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns the providers of a resource in order; empty if it is not encrypted.
    ///
    /// A rule for the resource precedes one for its group, which precedes one for everything. Rules for the same
    /// resource are combined, unless an earlier rule for its group or for everything hides them.
    pub fn providers(&self, group: &str, resource: &str) -> Vec<&Provider> {
        let places = [(group, resource), (group, "*"), ("*", "*")];
        let found = places.iter().map(|(group, resource)| self.providers_of(group, resource));
        found.into_iter().find(|providers| !providers.is_empty()).unwrap_or_default()
    }

    fn providers_of(&self, group: &str, resource: &str) -> Vec<&Provider> {
        let mut providers = Vec::new();
        for rule in &self.rules {
            if rule.names(group, resource) {
                providers.extend(&rule.providers);
            }
            let hides = (resource != "*" && rule.names(group, "*")) || (group != "*" && rule.names("*", "*"));
            if hides {
                break;
            }
        }
        providers
    }
}

impl GroupResource {
    /// Parses `secrets`, `deployments.apps`, `*.apps`, `*.` or `*.*`.
    pub fn parse(text: &str) -> Self {
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        Self { group: group.into(), resource: resource.into() }
    }
}

impl Rule {
    fn names(&self, group: &str, resource: &str) -> bool {
        self.resources.iter().any(|have| have.group == group && have.resource == resource)
    }

    fn from_value(value: &Value) -> Result<Self, Error> {
        Ok(Self {
            resources: value
                .list_at(&["resources"])
                .iter()
                .filter_map(Value::as_str)
                .map(GroupResource::parse)
                .collect(),
            providers: value.list_at(&["providers"]).iter().map(Provider::from_value).collect::<Result<_, _>>()?,
        })
    }
}

impl Provider {
    fn from_value(value: &Value) -> Result<Self, Error> {
        if let Some(kms) = value.get("kms") {
            return Kms::from_value(kms).map(Self::Kms);
        }
        let keys = |name: &str| {
            value.get(name).map(|part| part.list_at(&["keys"]).iter().filter_map(Key::from_value).collect::<Vec<_>>())
        };
        let aes = keys("aesgcm").map(Self::AesGcm).or_else(|| keys("aescbc").map(Self::AesCbc));
        Ok(aes.or_else(|| keys("secretbox").map(Self::Secretbox)).unwrap_or(Self::Identity))
    }
}

impl Key {
    /// Creates a key from its secret bytes.
    pub fn new(name: impl Into<Str>, secret: impl Into<Vec<u8>>) -> Self {
        Self { name: name.into(), secret: Zeroizing::new(secret.into()) }
    }

    pub(crate) fn secret(&self) -> &[u8] {
        &self.secret
    }

    fn from_value(value: &Value) -> Option<Self> {
        let secret = STANDARD.decode(value.str_at(&["secret"])?).ok()?;
        Some(Self::new(value.str_at(&["name"])?, secret))
    }
}

impl Kms {
    fn from_value(value: &Value) -> Result<Self, Error> {
        let text = |field: &str| value.text_at(&[field]);
        if text("apiVersion") == "v1" {
            return Err(Error::KmsV1);
        }
        Ok(Self { name: text("name").into(), endpoint: text("endpoint").into(), timeout: text("timeout").parse()? })
    }
}

/// Sets upstream's defaults of KMS plugins.
fn default(object: &mut Value) {
    let rules = object.get_mut("resources").and_then(Value::as_array_mut).into_iter().flatten();
    let providers = rules.filter_map(|rule| rule.get_mut("providers")?.as_array_mut()).flatten();
    for kms in providers.filter_map(|provider| provider.get_mut("kms")?.as_object_mut()) {
        let is_absent = |value: Option<&Value>| value.and_then(Value::as_str).is_none_or(str::is_empty);
        if is_absent(kms.get("timeout")) {
            kms.insert("timeout", "3s");
        }
        if is_absent(kms.get("apiVersion")) {
            kms.insert("apiVersion", "v1");
        }
        if kms.get("apiVersion").and_then(Value::as_str) == Some("v1") && kms.get("cachesize").is_none() {
            kms.insert("cachesize", 1000);
        }
    }
}

/// Returns the timeouts of all KMS plugins, in file order.
fn timeouts(object: &Value) -> Result<Vec<Duration>, DurationError> {
    let providers = object.list_at(&["resources"]).iter().flat_map(|rule| rule.list_at(&["providers"]));
    let texts = providers.filter_map(|provider| provider.str_at(&["kms", "timeout"]));
    texts.map(str::parse).collect()
}

fn facts() -> &'static Catalogue {
    static CATALOGUE: OnceLock<Catalogue> = OnceLock::new();
    CATALOGUE.get_or_init(|| catalogue::read(FACTS))
}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Key").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
