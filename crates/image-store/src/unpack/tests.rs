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
        unpack(self.0.into_inner().unwrap().as_slice(), into, &limits())
    }
}

fn limits() -> ArchiveLimits {
    ArchiveLimits { bytes: 1 << 20, bound: "a test allows".to_owned(), entries: 100 }
}

fn test_dirs() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (root, outside) = (dir.path().join("inside"), dir.path().join("outside"));
    fs::create_dir(&root).unwrap();
    fs::create_dir(&outside).unwrap();
    (dir, root, outside)
}

#[test]
fn files_directories_and_links_are_unpacked() {
    let (_dir, root, _) = test_dirs();
    let unpacked = Layer::new()
        .dir("bin/")
        .file("bin/tool", "hello")
        .symlink("bin/alias", "tool")
        .raw(EntryType::Link, "bin/twin", "bin/tool", b"")
        .raw(EntryType::Fifo, "pipe", "", b"")
        .unpack(&root)
        .unwrap();
    assert_eq!(fs::read_to_string(root.join("bin/alias")).unwrap(), "hello");
    let (tool, twin) = (fs::metadata(root.join("bin/tool")).unwrap(), fs::metadata(root.join("bin/twin")).unwrap());
    assert_eq!((tool.ino(), tool.uid(), tool.gid(), tool.mode() & 0o7777), (twin.ino(), 1, 2, 0o644));
    assert!(fs::metadata(root.join("pipe")).unwrap().file_type().is_fifo());
    assert_eq!((unpacked.bytes, unpacked.inodes, unpacked.assumed), (5, 5, Vec::<PathBuf>::new()));
}

#[test]
fn whiteouts_are_converted_to_overlayfs_form() {
    let (_dir, root, _) = test_dirs();
    Layer::new().dir("etc").file("etc/.wh.gone", "").file("etc/.wh..wh..opq", "").unpack(&root).unwrap();
    let whiteout = fs::metadata(root.join("etc/gone")).unwrap();
    assert!(whiteout.file_type().is_char_device() && whiteout.rdev() == 0);
    let mut value = [0u8; 4];
    let length = rustix::fs::getxattr(root.join("etc"), "trusted.overlay.opaque", &mut value).unwrap();
    assert_eq!(&value[..length], b"y");
}

#[test]
fn directory_that_replaces_a_removed_one_is_opaque() {
    let (_dir, root, _) = test_dirs();
    Layer::new().file(".wh.data", "").dir("data").file("data/new", "1").unpack(&root).unwrap();
    let mut value = [0u8; 4];
    assert_eq!(rustix::fs::getxattr(root.join("data"), "trusted.overlay.opaque", &mut value), Ok(1));
}

#[test]
fn assumed_directories_are_reported() {
    let (_dir, root, _) = test_dirs();
    let unpacked = Layer::new().file("a/b/c", "1").dir("a").unpack(&root).unwrap();
    assert_eq!(unpacked.assumed, [PathBuf::from("a/b")]);
}

#[test]
fn assumed_directories_have_real_paths_and_are_dropped_when_replaced() {
    let (_dir, root, _) = test_dirs();
    let layer = Layer::new().dir("real").symlink("alias", "real").file("alias/a/b", "1").file("gone/x/y", "1");
    let unpacked = layer.symlink("gone", "/etc").file("other/z", "1").unpack(&root).unwrap();
    assert_eq!(unpacked.assumed, [PathBuf::from("other"), PathBuf::from("real/a")]);
}

#[test]
fn device_nodes_are_omitted() {
    let (_dir, root, _) = test_dirs();
    let layer =
        Layer::new().dir("dev").raw(EntryType::Block, "dev/disk", "", b"").raw(EntryType::Char, "dev/null", "", b"");
    layer.file("dev/file", "x").unpack(&root).unwrap();
    let names: Vec<_> = fs::read_dir(root.join("dev")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["file"]);
}

#[test]
fn paths_that_leave_the_root_are_rejected() {
    for name in ["../outside/evil", "a/../../outside/evil", "a/.wh.."] {
        let (_dir, root, outside) = test_dirs();
        let error = Layer::new().file(name, "evil").unpack(&root).unwrap_err();
        assert!(matches!(error, UnpackError::Escape(_)), "{name}: {error}");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{name}");
    }
}

#[test]
fn links_out_of_the_layer_are_resolved_within_it() {
    let (dir, root, outside) = test_dirs();
    let absolute = outside.to_str().unwrap().to_owned();
    let layer = Layer::new()
        .dir("deep")
        .symlink("up", "../outside")
        .symlink("deep/far", "../../outside")
        .symlink("abs", &absolute)
        .file("/etc/absolute", "inside");
    layer.unpack(&root).unwrap();
    assert!(root.join("etc/absolute").exists());
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
    let (_dir, root, _) = test_dirs();
    let error = Layer::new().raw(EntryType::Link, "passwd", "/etc/passwd", b"").unpack(&root).unwrap_err();
    assert!(matches!(error, UnpackError::Link { .. }), "{error}");
}

#[test]
fn overlayfs_attributes_in_an_archive_are_ignored() {
    let (_dir, root, _) = test_dirs();
    let mut layer = Layer::new();
    layer.0.append_pax_extensions([("SCHILY.xattr.trusted.overlay.redirect", b"/etc".as_slice())]).unwrap();
    layer.dir("d").unpack(&root).unwrap();
    let mut value = [0u8; 8];
    assert!(rustix::fs::getxattr(root.join("d"), "trusted.overlay.redirect", &mut value).is_err());
}

#[test]
fn damaged_archive_is_an_error() {
    let (_dir, root, _) = test_dirs();
    let bytes = Layer::new().file("a", &"x".repeat(5000)).0.into_inner().unwrap();
    assert!(unpack(&bytes[..2000], &root, &limits()).is_err());
    assert!(unpack(&[0xff; 1024][..], &root, &limits()).is_err());
}

#[test]
fn decompression_bomb_is_rejected() {
    let (_dir, root, _) = test_dirs();
    let huge = {
        let mut header = Layer::header(EntryType::Regular, 2 << 20);
        header.set_path("huge").unwrap();
        header.set_cksum();
        header.as_bytes().to_vec()
    };
    let error = unpack(huge.as_slice(), &root, &limits()).unwrap_err();
    assert_eq!(error.to_string(), "the layer is larger than a test allows");
    assert_eq!(fs::read_dir(&root).unwrap().count(), 0, "none of the layer is written");
    let many = (0..101).fold(Layer::new(), |layer, n| layer.file(&format!("file-{n}"), ""));
    assert_eq!(many.unpack(&root).unwrap_err().to_string(), "the layer is larger than 100 entries");
    let named = Layer::new().raw(EntryType::GNULongName, "././@LongLink", "", &vec![b'x'; 5 << 20]).file("f", "");
    let (_dir, root, _) = test_dirs();
    assert!(matches!(named.unpack(&root).unwrap_err(), UnpackError::Archive(_)), "a name has a maximum length");
}
