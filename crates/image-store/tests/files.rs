//! Tests of image import, export and build.

#![expect(clippy::unwrap_used, reason = "test setup may panic")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use image_store::{Builtin, Config, Digest, Image, ImportError, Name, Recipe, Store};

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
async fn exported_image_is_imported_from_tar_gzip_zstd_and_directory() {
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
    // Without its index, the archive is a docker archive: the manifest is generated, and the configuration is the same.
    fs::remove_file(at("layout/index.json")).unwrap();
    check_import(&at("layout"), &at("store"), &image.id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn archives_without_an_image_are_rejected() {
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
    assert!(matches!(store.import(&empty, None).await, Err(ImportError::MissingFile(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn tampered_layer_is_not_unpacked() {
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
async fn pinned_image_is_copied_from_another_store() {
    let dir = tempfile::tempdir().unwrap();
    let (source, image) = built(&dir.path().join("source")).await;
    assert!(!image.pinned);
    source.pin(&image).unwrap();
    let image = source.find("tool:1").unwrap();
    let store = Store::open(&dir.path().join("store")).unwrap();
    let taken = store.take_from(&source, &image).await.unwrap();
    assert!(taken.pinned && taken.id == image.id && taken.digests == image.digests);
    fs::remove_dir_all(dir.path().join("source")).unwrap();
    store.collect(&BTreeSet::new()).await.unwrap();
    let found = store.find("tool:1").unwrap();
    assert_eq!(fs::read_to_string(store.lower_dirs(&found)[0].join("etc/motd")).unwrap(), "hello\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn build_is_reproducible() {
    let dir = tempfile::tempdir().unwrap();
    let (_one, a) = built(&dir.path().join("a")).await;
    let (_two, b) = built(&dir.path().join("b")).await;
    assert_eq!((&a.id, &a.manifest, &a.layers), (&b.id, &b.manifest, &b.layers));
}

#[tokio::test(flavor = "multi_thread")]
async fn built_in_image_links_its_files_and_is_rebuilt_after_changes() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("program");
    let write = |text: &str| {
        let beside = dir.path().join("beside");
        fs::write(&beside, text).unwrap();
        fs::set_permissions(&beside, PermissionsExt::from_mode(0o755)).unwrap();
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
    let layer_file = store.lower_dirs(&first)[0].join("usr/bin/program");
    let inode = |path: &Path| MetadataExt::ino(&fs::metadata(path).unwrap());
    assert_eq!(inode(&layer_file), inode(&program));
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
    assert!(!layer_file.exists());
    assert_eq!(fs::read_to_string(store.lower_dirs(&second)[0].join("usr/bin/program")).unwrap(), "the second");
}

#[tokio::test(flavor = "multi_thread")]
async fn built_image_keeps_modes_owners_links_and_capabilities() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    for name in ["tmp", "bin", "var/lib/postgresql"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    fs::write(root.join("bin/su"), "su").unwrap();
    fs::write(root.join("bin/ping"), "ping").unwrap();
    fs::write(root.join("bin/sudo-user"), "").unwrap();
    fs::hard_link(root.join("bin/su"), root.join("bin/su-too")).unwrap();
    std::os::unix::fs::symlink("su", root.join("bin/link")).unwrap();
    let mode = |path: &str, mode: u32| {
        fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    std::os::unix::fs::chown(root.join("var/lib/postgresql"), Some(999), Some(2_097_153)).unwrap();
    std::os::unix::fs::lchown(root.join("bin/link"), Some(7), Some(8)).unwrap();
    mode("tmp", 0o1777);
    mode("bin/su", 0o4755);
    mode("bin/sudo-user", 0o2710);
    mode("var/lib/postgresql", 0o700);
    // cap_dac_override and cap_fowner: the value contains a newline.
    let capability = [1, 0, 0, 2, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let set = |name: &str, value: &[u8]| {
        rustix::fs::setxattr(root.join("bin/ping"), name, value, rustix::fs::XattrFlags::empty()).unwrap();
    };
    set("security.capability", &capability);
    set("user.note", b"kept");
    set("trusted.secret", b"left out");

    let recipe = Recipe { copies: vec![(root.clone(), "/".into())], ..Recipe::default() };
    let name = Name::parse("tool:1").unwrap();
    let store = Store::open(&dir.path().join("store")).unwrap();
    let image = store.build(&name, &recipe).await.unwrap();
    let archive = dir.path().join("a.tar");
    store.export(&[&image], File::create(&archive).unwrap()).unwrap();
    let elsewhere = Store::open(&dir.path().join("elsewhere")).unwrap();
    let image = elsewhere.import(&archive, None).await.unwrap().remove(0);
    let at = |path: &str| elsewhere.lower_dirs(&image)[0].join(path);
    let seen = |path: &str| {
        let found = fs::symlink_metadata(at(path)).unwrap();
        (found.mode() & 0o7777, found.uid(), found.gid(), found.mtime())
    };
    assert_eq!(seen("tmp"), (0o1777, 0, 0, 0));
    assert_eq!(seen("bin/su"), (0o4755, 0, 0, 0));
    assert_eq!(seen("bin/sudo-user"), (0o2710, 0, 0, 0));
    assert_eq!(seen("var/lib/postgresql"), (0o700, 999, 2_097_153, 0));
    assert_eq!(seen("bin/link"), (0o777, 7, 8, 0));
    assert_eq!(fs::metadata(at("bin/su")).unwrap().ino(), fs::metadata(at("bin/su-too")).unwrap().ino());
    let attribute = |name: &str| {
        let mut value = [0; 64];
        let length = rustix::fs::getxattr(at("bin/ping"), name, &mut value[..]).ok()?;
        Some(value[..length].to_vec())
    };
    assert_eq!(attribute("security.capability").as_deref(), Some(capability.as_slice()));
    assert_eq!(attribute("user.note").as_deref(), Some(b"kept".as_slice()));
    assert_eq!(attribute("trusted.secret"), None);
    assert_eq!(fs::read_to_string(at("bin/ping")).unwrap(), "ping");

    let again = Store::open(&dir.path().join("again")).unwrap();
    filetime(&root.join("bin/su"));
    assert_eq!(again.build(&name, &recipe).await.unwrap().id, image.id, "timestamps do not affect the digest");
    fs::write(root.join("bin/.wh.x"), "").unwrap();
    let error = again.build(&name, &recipe).await.unwrap_err();
    assert!(error.to_string().contains(".wh.x"), "{error}");
}

fn filetime(path: &Path) {
    File::options().write(true).open(path).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
}
