//! Tests of layers that depend on others, and of hostile layers.

use std::io::Write;
use std::os::unix::fs::MetadataExt;

use tar::{Builder, EntryType, Header};

use super::*;

/// Builds an archive from type, name, and link target or content.
fn archive(entries: &[(EntryType, &str, &str)]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (kind, name, text) in entries {
        let mut header = Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_mode(if *kind == EntryType::Directory { 0o750 } else { 0o644 });
        header.set_uid(7);
        header.set_gid(8);
        header.set_mtime(1000);
        header.set_size(0);
        header.set_path(name).unwrap();
        if *kind == EntryType::Symlink {
            header.set_link_name_literal(text).unwrap();
        } else {
            header.set_size(text.len() as u64);
        }
        header.set_cksum();
        builder.append(&header, if *kind == EntryType::Symlink { &[][..] } else { text.as_bytes() }).unwrap();
    }
    builder.into_inner().unwrap()
}

struct Fixture {
    dir: tempfile::TempDir,
    layers: Layers,
}

impl Fixture {
    fn new() -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let layers = Layers::open(&dir.path().join("layers")).unwrap();
        Fixture { dir, layers }
    }

    /// Unpacks and publishes archives, one layer on top of the other.
    fn publish(&self, archives: &[Vec<u8>]) -> Result<Vec<Digest>, LayerError> {
        let mut chain = Vec::new();
        let mut keys = Vec::new();
        for archive in archives {
            chain.push(Digest::of(archive));
            let prepared = self.prepare(archive, archive)?;
            keys.push(self.layers.publish(prepared, &chain)?);
        }
        Ok(keys)
    }

    fn prepare(&self, blob: &[u8], tar: &[u8]) -> Result<UnpackedLayer, LayerError> {
        let path = self.dir.path().join("blob");
        fs::write(&path, blob).unwrap();
        self.layers.prepare(&path, &Digest::of(tar))
    }

    /// Creates a directory outside of the layers that must stay unchanged.
    fn canary(&self) -> PathBuf {
        let path = self.dir.path().join("canary");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o711)).unwrap();
        path
    }
}

#[test]
fn assumed_directories_take_the_attributes_of_the_layer_below() {
    let fixture = Fixture::new();
    let lower = archive(&[(EntryType::Directory, "var", ""), (EntryType::Directory, "var/lib", "")]);
    let upper = archive(&[(EntryType::Regular, "var/lib/file", "x")]);
    let keys = fixture.publish(&[lower, upper]).unwrap();
    let stat = fs::metadata(fixture.layers.files(&keys[1]).join("var/lib")).unwrap();
    assert_eq!((stat.uid(), stat.gid(), stat.mode() & 0o7777, stat.mtime()), (7, 8, 0o750, 1000));
}

/// The class of CVE-2021-32760: publishing changed owner, mode and times of the target of a symlink.
#[test]
fn cve_2021_32760_an_assumed_directory_replaced_by_a_link_is_not_followed() {
    for hostile in [
        // The directory itself becomes a symlink.
        vec![(EntryType::Regular, "victim/file", "x"), (EntryType::Symlink, "victim", "CANARY")],
        // A parent directory becomes a symlink.
        vec![(EntryType::Regular, "top/victim/file", "x"), (EntryType::Symlink, "top", "CANARY/..")],
        // The directory is assumed through a symlink that is changed afterwards.
        vec![
            (EntryType::Directory, "real", ""),
            (EntryType::Symlink, "top", "real"),
            (EntryType::Regular, "top/victim/file", "x"),
            (EntryType::Symlink, "top", "CANARY/.."),
        ],
    ] {
        let fixture = Fixture::new();
        let canary = fixture.canary();
        let before = fs::metadata(&canary).unwrap();
        let lower = archive(&[
            (EntryType::Directory, "victim", ""),
            (EntryType::Directory, "top", ""),
            (EntryType::Directory, "top/victim", ""),
            (EntryType::Directory, "top/canary", ""),
            (EntryType::Directory, "real", ""),
            (EntryType::Directory, "real/victim", ""),
        ]);
        let target = canary.display().to_string();
        let entries: Vec<(EntryType, &str, String)> =
            hostile.iter().map(|(kind, name, text)| (*kind, *name, text.replace("CANARY", &target))).collect();
        let entries: Vec<(EntryType, &str, &str)> =
            entries.iter().map(|(kind, name, text)| (*kind, name.trim_start_matches('/'), text.as_str())).collect();
        let upper = archive(&entries);
        fs::create_dir_all(canary.join("../victim")).unwrap();
        let victim = fs::metadata(canary.join("../victim")).unwrap();
        fixture.publish(&[lower, upper]).unwrap();
        for (path, before) in [(canary.clone(), before), (canary.join("../victim"), victim)] {
            let after = fs::metadata(&path).unwrap();
            let attributes =
                |stat: &fs::Metadata| (stat.uid(), stat.gid(), stat.mode(), stat.mtime(), stat.ctime_nsec());
            assert_eq!(attributes(&after), attributes(&before), "{hostile:?}: {}", path.display());
        }
    }
}

#[test]
fn bytes_after_the_end_of_an_archive_are_bounded() {
    let fixture = Fixture::new();
    let mut tar = archive(&[(EntryType::Regular, "file", "x")]);
    tar.resize(tar.len() + (1 << 20), 0);
    assert!(fixture.prepare(&tar, &tar).is_ok(), "a MiB of padding is allowed");
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    bomb.write_all(&tar).unwrap();
    let megabyte = vec![0; 1 << 20];
    for _ in 0..=(PADDING_BYTES_MAX >> 20) {
        bomb.write_all(&megabyte).unwrap();
    }
    let bomb = bomb.finish().unwrap();
    let error = fixture.prepare(&bomb, b"never compared").map(|_| ()).unwrap_err();
    assert!(matches!(&error, LayerError::Unpack { source: UnpackError::TooLarge(_), .. }), "{error:?}");
}

/// CVE-2021-41103 and CVE-2024-25621: local users ran set-user-ID programs of layers.
#[test]
fn cve_2021_41103_layers_are_closed_to_other_users() {
    let fixture = Fixture::new();
    let keys = fixture.publish(&[archive(&[(EntryType::Regular, "file", "x")])]).unwrap();
    for path in [fixture.dir.path().join("layers"), fixture.layers.dir(&keys[0])] {
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o077, 0, "{}", path.display());
    }
}
