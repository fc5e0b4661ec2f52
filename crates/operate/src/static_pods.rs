//! The control plane as static pods: a manifest for each component, as a kubelet reads it.

use machinery::{Value, value};

/// What `system-node-critical` stands for: nobody resolves the name of a class before there is an API server.
const PRIORITY: i64 = 2_000_001_000;

/// A component that is to run as a static pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// Its name, which is the pod's as well.
    pub name: String,
    /// The image; its program is the one of this project.
    pub image: String,
    /// The program and its flags.
    pub command: Vec<String>,
    /// Folders and files of the machine that it sees at the same path.
    pub mounts: Vec<Mount>,
    /// Where it says that it is alive.
    pub alive: Alive,
    /// The share of a processor that it is promised, in thousandths.
    pub cpu_milli: u32,
}

/// Something of the machine that a component sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where it is.
    pub path: String,
    /// What it is.
    pub kind: MountKind,
}

/// What is mounted, and whether it may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountKind {
    /// A folder that is written to, made if it is absent.
    OwnFolder,
    /// A folder that is only read.
    Folder,
    /// A file that is only read.
    File,
}

/// A question to which a living component answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alive {
    /// `HTTP` or `HTTPS`.
    pub scheme: &'static str,
    /// The port, on the loopback address.
    pub port: u16,
    /// The path.
    pub path: &'static str,
}

/// The pod of a component.
pub fn manifest(component: &Component) -> Value {
    let name = component.name.as_str();
    let volumes = component.mounts.iter().enumerate().map(|(number, mount)| {
        let kind = match mount.kind {
            MountKind::OwnFolder => "DirectoryOrCreate",
            MountKind::Folder => "Directory",
            MountKind::File => "File",
        };
        value!({"name": (volume(number)), "hostPath": {"path": (mount.path.as_str()), "type": kind}})
    });
    let mounts = component.mounts.iter().enumerate().map(|(number, mount)| {
        let path = mount.path.as_str();
        value!({"name": (volume(number)), "mountPath": path, "readOnly": (mount.kind != MountKind::OwnFolder)})
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
                // A store that has much to read, or an API server that waits for its store, is not yet dead.
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
    fn a_component_sees_its_files_at_their_own_paths_and_changes_only_its_own() {
        let mount = |path: &str, kind| Mount { path: path.to_owned(), kind };
        let pod = manifest(&Component {
            name: "etcd".to_owned(),
            image: "knarr.local/knarr".to_owned(),
            command: vec!["/knarr".to_owned(), "etcd".to_owned()],
            mounts: vec![mount("/d/etcd", MountKind::OwnFolder), mount("/d/pki", MountKind::Folder)],
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
        assert_eq!(container.at(&["livenessProbe", "httpGet", "port"]).and_then(Value::as_int), Some(2381));
    }
}
