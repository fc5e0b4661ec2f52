//! Status writer of a pod: writes the newest status, retrying while the API server is unavailable.

use std::sync::Arc;
use std::time::Duration;

use apimachinery::meta::Meta;
use apimachinery::patch::strategic;
use apimachinery::{Key, Object, Value, value};
use client::backoff::Backoff;
use client::{Client, DeleteOptions, Error, Patch, Target, WriteOptions};
use controller::kinds;
use tokio::sync::watch;

use crate::status;

/// Delays between attempts.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), max: Duration::from_secs(30) };

/// A status to report.
#[derive(Clone, Debug)]
pub(super) struct Report {
    /// The pod as last observed.
    pub pod: Arc<Value>,
    pub status: Value,
    /// Whether the pod is deleted after this report.
    pub delete: bool,
}

impl Report {
    /// Whether the other report differs from this one.
    pub(super) fn is_older_than(&self, other: &Self) -> bool {
        let version = |report: &Self| Meta::of(&report.pod).resource_version().to_owned();
        status::has_changed(&self.status, &other.status) || version(self) != version(other)
    }
}

/// Writes reports until the sender is dropped.
pub(super) async fn write_all(client: Client, mut reports: watch::Receiver<Option<Report>>) {
    let mut waits = BACKOFF.waits();
    let mut written: Option<Value> = None;
    while reports.changed().await.is_ok() {
        loop {
            let Some(report) = reports.borrow_and_update().clone() else { break };
            match write(&client, &report, &mut written).await {
                Ok(()) => {
                    waits.reset();
                    break;
                }
                // The watch will deliver the deletion or the concurrent change.
                Err(error) if error.is_not_found() || error.is_conflict() => break,
                Err(error) => {
                    let pod = Key::of(&report.pod).to_string();
                    tracing::warn!(pod, error = %error, "failed to update the pod status");
                    tokio::select! {
                        () = tokio::time::sleep(waits.next_wait()) => {}
                        changed = reports.changed() => if changed.is_err() { return },
                    }
                }
            }
        }
    }
}

async fn write(client: &Client, report: &Report, written: &mut Option<Value>) -> Result<(), Error> {
    let revision = |pod: &Value| Meta::of(pod).resource_version().parse::<u64>().unwrap_or(0);
    // The watch may not have returned the last write yet.
    let known = written.as_ref().filter(|written| revision(written) >= revision(&report.pod)).unwrap_or(&report.pod);
    let target = Target::object(&kinds::PODS, &Key::of(known));
    if let Some(patch) = patch(known, &report.status) {
        let response = client.patch(&target.clone().subresource("status"), &patch, &WriteOptions::default()).await?;
        *written = Some(response);
    }
    if report.delete {
        let options = DeleteOptions { grace_seconds: Some(0), ..DeleteOptions::of(Meta::of(&report.pod).uid()) };
        client.delete(&target, &options).await?;
    }
    Ok(())
}

/// Returns the patch from the known to the desired status; `None` if they are equal.
fn patch(known: &Value, desired: &Value) -> Option<Patch> {
    if !status::has_changed(&known["status"], desired) {
        return None;
    }
    let schema = api::catalogue::schema(&kinds::PODS.group_version_kind())?;
    let with = |status: &Value| -> Object { [("status", status.clone())].into_iter().collect() };
    let mut patch = strategic::create_two_way(&with(&known["status"]), &with(desired), schema).ok()?;
    if patch.is_empty() {
        return None;
    }
    patch.insert("metadata", value!({"uid": (Meta::of(known).uid())}));
    Some(Patch::Strategic(Value::Object(patch)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patch_contains_only_changes_and_the_uid() {
        let pod = value!({"metadata": {"uid": "u"}, "status": {"phase": "Pending", "qosClass": "BestEffort",
            "conditions": [{"type": "Ready", "status": "False"}, {"type": "Other", "status": "True"}]}});
        let desired = value!({"phase": "Running", "qosClass": "BestEffort",
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "True"}]});
        let Some(Patch::Strategic(patch)) = patch(&pod, &desired) else { panic!("there is a patch") };
        assert_eq!(patch["metadata"], value!({"uid": "u"}));
        assert_eq!(patch["status"]["phase"], Value::from("Running"));
        assert_eq!(patch["status"]["conditions"], value!([{"type": "Ready", "status": "True"}]));
        assert!(super::patch(&pod, &pod["status"]).is_none());
    }
}
