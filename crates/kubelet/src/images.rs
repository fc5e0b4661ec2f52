//! Image manager: ensures that a container's image is present, according to its pull policy and the credentials of the
//! pod: those of its pull secrets, then those of credential providers.

mod credentials;
pub(crate) mod providers;
mod pulls;
mod verification;

use std::time::Instant;

use apimachinery::Value;
use client::Client;
use controller::EventType;
use node_api::cri::v1;
use tokio::sync::{OnceCell, Semaphore};

use self::credentials::Credential;
use self::providers::Providers;
use self::pulls::Pulls;
use self::verification::Source;
pub(crate) use self::verification::{AllowlistEntry, Verification};
use crate::config::Config;
use crate::pod::Pod;
use crate::runtime::Runtime;
use crate::security::ImageUser;

/// Pulls images with limited concurrency.
pub struct Images {
    runtime: Runtime,
    turns: Semaphore,
    pulls: Pulls,
    providers: Providers,
    reconciled: OnceCell<()>,
}

/// An image that is present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresentImage {
    /// The runtime's image reference.
    pub reference: String,
    /// The user of the image's configuration.
    pub user: ImageUser,
}

/// An image is not available. Variants correspond to upstream's container waiting reasons.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The image is absent and its pull policy is `Never`.
    #[error("Container image \"{0}\" is not present with pull policy of Never")]
    NeverPull(String),
    /// The image is present, the pod's credentials do not allow its use, and its pull policy is `Never`.
    #[error(
        "Container image \"{0}\" is present with pull policy of Never but does not have the proper auth credentials"
    )]
    NotAllowed(String),
    #[error("{0}")]
    Pull(String),
    #[error("Failed to apply default image tag \"{image}\": {problem}")]
    Name { image: String, problem: String },
    #[error("Failed to inspect image \"{image}\": {problem}")]
    Inspect { image: String, problem: String },
}

impl ImageError {
    /// Returns the waiting reason of the container status.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NeverPull(_) | Self::NotAllowed(_) => "ErrImageNeverPull",
            Self::Pull(_) => "ErrImagePull",
            Self::Name { .. } => "InvalidImageName",
            Self::Inspect { .. } => "ImageInspectError",
        }
    }
}

impl Images {
    /// Creates the image manager of a runtime.
    pub fn new(runtime: Runtime, client: Client, config: &Config) -> Self {
        Self {
            runtime,
            turns: Semaphore::new(config.parallel_pulls.clamp(1, Semaphore::MAX_PERMITS)),
            pulls: Pulls::new(&config.root_dir, config.image_verification.clone()),
            providers: Providers::new(client, &config.credential_providers),
            reconciled: OnceCell::new(),
        }
    }

    /// Ensures that an image is present and usable by the pod, and pulls it if necessary. Reports progress with
    /// `record_event`.
    pub async fn ensure(
        &self,
        image: &str,
        policy: &str,
        pod: Pod<'_>,
        secrets: &[Value],
        record_event: impl Fn(EventType, &str, &str),
    ) -> Result<PresentImage, ImageError> {
        self.reconciled.get_or_try_init(|| self.reconcile_records(image)).await?;
        let mut credentials = credentials::of(secrets, image);
        let present = self.find(image).await?;
        let mut allowed = false;
        if let Some(found) = present.as_ref().filter(|_| policy != "Always") {
            allowed = self.pulls.may_use(image, &found.reference, &sources(&credentials)).await;
        }
        if !allowed && (present.is_some() || policy != "Never") {
            // Plugins run only for an image that is to be pulled or has to be verified.
            let provided = self.providers.credentials(image, pod).await;
            if let Some(found) = present.as_ref().filter(|_| policy != "Always" && !provided.is_empty()) {
                allowed = self.pulls.may_use(image, &found.reference, &sources(&provided)).await;
            }
            credentials.extend(provided);
        }
        match (present, policy) {
            (Some(found), _) if allowed => {
                let message =
                    format!("Container image \"{image}\" already present on machine and can be accessed by the pod");
                record_event(EventType::Normal, "Pulled", &message);
                Ok(found)
            }
            (present, "Never") => {
                let name = image.to_owned();
                let error = if present.is_some() { ImageError::NotAllowed(name) } else { ImageError::NeverPull(name) };
                record_event(EventType::Warning, "ErrImageNeverPull", &error.to_string());
                Err(error)
            }
            _ => self.pull(image, credentials, record_event).await,
        }
    }

    /// Reconciles the pull records with the images of the runtime.
    async fn reconcile_records(&self, image: &str) -> Result<(), ImageError> {
        let listed = async {
            let request = v1::ListImagesRequest { filter: None };
            Ok::<_, tonic::Status>(self.runtime.images.clone().list_images(request).await?.into_inner().images)
        };
        let result = self.pulls.reconcile(listed).await;
        result.map_err(|status: tonic::Status| ImageError::Inspect {
            image: image.to_owned(),
            problem: status.message().to_owned(),
        })
    }

    async fn pull(
        &self,
        image: &str,
        credentials: Vec<Credential>,
        record_event: impl Fn(EventType, &str, &str),
    ) -> Result<PresentImage, ImageError> {
        record_event(EventType::Normal, "Pulling", &format!("Pulling image \"{image}\""));
        let queued_at = Instant::now();
        let _turn = self.turns.acquire().await.expect("the semaphore is never closed");
        let started_at = Instant::now();
        let noted = self.pulls.record_start(image).await;
        noted.map_err(|error| ImageError::Pull(format!("failed to record image pull intent: {error}")))?;
        let pulled = self.fetch(image, credentials).await;
        let note = pulled.as_ref().ok().map(|(status, by)| (status.id.as_str(), by.as_ref()));
        self.pulls.end(image, note).await;
        let status = match pulled {
            Ok((status, _)) => status,
            Err(error) => {
                if let ImageError::Pull(failure) = &error {
                    record_event(EventType::Warning, "Failed", &format!("Failed to pull image \"{image}\": {failure}"));
                }
                return Err(error);
            }
        };
        // Failures are ignored: the next pull reconciles the records again.
        let _ = self.reconcile_records(image).await;
        let (took, waited) = (format_duration(started_at.elapsed()), format_duration(queued_at.elapsed()));
        let message = format!(
            "Successfully pulled image \"{image}\" in {took} ({waited} including waiting). Image size: {} bytes.",
            status.size
        );
        record_event(EventType::Normal, "Pulled", &message);
        Ok(read(status))
    }

    /// Pulls with each credential until one succeeds, or without credentials if there are none. Returns the source of the
    /// credential that succeeded, if it has one.
    async fn fetch(
        &self,
        image: &str,
        credentials: Vec<Credential>,
    ) -> Result<(v1::Image, Option<Source>), ImageError> {
        let mut attempts: Vec<Option<Credential>> = credentials.into_iter().map(Some).collect();
        if attempts.is_empty() {
            attempts.push(None);
        }
        let mut failures: Vec<String> = Vec::new();
        for credential in attempts {
            let spec = v1::ImageSpec { image: image.to_owned(), ..Default::default() };
            let (auth, source) = credential.map(|one| (one.auth, one.source)).unzip();
            let request = v1::PullImageRequest { image: Some(spec), auth, sandbox_config: None };
            match self.runtime.images.clone().pull_image(request).await {
                Ok(_) => {
                    let missing = || ImageError::Pull(format!("image \"{image}\" was pulled and is gone"));
                    return Ok((self.status(image).await?.ok_or_else(missing)?, source.flatten()));
                }
                Err(status) if status.code() == tonic::Code::InvalidArgument => {
                    return Err(ImageError::Name { image: image.to_owned(), problem: status.message().to_owned() });
                }
                Err(status) if failures.iter().any(|one| one == status.message()) => {}
                Err(status) => failures.push(status.message().to_owned()),
            }
        }
        match failures.as_slice() {
            [one] => Err(ImageError::Pull(one.clone())),
            several => Err(ImageError::Pull(format!("[{}]", several.join(", ")))),
        }
    }

    /// Whether the runtime has an image; false if the runtime does not respond.
    pub async fn is_present(&self, image: &str) -> bool {
        matches!(self.find(image).await, Ok(Some(_)))
    }

    async fn find(&self, image: &str) -> Result<Option<PresentImage>, ImageError> {
        Ok(self.status(image).await?.map(read))
    }

    async fn status(&self, image: &str) -> Result<Option<v1::Image>, ImageError> {
        let spec = v1::ImageSpec { image: image.to_owned(), ..Default::default() };
        let request = v1::ImageStatusRequest { image: Some(spec), verbose: false };
        match self.runtime.images.clone().image_status(request).await {
            Ok(response) => Ok(response.into_inner().image),
            Err(status) if status.code() == tonic::Code::InvalidArgument => {
                Err(ImageError::Name { image: image.to_owned(), problem: status.message().to_owned() })
            }
            Err(status) => Err(ImageError::Inspect { image: image.to_owned(), problem: status.message().to_owned() }),
        }
    }
}

fn sources(credentials: &[Credential]) -> Vec<Source> {
    credentials.iter().filter_map(|credential| credential.source.clone()).collect()
}

/// Formats a duration as upstream's messages do: milliseconds below one second.
fn format_duration(duration: std::time::Duration) -> String {
    if duration.as_secs() == 0 {
        format!("{}ms", duration.as_millis())
    } else {
        format!("{:.3}s", duration.as_secs_f64())
    }
}

fn read(image: v1::Image) -> PresentImage {
    PresentImage { reference: image.id, user: ImageUser { uid: image.uid.map(|uid| uid.value), name: image.username } }
}
