//! `AuthorizationConfiguration`: the authorizers, their order, and the match conditions of webhooks.

mod validate;

use apimachinery::Str;
use apimachinery::field::{self, Errors};
use apimachinery::time::Duration;
use cel::ExpressionContext;

use validate::Raw;

use crate::access_review::webhook::{FailurePolicy, Version, condition_input};
use crate::attributes::Attributes;
use crate::config_file::File;
use crate::expression::Expression;

pub use crate::config_file::Error as FileError;

/// The authorizers in their order.
#[derive(Debug, Default)]
pub struct Config {
    /// At least one authorizer.
    pub authorizers: Vec<AuthorizerConfig>,
}

#[derive(Debug)]
pub struct AuthorizerConfig {
    /// The name in metrics and logs.
    pub name: Str,
    pub kind: Kind,
}

#[derive(Debug)]
pub enum Kind {
    /// Allows all requests.
    AlwaysAllow,
    /// Denies all requests.
    AlwaysDeny,
    /// The policy file of `--authorization-policy-file`.
    Abac,
    /// The Node authorizer for kubelets.
    Node,
    Rbac,
    Webhook(Box<Webhook>),
}

/// A webhook authorizer and its match conditions.
#[derive(Debug)]
pub struct Webhook {
    /// Cache TTL of allowed requests; `None` disables caching.
    pub authorized_ttl: Option<Duration>,
    /// Cache TTL of denied requests; `None` disables caching.
    pub unauthorized_ttl: Option<Duration>,
    /// Request timeout.
    pub timeout: Duration,
    /// The SubjectAccessReview version.
    pub version: Version,
    /// The decision if the webhook fails.
    pub failure_policy: FailurePolicy,
    pub connection: Connection,
    conditions: Vec<Expression>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connection {
    /// The in-cluster configuration of a pod.
    InCluster,
    /// A kubeconfig file at this absolute path.
    KubeConfigFile(Str),
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    File(#[from] FileError),
    /// The file has validation errors.
    #[error("{}", field::aggregate(.0).unwrap_or_default())]
    Invalid(Errors),
}

impl Config {
    /// Parses and validates a configuration file.
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
    /// Returns a webhook configured by flags: without match conditions and with failure policy NoOpinion.
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

    /// Whether the match conditions select the request. If not, the webhook has no opinion.
    ///
    /// # Errors
    /// Evaluation errors of the conditions, if none of them is false.
    pub fn matches(&self, attributes: &Attributes<'_>) -> Result<bool, String> {
        if self.conditions.is_empty() {
            return Ok(true);
        }
        let input = condition_input(attributes);
        let mut errors = Vec::new();
        for condition in &self.conditions {
            match condition.holds(ExpressionContext::Authorization, "request", &input) {
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
