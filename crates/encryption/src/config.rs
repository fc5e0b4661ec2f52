//! The configuration file: resources, and the providers that encrypt them.

mod validate;

use std::fmt;
use std::sync::OnceLock;

use api::catalogue::{self, Catalogue};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinery::time::{Duration, DurationError};
use machinery::{Str, Value, field};
use zeroize::Zeroizing;

pub use validate::Reload;

const FACTS: &str = include_str!("config.txt");

/// What is encrypted by what.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    rules: Vec<Rule>,
}

/// A resource and its group, with `*` for any.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupResource {
    /// The group, empty for the core group.
    pub group: Str,
    /// The plural name.
    pub resource: Str,
}

/// Resources with the providers for them.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Which resources.
    pub resources: Vec<GroupResource>,
    /// The providers: the first writes, all read.
    pub providers: Vec<Provider>,
}

/// One way to encrypt.
#[derive(Clone, Debug, PartialEq)]
pub enum Provider {
    /// AES in Galois/Counter mode.
    AesGcm(Vec<Key>),
    /// AES with cipher block chaining.
    AesCbc(Vec<Key>),
    /// XSalsa20 and Poly1305.
    Secretbox(Vec<Key>),
    /// A key management service.
    Kms(Kms),
    /// Not at all.
    Identity,
}

/// A secret and its name, which is stored with what it encrypts.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    /// Its name.
    pub name: Str,
    // Whoever reads the memory of a server should not find keys that it no longer uses.
    secret: Zeroizing<Vec<u8>>,
}

/// A key management service of version 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kms {
    /// Its name, which is stored with what its keys encrypt.
    pub name: Str,
    /// Where it listens: `unix:///…`.
    pub endpoint: Str,
    /// How long a call to it may take.
    pub timeout: Duration,
}

/// Why a file is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is empty.
    #[error("encryption provider configuration file is empty")]
    Empty,
    /// It cannot be read.
    #[error("error while parsing file: {0}")]
    Read(#[from] api::config::Error),
    /// A timeout is none.
    #[error("error while parsing file: {0}")]
    Timeout(#[from] DurationError),
    /// It says what makes no sense.
    #[error("{}", field::aggregate(.0).unwrap_or_default())]
    Invalid(field::Errors),
    /// It asks for the first version of the service, which upstream has switched off.
    #[error(
        "KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead. Set --feature-gates=KMSv1=true to use the deprecated KMSv1 feature."
    )]
    KmsV1,
}

impl Configuration {
    /// Reads and validates the file.
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
        let rules = items(&object, "resources").iter().map(Rule::from_value).collect::<Result<_, _>>()?;
        Ok(Self { rules })
    }

    /// The rules in their order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The providers for a resource, in their order; none if it is not encrypted.
    ///
    /// A rule for the resource itself counts before one for its group, and that before one for everything. Rules for the same
    /// resource add up, unless an earlier one for its group or for everything hides them.
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
    /// Reads `secrets`, `deployments.apps`, `*.apps`, `*.` or `*.*`.
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
            resources: items(value, "resources").iter().filter_map(Value::as_str).map(GroupResource::parse).collect(),
            providers: items(value, "providers").iter().map(Provider::from_value).collect::<Result<_, _>>()?,
        })
    }
}

impl Provider {
    fn from_value(value: &Value) -> Result<Self, Error> {
        if let Some(kms) = value.get("kms") {
            return Kms::from_value(kms).map(Self::Kms);
        }
        let keys = |name: &str| {
            value.get(name).map(|part| items(part, "keys").iter().filter_map(Key::from_value).collect::<Vec<_>>())
        };
        let aes = keys("aesgcm").map(Self::AesGcm).or_else(|| keys("aescbc").map(Self::AesCbc));
        Ok(aes.or_else(|| keys("secretbox").map(Self::Secretbox)).unwrap_or(Self::Identity))
    }
}

impl Key {
    /// A key from its secret bytes.
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
        let text = |field: &str| value.str_at(&[field]).unwrap_or_default();
        if text("apiVersion") == "v1" {
            return Err(Error::KmsV1);
        }
        Ok(Self { name: text("name").into(), endpoint: text("endpoint").into(), timeout: text("timeout").parse()? })
    }
}

/// What upstream assumes of a service where the file says nothing.
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

/// The timeouts of all services, in the order of the file.
fn timeouts(object: &Value) -> Result<Vec<Duration>, DurationError> {
    let providers = items(object, "resources").iter().flat_map(|rule| items(rule, "providers"));
    let texts = providers.filter_map(|provider| provider.str_at(&["kms", "timeout"]));
    texts.map(str::parse).collect()
}

fn items<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).unwrap_or_default()
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
