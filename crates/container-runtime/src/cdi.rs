//! Container Device Interface (CDI): specification files of the host describe how a container gets a device.
//!
//! A device name is `vendor/class=device`. A file describes the devices of one `vendor/class`. Its top-level
//! `containerEdits` are applied once per container, those of a device with that device.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// Directories of CDI files; later directories override earlier ones.
const DIRS: &[&str] = &["/etc/cdi", "/var/run/cdi"];
/// Maximum size of a file.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Prefix of annotations by which older clients request devices.
const ANNOTATION: &str = "cdi.k8s.io/";

/// The CDI devices of a container could not be added.
#[derive(Debug, thiserror::Error)]
pub enum CdiError {
    /// No file describes the device.
    #[error("unresolvable CDI devices {0}")]
    Unknown(String),
    #[error("CDI device node {path} cannot be used")]
    Node {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// Returns the CDI devices that a container requests, by CRI's field or by annotations.
pub(crate) fn requested_devices(config: &node_api::cri::v1::ContainerConfig) -> Vec<String> {
    let mut names: Vec<String> = config.cdi_devices.iter().map(|device| device.name.clone()).collect();
    if names.is_empty() {
        let mut annotations: Vec<(&String, &String)> =
            config.annotations.iter().filter(|(key, _)| key.starts_with(ANNOTATION)).collect();
        annotations.sort();
        names.extend(annotations.iter().flat_map(|(_, value)| value.split(',')).map(|name| name.trim().to_owned()));
    }
    let mut seen = BTreeSet::new();
    names.retain(|name| !name.is_empty() && seen.insert(name.clone()));
    names
}

/// Adds devices to an OCI specification, from the CDI files of this host.
pub(crate) fn inject(spec: &mut Value, names: &[String]) -> Result<(), CdiError> {
    if names.is_empty() {
        return Ok(());
    }
    let files = DIRS.iter().flat_map(|dir| read_dir(Path::new(dir))).collect::<Vec<_>>();
    apply(spec, names, &files)
}

/// Adds devices to an OCI specification.
fn apply(spec: &mut Value, names: &[String], files: &[Value]) -> Result<(), CdiError> {
    let find = |name: &String| {
        let (kind, device) = name.split_once('=')?;
        // The last file that describes the device takes precedence.
        files.iter().enumerate().rev().filter(|(_, file)| file["kind"] == kind).find_map(|(n, file)| {
            let devices = file["devices"].as_array()?;
            Some((n, devices.iter().find(|known| known["name"] == device)?))
        })
    };
    let unknown: Vec<&str> = names.iter().filter(|name| find(name).is_none()).map(String::as_str).collect();
    if !unknown.is_empty() {
        return Err(CdiError::Unknown(unknown.join(", ")));
    }
    let mut used = BTreeSet::new();
    for (n, device) in names.iter().filter_map(find) {
        if used.insert(n) {
            edit(spec, &files[n]["containerEdits"])?;
        }
        edit(spec, &device["containerEdits"])?;
    }
    Ok(())
}

fn edit(spec: &mut Value, edits: &Value) -> Result<(), CdiError> {
    let list = |field: &str| edits[field].as_array().cloned().unwrap_or_default();
    for pair in list("env") {
        let name = pair.as_str().and_then(|pair| pair.split_once('=')).map(|(name, _)| format!("{name}="));
        if let (Some(env), Some(name)) = (spec["process"]["env"].as_array_mut(), name) {
            env.retain(|known| !known.as_str().is_some_and(|known| known.starts_with(&name)));
        }
        push(&mut spec["process"]["env"], pair);
    }
    for node in list("deviceNodes") {
        let (device, rule) = device(&node)?;
        push(&mut spec["linux"]["devices"], device);
        push(&mut spec["linux"]["resources"]["devices"], rule);
    }
    for mount in list("mounts") {
        let options = mount["options"].as_array().cloned().unwrap_or_else(|| vec![json!("bind"), json!("ro")]);
        let kind = mount["type"].as_str().unwrap_or("bind");
        let mount = json!({"destination": mount["containerPath"], "source": mount["hostPath"], "type": kind, "options": options});
        push(&mut spec["mounts"], mount);
    }
    for hook in list("hooks") {
        let name = hook["hookName"].as_str().unwrap_or_default().to_owned();
        let mut made = json!({"path": hook["path"]});
        for field in ["args", "env", "timeout"] {
            if let Some(value) = hook.get(field) {
                made[field] = value.clone();
            }
        }
        push(&mut spec["hooks"][name], made);
    }
    for group in list("additionalGids") {
        push(&mut spec["process"]["user"]["additionalGids"], group);
    }
    Ok(())
}

/// Returns the OCI device and its cgroup rule; fields that the file omits are read from the host's device node.
fn device(node: &Value) -> Result<(Value, Value), CdiError> {
    let container_path = node["path"].as_str().unwrap_or_default();
    let host = PathBuf::from(node["hostPath"].as_str().filter(|path| !path.is_empty()).unwrap_or(container_path));
    let (kind, major, minor, mode) = match (node["type"].as_str(), node["major"].as_i64(), node["minor"].as_i64()) {
        (Some(kind), Some(major), Some(minor)) if !kind.is_empty() => (kind.to_owned(), major, minor, 0o666),
        _ => {
            let failed = |source| CdiError::Node { path: host.clone(), source };
            let metadata = fs::metadata(&host).map_err(failed)?;
            let kind = match metadata.file_type() {
                kind if kind.is_char_device() => "c",
                kind if kind.is_block_device() => "b",
                _ => return Err(failed(std::io::Error::other("it is neither a character nor a block device"))),
            };
            let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
            (kind.to_owned(), i64::from(major), i64::from(minor), metadata.mode() & 0o777)
        }
    };
    let mut device = json!({"path": container_path, "type": kind, "major": major, "minor": minor,
        "fileMode": node["fileMode"].as_u64().unwrap_or(mode.into())});
    for field in ["uid", "gid"] {
        if let Some(id) = node.get(field) {
            device[field] = id.clone();
        }
    }
    let access = node["permissions"].as_str().filter(|access| !access.is_empty()).unwrap_or("rwm");
    let rule = json!({"allow": true, "type": kind, "major": major, "minor": minor, "access": access});
    Ok((device, rule))
}

fn push(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(list) => list.push(item),
        None => *list = Value::Array(vec![item]),
    }
}

/// Reads the files of a directory in the order of their names; ignores unreadable files.
fn read_dir(dir: &Path) -> Vec<Value> {
    let mut paths: Vec<PathBuf> = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let known = |path: &&PathBuf| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        matches!(extension, Some("json" | "yaml"))
    };
    let read = |path: &PathBuf| {
        let small = fs::metadata(path).is_ok_and(|metadata| metadata.len() <= FILE_BYTES_MAX);
        let text = fs::read_to_string(path).ok().filter(|_| small)?;
        // JSON is a subset of YAML.
        let parsed = apimachinery::yaml::parse(&text).ok().map(|value| apimachinery::json::to_string(&value));
        let value = parsed.and_then(|text| serde_json::from_str(&text).ok());
        if value.is_none() {
            tracing::warn!(path = %path.display(), "failed to parse a CDI file");
        }
        value
    };
    paths.iter().filter(known).filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> Vec<Value> {
        let edits = |name: &str| json!({"env": [format!("DEVICE={name}")]});
        vec![
            json!({"kind": "example.com/d", "devices": [{"name": "a", "containerEdits": edits("old")}]}),
            json!({"kind": "example.com/d", "containerEdits": {"env": ["ALL=1"], "additionalGids": [7]},
                "devices": [
                    {"name": "a", "containerEdits": edits("a")},
                    {"name": "n", "containerEdits": {
                        "deviceNodes": [{"path": "/dev/x", "hostPath": "/dev/null", "permissions": "r"}],
                        "mounts": [{"hostPath": "/h", "containerPath": "/c"}],
                        "hooks": [{"hookName": "createRuntime", "path": "/bin/true", "args": ["true"]}]}}]}),
        ]
    }

    #[test]
    fn general_edits_are_added_once_and_device_edits_per_device() {
        let mut spec = json!({"process": {"env": ["DEVICE=mine", "A=b"], "user": {}}, "linux": {"resources": {}}});
        let names = ["example.com/d=a", "example.com/d=n"].map(str::to_owned);
        apply(&mut spec, &names, &files()).unwrap();
        assert_eq!(spec["process"]["env"], json!(["A=b", "ALL=1", "DEVICE=a"]));
        assert_eq!(spec["process"]["user"]["additionalGids"], json!([7]));
        assert_eq!(
            spec["mounts"],
            json!([{"destination": "/c", "source": "/h", "type": "bind", "options": ["bind", "ro"]}])
        );
        assert_eq!(spec["hooks"]["createRuntime"], json!([{"path": "/bin/true", "args": ["true"]}]));
        let device = &spec["linux"]["devices"][0];
        assert_eq!((&device["path"], &device["major"], &device["minor"]), (&json!("/dev/x"), &json!(1), &json!(3)));
        assert_eq!(spec["linux"]["resources"]["devices"][0]["access"], "r");
    }

    #[test]
    fn unresolvable_device_is_named_in_the_error() {
        let check = |name: &str, expect: &str| {
            let error = apply(&mut json!({}), &[name.to_owned()], &files()).unwrap_err();
            assert_eq!(error.to_string(), expect);
        };
        check("example.com/d=b", "unresolvable CDI devices example.com/d=b");
        check("nonsense", "unresolvable CDI devices nonsense");
    }

    #[test]
    fn devices_are_requested_by_field_or_annotation() {
        let mut config = node_api::cri::v1::ContainerConfig::default();
        config.annotations.insert("cdi.k8s.io/x".into(), "a=1, a=2".into());
        assert_eq!(requested_devices(&config), ["a=1", "a=2"]);
        config.cdi_devices.push(node_api::cri::v1::CdiDevice { name: "b=1".into() });
        config.cdi_devices.push(node_api::cri::v1::CdiDevice { name: "b=1".into() });
        assert_eq!(requested_devices(&config), ["b=1"]);
    }

    #[test]
    fn only_json_and_yaml_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("b.yaml"), "kind: example.com/y\ndevices: []\n").unwrap();
        fs::write(dir.path().join("a.json"), r#"{"kind": "example.com/j"}"#).unwrap();
        fs::write(dir.path().join("c.json"), "{").unwrap();
        fs::write(dir.path().join("d.txt"), "{}").unwrap();
        let kinds: Vec<Value> = read_dir(dir.path()).iter().map(|file| file["kind"].clone()).collect();
        assert_eq!(kinds, ["example.com/j", "example.com/y"]);
    }
}
