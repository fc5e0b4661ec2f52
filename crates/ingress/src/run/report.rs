//! Writes statuses and records Events, apart from the loop that replaces the routing table.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use apimachinery::meta::Meta;
use apimachinery::{Key, Str, Value, value};
use client::cache::ChangeQueue;
use client::{Client, Patch, Target, WriteOptions};
use component_base::election::{self, Election};
use component_base::events::Recorder;
use controller::{EventType, Regarding};
use tokio::sync::watch;

use crate::acme::Issuer;
use crate::kinds::Kind;
use crate::plan::{Finding, StatusWrite};

/// Maximum Events that are remembered, so that they are recorded once.
pub(super) const RECORDED_MAX: usize = 1000;
/// Interval between attempts after a status could not be written.
const RETRY: Duration = Duration::from_secs(2);
/// Time until a status is planned again after the object changed in between.
const CONFLICT_RETRY: Duration = Duration::from_millis(200);
/// Name of the controller in Events.
const NAME: &str = "knarr-ingress";

/// Statuses and Events of the last plan.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub statuses: Vec<StatusWrite>,
    pub events: Vec<Finding>,
}

/// Statuses and Events that this instance has written.
#[derive(Default)]
struct WrittenReports {
    /// The version of each object after its status was written. An older observation is not written again.
    written: BTreeMap<Str, u64>,
    /// UID, reason and message of the Events of the last report.
    recorded: BTreeSet<(Str, &'static str, String)>,
}

/// Failures of one report.
#[derive(Clone, Copy, Default)]
struct Failures {
    /// A status was not written for another reason than a conflict.
    failed: bool,
    /// An object changed after it was observed.
    conflict: bool,
}

/// Sends reports and obtains certificates as long as this instance leads. Without an election it always leads. `replan`
/// is notified if a status must be planned again.
pub(super) async fn send(
    client: Client,
    election: Option<election::Settings>,
    reports: watch::Receiver<Arc<Report>>,
    replan: ChangeQueue,
    issuer: Option<Issuer>,
) {
    let (recorder, sending) = Recorder::new(client.clone(), NAME);
    let working = async |reports| {
        let issuing = async {
            if let Some(issuer) = issuer.clone() {
                issuer.run().await;
            }
        };
        tokio::join!(follow(&client, &recorder, reports, &replan), issuing);
    };
    let reporting = async {
        match election {
            None => working(reports).await,
            Some(settings) => loop {
                let election = Election::new(client.clone(), settings.clone());
                // A lost lease makes this instance a candidate again; the proxy is not affected.
                election.lead(|| working(reports.clone()), std::future::pending::<()>()).await;
            },
        }
    };
    tokio::select! {
        () = reporting => {}
        () = sending => {}
    }
}

/// Returns when the controller stops.
async fn follow(client: &Client, recorder: &Recorder, mut reports: watch::Receiver<Arc<Report>>, replan: &ChangeQueue) {
    let mut reported = WrittenReports::default();
    loop {
        let report = Arc::clone(&reports.borrow_and_update());
        reported.record(recorder, &report.events);
        let failures = reported.write(client, &report.statuses).await;
        let retry = async {
            match failures {
                Failures { conflict: true, .. } => {
                    tokio::time::sleep(CONFLICT_RETRY).await;
                    replan.add([Key::default()]);
                    std::future::pending::<()>().await;
                }
                Failures { failed: true, .. } => tokio::time::sleep(RETRY).await,
                Failures { .. } => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = reports.changed() => if changed.is_err() { return },
            () = retry => {}
        }
    }
}

impl WrittenReports {
    /// Records the Events that the last report did not have.
    fn record(&mut self, recorder: &Recorder, events: &[Finding]) {
        let mut current = BTreeSet::new();
        for event in events.iter().take(RECORDED_MAX) {
            let subject = &event.subject;
            let known = (subject.uid.clone(), event.reason, event.message.clone());
            if !self.recorded.contains(&known) && !current.contains(&known) {
                let resource = subject.kind.resource();
                let regarding = Regarding {
                    api_version: resource.group_version().to_string().into(),
                    kind: resource.kind.clone(),
                    key: subject.key.clone(),
                    uid: subject.uid.clone(),
                    resource_version: subject.revision.to_string().into(),
                    field_path: Str::default(),
                };
                recorder.record(&regarding, EventType::Warning, event.reason, &event.message);
            }
            current.insert(known);
        }
        self.recorded = current;
    }

    /// Writes the statuses.
    async fn write(&mut self, client: &Client, statuses: &[StatusWrite]) -> Failures {
        let mut failures = Failures::default();
        for status in statuses {
            let subject = &status.subject;
            if self.written.get(&subject.uid).is_some_and(|written| subject.revision < *written) {
                continue;
            }
            let mut patch = value!({
                "metadata": {"uid": (subject.uid.as_str())},
                "status": (status.status.clone()),
            });
            // Other controllers write to the same lists of these statuses.
            if subject.kind != Kind::Ingress
                && let Some(metadata) = patch.get_mut("metadata").and_then(Value::as_object_mut)
            {
                metadata.insert("resourceVersion", subject.revision.to_string());
            }
            let resource = subject.kind.resource();
            let target = Target::object(resource, &subject.key).subresource("status");
            match client.patch(&target, &Patch::Merge(patch), &WriteOptions::default()).await {
                Ok(object) => {
                    let revision = Meta::of(&object).resource_version().parse().unwrap_or(0);
                    self.written.insert(subject.uid.clone(), revision);
                }
                // The object was deleted.
                Err(error) if error.is_not_found() => {}
                // The object changed, or was replaced by another one of the same name.
                Err(error) if error.is_conflict() => failures.conflict |= subject.kind != Kind::Ingress,
                Err(error) => {
                    let kind = &resource.kind;
                    tracing::warn!(%kind, key = %subject.key, %error, "failed to write the status; retrying");
                    failures.failed = true;
                }
            }
        }
        // Written statuses disappear from the report once they are observed.
        self.written.retain(|uid, _| statuses.iter().any(|status| status.subject.uid == *uid));
        failures
    }
}
