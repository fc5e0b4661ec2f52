//! Images from a registry in every form, and the commands for them.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

use machinery::value;
use tar::{Builder, EntryType, Header};

use crate::cluster::*;
use crate::registry::{LAYER, Registry};

/// A layer with a shell: as it is, and packed in two ways.
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
async fn images_come_by_digest_by_token_and_in_every_form() {
    let Some(cluster) = cluster().await else { return };
    let (tar, gzip, zstd) = archives();
    let mut registry = Registry { tokens: true, wanted: Some("Bearer given"), ..Registry::default() };
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

fn knarr(data: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_knarr")).args(["image", "--data-dir"]).arg(data).args(words).output().unwrap()
}

#[test]
fn images_are_pulled_exported_removed_pruned_and_imported_by_command() {
    let dir = tempfile::tempdir().unwrap();
    let (tar, gzip, _) = archives();
    let mut registry = Registry::default();
    registry.add_image("test/tool", &format!("{LAYER}+gzip"), gzip, &tar);
    let name = format!("{}/test/tool:1", registry.start());
    let run = |words: &[&str]| {
        let done = knarr(dir.path(), words);
        let (said, errors) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        assert!(done.status.success(), "{words:?}: {errors}");
        (said.into_owned(), errors.into_owned())
    };
    let (said, progress) = run(&["pull", &name]);
    assert!(said.starts_with(&format!("{name} sha256:")), "{said}");
    assert_eq!(progress.matches(" is here, ").count(), 2, "the layer and the configuration: {progress}");
    let id = said.trim().rsplit(' ').next().unwrap().to_owned();
    assert!(run(&["ls"]).0.contains(&name));
    let file = dir.path().join("image.tar").display().to_string();
    run(&["export", &name, "--output", &file]);
    run(&["rm", &name]);
    assert!(!run(&["ls"]).0.contains(&name));
    let freed: u64 = run(&["prune"]).0.split(' ').next().unwrap().parse().unwrap();
    assert!(freed > 100_000, "{freed}");
    assert_eq!(run(&["import", &file]).0, format!("{name} {id}\n"));
    let refused = knarr(dir.path(), &["rm", "no.such/image:1"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("not found"), "{refused:?}");
}
