//! The state that all controllers of a process share.

use std::sync::Arc;

use client::Client;
use component_base::events::Recorder;

use crate::caches::Caches;

/// The shared state of all controllers of a process.
pub struct Driver {
    /// The client for writes.
    pub client: Client,
    pub caches: Arc<Caches>,
    pub events: Recorder,
    /// The field manager of writes.
    pub manager: String,
}
