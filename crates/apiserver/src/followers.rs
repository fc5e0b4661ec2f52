//! Kinds whose objects this server itself finishes: a client that reads after its write finds that done.

use std::collections::BTreeMap;
use std::sync::RwLock;
use std::time::Duration;

use api::kind::Kind;
use mvcc::Revision;
use tokio::sync::watch;

use crate::storage;

/// How long a write waits for what follows it. What takes longer is found later.
const PATIENCE: Duration = Duration::from_millis(100);

/// How far the tasks are that follow writes of a kind.
#[derive(Default)]
pub struct Followers(RwLock<BTreeMap<String, watch::Receiver<Revision>>>);

impl Followers {
    /// Says that a task follows the writes of a kind. It tells up to which revision it has done so.
    pub fn add(&self, kind: &Kind) -> watch::Sender<Revision> {
        let (sender, receiver) = watch::channel(0);
        self.0.write().expect("no holder panics").insert(storage::prefix(kind).to_owned(), receiver);
        sender
    }

    /// Waits until what follows a write is done, if anything does.
    pub async fn follow_up(&self, kind: &Kind, revision: Revision) {
        let found = self.0.read().expect("no holder panics").get(storage::prefix(kind)).cloned();
        if let Some(mut reached) = found {
            // Too late, or the task has ended with the server: what was written stands all the same.
            let _ = tokio::time::timeout(PATIENCE, reached.wait_for(|reached| *reached >= revision)).await;
        }
    }
}
