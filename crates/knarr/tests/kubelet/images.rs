//! Images from a registry in all formats, and the `knarr image` commands.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

use apimachinery::{Value, value};
use image_store::{Name, Recipe, Store};
use tar::{Builder, EntryType, Header};

use crate::cluster::*;
use crate::registry::{LAYER, Registry};

/// Returns a layer with a shell: uncompressed, and with two compressions.
fn archives() -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let mut tar = Builder::new(Vec::new());
    tar.append_path_with_name("/bin/busybox", "bin/busybox").unwrap();
    let mut link = Header::new_gnu();
    link.set_entry_type(EntryType::Symlink);
    link.set_size(0);
    link.set_mode(0o777);
    tar.append_link(&mut link, "bin/sh", "busybox").unwrap();
    let tar = tar.into_inner().unwrap();
    let zstd = zstd::encode_all(&tar[..], 3).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&tar).unwrap();
    let gzip = gzip.finish().unwrap();
    (tar, gzip, zstd)
}

#[tokio::test(flavor = "multi_thread")]
async fn images_are_pulled_by_digest_with_token_auth_and_in_every_format() {
    let cluster = cluster().await;
    let (tar, gzip, zstd) = archives();
    let mut registry = Registry { tokens: true, authorization: Some("Bearer given"), ..Registry::default() };
    registry.add_image("test/zstd", &format!("{LAYER}+zstd"), zstd, &tar);
    registry.add_image("test/docker", "application/vnd.docker.image.rootfs.diff.tar.gzip", gzip, &tar);
    let digest = registry.tagged("test/zstd").to_owned();
    let host = registry.start();
    for (name, image) in [
        ("zstd", format!("{host}/test/zstd:1")),
        ("docker", format!("{host}/test/docker:1")),
        ("digest", format!("{host}/test/zstd@{digest}")),
    ] {
        let mut runs = pod(name, "echo ran");
        set(&mut runs, "restartPolicy", "Never");
        set_container(&mut runs, "image", image);
        set_container(&mut runs, "command", value!(["/bin/sh", "-c", "echo ran"]));
        assert_eq!(cluster.output(&runs).await, "ran\n", "{name}");
    }
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_images_are_garbage_collected() {
    let start = cluster_without_kubelet().await;
    let pinned = "test.local/pinned:1";
    let mut recipe = Recipe { pinned: true, ..busybox() };
    recipe.config.env.push("PINNED=1".into());
    let store = Store::open(&start.machine.path("runtime/images")).unwrap();
    store.build(&Name::parse(pinned).unwrap(), &recipe).await.unwrap();
    drop(store);
    let (tar, gzip, _) = archives();
    let mut registry = Registry::default();
    registry.add_image("test/once", &format!("{LAYER}+gzip"), gzip, &tar);
    let once = format!("{}/test/once:1", registry.start());
    // Every disk is fuller than this threshold.
    let config = "imageGCHighThresholdPercent: 1\nimageGCLowThresholdPercent: 0\nimageMinimumGCAge: 0s\n\
        nodeStatusUpdateFrequency: 1s\n";
    let mut cluster = start.kubelet(&[], config);
    cluster.run(&pod("stays", "sleep 1000"), "ready", is_ready).await;
    let mut runs = pod("runs", "");
    set_container(&mut runs, "image", once.as_str());
    set_container(&mut runs, "command", value!(["/bin/busybox", "sleep", "1000"]));
    cluster.run(&runs, "ready", is_ready).await;
    let has = |node: &Value, name: &str| {
        let images = node["status"]["images"].as_array().unwrap_or_default();
        images.iter().any(|image| image["names"].as_array().unwrap_or_default().contains(&name.into()))
    };
    cluster.wait(&NODES, NODE, "known to have the image", |node| has(node, &once)).await;
    cluster.delete_wholly("runs").await;
    // Image garbage collection runs soon after a kubelet starts, and then every few minutes.
    cluster.restart();
    let node = cluster.wait(&NODES, NODE, "without the image", |node| !has(node, &once)).await;
    assert!(has(&node, IMAGE), "images of containers are kept");
    if cluster.runtime_name() == "knarr" {
        assert!(has(&node, pinned), "pinned images are kept");
    }
    assert!(is_ready(&cluster.get(&PODS, "stays").await));
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn imported_image_is_used_during_image_pull_back_off() {
    let cluster = cluster_with_built_in().await;
    // No registry listens at this address.
    let image = "127.0.0.1:9/test/late:1";
    let mut late = pod("late", "sleep 1000");
    set_container(&mut late, "image", image);
    let waits_for = |reason: &'static str| {
        move |pod: &Value| pod["status"]["containerStatuses"][0].str_at(&["state", "waiting", "reason"]) == Some(reason)
    };
    cluster.run(&late, "waiting", waits_for("ImagePullBackOff")).await;
    // After the second failure the next pull is twenty seconds away.
    cluster.wait(&PODS, "late", "pulled again", waits_for("ErrImagePull")).await;
    let failed = std::time::Instant::now();
    let store = Store::open(&cluster.path("runtime/images")).unwrap();
    store.build(&Name::parse(image).unwrap(), &busybox()).await.unwrap();
    cluster.wait(&PODS, "late", "ready", is_ready).await;
    assert!(failed.elapsed().as_secs() < 18, "{:?}", failed.elapsed());
    cluster.event("Pulled: Container image \"127.0.0.1:9/test/late:1\" already present").await;
    cluster.finish().await;
}

fn knarr(data: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_knarr")).args(["image", "--data-dir"]).arg(data).args(args).output().unwrap()
}

#[test]
fn image_commands_pull_export_remove_prune_and_import() {
    let dir = tempfile::tempdir().unwrap();
    let (tar, gzip, _) = archives();
    let mut registry = Registry::default();
    registry.add_image("test/tool", &format!("{LAYER}+gzip"), gzip, &tar);
    let name = format!("{}/test/tool:1", registry.start());
    let run = |args: &[&str]| {
        let done = knarr(dir.path(), args);
        let (stdout, errors) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        assert!(done.status.success(), "{args:?}: {errors}");
        (stdout.into_owned(), errors.into_owned())
    };
    let (stdout, progress) = run(&["pull", &name]);
    assert!(stdout.starts_with(&format!("{name} sha256:")), "{stdout}");
    assert_eq!(progress.matches(": pulled ").count(), 2, "the layer and the configuration: {progress}");
    assert!(run(&["ls"]).0.contains(&name));
    let file = dir.path().join("image.tar").display().to_string();
    run(&["export", &name, "--output", &file]);
    run(&["rm", &name]);
    assert!(!run(&["ls"]).0.contains(&name));
    let freed: u64 = run(&["prune"]).0.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(freed > 100_000, "{freed}");
    assert_eq!(run(&["import", &file]).0, stdout);
    let output = knarr(dir.path(), &["rm", "no.such/image:1"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("not found"), "{output:?}");
}
