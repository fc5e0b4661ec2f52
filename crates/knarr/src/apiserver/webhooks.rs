//! Authentication and authorization webhooks of kube-apiserver, and the configuration of admission plugins.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ::kube_apiserver::remote::Remote;
use ::kube_apiserver::server::Mode;
use ::kube_apiserver::{admission_config, authentication, authorization};
use anyhow::{Context, Result, bail};
use apimachinery::Value;
use apimachinery::time::Duration;
use auth::access_review::webhook::Version;
use auth::authorization_config::{Connection, Webhook};
use clap::Args;

/// Authentication and authorization webhooks, and admission configuration.
#[derive(Args, Debug, Clone)]
pub(super) struct Webhooks {
    /// Kubeconfig file of the webhook for token authentication.
    #[arg(long)]
    authentication_token_webhook_config_file: Option<PathBuf>,
    /// API version of the TokenReview sent to the webhook.
    #[arg(long, default_value = "v1beta1")]
    authentication_token_webhook_version: String,
    /// Duration to cache responses of the token webhook.
    #[arg(long, default_value = "2m0s")]
    authentication_token_webhook_cache_ttl: Duration,
    /// Kubeconfig file of the webhook for the authorization mode Webhook.
    #[arg(long)]
    authorization_webhook_config_file: Option<PathBuf>,
    /// API version of the SubjectAccessReview sent to the webhook.
    #[arg(long, default_value = "v1beta1")]
    authorization_webhook_version: String,
    /// Duration to cache allowed responses of the authorization webhook.
    #[arg(long, default_value = "5m0s")]
    authorization_webhook_cache_authorized_ttl: Duration,
    /// Duration to cache denied responses of the authorization webhook.
    #[arg(long, default_value = "30s")]
    authorization_webhook_cache_unauthorized_ttl: Duration,
    /// File with an AdmissionConfiguration.
    #[arg(long)]
    admission_control_config_file: Option<PathBuf>,
}

impl Webhooks {
    /// Returns the token webhook, if one is configured.
    pub(super) fn tokens(&self) -> Result<Option<authentication::Webhook>> {
        let Some(file) = &self.authentication_token_webhook_config_file else { return Ok(None) };
        let version = self.authentication_token_webhook_version.as_str();
        let webhook =
            authentication::Webhook::new(Remote::of_file(file)?, version, self.authentication_token_webhook_cache_ttl);
        let webhook = webhook.with_context(|| {
            format!("--authentication-token-webhook-version: unknown version {version:?}, must be v1 or v1beta1")
        })?;
        Ok(Some(webhook))
    }

    /// Returns the authorization webhook of the flags.
    pub(super) fn authorizer(&self) -> Result<Mode> {
        let file = self.authorization_webhook_config_file.as_ref();
        let file = file.context("the authorization mode Webhook needs --authorization-webhook-config-file")?;
        let version = match self.authorization_webhook_version.as_str() {
            "v1" => Version::V1,
            "v1beta1" => Version::V1beta1,
            other => bail!("--authorization-webhook-version: unknown version {other:?}, must be v1 or v1beta1"),
        };
        let remembered = |ttl: Duration| (ttl > Duration::default()).then_some(ttl);
        let mut rules = Webhook::unconditional(&file.to_string_lossy(), version);
        rules.authorized_ttl = remembered(self.authorization_webhook_cache_authorized_ttl);
        rules.unauthorized_ttl = remembered(self.authorization_webhook_cache_unauthorized_ttl);
        authorizer(rules)
    }

    /// Returns the configurations of admission plugins by plugin name.
    pub(super) fn admission(&self) -> Result<BTreeMap<String, Value>> {
        let Some(file) = &self.admission_control_config_file else { return Ok(BTreeMap::new()) };
        admission_config::read(file).context("invalid file of --admission-control-config-file")
    }
}

/// Returns the authorization webhook of an AuthorizationConfiguration.
pub(super) fn authorizer(rules: Webhook) -> Result<Mode> {
    let remote = match &rules.connection {
        Connection::KubeConfigFile(file) => Remote::of_file(Path::new(file.as_str()))?,
        Connection::InCluster => {
            bail!(
                "connectionInfo must be of type KubeConfigFile: an API server cannot be its own authorization webhook"
            )
        }
    };
    Ok(Mode::Webhook(Box::new(authorization::Webhook::new(rules, remote))))
}
