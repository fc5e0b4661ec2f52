//! ImagePolicyWebhook: asks another server about the images of pods, and remembers what it said.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use auth::cache::Cache;
use machinery::status::Status;
use machinery::{Value, json};
use registry::admission::configuration;
use registry::admission::image_policy::{self, Config};
use registry::admission::{Attributes, Notes};

use crate::remote::{self, Remote};
use crate::state::now;

/// So many answers are remembered.
const ANSWERS_MAX: usize = 1024;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The other server.
pub struct Images {
    config: Config,
    remote: Remote,
    answers: Mutex<Cache<Value>>,
}

/// Why images cannot be asked about.
#[derive(Debug, thiserror::Error)]
pub enum ImagesError {
    /// The plug-in is on and has no configuration.
    #[error("ImagePolicyWebhook needs a configuration: --admission-control-config-file")]
    Missing,
    /// The configuration says something that cannot be.
    #[error("the configuration of ImagePolicyWebhook cannot be used")]
    Config(#[from] configuration::Error),
    /// The server that it names cannot be reached.
    #[error(transparent)]
    Remote(#[from] remote::Error),
}

impl Images {
    /// Reads the configuration of the plug-in.
    pub fn of(configuration: Option<&Value>) -> Result<Self, ImagesError> {
        let config = Config::of(configuration.ok_or(ImagesError::Missing)?)?;
        let remote = Remote::of_file(Path::new(&config.kubeconfig))?;
        Ok(Self { config, remote, answers: Mutex::new(Cache::with_random_secret(ANSWERS_MAX)) })
    }

    /// Refuses a pod whose images may not run.
    pub async fn validate(&self, attributes: &Attributes<'_>, pod: &Value, notes: &mut Notes) -> Result<(), Status> {
        let Some(review) = image_policy::review(attributes, pod) else { return Ok(()) };
        let question = json::to_string(&review["spec"]);
        let known = self.answers.lock().expect("no holder panics").get(&question, &[], now()).cloned();
        let answer = match known {
            Some(answer) => answer,
            None => match self.remote.post(&review, PATIENCE).await {
                Ok(answer) => answer,
                Err(why) => return image_policy::settle(&self.config, attributes, pod, &why, notes),
            },
        };
        let allowed = image_policy::is_allowed(&answer);
        if let Some(ttl) = if allowed { self.config.allow_ttl } else { self.config.deny_ttl } {
            self.answers.lock().expect("no holder panics").insert(&question, &[], answer.clone(), now(), ttl);
        }
        image_policy::judge(attributes, pod, &answer, notes)
    }
}
