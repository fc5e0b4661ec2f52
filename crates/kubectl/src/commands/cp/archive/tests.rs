use std::os::unix::fs::{PermissionsExt, symlink};

use tempfile::tempdir;

use super::*;

/// Adds an entry without the checks of the builder.
fn hostile(archive: &mut Builder<Vec<u8>>, name: &str, kind: EntryType, link: &str, data: &[u8]) {
    let mut header = Header::new_gnu();
    header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
    header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(data.len() as u64);
    header.set_cksum();
    archive.append(&header, data).unwrap();
}

fn unpack_into(bytes: &[u8], prefix: &str, destination: &Path) -> (Result<(), String>, Vec<String>) {
    let mut warnings = Vec::new();
    let destination = destination.to_str().unwrap();
    let unpacking = Unpacking { prefix, destination, alternative: "kubectl exec" };
    let outcome = unpack(bytes, &unpacking, |warning| warnings.push(warning.replace(destination, "DEST")));
    (outcome, warnings)
}

#[test]
fn directory_is_packed_and_unpacked_again() {
    let dir = tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir_all(source.join("sub/empty")).unwrap();
    fs::write(source.join("sub/file"), "content").unwrap();
    fs::write(source.join(format!("{}.txt", "long".repeat(40))), "long").unwrap();
    fs::set_permissions(source.join("sub/file"), fs::Permissions::from_mode(0o750)).unwrap();
    symlink("file", source.join("sub/link")).unwrap();
    let mut bytes = Vec::new();
    pack(&source, "there", &mut bytes).unwrap();
    let names: Vec<String> = Archive::new(&bytes[..])
        .entries()
        .unwrap()
        .map(|entry| entry.unwrap().path().unwrap().display().to_string())
        .collect();
    assert_eq!(names[1..], ["there/sub/empty/", "there/sub/file", "there/sub/link"]);
    let target = dir.path().join("target");
    let (outcome, warnings) = unpack_into(&bytes, "there", &target);
    outcome.unwrap();
    assert_eq!(fs::read_to_string(target.join("sub/file")).unwrap(), "content");
    assert_eq!(fs::read_to_string(target.join(format!("{}.txt", "long".repeat(40)))).unwrap(), "long");
    assert!(target.join("sub/empty").is_dir());
    let expect = "warning: skipping symlink: \"DEST/sub/link\" -> \"file\" (consider using \"kubectl exec\")";
    assert_eq!(warnings, [expect]);
    assert!(!target.join("sub/link").exists());
}

#[test]
fn hostile_archive_writes_only_below_the_destination() {
    let dir = tempdir().unwrap();
    let target = dir.path().join("target");
    let outside = dir.path().join("outside");
    let mut archive = Builder::new(Vec::new());
    hostile(&mut archive, "p/../../outside", EntryType::Regular, "", b"bad");
    hostile(&mut archive, "p/link", EntryType::Symlink, outside.to_str().unwrap(), b"");
    hostile(&mut archive, "p/link/file", EntryType::Regular, "", b"good");
    hostile(&mut archive, "p/back\\..\\..\\..\\outside", EntryType::Regular, "", b"bad");
    let bytes = archive.into_inner().unwrap();
    let (outcome, warnings) = unpack_into(&bytes, "p", &target);
    outcome.unwrap();
    assert!(!outside.exists());
    assert_eq!(fs::read_to_string(target.join("link/file")).unwrap(), "good", "the link is a directory");
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    let mut other = Builder::new(Vec::new());
    hostile(&mut other, "elsewhere", EntryType::Regular, "", b"bad");
    let bytes = other.into_inner().unwrap();
    assert_eq!(unpack_into(&bytes, "p", &target).0, Err("tar contents corrupted".to_owned()));
}

#[test]
fn name_of_unlimited_length_is_rejected() {
    let dir = tempdir().unwrap();
    let mut archive = Builder::new(Vec::new());
    hostile(&mut archive, "././@LongLink", EntryType::GNULongName, "", &vec![b'a'; 2 << 20]);
    let bytes = archive.into_inner().unwrap();
    let outcome = unpack_into(&bytes, "", dir.path()).0.unwrap_err();
    assert!(outcome.contains("header field too long"), "{outcome}");
}

#[test]
fn truncated_archive_is_an_error() {
    let dir = tempdir().unwrap();
    let mut archive = Builder::new(Vec::new());
    hostile(&mut archive, "p", EntryType::Regular, "", &[b'x'; 4096]);
    let bytes = archive.into_inner().unwrap();
    assert!(unpack_into(&bytes[..2000], "p", &dir.path().join("file")).0.is_err());
}
