//! `AuthorizationConfiguration`: which authorizers are asked, in which order, and which requests a webhook sees.

mod validate;

use cel::Host;
use machinery::Str;
use machinery::field::{self, Errors};
use machinery::time::Duration;

use validate::Raw;

use crate::access_review::webhook::{FailurePolicy, Version, condition_input};
use crate::attributes::Attributes;
use crate::config_file::File;
use crate::expression::Expression;

pub use crate::config_file::Error as FileError;

/// The authorizers in the order they are asked.
#[derive(Debug, Default)]
pub struct Config {
    /// At least one.
    pub authorizers: Vec<Configured>,
}

/// One authorizer.
#[derive(Debug)]
pub struct Configured {
    /// Its name in metrics and logs.
    pub name: Str,
    /// What it is.
    pub kind: Kind,
}

/// What an authorizer is.
#[derive(Debug)]
pub enum Kind {
    /// Everything is allowed.
    AlwaysAllow,
    /// Nothing is allowed.
    AlwaysDeny,
    /// Policies of a file.
    Abac,
    /// What kubelets need for their pods.
    Node,
    /// Roles and bindings.
    Rbac,
    /// Another server.
    Webhook(Box<Webhook>),
}

/// Another server that is asked, and when.
#[derive(Debug)]
pub struct Webhook {
    /// How long a permission is remembered; none for not at all.
    pub authorized_ttl: Option<Duration>,
    /// How long a refusal is remembered; none for not at all.
    pub unauthorized_ttl: Option<Duration>,
    /// How long to wait for an answer.
    pub timeout: Duration,
    /// The version of the review that is sent.
    pub version: Version,
    /// What to decide without an answer.
    pub failure_policy: FailurePolicy,
    /// How the server is reached.
    pub connection: Connection,
    conditions: Vec<Expression>,
}

/// How another server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connection {
    /// As a pod of this cluster reaches its API server.
    InCluster,
    /// By a kubeconfig at this absolute path.
    KubeConfigFile(Str),
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// What it says makes no sense.
    #[error("{}", field::aggregate(.0).unwrap_or_default())]
    Invalid(Errors),
}

impl Config {
    /// Reads a configuration file.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut file = File::parse(text, "AuthorizationConfiguration", &["v1", "v1beta1", "v1alpha1"])?;
        let (fields, problems) = file.open(&["authorizers"]);
        let raw: Vec<Raw> = fields
            .objects("authorizers", &["type", "name", "webhook"], problems)
            .iter()
            .map(|authorizer| Raw::read(authorizer, problems))
            .collect();
        if !file.problems.is_empty() {
            return Err(FileError::Strict(file.problems).into());
        }
        validate::validate(raw).map_err(Error::Invalid)
    }
}

impl Webhook {
    /// A webhook as flags describe one: it sees every request, and if it cannot be asked, others decide.
    pub fn unconditional(kubeconfig: &str, version: Version) -> Self {
        Self {
            authorized_ttl: Some(Duration::from_seconds(300)),
            unauthorized_ttl: Some(Duration::from_seconds(30)),
            timeout: Duration::from_seconds(30),
            version,
            failure_policy: FailurePolicy::NoOpinion,
            connection: Connection::KubeConfigFile(kubeconfig.into()),
            conditions: Vec::new(),
        }
    }

    /// Whether a request is the webhook's business: if not, it has no opinion.
    ///
    /// # Errors
    /// What went wrong with conditions, if none of them said no.
    pub fn matches(&self, attributes: &Attributes<'_>) -> Result<bool, String> {
        if self.conditions.is_empty() {
            return Ok(true);
        }
        let input = condition_input(attributes);
        let mut errors = Vec::new();
        for condition in &self.conditions {
            match condition.holds(Host::Authorization, "request", &input) {
                Ok(Some(true)) => {}
                Ok(Some(false)) => return Ok(false),
                Ok(None) => errors.push(format!(
                    "cel evaluation error: expression '{}' eval result type should be bool",
                    condition.source
                )),
                Err(failure) => errors.push(format!(
                    "cel evaluation error: expression '{}' resulted in error: {failure}",
                    condition.source
                )),
            }
        }
        match errors.as_slice() {
            [] => Ok(true),
            [one] => Err(one.clone()),
            many => Err(format!("[{}]", many.join(", "))),
        }
    }
}

#[cfg(test)]
mod tests;
