//! Local-path provisioner: the directory of a claim outlives its pods and is deleted with the claim.

use std::fs;

use apimachinery::{Resource, Value, value};
use client::{DeleteOptions, Target};

use crate::cluster::*;

static CLAIMS: Resource = Resource::namespaced("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim");
static CLASSES: Resource = Resource::cluster("storage.k8s.io", "v1", "storageclasses", "StorageClass");

/// Returns an unscheduled pod that mounts the claim.
fn user(name: &str, script: &str) -> Value {
    let mut pod = pod(name, script);
    let spec = pod.get_mut("spec").unwrap().as_object_mut().unwrap();
    spec.remove("nodeName");
    spec.insert("restartPolicy", "Never");
    spec.insert("volumes", value!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]));
    set_container(&mut pod, "volumeMounts", value!([{"name": "v", "mountPath": "/data"}]));
    pod
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_without_class_gets_a_directory_that_is_deleted_with_the_claim() {
    let cluster = cluster().await;
    let root = cluster.path("storage");
    let controllers = "--controllers=node-lifecycle-controller,persistentvolume-binder-controller,\
        persistentvolume-protection-controller,persistentvolumeclaim-protection-controller";
    let dir = root.display().to_string();
    let _components = [
        component(
            &cluster.machine,
            "kube-controller-manager",
            &["--leader-elect=false", "--secure-port=0", controllers],
        ),
        component(&cluster.machine, "kube-scheduler", &["--leader-elect=false", "--secure-port=0"]),
        component(&cluster.machine, "local-path", &["--hostname-override", NODE, "--root", &dir]),
    ];
    let class = value!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "knarr.dev/local-path",
        "metadata": {"name": "local-path", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "volumeBindingMode": "WaitForFirstConsumer"});
    cluster.create(&CLASSES, &class).await;
    let claim = value!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}});
    cluster.create(&CLAIMS, &claim).await;
    cluster.output(&user("writes", "id -u >/data/who && echo kept >/data/file")).await;
    cluster.delete("writes").await;
    let mut other = user("reads", "cat /data/file && touch /data/by-another");
    set(&mut other, "securityContext", value!({"runAsUser": 33}));
    assert_eq!(cluster.output(&other).await, "kept\n");
    let bound = cluster.get(&CLAIMS, "data").await;
    assert_eq!(phase(&bound), "Bound");
    let entries = || fs::read_dir(&root).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap());
    let name = bound.str_at(&["spec", "volumeName"]).unwrap();
    assert_eq!(entries().collect::<Vec<_>>(), [format!("{name}_default_data")]);
    cluster.delete("reads").await;
    cluster.client.delete(&Target::named(&CLAIMS, "default", "data"), &DeleteOptions::default()).await.unwrap();
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    while entries().next().is_some() {
        assert!(tokio::time::Instant::now() < deadline, "the directory is kept");
        tokio::task::yield_now().await;
    }
    cluster.finish().await;
}
