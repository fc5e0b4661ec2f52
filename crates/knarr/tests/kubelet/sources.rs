//! ConfigMaps, Secrets and host paths as environment variables and volumes.

use apimachinery::{Value, value};

use crate::cluster::*;

#[tokio::test(flavor = "multi_thread")]
async fn config_maps_and_secrets_become_environment_variables_and_files() {
    let cluster = cluster().await;
    let map = value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "default"},
        "data": {"a": "one", "b": "two"}, "binaryData": {"bytes": "AAEC"}});
    cluster.create(&CONFIG_MAPS, &map).await;
    let secret = value!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"},
        "data": {"user": "bWU=", "pass": "aGlkZGVu"}});
    cluster.create(&SECRETS, &secret).await;
    let script =
        "echo $PASS $S_user $S_pass [$NONE]; ls /m; stat -Lc %a /m/deep/a; od -An -tx1 /m/raw; ls /s; ls /none | wc -l";
    let mut pod = pod("takes", script);
    set(&mut pod, "restartPolicy", "Never");
    let key = |name: &str, key: &str, optional: bool| value!({"secretKeyRef": {"name": name, "key": key, "optional": optional}});
    set_container(
        &mut pod,
        "env",
        value!([{"name": "PASS", "valueFrom": (key("s", "pass", false))}, {"name": "NONE", "valueFrom": (key("s", "no", true))}]),
    );
    set_container(
        &mut pod,
        "envFrom",
        value!([{"prefix": "S_", "secretRef": {"name": "s"}}, {"secretRef": {"name": "absent", "optional": true}}]),
    );
    set(
        &mut pod,
        "volumes",
        value!([{"name": "m", "configMap": {"name": "m", "items": [{"key": "a", "path": "deep/a", "mode": 0o400},
            {"key": "bytes", "path": "raw"}]}},
        {"name": "s", "secret": {"secretName": "s", "items": [{"key": "user", "path": "who"}]}},
        {"name": "none", "configMap": {"name": "absent", "optional": true}}]),
    );
    let at = |name: &str| value!({"name": name, "mountPath": (format!("/{name}"))});
    set_container(&mut pod, "volumeMounts", value!([(at("m")), (at("s")), (at("none"))]));
    assert_eq!(cluster.output(&pod).await, "hidden me hidden []\ndeep\nraw\n400\n 00 01 02\nwho\n0\n");
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn host_path_type_is_created_or_checked() {
    let cluster = cluster().await;
    std::fs::write(cluster.path("file"), "").unwrap();
    let mounting = |name: &str, path: &str, kind: &str| {
        let mut pod = pod(name, "stat -c '%F %a' /v");
        set(&mut pod, "restartPolicy", "Never");
        let path = cluster.path(path).display().to_string();
        set(&mut pod, "volumes", value!([{"name": "v", "hostPath": {"path": path, "type": kind}}]));
        set_container(&mut pod, "volumeMounts", value!([{"name": "v", "mountPath": "/v"}]));
        pod
    };
    let check = async |name: &str, path: &str, kind: &str, expect: &str| {
        assert_eq!(cluster.output(&mounting(name, path, kind)).await, expect, "{kind}");
    };
    check("makes-dir", "new/dir", "DirectoryOrCreate", "directory 755\n").await;
    check("makes-file", "new/file", "FileOrCreate", "regular empty file 644\n").await;
    check("is-file", "file", "File", "regular empty file 644\n").await;
    cluster.create(&PODS, &mounting("wrong", "file", "Directory")).await;
    let message = "FailedMount: MountVolume.SetUp failed for volume \"v\" : hostPath type check failed: ";
    let event = cluster.event(message).await;
    assert!(event.str_at(&["message"]).unwrap().ends_with("/file is not a directory"), "{event:?}");
    let found: Value = cluster.get(&PODS, "wrong").await;
    assert_eq!(phase(&found), "Pending");
    cluster.finish().await;
}
