//! What people are told of a pod and its containers, as events.

use driver::events::Recorder;
use reconcile::{EventType, Regarding};

use crate::pod::{Container, Pod};

/// Tells of one pod.
#[derive(Clone)]
pub struct Teller {
    recorder: Recorder,
    regarding: Regarding,
}

impl Teller {
    /// Tells of a pod by a recorder.
    pub fn new(recorder: Recorder, pod: Pod<'_>) -> Self {
        let mut regarding = Regarding::object(pod.0);
        // Lists leave them out.
        regarding.api_version = "v1".into();
        regarding.kind = "Pod".into();
        Self { recorder, regarding }
    }

    /// Something happened to the pod.
    pub fn pod(&self, kind: EventType, reason: &str, message: &str) {
        self.recorder.record(&self.regarding, kind, reason, message);
    }

    /// Something happened to one of its containers.
    pub fn container(&self, container: Container<'_>, kind: EventType, reason: &str, message: &str) {
        let regarding = Regarding { field_path: container.field_path().into(), ..self.regarding.clone() };
        self.recorder.record(&regarding, kind, reason, message);
    }
}
