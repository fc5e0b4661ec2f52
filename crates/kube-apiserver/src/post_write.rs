//! Read-your-writes for kinds that this server itself processes, such as CRDs: a write waits until its effects are
//! visible.

use std::collections::BTreeMap;
use std::sync::RwLock;
use std::time::Duration;

use api::kind::Kind;
use mvcc::Revision;
use tokio::sync::watch;

use crate::storage_format;

/// Maximum time that a write waits for its effects. Slower effects become visible later.
const TIMEOUT: Duration = Duration::from_millis(100);

/// Progress of the tasks that process writes of a kind.
#[derive(Default)]
pub struct FollowerProgress(RwLock<BTreeMap<String, watch::Receiver<Revision>>>);

impl FollowerProgress {
    /// Registers a task that processes the writes of a kind. The task sends the revision up to which it is done.
    pub fn add(&self, kind: &Kind) -> watch::Sender<Revision> {
        let (sender, receiver) = watch::channel(0);
        self.0.write().expect("no holder panics").insert(storage_format::prefix(kind).to_owned(), receiver);
        sender
    }

    /// Waits until a registered task has processed the write. Returns immediately for other kinds.
    pub async fn follow_up(&self, kind: &Kind, revision: Revision) {
        let found = self.0.read().expect("no holder panics").get(storage_format::prefix(kind)).cloned();
        if let Some(mut reached) = found {
            // On a timeout or after the task exited the write is stored all the same.
            let _ = tokio::time::timeout(TIMEOUT, reached.wait_for(|reached| *reached >= revision)).await;
        }
    }
}
