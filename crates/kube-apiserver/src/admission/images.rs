//! ImagePolicyWebhook: checks the images of pods with an ImageReview webhook, with a response cache.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use admission::configuration;
use admission::image_policy::{self, Config};
use admission::{Attributes, Notes};
use apimachinery::status::Status;
use apimachinery::{Value, json};
use auth::cache::Cache;

use crate::remote::{self, Remote};
use client::clock::now;

/// Maximum number of cached responses.
const RESPONSES_MAX: usize = 1024;
/// Timeout of an ImageReview request.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The ImageReview client.
pub struct Images {
    config: Config,
    remote: Remote,
    responses: Mutex<Cache<Value>>,
}

/// Reasons why ImagePolicyWebhook is misconfigured.
#[derive(Debug, thiserror::Error)]
pub enum ImagesError {
    /// The plugin is enabled without a configuration.
    #[error("ImagePolicyWebhook requires a configuration in --admission-control-config-file")]
    Missing,
    #[error("the configuration of ImagePolicyWebhook is invalid")]
    Config(#[from] configuration::Error),
    #[error(transparent)]
    Remote(#[from] remote::Error),
}

impl Images {
    /// Parses the configuration of the plugin.
    pub fn of(configuration: Option<&Value>) -> Result<Self, ImagesError> {
        let config = Config::of(configuration.ok_or(ImagesError::Missing)?)?;
        let remote = Remote::of_file(Path::new(&config.kubeconfig))?;
        Ok(Self { config, remote, responses: Mutex::new(Cache::with_random_secret(RESPONSES_MAX)) })
    }

    /// Rejects a pod whose images are not allowed.
    pub async fn validate(&self, attributes: &Attributes<'_>, pod: &Value, notes: &mut Notes) -> Result<(), Status> {
        let Some(review) = image_policy::review(attributes, pod) else { return Ok(()) };
        let question = json::to_string(&review["spec"]);
        let known = self.responses.lock().expect("no holder panics").get(&question, &[], now()).cloned();
        let response = match known {
            Some(response) => response,
            None => match self.remote.post(&review, TIMEOUT).await {
                Ok(response) => response,
                Err(error) => {
                    return image_policy::handle_webhook_failure(&self.config, attributes, pod, &error, notes);
                }
            },
        };
        let allowed = image_policy::is_allowed(&response);
        if let Some(ttl) = if allowed { self.config.allow_ttl } else { self.config.deny_ttl } {
            self.responses.lock().expect("no holder panics").insert(&question, &[], response.clone(), now(), ttl);
        }
        image_policy::apply_response(attributes, pod, &response, notes)
    }
}
