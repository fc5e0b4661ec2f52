//! Other servers that are asked: whose a token is, who may do what; and what admission plug-ins are told.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ::apiserver::remote::Remote;
use ::apiserver::server::Mode;
use ::apiserver::{admission_config, authentication, authorization};
use anyhow::{Context, Result, bail};
use auth::access_review::webhook::Version;
use auth::authorization_config::{Connection, Webhook};
use clap::Args;
use machinery::Value;
use machinery::time::Duration;

/// The flags of webhooks.
#[derive(Args, Debug, Clone)]
pub struct Webhooks {
    /// Kubeconfig of a server that knows whose a token is.
    #[arg(long)]
    authentication_token_webhook_config_file: Option<PathBuf>,
    /// Version of the TokenReview that is sent to it.
    #[arg(long, default_value = "v1beta1")]
    authentication_token_webhook_version: String,
    /// How long its answers are remembered.
    #[arg(long, default_value = "2m0s")]
    authentication_token_webhook_cache_ttl: Duration,
    /// Kubeconfig of a server that decides who may do what, for the authorization mode Webhook.
    #[arg(long)]
    authorization_webhook_config_file: Option<PathBuf>,
    /// Version of the SubjectAccessReview that is sent to it.
    #[arg(long, default_value = "v1beta1")]
    authorization_webhook_version: String,
    /// How long its permissions are remembered.
    #[arg(long, default_value = "5m0s")]
    authorization_webhook_cache_authorized_ttl: Duration,
    /// How long its refusals are remembered.
    #[arg(long, default_value = "30s")]
    authorization_webhook_cache_unauthorized_ttl: Duration,
    /// File with the configurations of admission plug-ins.
    #[arg(long)]
    admission_control_config_file: Option<PathBuf>,
}

impl Webhooks {
    /// The server that knows whose a token is.
    pub fn tokens(&self) -> Result<Option<authentication::Webhook>> {
        let Some(file) = &self.authentication_token_webhook_config_file else { return Ok(None) };
        let version = self.authentication_token_webhook_version.as_str();
        let webhook =
            authentication::Webhook::new(Remote::of_file(file)?, version, self.authentication_token_webhook_cache_ttl);
        let webhook = webhook.with_context(|| {
            format!("--authentication-token-webhook-version has {version:?}, which is neither v1 nor v1beta1")
        })?;
        Ok(Some(webhook))
    }

    /// The server that decides, for the mode Webhook.
    pub fn authorizer(&self) -> Result<Mode> {
        let file = self.authorization_webhook_config_file.as_ref();
        let file = file.context("the authorization mode Webhook needs --authorization-webhook-config-file")?;
        let version = match self.authorization_webhook_version.as_str() {
            "v1" => Version::V1,
            "v1beta1" => Version::V1beta1,
            other => bail!("--authorization-webhook-version has {other:?}, which is neither v1 nor v1beta1"),
        };
        let remembered = |ttl: Duration| (ttl > Duration::default()).then_some(ttl);
        let mut rules = Webhook::unconditional(&file.to_string_lossy(), version);
        rules.authorized_ttl = remembered(self.authorization_webhook_cache_authorized_ttl);
        rules.unauthorized_ttl = remembered(self.authorization_webhook_cache_unauthorized_ttl);
        authorizer(rules)
    }

    /// What admission plug-ins are told, by name.
    pub fn admission(&self) -> Result<BTreeMap<String, Value>> {
        let Some(file) = &self.admission_control_config_file else { return Ok(BTreeMap::new()) };
        admission_config::read(file).context("--admission-control-config-file cannot be used")
    }
}

/// The server that decides as a file describes it.
pub fn authorizer(rules: Webhook) -> Result<Mode> {
    let remote = match &rules.connection {
        Connection::KubeConfigFile(file) => Remote::of_file(Path::new(file.as_str()))?,
        Connection::InCluster => {
            bail!("an API server cannot ask itself: connectionInfo must be of the type KubeConfigFile")
        }
    };
    Ok(Mode::Webhook(Box::new(authorization::Webhook::new(rules, remote))))
}
