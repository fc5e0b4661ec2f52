//! The order of objects in the output.

use super::Error;
use super::resource::{Gvk, Resource, Set};

/// The field `sortOptions`.
#[derive(Clone, Debug, Default)]
pub(super) struct SortOptions {
    /// `legacy` or `fifo`.
    pub order: String,
    /// The kinds to put first and last.
    pub legacy: Option<(Vec<String>, Vec<String>)>,
}

const FIRST: &[&str] = &[
    "Namespace",
    "ResourceQuota",
    "StorageClass",
    "CustomResourceDefinition",
    "ServiceAccount",
    "PodSecurityPolicy",
    "Role",
    "ClusterRole",
    "RoleBinding",
    "ClusterRoleBinding",
    "ConfigMap",
    "Secret",
    "Endpoints",
    "Service",
    "LimitRange",
    "PriorityClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Deployment",
    "StatefulSet",
    "CronJob",
    "PodDisruptionBudget",
];
const LAST: &[&str] = &["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// Sorts by the kustomization's options; without options by kind, namespace and name.
pub(super) fn sort(set: &mut Set, options: Option<&SortOptions>) -> Result<(), Error> {
    let owned = |kinds: &[&str]| kinds.iter().map(|kind| (*kind).to_owned()).collect::<Vec<String>>();
    let defaults = || (owned(FIRST), owned(LAST));
    let (first, last) = match options {
        None => defaults(),
        Some(SortOptions { order, legacy }) if order == "legacy" => legacy.clone().unwrap_or_else(defaults),
        Some(SortOptions { order, legacy: None }) if order == "fifo" => return Ok(()),
        Some(SortOptions { order, .. }) if order == "fifo" => {
            return Err(Error::new(
                "the field 'sortOptions.legacySortOptions' is set but the selected sort order is 'fifo', not 'legacy'",
            ));
        }
        Some(_) => return Err(Error::new("the field 'sortOptions.order' must be one of [fifo, legacy]")),
    };
    let rank = |gvk: &Gvk| {
        if let Some(at) = last.iter().position(|kind| *kind == gvk.kind) {
            return 1 + at as i64;
        }
        first.iter().position(|kind| *kind == gvk.kind).map_or(0, |at| at as i64 - first.len() as i64)
    };
    set.resources.sort_by_cached_key(|resource| key(resource, rank(&resource.gvk())));
    Ok(())
}

fn key(resource: &Resource, rank: i64) -> (i64, String, String, String) {
    let or = |text: &str, none: &str| if text.is_empty() { none.to_owned() } else { text.to_owned() };
    let Gvk { group, version, kind } = resource.gvk();
    let gvk = format!("{}_{}_{}", or(&group, "~G"), or(&version, "~V"), or(&kind, "~K"));
    (rank, gvk, or(resource.namespace(), "~X"), or(resource.name(), "~N"))
}
