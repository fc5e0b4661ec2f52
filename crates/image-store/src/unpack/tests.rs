//! Tests of valid and hostile archives, each unpacked into a separate directory.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use tar::{Builder, Header};

use super::*;

struct Layer(Builder<Vec<u8>>);

impl Layer {
    fn new() -> Layer {
        Layer(Builder::new(Vec::new()))
    }

    fn header(kind: EntryType, size: usize) -> Header {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_uid(1);
        header.set_gid(2);
        header.set_size(size as u64);
        header
    }

    /// Writes the name to the header unchanged, since the builder rejects hostile names.
    fn raw(mut self, kind: EntryType, name: &str, link: &str, content: &[u8]) -> Layer {
        let mut header = Layer::header(kind, content.len());
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_gnu_mut().unwrap().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_cksum();
        self.0.append(&header, content).unwrap();
        self
    }

    fn file(self, name: &str, content: &str) -> Layer {
        self.raw(EntryType::Regular, name, "", content.as_bytes())
    }

    fn dir(self, name: &str) -> Layer {
        self.raw(EntryType::Directory, name, "", b"")
    }

    fn symlink(self, name: &str, target: &str) -> Layer {
        self.raw(EntryType::Symlink, name, target, b"")
    }

    fn unpack(self, into: &Path) -> Result<UnpackResult, UnpackError> {
        unpack(self.0.into_inner().unwrap().as_slice(), into, &room())
    }
}

fn room() -> ArchiveLimits {
    ArchiveLimits { bytes: 1 << 20, bound: "a test allows".to_owned(), entries: 100 }
}

fn world() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (inside, outside) = (dir.path().join("inside"), dir.path().join("outside"));
    fs::create_dir(&inside).unwrap();
    fs::create_dir(&outside).unwrap();
    (dir, inside, outside)
}

#[test]
fn files_directories_and_links_are_unpacked() {
    let (_dir, inside, _) = world();
    let unpacked = Layer::new()
        .dir("bin/")
        .file("bin/tool", "hello")
        .symlink("bin/alias", "tool")
        .raw(EntryType::Link, "bin/twin", "bin/tool", b"")
        .raw(EntryType::Fifo, "pipe", "", b"")
        .unpack(&inside)
        .unwrap();
    assert_eq!(fs::read_to_string(inside.join("bin/alias")).unwrap(), "hello");
    let (tool, twin) = (fs::metadata(inside.join("bin/tool")).unwrap(), fs::metadata(inside.join("bin/twin")).unwrap());
    assert_eq!((tool.ino(), tool.uid(), tool.gid(), tool.mode() & 0o7777), (twin.ino(), 1, 2, 0o644));
    assert!(fs::metadata(inside.join("pipe")).unwrap().file_type().is_fifo());
    assert_eq!((unpacked.bytes, unpacked.inodes, unpacked.assumed), (5, 5, Vec::<PathBuf>::new()));
}

#[test]
fn whiteouts_are_converted_to_overlayfs_form() {
    let (_dir, inside, _) = world();
    Layer::new().dir("etc").file("etc/.wh.gone", "").file("etc/.wh..wh..opq", "").unpack(&inside).unwrap();
    let gone = fs::metadata(inside.join("etc/gone")).unwrap();
    assert!(gone.file_type().is_char_device() && gone.rdev() == 0);
    let mut value = [0u8; 4];
    let length = rustix::fs::getxattr(inside.join("etc"), "trusted.overlay.opaque", &mut value).unwrap();
    assert_eq!(&value[..length], b"y");
}

#[test]
fn a_directory_that_replaces_a_removed_one_is_opaque() {
    let (_dir, inside, _) = world();
    Layer::new().file(".wh.data", "").dir("data").file("data/new", "1").unpack(&inside).unwrap();
    let mut value = [0u8; 4];
    assert_eq!(rustix::fs::getxattr(inside.join("data"), "trusted.overlay.opaque", &mut value), Ok(1));
}

#[test]
fn assumed_directories_are_reported() {
    let (_dir, inside, _) = world();
    let unpacked = Layer::new().file("a/b/c", "1").dir("a").unpack(&inside).unwrap();
    assert_eq!(unpacked.assumed, [PathBuf::from("a/b")]);
}

#[test]
fn assumed_directories_have_real_paths_and_are_dropped_when_replaced() {
    let (_dir, inside, _) = world();
    let layer = Layer::new().dir("real").symlink("alias", "real").file("alias/a/b", "1").file("gone/x/y", "1");
    let unpacked = layer.symlink("gone", "/etc").file("other/z", "1").unpack(&inside).unwrap();
    assert_eq!(unpacked.assumed, [PathBuf::from("other"), PathBuf::from("real/a")]);
}

#[test]
fn device_nodes_are_omitted() {
    let (_dir, inside, _) = world();
    let layer =
        Layer::new().dir("dev").raw(EntryType::Block, "dev/disk", "", b"").raw(EntryType::Char, "dev/null", "", b"");
    layer.file("dev/file", "x").unpack(&inside).unwrap();
    let names: Vec<_> = fs::read_dir(inside.join("dev")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["file"]);
}

#[test]
fn paths_that_leave_the_root_are_rejected() {
    for name in ["../outside/evil", "a/../../outside/evil", "a/.wh.."] {
        let (_dir, inside, outside) = world();
        let error = Layer::new().file(name, "evil").unpack(&inside).unwrap_err();
        assert!(matches!(error, UnpackError::Escape(_)), "{name}: {error}");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{name}");
    }
}

#[test]
fn links_out_of_the_layer_are_resolved_inside() {
    let (dir, inside, outside) = world();
    let absolute = outside.to_str().unwrap().to_owned();
    let layer = Layer::new()
        .dir("deep")
        .symlink("up", "../outside")
        .symlink("deep/far", "../../outside")
        .symlink("abs", &absolute)
        .file("/etc/absolute", "inside");
    layer.unpack(&inside).unwrap();
    assert!(inside.join("etc/absolute").exists());
    for name in ["up/evil", "deep/far/evil", "abs/evil"] {
        let again = dir.path().join("again");
        fs::create_dir(&again).unwrap();
        let layer = Layer::new().dir("deep").symlink("up", "../outside").symlink("deep/far", "../../outside");
        // The entry may be rejected or unpacked inside, but nothing may appear outside.
        let _ = layer.symlink("abs", &absolute).file(name, "evil").unpack(&again);
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{name}");
        fs::remove_dir_all(&again).unwrap();
    }
}

#[test]
fn hard_link_to_a_host_file_is_rejected() {
    let (_dir, inside, _) = world();
    let error = Layer::new().raw(EntryType::Link, "passwd", "/etc/passwd", b"").unpack(&inside).unwrap_err();
    assert!(matches!(error, UnpackError::Link { .. }), "{error}");
}

#[test]
fn overlayfs_attributes_in_an_archive_are_ignored() {
    let (_dir, inside, _) = world();
    let mut layer = Layer::new();
    layer.0.append_pax_extensions([("SCHILY.xattr.trusted.overlay.redirect", b"/etc".as_slice())]).unwrap();
    layer.dir("d").unpack(&inside).unwrap();
    let mut value = [0u8; 8];
    assert!(rustix::fs::getxattr(inside.join("d"), "trusted.overlay.redirect", &mut value).is_err());
}

#[test]
fn a_damaged_archive_is_an_error() {
    let (_dir, inside, _) = world();
    let bytes = Layer::new().file("a", &"x".repeat(5000)).0.into_inner().unwrap();
    assert!(unpack(&bytes[..2000], &inside, &room()).is_err());
    assert!(unpack(&[0xff; 1024][..], &inside, &room()).is_err());
}

#[test]
fn decompression_bomb_is_rejected() {
    let (_dir, inside, _) = world();
    let huge = {
        let mut header = Layer::header(EntryType::Regular, 2 << 20);
        header.set_path("huge").unwrap();
        header.set_cksum();
        header.as_bytes().to_vec()
    };
    let refused = unpack(huge.as_slice(), &inside, &room()).unwrap_err();
    assert_eq!(refused.to_string(), "the layer is larger than a test allows");
    assert_eq!(fs::read_dir(&inside).unwrap().count(), 0, "nothing of it is written");
    let many = (0..101).fold(Layer::new(), |layer, n| layer.file(&format!("file-{n}"), ""));
    assert_eq!(many.unpack(&inside).unwrap_err().to_string(), "the layer is larger than 100 entries");
    let named = Layer::new().raw(EntryType::GNULongName, "././@LongLink", "", &vec![b'x'; 5 << 20]).file("f", "");
    let (_dir, inside, _) = world();
    assert!(matches!(named.unpack(&inside).unwrap_err(), UnpackError::Archive(_)), "a name is no place for 5 MiB");
}
