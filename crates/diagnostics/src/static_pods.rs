//! Static pod manifests of the control plane components.

use apimachinery::{Value, value};

/// Priority of `system-node-critical`: without an API server, class names cannot be resolved.
const PRIORITY: i64 = 2_000_001_000;

/// A component that runs as a static pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// Name of the component and of its pod.
    pub name: String,
    /// The image with this project's binary.
    pub image: String,
    /// The executable and its flags.
    pub command: Vec<String>,
    /// Host paths that are mounted at the same path.
    pub mounts: Vec<Mount>,
    /// The liveness endpoint.
    pub alive: Alive,
    /// CPU request in millicores.
    pub cpu_milli: u32,
}

/// A host path mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub path: String,
    pub kind: MountKind,
}

/// Type and access of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountKind {
    /// A writable directory, created if absent.
    WritableDirectory,
    /// A read-only directory.
    Directory,
    /// A read-only file.
    File,
}

/// A liveness endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alive {
    /// `HTTP` or `HTTPS`.
    pub scheme: &'static str,
    /// The port on the loopback address.
    pub port: u16,
    pub path: &'static str,
}

/// Returns the pod of a component.
pub fn manifest(component: &Component) -> Value {
    let name = component.name.as_str();
    let volumes = component.mounts.iter().enumerate().map(|(number, mount)| {
        let kind = match mount.kind {
            MountKind::WritableDirectory => "DirectoryOrCreate",
            MountKind::Directory => "Directory",
            MountKind::File => "File",
        };
        value!({"name": (volume(number)), "hostPath": {"path": (mount.path.as_str()), "type": kind}})
    });
    let mounts = component.mounts.iter().enumerate().map(|(number, mount)| {
        let path = mount.path.as_str();
        value!({"name": (volume(number)), "mountPath": path, "readOnly": (mount.kind != MountKind::WritableDirectory)})
    });
    let command = component.command.iter().map(|word| Value::from(word.as_str())).collect();
    value!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "kube-system",
            "labels": {"component": name, "tier": "control-plane"},
        },
        "spec": {
            "hostNetwork": true,
            "priority": PRIORITY,
            "priorityClassName": "system-node-critical",
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": name,
                "image": (component.image.as_str()),
                "imagePullPolicy": "IfNotPresent",
                "command": (Value::Array(command)),
                "resources": {"requests": {"cpu": (format!("{}m", component.cpu_milli))}},
                // A store with a long log, or an API server that waits for its store, needs time to start.
                "startupProbe": (probe(&component.alive, 1, 120)),
                "livenessProbe": (probe(&component.alive, 10, 8)),
                "volumeMounts": (Value::Array(mounts.collect())),
            }],
            "volumes": (Value::Array(volumes.collect())),
        },
    })
}

fn probe(alive: &Alive, period_seconds: i64, failures: i64) -> Value {
    value!({
        "httpGet": {"host": "127.0.0.1", "port": (i64::from(alive.port)), "path": (alive.path), "scheme": (alive.scheme)},
        "periodSeconds": period_seconds,
        "failureThreshold": failures,
        "timeoutSeconds": 15,
    })
}

fn volume(number: usize) -> String {
    format!("v{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_paths_are_mounted_at_the_same_path_and_only_own_directories_are_writable() {
        let mount = |path: &str, kind| Mount { path: path.to_owned(), kind };
        let pod = manifest(&Component {
            name: "etcd".to_owned(),
            image: "knarr.local/knarr".to_owned(),
            command: vec!["/knarr".to_owned(), "etcd".to_owned()],
            mounts: vec![mount("/d/etcd", MountKind::WritableDirectory), mount("/d/pki", MountKind::Directory)],
            alive: Alive { scheme: "HTTP", port: 2381, path: "/health" },
            cpu_milli: 100,
        });
        assert_eq!(pod.str_at(&["metadata", "name"]), Some("etcd"));
        assert_eq!(pod.at(&["spec", "hostNetwork"]), Some(&Value::Bool(true)));
        let container = &pod.at(&["spec", "containers"]).and_then(Value::as_array).unwrap()[0];
        let mounts = container.get("volumeMounts").and_then(Value::as_array).unwrap();
        let seen: Vec<_> = mounts
            .iter()
            .map(|mount| (mount.str_at(&["mountPath"]).unwrap(), mount.get("readOnly").and_then(Value::as_bool)))
            .collect();
        assert_eq!(seen, [("/d/etcd", Some(false)), ("/d/pki", Some(true))]);
        let volumes = pod.at(&["spec", "volumes"]).and_then(Value::as_array).unwrap();
        assert_eq!(volumes[1].str_at(&["hostPath", "type"]), Some("Directory"));
        assert_eq!(container.int_at(&["livenessProbe", "httpGet", "port"]), Some(2381));
    }
}
