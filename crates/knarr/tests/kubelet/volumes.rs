//! Content, modes and owners of volumes.

use apimachinery::{Resource, Value, value};
use client::{Patch, Target, WriteOptions};
use kubelet::volumes::Tokens;

use crate::cluster::*;

static CLAIMS: Resource = Resource::namespaced("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim");
static PERSISTENT: Resource = Resource::cluster("", "v1", "persistentvolumes", "PersistentVolume");

/// Creates a PersistentVolume of a directory of the node and a claim that is bound to it, as controllers would.
async fn bound(cluster: &Cluster, name: &str, kind: &str) {
    let path = cluster.path(name);
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("file"), "of the node\n").unwrap();
    bound_as(cluster, name, kind, "Filesystem").await;
}

async fn bound_as(cluster: &Cluster, name: &str, kind: &str, mode: &str) {
    let path = cluster.path(name).display().to_string();
    let here = value!([{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}]}]);
    let mut spec = value!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Mi"}, "storageClassName": "by-hand",
        "volumeMode": mode, "claimRef": {"namespace": "default", "name": name}, "nodeAffinity": {"required": {"nodeSelectorTerms": here}}});
    spec.as_object_mut().unwrap().insert(kind, value!({"path": path}));
    let volume = value!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec});
    cluster.create(&PERSISTENT, &volume).await;
    let claim = value!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}, "volumeName": name,
            "volumeMode": mode, "storageClassName": "by-hand"}});
    cluster.create(&CLAIMS, &claim).await;
    let target = Target::named(&CLAIMS, "default", name).subresource("status");
    let patch = Patch::Merge(value!({"status": {"phase": "Bound"}}));
    cluster.client.patch(&target, &patch, &WriteOptions::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_have_the_expected_content_modes_and_groups() {
    let cluster = cluster().await;
    cluster.create(&CONFIG_MAPS, &value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf", "namespace": "default"}, "data": {"a": "one", "b": "two"}})).await;
    cluster.create(&SECRETS, &value!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "sec", "namespace": "default"}, "data": {"pass": "aGlkZGVu"}})).await;
    std::fs::create_dir(cluster.path("host")).unwrap();
    std::fs::write(cluster.path("host/file"), "of the host\n").unwrap();
    let script = "cat /conf/a /sec/pass; echo; stat -c %a /sec/..data/pass; cat /down/labels; echo; cat /host/file; \
        stat -c '%a %g' /empty; mount | grep -c 'on /mem type tmpfs'; cat /sub; echo; ls /conf | tr '\\n' ' '; echo x >/empty/y && stat -c %g /empty/y";
    let mut pod = pod("volumes", script);
    set(&mut pod, "restartPolicy", "Never");
    set(&mut pod, "securityContext", value!({"fsGroup": 777, "runAsUser": 5}));
    pod.get_mut("metadata").unwrap().as_object_mut().unwrap().insert("labels", value!({"x": "y"}));
    set(
        &mut pod,
        "volumes",
        value!([
        {"name": "conf", "configMap": {"name": "conf"}},
        {"name": "sec", "secret": {"secretName": "sec", "defaultMode": 256}},
        {"name": "down", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        {"name": "host", "hostPath": {"path": (cluster.path("host").display().to_string()), "type": "Directory"}},
        {"name": "empty", "emptyDir": {}}, {"name": "mem", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]),
    );
    let at = |name: &str| value!({"name": name, "mountPath": (format!("/{name}"))});
    set_container(
        &mut pod,
        "volumeMounts",
        value!([(at("conf")), (at("sec")), (at("down")), (at("host")), (at("empty")), (at("mem")),
        {"name": "conf", "mountPath": "/sub", "subPath": "b"}]),
    );
    let out = cluster.output(&pod).await;
    let expect = "onehidden\n440\nx=\"y\"\nof the host\n2777 777\n1\ntwo\na b 777\n";
    assert_eq!(out, expect);
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn service_account_token_is_mounted_and_config_map_changes_appear() {
    let cluster = cluster().await;
    cluster.create(&CONFIG_MAPS, &value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "live", "namespace": "default"}, "data": {"k": "old"}})).await;
    let script = "cd /var/run/secrets/kubernetes.io/serviceaccount; cat ca.crt namespace; echo; tr '.' '\\n' <token | wc -l; \
        while [ $(cat /live/k) = old ]; do sleep 0.1; done; cat /live/k";
    let mut pod = pod("live", script);
    set(&mut pod, "restartPolicy", "Never");
    set(&mut pod, "volumes", value!([{"name": "live", "configMap": {"name": "live"}}]));
    set_container(&mut pod, "volumeMounts", value!([{"name": "live", "mountPath": "/live"}]));
    cluster.run(&pod, "running", |pod| phase(pod) == "Running").await;
    let target = Target::named(&CONFIG_MAPS, "default", "live");
    let patch = Patch::Merge(value!({"data": {"k": "new\n"}}));
    cluster.client.patch(&target, &patch, &WriteOptions::default()).await.unwrap();
    let finished = cluster.wait(&PODS, "live", "over", |pod| phase(pod) == "Succeeded").await;
    assert_eq!(cluster.printed(&finished, "c", 0), "trust me\ndefault\n2\nnew\n");
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn projected_token_is_renewed_before_it_expires() {
    let cluster = cluster().await;
    let made = cluster.run(&pod("holds", "sleep 1000"), "ready", is_ready).await;
    let volume = value!({"name": "v", "projected": {"sources": [
        {"serviceAccountToken": {"path": "token", "audience": "here", "expirationSeconds": 600}}]}});
    let mut tokens = Tokens::default();
    let now = component_base::clock::now();
    let mut at = async |seconds: i64| {
        let now = now.plus(apimachinery::time::Duration::from_seconds(seconds));
        tokens.renew(&cluster.client, kubelet::pod::Pod(&made), &volume, now).await.unwrap();
        tokens.token("v", "token").unwrap().to_owned()
    };
    let first = at(0).await;
    assert_eq!(at(450).await, first, "it lasts ten minutes");
    assert_ne!(at(490).await, first, "and is renewed after eight");
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_labels_and_annotations_appear_in_downward_api_volumes() {
    let cluster = cluster().await;
    let script = "for f in /down/labels /down/one /all/annotations; do until grep -q new $f; do sleep 0.1; done; cat $f; echo; done";
    let mut pod = pod("shown", script);
    set(&mut pod, "restartPolicy", "Never");
    let metadata = pod.get_mut("metadata").unwrap().as_object_mut().unwrap();
    metadata.insert("labels", value!({"a": "old"}));
    metadata.insert("annotations", value!({"b": "old"}));
    let file = |path: &str, field: &str| value!({"path": path, "fieldRef": {"fieldPath": field}});
    let down = [file("labels", "metadata.labels"), file("one", "metadata.labels['a']")];
    let all = [file("annotations", "metadata.annotations['b']")];
    set(
        &mut pod,
        "volumes",
        value!([{"name": "down", "downwardAPI": {"items": (down.to_vec())}},
        {"name": "all", "projected": {"sources": [{"downwardAPI": {"items": (all.to_vec())}}]}}]),
    );
    set_container(
        &mut pod,
        "volumeMounts",
        value!([{"name": "down", "mountPath": "/down"}, {"name": "all", "mountPath": "/all"}]),
    );
    cluster.run(&pod, "running", |pod| phase(pod) == "Running").await;
    let patch = Patch::Merge(value!({"metadata": {"labels": {"a": "new"}, "annotations": {"b": "new"}}}));
    cluster.client.patch(&Target::named(&PODS, "default", "shown"), &patch, &WriteOptions::default()).await.unwrap();
    let finished = cluster.wait(&PODS, "shown", "over", |pod| phase(pod) == "Succeeded").await;
    assert_eq!(cluster.printed(&finished, "c", 0), "a=\"new\"\nnew\nnew\n");
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn modes_set_by_a_container_survive_restarts_and_volume_updates() {
    let cluster = cluster().await;
    cluster.create(&CONFIG_MAPS, &value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other", "namespace": "default"}, "data": {"k": "old"}})).await;
    // The second run of the container ends after the other volume has changed.
    let script = "stat -c %a /v; if [ ! -e /v/once ]; then touch /v/once; chmod 700 /v; chmod 600 /v/once; exit 1; fi; \
        stat -c %a /v/once; until grep -q new /other/k; do sleep 0.1; done; stat -c %a /v";
    let mut pod = pod("modes", script);
    set(&mut pod, "restartPolicy", "OnFailure");
    set(&mut pod, "securityContext", value!({"fsGroup": 777}));
    set(
        &mut pod,
        "volumes",
        value!([{"name": "v", "emptyDir": {}}, {"name": "other", "configMap": {"name": "other"}}]),
    );
    set_container(
        &mut pod,
        "volumeMounts",
        value!([{"name": "v", "mountPath": "/v"}, {"name": "other", "mountPath": "/other"}]),
    );
    cluster.create(&PODS, &pod).await;
    cluster.logged("modes", "c", 1, "600").await;
    let patch = Patch::Merge(value!({"data": {"k": "new"}}));
    let target = Target::named(&CONFIG_MAPS, "default", "other");
    cluster.client.patch(&target, &patch, &WriteOptions::default()).await.unwrap();
    let finished = cluster.wait(&PODS, "modes", "over", |pod| phase(pod) == "Succeeded").await;
    assert_eq!(cluster.printed(&finished, "c", 0), "2777\n");
    assert_eq!(cluster.printed(&finished, "c", 1), "700\n600\n700\n");
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn api_object_volumes_and_read_only_claims_are_not_writable() {
    let cluster = cluster().await;
    cluster.create(&CONFIG_MAPS, &value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "default"}, "data": {"k": "v"}})).await;
    cluster.create(&SECRETS, &value!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}, "data": {"k": "dg=="}})).await;
    bound(&cluster, "claimed", "hostPath").await;
    let script = "for d in map secret down all read; do touch /$d/x 2>/dev/null && echo $d; done; cat /read/file; echo y >/write/file";
    let mut pod = pod("reads", script);
    set(&mut pod, "restartPolicy", "Never");
    let name = value!({"path": "name", "fieldRef": {"fieldPath": "metadata.name"}});
    set(
        &mut pod,
        "volumes",
        value!([{"name": "map", "configMap": {"name": "m"}}, {"name": "secret", "secret": {"secretName": "s"}},
        {"name": "down", "downwardAPI": {"items": [(name.clone())]}},
        {"name": "all", "projected": {"sources": [{"downwardAPI": {"items": [name]}}]}},
        {"name": "read", "persistentVolumeClaim": {"claimName": "claimed", "readOnly": true}},
        {"name": "write", "persistentVolumeClaim": {"claimName": "claimed"}}]),
    );
    let at = |name: &&str| value!({"name": (*name), "mountPath": (format!("/{name}"))});
    let mounts: Vec<Value> = ["map", "secret", "down", "all", "read", "write"].iter().map(at).collect();
    set_container(&mut pod, "volumeMounts", mounts);
    assert_eq!(cluster.output(&pod).await, "of the node\n");
    assert_eq!(std::fs::read_to_string(cluster.path("claimed/file")).unwrap(), "y\n");
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fs_group_applies_to_local_volumes_but_not_to_host_paths() {
    let cluster = cluster().await;
    bound(&cluster, "host", "hostPath").await;
    bound(&cluster, "local", "local").await;
    let mut pod = pod("group", "stat -c '%g %a' /host/file /local/file; stat -c %g /local");
    set(&mut pod, "restartPolicy", "Never");
    set(&mut pod, "securityContext", value!({"fsGroup": 777}));
    let claim = |name: &str| value!({"name": name, "persistentVolumeClaim": {"claimName": name}});
    set(&mut pod, "volumes", value!([(claim("host")), (claim("local"))]));
    let at = |name: &str| value!({"name": name, "mountPath": (format!("/{name}"))});
    set_container(&mut pod, "volumeMounts", value!([(at("host")), (at("local"))]));
    assert_eq!(cluster.output(&pod).await, "0 644\n777 664\n777\n");
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fs_group_change_policy_on_root_mismatch_skips_matching_volumes() {
    let cluster = cluster().await;
    bound(&cluster, "local", "local").await;
    let dir = cluster.path("local");
    std::os::unix::fs::chown(&dir, None, Some(777)).unwrap();
    std::fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o2770)).unwrap();
    let of = |name: &str, policy: &str| {
        let mut pod = pod(name, "stat -c %g /v/file");
        set(&mut pod, "restartPolicy", "Never");
        set(&mut pod, "securityContext", value!({"fsGroup": 777, "fsGroupChangePolicy": policy}));
        set(&mut pod, "volumes", value!([{"name": "v", "persistentVolumeClaim": {"claimName": "local"}}]));
        set_container(&mut pod, "volumeMounts", value!([{"name": "v", "mountPath": "/v"}]));
        pod
    };
    assert_eq!(cluster.output(&of("trusts", "OnRootMismatch")).await, "0\n");
    assert_eq!(cluster.output(&of("checks", "Always")).await, "777\n");
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_dir_and_its_sub_paths_have_upstream_modes() {
    let cluster = cluster().await;
    let check = async |name: &str, medium: &str, group: Option<i64>, sub_path: &str, expect: &str| {
        let mut pod = pod(name, "stat -c '%A %u %g' /v");
        set(&mut pod, "restartPolicy", "Never");
        set(&mut pod, "volumes", value!([{"name": "v", "emptyDir": {"medium": medium}}]));
        let mut mount = value!({"name": "v", "mountPath": "/v"});
        if !sub_path.is_empty() {
            mount.as_object_mut().unwrap().insert("subPath", sub_path);
        }
        set_container(&mut pod, "volumeMounts", value!([mount]));
        if let Some(group) = group {
            set(&mut pod, "securityContext", value!({"fsGroup": group, "runAsUser": 1001}));
        }
        assert_eq!(cluster.output(&pod).await, format!("{expect}\n"), "{name}");
    };
    check("plain", "", None, "", "drwxrwxrwx 0 0").await;
    check("memory", "Memory", None, "", "drwxrwxrwt 0 0").await;
    check("group", "", Some(123), "", "drwxrwsrwx 0 123").await;
    check("memory-group", "Memory", Some(123), "", "drwxrwsrwt 0 123").await;
    check("memory-sub", "Memory", Some(123), "new/dir", "drwxrwsrwt 0 123").await;
    check("sub", "", Some(123), "new", "drwxrwsrwx 0 123").await;
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ephemeral_volume_uses_only_a_claim_owned_by_the_pod() {
    let cluster = cluster().await;
    bound(&cluster, "brief-v", "hostPath").await;
    let mut brief = pod("brief", "cat /v/file");
    set(&mut brief, "restartPolicy", "Never");
    let template = value!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}});
    set(&mut brief, "volumes", value!([{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}]));
    set_container(&mut brief, "volumeMounts", value!([{"name": "v", "mountPath": "/v"}]));
    let made = cluster.create(&PODS, &brief).await;
    // A claim with that name that the pod does not own is not used.
    cluster
        .event("FailedMount: MountVolume.SetUp failed for volume \"v\" : PVC default/brief-v was not created for pod")
        .await;
    let owner = value!([{"apiVersion": "v1", "kind": "Pod", "name": "brief", "controller": true,
        "uid": (made.str_at(&["metadata", "uid"]).unwrap())}]);
    let patch = Patch::Merge(value!({"metadata": {"ownerReferences": owner}}));
    let target = Target::named(&CLAIMS, "default", "brief-v");
    cluster.client.patch(&target, &patch, &WriteOptions::default()).await.unwrap();
    let finished = cluster.wait(&PODS, "brief", "over", |pod| phase(pod) == "Succeeded").await;
    assert_eq!(cluster.printed(&finished, "c", 0), "of the node\n");
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn block_volume_is_a_device() {
    let cluster = cluster().await;
    // The device node needs no backing device for this check.
    let device = cluster.path("disk");
    let made = std::process::Command::new("mknod").arg(&device).args(["b", "7", "222"]).status().unwrap();
    assert!(made.success());
    bound_as(&cluster, "disk", "local", "Block").await;
    let mut pod = pod("raw", "test -b /dev/it && stat -c '%t %T' /dev/it");
    set(&mut pod, "restartPolicy", "Never");
    set(&mut pod, "volumes", value!([{"name": "v", "persistentVolumeClaim": {"claimName": "disk"}}]));
    set_container(&mut pod, "volumeDevices", value!([{"name": "v", "devicePath": "/dev/it"}]));
    assert_eq!(cluster.output(&pod).await, "7 de\n");
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_volume_source_is_reported_and_retried() {
    let cluster = cluster().await;
    let mut pod = pod("waits", "cat /v/k");
    set(&mut pod, "restartPolicy", "Never");
    set(&mut pod, "volumes", value!([{"name": "v", "secret": {"secretName": "later"}}]));
    set_container(&mut pod, "volumeMounts", value!([{"name": "v", "mountPath": "/v"}]));
    cluster.create(&PODS, &pod).await;
    cluster.event("FailedMount: MountVolume.SetUp failed for volume \"v\" : secret \"later\" not found").await;
    let secret: Value = value!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "later", "namespace": "default"}, "data": {"k": "aGk="}});
    cluster.create(&SECRETS, &secret).await;
    let finished = cluster.wait(&PODS, "waits", "over", |pod| phase(pod) == "Succeeded").await;
    assert_eq!(cluster.printed(&finished, "c", 0), "hi\n");
    cluster.finish().await;
}

/// CVE-2024-10220, CVE-2025-1767: cloning ran hooks of the repository on the node, and read repositories of other pods.
#[tokio::test(flavor = "multi_thread")]
async fn git_repo_volumes_are_rejected() {
    let cluster = cluster().await;
    let mut pod = pod("clones", "ls /v");
    set(&mut pod, "volumes", value!([{"name": "v", "gitRepo": {"repository": "/etc", "directory": "."}}]));
    set_container(&mut pod, "volumeMounts", value!([{"name": "v", "mountPath": "/v"}]));
    cluster.create(&PODS, &pod).await;
    cluster
        .event(
            "FailedMount: MountVolume.SetUp failed for volume \"v\" : volumes of type gitRepo are not supported by this node",
        )
        .await;
    cluster.finish().await;
}
