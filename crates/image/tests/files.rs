//! Images in and out of files.

#![expect(clippy::unwrap_used, reason = "what a test prepares must work")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use image::{Builtin, Config, Digest, Image, ImportError, Name, Recipe, Store};

fn recipe() -> Recipe {
    Recipe {
        dirs: vec![("/etc".into(), 0o755), ("/tmp".into(), 0o1777)],
        files: vec![("/etc/motd".into(), b"hello\n".to_vec(), 0o644)],
        links: vec![("/bin".into(), "usr/bin".into())],
        config: Config { cmd: vec!["sh".into()], ..Config::default() },
        ..Recipe::default()
    }
}

async fn built(dir: &Path) -> (Store, Arc<Image>) {
    let store = Store::open(dir).unwrap();
    let image = store.build(&Name::parse("tool:1").unwrap(), &recipe()).await.unwrap();
    (store, image)
}

async fn check_import(archive: &Path, into: &Path, id: &Digest) {
    let store = Store::open(into).unwrap();
    let images = store.import(archive, None).await.unwrap();
    assert_eq!((images.len(), &images[0].id), (1, id));
    let image = store.find("tool:1").unwrap();
    assert_eq!(fs::read_to_string(store.lower_dirs(&image)[0].join("etc/motd")).unwrap(), "hello\n");
    assert_eq!(image.config.config.cmd, ["sh"]);
    fs::remove_dir_all(into).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exported_image_is_imported_from_tar_gzip_zstd_and_directory() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (store, image) = built(&at("source")).await;
    store.export(&[&image], File::create(at("a.tar")).unwrap()).unwrap();
    let tar = fs::read(at("a.tar")).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(File::create(at("a.tar.gz")).unwrap(), flate2::Compression::fast());
    gzip.write_all(&tar).unwrap();
    gzip.finish().unwrap();
    fs::write(at("a.tar.zst"), zstd::encode_all(tar.as_slice(), 1).unwrap()).unwrap();
    tar::Archive::new(tar.as_slice()).unpack(at("layout")).unwrap();
    for archive in ["a.tar", "a.tar.gz", "a.tar.zst", "layout"] {
        check_import(&at(archive), &at("store"), &image.id).await;
    }
    // Without its index the same archive is one of docker's; the manifest is then made anew, the configuration is the same.
    fs::remove_file(at("layout/index.json")).unwrap();
    check_import(&at("layout"), &at("store"), &image.id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn archives_that_are_no_images_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("store")).unwrap();
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    assert!(matches!(store.import(&empty, None).await, Err(ImportError::Unknown(_))));
    fs::write(empty.join("index.json"), b"{}").unwrap();
    assert!(matches!(store.import(&empty, None).await, Err(ImportError::Malformed { .. })));
    let digest = Digest::of(b"nothing");
    let index = format!(r#"{{"schemaVersion":2,"manifests":[{{"digest":"{digest}","size":7}}]}}"#);
    fs::write(empty.join("index.json"), index).unwrap();
    assert!(matches!(store.import(&empty, None).await, Err(ImportError::Lacks(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tampered_layer_is_not_unpacked() {
    let dir = tempfile::tempdir().unwrap();
    let (store, image) = built(&dir.path().join("source")).await;
    let layout = dir.path().join("layout");
    let mut tar = Vec::new();
    store.export(&[&image], &mut tar).unwrap();
    tar::Archive::new(tar.as_slice()).unpack(&layout).unwrap();
    for blob in fs::read_dir(layout.join("blobs/sha256")).unwrap() {
        let path = blob.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        if bytes.starts_with(&[0x1f, 0x8b]) {
            let mut forged = bytes.clone();
            *forged.last_mut().unwrap() ^= 1;
            fs::write(&path, forged).unwrap();
        }
    }
    let other = Store::open(&dir.path().join("store")).unwrap();
    let error = other.import(&layout, None).await.unwrap_err();
    assert!(error.to_string().contains("has the digest"), "{error}");
    assert!(other.list().is_empty());
    assert_eq!(other.collect(&BTreeSet::new()).await.map(|_| ()).ok(), Some(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_files_make_the_same_image() {
    let dir = tempfile::tempdir().unwrap();
    let (_one, a) = built(&dir.path().join("a")).await;
    let (_two, b) = built(&dir.path().join("b")).await;
    assert_eq!((&a.id, &a.manifest, &a.layers), (&b.id, &b.manifest, &b.layers));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_built_in_image_is_its_files_without_a_copy_until_they_are_others() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("program");
    let write = |text: &str| {
        let beside = dir.path().join("beside");
        fs::write(&beside, text).unwrap();
        fs::set_permissions(&beside, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        fs::rename(beside, &program).unwrap();
    };
    write("first");
    let store = Store::open(&dir.path().join("store")).unwrap();
    let builtin = Builtin {
        name: Name::parse("knarr.local/program").unwrap(),
        files: vec![(program.clone(), "/usr/bin/program".into())],
        config: Config { entrypoint: vec!["/usr/bin/program".into()], ..Config::default() },
    };
    assert!(builtin.is_called("knarr.local/program:latest") && !builtin.is_called("knarr.local/program:1"));
    let first = store.provide(&builtin).await.unwrap();
    let inside = store.lower_dirs(&first)[0].join("usr/bin/program");
    let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap());
    assert_eq!(inode(&inside), inode(&program));
    assert_eq!(store.provide(&builtin).await.unwrap(), first);
    assert!(first.pinned && store.find("knarr.local/program").is_some());

    let archive = dir.path().join("archive.tar");
    store.export(&[&first], File::create(&archive).unwrap()).unwrap();
    let elsewhere = Store::open(&dir.path().join("elsewhere")).unwrap();
    let imported = elsewhere.import(&archive, None).await.unwrap();
    assert_eq!(imported[0].id, first.id);
    assert_eq!(fs::read_to_string(elsewhere.lower_dirs(&imported[0])[0].join("usr/bin/program")).unwrap(), "first");

    write("the second");
    let second = store.provide(&builtin).await.unwrap();
    assert_ne!(second.id, first.id);
    assert_eq!(store.list().len(), 1);
    store.collect(&BTreeSet::new()).await.unwrap();
    assert!(!inside.exists());
    assert_eq!(fs::read_to_string(store.lower_dirs(&second)[0].join("usr/bin/program")).unwrap(), "the second");
}
