//! Protection of the host against pods: a hanging kubelet, deleted node files, secrets readable by other users.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;

/// A string that nothing else on the host contains.
const SECRET: &str = "hunter2-of-the-mode-walk";

/// Returns pods with a secret in the environment and in a volume, and with a subPath of a directory of the node.
fn pods(precious: &Path) -> String {
    let precious = precious.display();
    format!(
        r#"{{"apiVersion": "v1", "kind": "List", "items": [
    {{"apiVersion": "v1", "kind": "Secret", "metadata": {{"name": "s"}}, "stringData": {{"key": "{SECRET}"}}}},
    {{"apiVersion": "v1", "kind": "Pod", "metadata": {{"name": "careful"}}, "spec": {{"terminationGracePeriodSeconds": 1,
        "volumes": [{{"name": "s", "secret": {{"secretName": "s"}}}}, {{"name": "e", "emptyDir": {{}}}},
            {{"name": "h", "hostPath": {{"path": "{precious}", "type": "Directory"}}}}],
        "containers": [{{"name": "c", "image": "{IMAGE}", "command": ["busybox", "sleep", "1000"],
            "env": [{{"name": "KEY", "valueFrom": {{"secretKeyRef": {{"name": "s", "key": "key"}}}}}}],
            "volumeMounts": [{{"name": "s", "mountPath": "/s"}}, {{"name": "e", "mountPath": "/e"}},
                {{"name": "h", "mountPath": "/h", "subPath": "part"}}]}}]}}}},
    {{"apiVersion": "v1", "kind": "Pod", "metadata": {{"name": "hostile"}}, "spec": {{"restartPolicy": "Never",
        "securityContext": {{"runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": {{"type": "RuntimeDefault"}}}},
        "volumes": [{{"name": "e", "emptyDir": {{}}}}],
        "initContainers": [{{"name": "i", "image": "{IMAGE}", "command": ["busybox", "mkfifo", "/e/fifo"],
            "volumeMounts": [{{"name": "e", "mountPath": "/e"}}]}}],
        "containers": [{{"name": "c", "image": "{IMAGE}", "command": ["busybox", "true"],
            "volumeMounts": [{{"name": "e", "mountPath": "/dev/termination-log", "subPath": "fifo"}}]}}]}}}}]}}"#
    )
}

#[test]
fn pods_cannot_hang_the_kubelet_delete_node_files_or_leak_secrets() {
    let machine = Machine::new();
    let (real, precious) = (machine.dir.path().join("real"), machine.dir.path().join("precious"));
    std::fs::create_dir(&real).unwrap();
    std::fs::create_dir_all(precious.join("part")).unwrap();
    std::fs::write(precious.join("part/data"), "x").unwrap();
    symlink(&real, machine.data()).unwrap();
    machine.knarr(&format!(
        "up -d --node-name only --kubelet-arg eviction-hard=nodefs.available<1Mi --kubelet-arg cgroup-root=/knarr-{}",
        real.display().to_string().trim_start_matches('/').replace('/', "-")
    ));
    build_image(&machine);
    machine.apply(&pods(&precious));
    let phase = |name: &str| format!("kubectl get pod {name} -o jsonpath={{.status.phase}}");
    machine.eventually(&phase("careful"), |phase| phase == "Running");
    machine.eventually(&phase("hostile"), |phase| phase == "Succeeded");
    // The kubelet still works: a later pod runs as well.
    machine.succeed(&format!("kubectl run later --image={IMAGE} --command -- busybox sleep 1000"));
    machine.eventually(&phase("later"), |phase| phase == "Running");
    // The root user of this pod is another user on the node and must reach the pod's root file system.
    machine.apply(&format!(
        r#"{{"apiVersion": "v1", "kind": "Pod", "metadata": {{"name": "apart"}}, "spec": {{"hostUsers": false,
            "containers": [{{"name": "c", "image": "{IMAGE}", "command": ["busybox", "sleep", "1000"]}}]}}}}"#
    ));
    machine.eventually(&phase("apart"), |phase| phase == "Running");

    let readable = readable_secrets(&machine, &real);

    let uid = machine.succeed("kubectl get pod careful -o jsonpath={.metadata.uid}");
    machine.succeed("kubectl delete pod careful");
    let pod_dir = real.join("kubelet/pods").join(&uid);
    let deadline = Instant::now() + DEADLINE;
    while pod_dir.exists() {
        assert!(Instant::now() < deadline, "{} is not removed", pod_dir.display());
        std::thread::yield_now();
    }
    assert!(precious.join("part/data").exists(), "the pod's end removed a file of the node");

    machine.apply(&pods(&precious));
    machine.eventually(&phase("careful"), |phase| phase == "Running");
    machine.knarr("down --purge");
    assert!(precious.join("part/data").exists(), "the purge removed a file of the node");
    assert!(!real.exists());
    std::fs::remove_file(machine.data()).unwrap();
    assert_eq!(readable, [""; 0], "other users can read private files");
}

/// Walks the data directory. Returns files that contain the secret and are not private to their owner, and everything
/// that another user of the host can read, list or change.
fn readable_secrets(machine: &Machine, data: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mode = std::fs::metadata(data).unwrap().permissions().mode() & 0o7777;
    if mode != 0o711 {
        found.push(format!("{} has mode {mode:o}", data.display()));
    }
    let (mut files, mut secrets, mut all) = (0, Vec::new(), Vec::new());
    let mut waiting = vec![data.to_owned()];
    while let Some(dir) = waiting.pop() {
        all.push(dir.clone());
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            let (path, mode) = (entry.path(), metadata.permissions().mode() & 0o7777);
            if metadata.is_dir() {
                waiting.push(path);
                continue;
            }
            files += 1;
            all.push(path.clone());
            if !metadata.is_file() || metadata.len() > 64 << 20 {
                continue;
            }
            let content = std::fs::read(&path).unwrap_or_default();
            if !content.windows(SECRET.len()).any(|window| window == SECRET.as_bytes()) {
                continue;
            }
            // A volume's files have the mode that the pod requests, and are in memory.
            let is_volume = path.starts_with(data.join("kubelet/pods"));
            if !is_volume && mode & 0o077 != 0 || metadata.uid() != 0 {
                let owner = metadata.uid();
                found.push(format!("{} of user {owner} has a secret and mode {mode:o}", path.display()));
            }
            secrets.push(path);
        }
    }
    assert!(files > 100 && !secrets.is_empty(), "{files} files, {secrets:?}");
    // Certificates are public: users import that of the CA into their browsers.
    let is_public = |path: &Path| {
        path == data.join("pki") || path.starts_with(data.join("pki")) && path.extension().is_some_and(|it| it == "crt")
    };
    all.retain(|path| !is_public(path));
    found.extend(accessible(machine, &all).into_iter().map(|path| format!("another user can access {path}")));
    found
}

/// Returns the paths that a user without rights on this host can read, list or change.
fn accessible(machine: &Machine, paths: &[PathBuf]) -> Vec<String> {
    // Only the data directory itself keeps the user out, as in /var/lib.
    std::fs::set_permissions(machine.dir.path(), PermissionsExt::from_mode(0o711)).unwrap();
    let list = machine.dir.path().join("walked");
    let lines = paths.iter().chain([&list]).map(|path| format!("{}\n", path.display()));
    std::fs::write(&list, lines.collect::<String>()).unwrap();
    std::fs::set_permissions(&list, PermissionsExt::from_mode(0o644)).unwrap();
    let script = r#"while IFS= read -r path; do if [ -r "$path" ] || [ -w "$path" ]; then echo "$path"; fi; done"#;
    let mut stranger = machine.command("setpriv --reuid=65534 --regid=65534 --clear-groups sh -c");
    let output = stranger.arg(script).stdin(std::fs::File::open(&list).unwrap()).output().unwrap();
    let text = text(&output);
    let mut found: Vec<String> = text.lines().map(str::to_owned).collect();
    // The list is the last path, and every user can read it.
    assert_eq!(found.pop(), Some(list.display().to_string()), "{text}");
    found
}
