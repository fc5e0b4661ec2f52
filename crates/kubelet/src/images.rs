//! Images: there before a container is made, pulled as its policy says and with the secrets of its pod.

mod credentials;

use std::time::Instant;

use cri::v1;
use machinery::Value;
use reconcile::EventType;
use tokio::sync::Semaphore;

use crate::runtime::Runtime;
use crate::security::ImageUser;

/// Pulls images, so many at a time.
pub struct Images {
    runtime: Runtime,
    pulls: Semaphore,
}

/// An image that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The runtime's name for it.
    pub reference: String,
    /// Whom it wants to run as.
    pub user: ImageUser,
}

/// Why an image is not there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// It is not here and must not be pulled.
    #[error("Container image \"{0}\" is not present with pull policy of Never")]
    NeverPull(String),
    /// It could not be pulled.
    #[error("{0}")]
    Pull(String),
    /// Its name is none.
    #[error("Failed to apply default image tag \"{image}\": {problem}")]
    Name {
        /// The name.
        image: String,
        /// What is wrong.
        problem: String,
    },
    /// The runtime could not say.
    #[error("Failed to inspect image \"{image}\": {problem}")]
    Inspect {
        /// Which one.
        image: String,
        /// What is wrong.
        problem: String,
    },
}

impl ImageError {
    /// The word for machines.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NeverPull(_) => "ErrImageNeverPull",
            Self::Pull(_) => "ErrImagePull",
            Self::Name { .. } => "InvalidImageName",
            Self::Inspect { .. } => "ImageInspectError",
        }
    }
}

impl Images {
    /// Images of a runtime.
    pub fn new(runtime: Runtime, parallel: usize) -> Self {
        Self { runtime, pulls: Semaphore::new(parallel.clamp(1, Semaphore::MAX_PERMITS)) }
    }

    /// Has an image be there; tells what it does by `tell`.
    pub async fn ensure(
        &self,
        image: &str,
        policy: &str,
        secrets: &[Value],
        tell: impl Fn(EventType, &str, &str),
    ) -> Result<Found, ImageError> {
        let present = self.find(image).await?;
        let pull = match policy {
            "Always" => true,
            "Never" => false,
            _ => present.is_none(),
        };
        match present {
            Some(found) if !pull => {
                let message =
                    format!("Container image \"{image}\" already present on machine and can be accessed by the pod");
                tell(EventType::Normal, "Pulled", &message);
                Ok(found)
            }
            None if !pull => {
                let error = ImageError::NeverPull(image.to_owned());
                tell(EventType::Warning, "ErrImageNeverPull", &error.to_string());
                Err(error)
            }
            _ => self.pull(image, secrets, tell).await,
        }
    }

    async fn pull(
        &self,
        image: &str,
        secrets: &[Value],
        tell: impl Fn(EventType, &str, &str),
    ) -> Result<Found, ImageError> {
        tell(EventType::Normal, "Pulling", &format!("Pulling image \"{image}\""));
        let asked = Instant::now();
        let _turn = self.pulls.acquire().await.expect("the semaphore is never closed");
        let begun = Instant::now();
        let mut attempts: Vec<Option<v1::AuthConfig>> = credentials::of(secrets, image).into_iter().map(Some).collect();
        // Without credentials that fit, and after those that do not.
        attempts.push(None);
        let mut failure = String::new();
        for auth in attempts {
            let spec = v1::ImageSpec { image: image.to_owned(), ..Default::default() };
            let request = v1::PullImageRequest { image: Some(spec), auth, sandbox_config: None };
            match self.runtime.images.clone().pull_image(request).await {
                Ok(_) => {
                    failure.clear();
                    break;
                }
                Err(status) if status.code() == tonic::Code::InvalidArgument => {
                    return Err(ImageError::Name { image: image.to_owned(), problem: status.message().to_owned() });
                }
                Err(status) => failure = status.message().to_owned(),
            }
        }
        if !failure.is_empty() {
            tell(EventType::Warning, "Failed", &format!("Failed to pull image \"{image}\": {failure}"));
            return Err(ImageError::Pull(failure));
        }
        let pulled = self.status(image).await?;
        let Some(status) = pulled else {
            return Err(ImageError::Pull(format!("image \"{image}\" was pulled and is gone")));
        };
        let (took, waited) = (shown(begun.elapsed()), shown(asked.elapsed()));
        let message = format!(
            "Successfully pulled image \"{image}\" in {took} ({waited} including waiting). Image size: {} bytes.",
            status.size
        );
        tell(EventType::Normal, "Pulled", &message);
        Ok(read(status))
    }

    async fn find(&self, image: &str) -> Result<Option<Found>, ImageError> {
        Ok(self.status(image).await?.map(read))
    }

    async fn status(&self, image: &str) -> Result<Option<v1::Image>, ImageError> {
        let spec = v1::ImageSpec { image: image.to_owned(), ..Default::default() };
        let request = v1::ImageStatusRequest { image: Some(spec), verbose: false };
        match self.runtime.images.clone().image_status(request).await {
            Ok(answer) => Ok(answer.into_inner().image),
            Err(status) if status.code() == tonic::Code::InvalidArgument => {
                Err(ImageError::Name { image: image.to_owned(), problem: status.message().to_owned() })
            }
            Err(status) => Err(ImageError::Inspect { image: image.to_owned(), problem: status.message().to_owned() }),
        }
    }
}

/// A duration as upstream's messages have it: milliseconds below a second.
fn shown(duration: std::time::Duration) -> String {
    if duration.as_secs() == 0 {
        format!("{}ms", duration.as_millis())
    } else {
        format!("{:.3}s", duration.as_secs_f64())
    }
}

fn read(image: v1::Image) -> Found {
    Found { reference: image.id, user: ImageUser { uid: image.uid.map(|uid| uid.value), name: image.username } }
}
