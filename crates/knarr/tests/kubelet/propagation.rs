//! Mount propagation between containers and the node, as in upstream's "Mount propagation" e2e test.

use std::path::Path;
use std::process::Command;

use apimachinery::{Value, value};

use crate::cluster::*;

const PODS_AND_PROPAGATION: [(&str, Option<&str>); 4] = [
    ("master", Some("Bidirectional")),
    ("slave", Some("HostToContainer")),
    ("private", Some("None")),
    ("default", None),
];

fn mount(args: &[&str]) {
    assert!(Command::new("mount").args(args).status().unwrap().success(), "{args:?}");
}

/// Returns a pod with a directory of the node at `/mnt/test`.
fn with_host_path(name: &str, dir: &Path, propagation: Option<&str>, script: &str) -> Value {
    let mut pod = pod(name, script);
    set(&mut pod, "volumes", value!([{"name": "host", "hostPath": {"path": (dir.display().to_string())}}]));
    let mut mount = value!({"name": "host", "mountPath": "/mnt/test"});
    if let Some(propagation) = propagation {
        mount.as_object_mut().unwrap().insert("mountPropagation", propagation);
    }
    set_container(&mut pod, "volumeMounts", value!([mount]));
    set_container(&mut pod, "securityContext", value!({"privileged": true}));
    pod
}

#[tokio::test(flavor = "multi_thread")]
async fn mounts_propagate_according_to_mount_propagation() {
    let cluster = cluster().await;
    let shared = cluster.path("shared");
    std::fs::create_dir(&shared).unwrap();
    let mount_point = shared.display().to_string();
    mount(&["--bind", &mount_point, &mount_point]);
    mount(&["--make-shared", &mount_point]);
    let dir = shared.join("test");
    std::fs::create_dir(&dir).unwrap();
    for (name, propagation) in PODS_AND_PROPAGATION {
        let script = format!(
            "mkdir /mnt/test/{name}; wait() {{ until [ -e /mnt/test/$1 ]; do sleep 0.1; done; }}; wait mount; \
             mount -t tmpfs of-{name} /mnt/test/{name} && echo {name} >/mnt/test/{name}/file && echo mounted; wait look; \
             for n in master slave private default host; do cat /mnt/test/$n/file 2>/dev/null; done; echo looked; sleep 1000"
        );
        cluster.run(&with_host_path(name, &dir, propagation, &script), "ready", is_ready).await;
    }
    std::fs::write(dir.join("mount"), "").unwrap();
    for (name, _) in PODS_AND_PROPAGATION {
        cluster.logged(name, "c", 0, "mounted\n").await;
    }
    let of_host = dir.join("host");
    std::fs::create_dir(&of_host).unwrap();
    mount(&["-t", "tmpfs", "of-host", of_host.to_str().unwrap()]);
    std::fs::write(of_host.join("file"), "host\n").unwrap();
    std::fs::write(dir.join("look"), "").unwrap();
    for (name, expect) in [
        ("master", "master\nhost\n"),
        ("slave", "master\nslave\nhost\n"),
        ("private", "private\n"),
        ("default", "default\n"),
    ] {
        cluster.logged(name, "c", 0, "looked\n").await;
        let pod = cluster.get(&PODS, name).await;
        assert_eq!(cluster.printed(&pod, "c", 0), format!("mounted\n{expect}looked\n"), "{name}");
    }
    for (name, expect) in [("host", true), ("master", true), ("slave", false), ("private", false), ("default", false)] {
        assert_eq!(dir.join(name).join("file").exists(), expect, "the node and {name}");
    }
    for mount_point in [dir.join("master"), of_host, shared] {
        assert!(Command::new("umount").arg("--lazy").arg(&mount_point).status().unwrap().success(), "{mount_point:?}");
    }
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unsupported_mount_propagation_is_rejected_with_the_reason() {
    let cluster = cluster_with_built_in().await;
    let alone = cluster.path("alone");
    std::fs::create_dir(&alone).unwrap();
    let mount_point = alone.display().to_string();
    mount(&["--bind", &mount_point, &mount_point]);
    mount(&["--make-private", &mount_point]);
    for (name, propagation, needs) in
        [("both", "Bidirectional", "a shared mount"), ("down", "HostToContainer", "a shared or slave mount")]
    {
        cluster.create(&PODS, &with_host_path(name, &alone, Some(propagation), "sleep 1000")).await;
        let expect = format!("Failed: Error: path {mount_point:?} is mounted on {mount_point:?} but it is not {needs}");
        cluster.event(&expect).await;
        cluster.delete(name).await;
    }
    assert!(Command::new("umount").arg(&alone).status().unwrap().success());
    cluster.finish().await;
}
