//! Selection of the pods that a drain removes, and of those that prevent it.

use apimachinery::Value;
use apimachinery::meta::Meta;
use apimachinery::time::Time;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    pub force: bool,
    pub ignore_daemon_sets: bool,
    pub delete_empty_dir_data: bool,
    /// Pods that have been deleted for longer are not waited for; zero for none.
    pub skip_deleted_seconds: i64,
}

/// The decision about a pod.
#[derive(Clone, Debug)]
pub(super) struct Decision {
    pub pod: Value,
    pub delete: bool,
    pub note: Note,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Note {
    None,
    Warning(String),
    /// The node cannot be drained.
    Error(String),
}

/// The DaemonSet of a pod could not be read.
#[derive(Clone, Debug)]
pub(super) struct Missing {
    pub not_found: bool,
    pub message: String,
}

const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// Decides about a pod. `missing` is the reason that the DaemonSet of the pod could not be read, if it has one.
pub(super) fn decide(pod: Value, missing: Option<Missing>, options: Options, now: Time) -> Decision {
    let keep = |note| (false, note);
    let fail = |message: &str| keep(Note::Error(message.to_owned()));
    let is_managed = Meta::of(&pod).controller().is_some();
    let is_daemon = daemon_set(&pod).is_some() && !is_finished(&pod);
    let stores = has_local_storage(&pod) && !is_finished(&pod);
    let is_orphan = missing.as_ref().is_some_and(|missing| missing.not_found && options.force);
    let (delete, note) = if is_deleted_for_long(&pod, options.skip_deleted_seconds, now) {
        keep(Note::None)
    } else if is_daemon && !is_orphan && missing.is_some() {
        fail(&missing.map(|missing| missing.message).unwrap_or_default())
    } else if is_daemon && !is_orphan && !options.ignore_daemon_sets {
        fail("DaemonSet-managed Pods (use --ignore-daemonsets to ignore)")
    } else if is_daemon && !is_orphan {
        keep(Note::Warning("ignoring DaemonSet-managed Pods".to_owned()))
    } else if Meta::of(&pod).annotation(MIRROR_ANNOTATION).is_some() {
        keep(Note::None)
    } else if stores && !options.delete_empty_dir_data {
        fail("Pods with local storage (use --delete-emptydir-data to override)")
    } else if is_finished(&pod) || is_managed {
        // As in kubectl, only the warning of the last check is printed, and this check has no warning.
        (true, Note::None)
    } else if options.force {
        (true, Note::Warning("deleting Pods that declare no controller".to_owned()))
    } else {
        fail("Pods that declare no controller (use --force to override)")
    };
    Decision { pod, delete, note }
}

/// Returns the namespace and name of the DaemonSet that controls a pod.
pub(super) fn daemon_set(pod: &Value) -> Option<(String, String)> {
    let owner = Meta::of(pod).controller()?;
    let is_daemon_set = owner.kind() == "DaemonSet" && owner.api_version() == "apps/v1";
    is_daemon_set.then(|| (Meta::of(pod).namespace().to_owned(), owner.name().to_owned()))
}

/// Whether a pod was deleted more than `seconds` ago; never if `seconds` is zero.
pub(super) fn is_deleted_for_long(pod: &Value, seconds: i64, now: Time) -> bool {
    let deleted = Meta::of(pod).deletion_timestamp();
    seconds > 0 && deleted.is_some_and(|deleted| now.since(deleted).whole_seconds() > seconds)
}

/// Returns the warnings in one line.
pub(super) fn warnings(decisions: &[Decision]) -> String {
    let warning = |note: &Note| if let Note::Warning(text) = note { Some(text.clone()) } else { None };
    grouped(decisions, warning).into_iter().map(|(text, pods)| format!("{text}: {pods}")).collect::<Vec<_>>().join("; ")
}

/// Returns an error for each reason that prevents the drain of the node.
pub(super) fn errors(decisions: &[Decision]) -> Vec<String> {
    let error = |note: &Note| if let Note::Error(text) = note { Some(text.clone()) } else { None };
    grouped(decisions, error).into_iter().map(|(text, pods)| format!("cannot delete {text}: {pods}")).collect()
}

/// Returns `namespace/name`.
pub(super) fn name(pod: &Value) -> String {
    format!("{}/{}", Meta::of(pod).namespace(), Meta::of(pod).name())
}

/// Groups the names of pods by note, in the order of the first pod.
fn grouped(decisions: &[Decision], note: impl Fn(&Note) -> Option<String>) -> Vec<(String, String)> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for decision in decisions {
        let Some(text) = note(&decision.note) else { continue };
        match groups.iter_mut().find(|(have, _)| *have == text) {
            Some((_, pods)) => pods.push(name(&decision.pod)),
            None => groups.push((text, vec![name(&decision.pod)])),
        }
    }
    groups.into_iter().map(|(text, pods)| (text, pods.join(", "))).collect()
}

fn is_finished(pod: &Value) -> bool {
    matches!(pod.str_at(&["status", "phase"]), Some("Succeeded" | "Failed"))
}

fn has_local_storage(pod: &Value) -> bool {
    let volumes = pod.at(&["spec", "volumes"]).and_then(Value::as_array).unwrap_or_default();
    volumes.iter().any(|volume| volume.get("emptyDir").is_some_and(|it| !it.is_null()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use apimachinery::value;

    fn pod(owner: &str, phase: &str, volumes: Value) -> Value {
        let owners = match owner {
            "" => Value::Array(Vec::new()),
            kind => value!([{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "u", "controller": true}]),
        };
        value!({
            "metadata": {"namespace": "n", "name": "p", "ownerReferences": owners},
            "spec": {"volumes": volumes},
            "status": {"phase": phase},
        })
    }

    fn check(pod: Value, options: Options, (delete, note): (bool, Note)) {
        let decision = decide(pod, None, options, Time::from_unix(0, 0));
        assert_eq!((decision.delete, decision.note), (delete, note));
    }

    #[test]
    fn pods_without_controller_are_removed_by_force_only() {
        let none = || Value::Array(Vec::new());
        let error = "Pods that declare no controller (use --force to override)";
        check(pod("", "Running", none()), Options::default(), (false, Note::Error(error.into())));
        let forced = Options { force: true, ..Options::default() };
        let warning = "deleting Pods that declare no controller";
        check(pod("", "Running", none()), forced, (true, Note::Warning(warning.into())));
        check(pod("", "Succeeded", none()), Options::default(), (true, Note::None));
        check(pod("ReplicaSet", "Running", none()), Options::default(), (true, Note::None));
    }

    #[test]
    fn pods_of_daemon_sets_are_never_removed() {
        let none = || Value::Array(Vec::new());
        let error = "DaemonSet-managed Pods (use --ignore-daemonsets to ignore)";
        check(pod("DaemonSet", "Running", none()), Options::default(), (false, Note::Error(error.into())));
        let ignored = Options { ignore_daemon_sets: true, ..Options::default() };
        let warning = "ignoring DaemonSet-managed Pods";
        check(pod("DaemonSet", "Running", none()), ignored, (false, Note::Warning(warning.into())));
        check(pod("DaemonSet", "Failed", none()), Options::default(), (true, Note::None));
    }

    #[test]
    fn pods_with_local_storage_are_removed_if_their_data_may_be() {
        let volumes = || value!([{"name": "v", "emptyDir": {}}]);
        let error = "Pods with local storage (use --delete-emptydir-data to override)";
        check(pod("ReplicaSet", "Running", volumes()), Options::default(), (false, Note::Error(error.into())));
        let allowed = Options { delete_empty_dir_data: true, ..Options::default() };
        check(pod("ReplicaSet", "Running", volumes()), allowed, (true, Note::None));
    }

    #[test]
    fn notes_are_grouped_by_text() {
        let decision = |name: &str, note: Note| Decision {
            pod: value!({"metadata": {"namespace": "n", "name": name}}),
            delete: false,
            note,
        };
        let error = |text: &str| Note::Error(text.to_owned());
        let decisions = [decision("a", error("x")), decision("b", error("y")), decision("c", error("x"))];
        assert_eq!(errors(&decisions), ["cannot delete x: n/a, n/c", "cannot delete y: n/b"]);
    }
}
