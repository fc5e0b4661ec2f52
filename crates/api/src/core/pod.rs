//! Pod: a group of containers that are scheduled together.

pub mod binding;
mod columns;
mod prepare;
mod resize;
mod status;
mod update;

use std::sync::Arc;

use apimachinery::{At, Errors, Str, Value, names as rules};

use super::pod_spec::{self, Owner};
use crate::kind::{
    Connect, Context, Kind, Rules, Selectable, Subresource, SubresourceAction, UpdateChecks, Verb, names,
};
use crate::view;

pub fn kind() -> Kind {
    Kind {
        short_names: names(&["po"]),
        categories: names(&["all"]),
        subresources: subresources(),
        returns_deleted: true,
        selectable: selectable(),
        rules: Arc::new(Pod),
        update_checks: UpdateChecks { whole: 0, change: 0 },
        ..Kind::stored("", "v1", "Pod", "pods")
    }
    .with_columns(&columns::all())
}

#[derive(Debug)]
struct Pod;

impl Rules for Pod {
    fn default(&self, object: &mut Value, _version: &str) {
        prepare::default(object);
    }

    fn prepare_create(&self, object: &mut Value, context: &Context<'_>) {
        prepare::create(object, context.now);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        match context.subresource {
            "status" => status::prepare(object, old),
            "ephemeralcontainers" => prepare::ephemeral_containers(object, old),
            "resize" => resize::prepare(object, old),
            _ => prepare::update(object, old),
        }
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        validate(object, errors);
        let root = At::root(object);
        let spec = root.get("spec");
        let (added, node) = (spec.get("ephemeralContainers"), spec.get("nodeName"));
        if !added.is_empty() {
            errors.push(added.forbidden("cannot be set on create"));
        }
        if !node.is_empty() && !spec.get("schedulingGates").is_empty() {
            errors.push(node.forbidden("cannot be set until all schedulingGates have been cleared"));
        }
        let annotations = object.at(&["metadata", "annotations"]).unwrap_or(&Value::Null);
        pod_spec::agree(annotations, &spec, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        match context.subresource {
            "status" => status::validate(object, old, errors),
            "ephemeralcontainers" => update::validate_ephemeral_containers(object, old, errors),
            "resize" => resize::validate(object, old, errors),
            _ => update::validate(object, old, errors),
        }
    }

    fn warnings(&self, object: &Value, old: Option<&Value>, context: &Context<'_>) -> Vec<String> {
        match old {
            // As in upstream, an update of the pod itself returns no warnings: users rarely update pods directly.
            Some(_) if context.subresource == "status" => status::warnings(object),
            Some(_) => Vec::new(),
            None => created(object),
        }
    }

    fn grace_seconds(&self, object: &Value, requested: Option<i64>) -> Option<i64> {
        let own = || object.int_at(&["spec", "terminationGracePeriodSeconds"]);
        let pod = view::Pod(object);
        let runs = !pod.node_name().is_empty() && !pod.is_terminal();
        let period = if runs { requested.or_else(own).unwrap_or(0) } else { 0 };
        // A negative period becomes 1 second, the shortest graceful period.
        Some(if period < 0 { 1 } else { period })
    }
}

/// Validates a pod on create and update.
fn validate(object: &Value, errors: &mut Errors) {
    let root = At::root(object);
    let (metadata, spec) = (root.get("metadata"), root.get("spec"));
    let annotations = metadata.get("annotations");
    pod_spec::validate_annotations(annotations.value(), &spec, annotations.path(), errors);
    pod_spec::validate(&spec, Owner::Pod(metadata.value()), errors);
    pod_spec::validate_only_for_pod(&spec, errors);
}

fn created(object: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let wrong = rules::dns1123_label(object.text_at(&["metadata", "name"]));
    if !wrong.is_empty() {
        warnings.push(format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [{}]",
            wrong.join(" ")
        ));
    }
    warnings.extend(pod_spec::warnings(&At::root(object), Owner::Pod(&object["metadata"])));
    warnings
}

fn subresources() -> Vec<Subresource> {
    const STREAM: &[Verb] = &[Verb::Create, Verb::Get];
    const PROXY: &[Verb] = &[Verb::Create, Verb::Delete, Verb::Get, Verb::Patch, Verb::Update];
    vec![
        Subresource::connect("attach", "PodAttachOptions", STREAM, Connect::Attach),
        Subresource::action("binding", ("", "v1", "Binding"), SubresourceAction::Bind),
        Subresource::updatable("ephemeralcontainers"),
        Subresource::action("eviction", ("policy", "v1", "Eviction"), SubresourceAction::Evict),
        Subresource::connect("exec", "PodExecOptions", STREAM, Connect::Exec),
        Subresource::connect("log", "Pod", &[Verb::Get], Connect::Log),
        Subresource::connect("portforward", "PodPortForwardOptions", STREAM, Connect::PortForward),
        Subresource::connect("proxy", "PodProxyOptions", PROXY, Connect::Proxy),
        Subresource::updatable("resize"),
        Subresource::status(),
    ]
}

fn selectable() -> Vec<Selectable> {
    fn at(object: &Value, path: &[&str]) -> Str {
        object.text_at(path).into()
    }
    vec![
        Selectable::new("spec.nodeName", |pod| at(pod, &["spec", "nodeName"])),
        Selectable::new("spec.restartPolicy", |pod| at(pod, &["spec", "restartPolicy"])),
        Selectable::new("spec.schedulerName", |pod| at(pod, &["spec", "schedulerName"])),
        Selectable::new("spec.serviceAccountName", |pod| at(pod, &["spec", "serviceAccountName"])),
        Selectable::new("spec.hostNetwork", |pod| {
            let host = pod.at(&["spec", "hostNetwork"]).and_then(Value::as_bool).unwrap_or_default();
            host.to_string().into()
        }),
        Selectable::new("status.phase", |pod| at(pod, &["status", "phase"])),
        Selectable::new("status.podIP", |pod| columns::address(pod).into()),
        // The selector is accepted, but no pod has a value for it.
        Selectable::new("status.podIPs", |_| Str::default()),
        Selectable::new("status.nominatedNodeName", |pod| at(pod, &["status", "nominatedNodeName"])),
    ]
}

#[cfg(test)]
mod tests;
