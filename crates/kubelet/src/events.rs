//! Events of a pod and its containers.

use component_base::events::Recorder;
use controller::{EventType, Regarding};

use crate::pod::{Container, Pod};

/// Event recorder of one pod.
#[derive(Clone)]
pub struct EventSink {
    recorder: Recorder,
    regarding: Regarding,
}

impl EventSink {
    /// Creates an event recorder for a pod.
    pub fn new(recorder: Recorder, pod: Pod<'_>) -> Self {
        let mut regarding = Regarding::object(pod.0);
        // Items of lists lack apiVersion and kind.
        regarding.api_version = "v1".into();
        regarding.kind = "Pod".into();
        Self { recorder, regarding }
    }

    /// Records an event of the pod.
    pub fn pod(&self, kind: EventType, reason: &str, message: &str) {
        self.recorder.record(&self.regarding, kind, reason, message);
    }

    /// Records an event of a container.
    pub fn container(&self, container: Container<'_>, kind: EventType, reason: &str, message: &str) {
        let regarding = Regarding { field_path: container.field_path().into(), ..self.regarding.clone() };
        self.recorder.record(&regarding, kind, reason, message);
    }
}
