//! Failed image pulls: reports them as ImagePullBackOff, and detects images that become present by other means.

use apimachinery::time::{Duration, Time};
use component_base::clock;
use controller::EventType;

use super::{Worker, earliest};
use crate::plan::Waiting;
use crate::pod::Pod;

/// Delay before ErrImagePull is reported as ImagePullBackOff.
const PULL_BACKOFF_DELAY: Duration = Duration::from_seconds(2);
/// Interval at which the runtime is queried for an image whose pull failed: it may be imported, or pulled for another
/// pod.
const IMAGE_POLL: Duration = Duration::from_seconds(5);

impl Worker {
    /// Ends the backoff of containers whose image is now present. Returns the time of the next query.
    pub(super) async fn notice_images(&mut self) -> Option<Time> {
        let waits = |waiting: &Waiting| ["ErrImagePull", "ImagePullBackOff"].contains(&waiting.reason.as_str());
        let pod = Pod(&self.pod);
        let missing = self.local.waiting.iter().filter(|(_, waiting)| waits(waiting)).filter_map(|(name, _)| {
            // With pull policy Always, a present image does not replace the pull.
            pod.container(name).filter(|container| container.spec.str_at(&["imagePullPolicy"]) != Some("Always"))
        });
        let missing: Vec<(String, String)> =
            missing.map(|container| (container.name().to_owned(), container.image().to_owned())).collect();
        if missing.is_empty() || self.local.ending.is_some() {
            self.images_polled_at = None;
            return None;
        }
        let now = clock::now();
        let due = *self.images_polled_at.get_or_insert(now.plus(IMAGE_POLL));
        if now < due {
            return Some(due);
        }
        for (name, image) in missing {
            if self.context.images.is_present(&image).await {
                self.local.waiting.remove(&name);
                self.image_failures.remove(&name);
            }
        }
        let next = now.plus(IMAGE_POLL);
        self.images_polled_at = Some(next);
        Some(next)
    }

    /// Changes ErrImagePull to ImagePullBackOff after a delay. Returns the time of the next change.
    pub(super) fn report_waiting_images(&mut self) -> Option<Time> {
        let now = clock::now();
        let mut wake_at = None;
        let due: Vec<(String, Time)> = self.image_failures.iter().map(|(name, at)| (name.clone(), *at)).collect();
        for (name, at) in due {
            if now < at.plus(PULL_BACKOFF_DELAY) {
                wake_at = earliest(wake_at, Some(at.plus(PULL_BACKOFF_DELAY)));
                continue;
            }
            self.image_failures.remove(&name);
            let Some(waiting) = self.local.waiting.get_mut(&name) else { continue };
            let Some(container) = Pod(&self.pod).container(&name) else { continue };
            let image = container.image();
            waiting.message = format!("Back-off pulling image \"{image}\": ErrImagePull: {}", waiting.message);
            waiting.reason = "ImagePullBackOff".to_owned();
            let events = self.context.event_sink(Pod(&self.pod));
            events.container(container, EventType::Normal, "BackOff", &format!("Back-off pulling image \"{image}\""));
            events.container(container, EventType::Warning, "Failed", "Error: ImagePullBackOff");
        }
        wake_at
    }
}
