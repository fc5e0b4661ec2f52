//! Debug containers and pods, made from options and the object to debug.

use apimachinery::meta::Meta;
use apimachinery::patch::strategic;
use apimachinery::{Object, Value, value};

use super::profile::{Keep, Profile, Style, find_container};
use crate::pods::find_container as has_container;

/// The options that describe a debug container.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DebugOptions {
    pub args: Vec<String>,
    pub args_only: bool,
    /// Empty for a generated name.
    pub container: String,
    pub copy_to: String,
    pub env: Vec<(String, String)>,
    pub image: String,
    pub pull_policy: String,
    pub stdin: bool,
    pub tty: bool,
    pub same_node: bool,
    pub set_images: Vec<(String, String)>,
    /// The value of `--share-processes`, if it was given.
    pub share_processes: Option<bool>,
    pub target: String,
    pub profile: Profile,
    pub keep: Keep,
    /// Fields of a container that are merged into the debug container.
    pub custom: Option<Object>,
}

/// A pod with its debug container.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DebugPod {
    pub pod: Value,
    /// The debug container; empty if only images are changed.
    pub container: String,
}

/// Returns the pod with an additional ephemeral container.
pub(super) fn ephemeral(pod: &Value, name: &str, options: &DebugOptions) -> Result<DebugPod, String> {
    let mut container = container(name, options);
    if !options.target.is_empty() {
        container.insert("targetContainerName", options.target.as_str());
    }
    let mut pod = pod.clone();
    push(&mut pod, "ephemeralContainers", container.into());
    options.profile.apply(&mut pod, name, Style::Ephemeral, options.keep);
    customize(&mut pod, "ephemeralContainers", name, options)?;
    Ok(DebugPod { pod, container: name.to_owned() })
}

/// Returns the patch that adds an ephemeral container to a pod.
pub(super) fn ephemeral_patch(generated: &Value, name: &str) -> Value {
    let containers = generated.at(&["spec", "ephemeralContainers"]).and_then(Value::as_array).unwrap_or_default();
    let named = |container: &Value| container.str_at(&["name"]).map(|name| value!({"name": name}));
    let order: Vec<Value> = containers.iter().filter_map(named).collect();
    let added: Vec<Value> =
        containers.iter().filter(|container| container.str_at(&["name"]) == Some(name)).cloned().collect();
    value!({"spec": {"$setElementOrder/ephemeralContainers": order, "ephemeralContainers": added}})
}

/// Returns a pod that runs on a node, with access to it.
pub(super) fn node_pod(node: &str, suffix: &str, options: &DebugOptions) -> Result<DebugPod, String> {
    let name = if options.container.is_empty() { "debugger" } else { options.container.as_str() };
    let pod_name = format!("node-debugger-{node}-{suffix}");
    let containers = vec![Value::from(container(name, options))];
    let mut pod = value!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": (pod_name.as_str()),
            "labels": {"app.kubernetes.io/managed-by": "kubectl-debug"},
        },
        "spec": {
            "containers": containers,
            "nodeName": node, "restartPolicy": "Never", "tolerations": [{"operator": "Exists"}],
        },
    });
    options.profile.apply(&mut pod, name, Style::Node, options.keep);
    customize(&mut pod, "containers", name, options)?;
    Ok(DebugPod { pod, container: name.to_owned() })
}

/// Returns a copy of a pod with a changed or an additional container. `new_name` makes the name of an additional one.
pub(super) fn copy(
    pod: &Value,
    options: &DebugOptions,
    new_name: impl FnOnce(&Value) -> String,
) -> Result<DebugPod, String> {
    let mut copied = start_copy(pod, options);
    let mut name = options.container.clone();
    if has_container(&copied, &name).is_none() {
        if options.image.is_empty() {
            if !options.set_images.is_empty() {
                return Ok(DebugPod { pod: copied, container: String::new() });
            }
            return Err("you must specify image when creating new container".to_owned());
        }
        if name.is_empty() {
            name = new_name(&copied);
        }
        push(&mut copied, "containers", value!({"name": (name.as_str()), "terminationMessagePolicy": "File"}));
    }
    if let Some(container) = find_container(&mut copied, &name) {
        change(container, options);
    }
    options.profile.apply(&mut copied, &name, Style::Copy, options.keep);
    customize(&mut copied, "containers", &name, options)?;
    Ok(DebugPod { pod: copied, container: name })
}

fn start_copy(pod: &Value, options: &DebugOptions) -> Value {
    let meta = Meta::of(pod);
    let mut metadata = Object::new();
    metadata.insert("name", options.copy_to.as_str());
    metadata.insert("namespace", meta.namespace());
    for field in ["annotations", "labels"] {
        if let Some(kept) = pod.at(&["metadata", field]) {
            metadata.insert(field, kept.clone());
        }
    }
    let mut spec = pod.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
    spec.remove("ephemeralContainers");
    if let Some(share) = options.share_processes {
        spec.insert("shareProcessNamespace", share);
    }
    if !options.same_node {
        spec.remove("nodeName");
    }
    let image_of = |name: &str| {
        let of = |name: &str| options.set_images.iter().find(|(have, _)| have == name).map(|(_, image)| image.as_str());
        of(name).or_else(|| of("*")).filter(|image| !image.is_empty())
    };
    let containers = spec.get_mut("containers").and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
        let name = container.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        if let Some(image) = image_of(&name) {
            container.insert("image", image);
        }
    }
    value!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

fn change(container: &mut Object, options: &DebugOptions) {
    if !options.args.is_empty() {
        set_args(container, options);
        if !options.args_only {
            container.remove("args");
        }
    }
    if !options.env.is_empty() {
        container.insert("env", env(options));
    }
    if !options.image.is_empty() {
        container.insert("image", options.image.as_str());
    }
    if !options.pull_policy.is_empty() {
        container.insert("imagePullPolicy", options.pull_policy.as_str());
    }
    set_switch(container, "stdin", options.stdin);
    set_switch(container, "tty", options.tty);
}

/// Returns a new container without a profile.
fn container(name: &str, options: &DebugOptions) -> Object {
    let mut container = Object::new();
    container.insert("name", name);
    container.insert("terminationMessagePolicy", "File");
    if !options.args.is_empty() {
        set_args(&mut container, options);
    }
    if !options.env.is_empty() {
        container.insert("env", env(options));
    }
    if !options.image.is_empty() {
        container.insert("image", options.image.as_str());
    }
    if !options.pull_policy.is_empty() {
        container.insert("imagePullPolicy", options.pull_policy.as_str());
    }
    set_switch(&mut container, "stdin", options.stdin);
    set_switch(&mut container, "tty", options.tty);
    container
}

fn set_args(container: &mut Object, options: &DebugOptions) {
    let args: Vec<Value> = options.args.iter().map(|arg| Value::from(arg.as_str())).collect();
    container.insert(if options.args_only { "args" } else { "command" }, args);
}

fn env(options: &DebugOptions) -> Vec<Value> {
    options.env.iter().map(|(name, value)| value!({"name": (name.as_str()), "value": (value.as_str())})).collect()
}

/// Sets a field that is omitted if it is false.
fn set_switch(container: &mut Object, field: &str, on: bool) {
    if on {
        container.insert(field, true);
    } else {
        container.remove(field);
    }
}

fn push(pod: &mut Value, field: &str, container: Value) {
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut)
        && let Some(list) = spec.get_or_insert_with(field, || Value::Array(Vec::new())).as_array_mut()
    {
        list.push(container);
    }
}

/// Merges the fields of `--custom` into the debug container.
fn customize(pod: &mut Value, field: &str, name: &str, options: &DebugOptions) -> Result<(), String> {
    let Some(custom) = &options.custom else { return Ok(()) };
    let Some(schema) = api::catalogue::find("v1", "Pod") else { return Ok(()) };
    let mut custom = custom.clone();
    custom.insert("name", name);
    let mut spec = Object::new();
    spec.insert(field, vec![Value::Object(custom)]);
    let mut patch = Object::new();
    patch.insert("spec", spec);
    let Value::Object(current) = pod.take() else { return Ok(()) };
    let merged = strategic::apply(current, patch, schema)
        .map_err(|error| format!("error creating three way patch to add debug container: {error}"))?;
    *pod = Value::Object(merged);
    Ok(())
}

/// Returns the warning if the pod's user cannot use the capabilities of the debug container.
pub(super) fn non_root_warning(pod: &Value, container: &str) -> Option<&'static str> {
    let of_pod = pod.at(&["spec", "securityContext", "runAsUser"]).and_then(Value::as_int)?;
    let container = has_container(pod, container)?;
    let context = container.spec.get("securityContext")?;
    let is_root = context.get("runAsUser").and_then(Value::as_int) == Some(0);
    let privileged = context.get("privileged").and_then(Value::as_bool).unwrap_or(false);
    let added = context.at(&["capabilities", "add"]).and_then(Value::as_array).unwrap_or_default();
    (of_pod != 0 && !is_root && (privileged || !added.is_empty())).then_some(
        "Warning: Non-root user is configured for the entire target Pod, and some capabilities granted by debug profile \
         may not work. Please consider using \"--custom\" with a custom profile that specifies \
         \"securityContext.runAsUser: 0\".",
    )
}

#[cfg(test)]
mod tests;
