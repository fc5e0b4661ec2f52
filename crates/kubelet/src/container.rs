//! CRI ContainerConfig of a container.

use std::collections::HashMap;

use apimachinery::{Value, json};
use node_api::cri::v1;

use crate::environment::expand;
use crate::pod::{Container, Pod};
use crate::runtime_status::labels;

/// The parts of a ContainerConfig that do not come from the pod's spec.
pub struct Inputs {
    /// Number of previous containers with this name in the pod.
    pub attempt: u32,
    /// The image reference of the runtime.
    pub image_ref: String,
    pub environment: Vec<(String, String)>,
    pub mounts: Vec<v1::Mount>,
    pub security: v1::LinuxContainerSecurityContext,
    pub resources: v1::LinuxContainerResources,
}

/// Builds the ContainerConfig of a container.
pub fn config(pod: Pod<'_>, container: Container<'_>, inputs: Inputs) -> v1::ContainerConfig {
    let spec = container.spec;
    let variables: HashMap<&str, &str> =
        inputs.environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let known = |name: &str| variables.get(name).map(|value| (*value).to_owned());
    let strings = |field: &str| {
        let list = spec[field].as_array().unwrap_or_default();
        list.iter().filter_map(Value::as_str).map(|word| expand(word, known)).collect::<Vec<_>>()
    };
    let flag = |field: &str| spec[field].as_bool().unwrap_or(false);
    let (command, args) = (strings("command"), strings("args"));
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: container.name().to_owned(), attempt: inputs.attempt }),
        image: Some(v1::ImageSpec {
            image: inputs.image_ref,
            user_specified_image: container.image().to_owned(),
            ..Default::default()
        }),
        command,
        args,
        working_dir: spec.str_at(&["workingDir"]).unwrap_or_default().to_owned(),
        envs: inputs
            .environment
            .iter()
            .map(|(key, value)| v1::KeyValue { key: key.clone(), value: value.clone().into_bytes() })
            .collect(),
        mounts: inputs.mounts,
        labels: container_labels(pod, container),
        annotations: annotations(pod, container, inputs.attempt),
        log_path: format!("{}/{}.log", container.name(), inputs.attempt),
        stdin: flag("stdin"),
        stdin_once: flag("stdinOnce"),
        tty: flag("tty"),
        linux: Some(v1::LinuxContainerConfig {
            resources: Some(inputs.resources),
            security_context: Some(inputs.security),
        }),
        stop_signal: stop_signal(container).into(),
        ..Default::default()
    }
}

/// Adds the devices, mounts and environment variables of device plugins; values of the pod take precedence.
pub fn add_devices(config: &mut v1::ContainerConfig, needs: Vec<node_api::devices::ContainerAllocateResponse>) {
    for need in needs {
        let is_set = |name: &String| config.envs.iter().any(|known| known.key == *name);
        let envs: Vec<v1::KeyValue> = need
            .envs
            .into_iter()
            .filter(|(name, _)| !is_set(name))
            .map(|(key, value)| v1::KeyValue { key, value: value.into_bytes() })
            .collect();
        config.envs.extend(envs);
        config.mounts.extend(need.mounts.into_iter().map(|mount| v1::Mount {
            container_path: mount.container_path,
            host_path: mount.host_path,
            readonly: mount.read_only,
            ..Default::default()
        }));
        config.devices.extend(need.devices.into_iter().map(|device| v1::Device {
            container_path: device.container_path,
            host_path: device.host_path,
            permissions: device.permissions,
        }));
        config.annotations.extend(need.annotations);
        config.cdi_devices.extend(need.cdi_devices.into_iter().map(|device| v1::CdiDevice { name: device.name }));
    }
}

/// Returns a hash that changes when the container must be re-created. As upstream, only the image of a running container
/// can change.
pub fn hash(container: Container<'_>) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in container.name().bytes().chain([0]).chain(container.image().bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
    format!("{hash:x}")
}

fn container_labels(pod: Pod<'_>, container: Container<'_>) -> HashMap<String, String> {
    [
        (labels::POD_NAME, pod.name()),
        (labels::POD_NAMESPACE, pod.namespace()),
        (labels::POD_UID, pod.uid()),
        (labels::CONTAINER_NAME, container.name()),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

/// Returns annotations that store settings of the pod in the runtime, for a kubelet that no longer knows the pod.
fn annotations(pod: Pod<'_>, container: Container<'_>, attempt: u32) -> HashMap<String, String> {
    let text = |field: &str| container.spec.str_at(&[field]).unwrap_or_default().to_owned();
    let pre_stop = &container.spec["lifecycle"]["preStop"];
    let as_json = |key, value: &Value| (!value.is_null()).then(|| (key, json::to_string(value)));
    let optional = [as_json(labels::PRE_STOP, pre_stop), as_json(labels::PORTS, &container.spec["ports"])];
    [
        (labels::CONTAINER_HASH, hash(container)),
        (labels::RESTART_COUNT, attempt.to_string()),
        (labels::TERMINATION_PATH, text("terminationMessagePath")),
        (labels::TERMINATION_POLICY, text("terminationMessagePolicy")),
        (labels::GRACE, pod.grace_seconds().to_string()),
    ]
    .into_iter()
    .chain(optional.into_iter().flatten())
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}

fn stop_signal(container: Container<'_>) -> v1::Signal {
    let name = container.spec["lifecycle"].str_at(&["stopSignal"]).unwrap_or_default();
    v1::Signal::from_str_name(&name.replace('+', "PLUS").replace('-', "MINUS")).unwrap_or(v1::Signal::RuntimeDefault)
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;
    use crate::pod::Role;

    #[test]
    fn command_and_args_expand_environment_variables() {
        let pod = value!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {}});
        let spec = value!({"name": "c", "image": "i", "command": ["echo", "$(A)"], "args": ["$$(A)", "$(B)"],
            "lifecycle": {"stopSignal": "SIGUSR1", "preStop": {"sleep": {"seconds": 1}}}});
        let inputs = Inputs {
            attempt: 2,
            image_ref: "sha256:1".into(),
            environment: vec![("A".into(), "x".into())],
            mounts: Vec::new(),
            security: v1::LinuxContainerSecurityContext::default(),
            resources: v1::LinuxContainerResources::default(),
        };
        let config = config(Pod(&pod), Container { spec: &spec, role: Role::App }, inputs);
        assert_eq!((config.command.join(" "), config.args.join(" ")), ("echo x".into(), "$(A) $(B)".into()));
        assert_eq!(config.log_path, "c/2.log");
        assert_eq!(config.stop_signal(), v1::Signal::Sigusr1);
        assert_eq!(config.annotations[labels::PRE_STOP], r#"{"sleep":{"seconds":1}}"#);
        assert!(!config.annotations.contains_key(labels::PORTS));
    }
}
