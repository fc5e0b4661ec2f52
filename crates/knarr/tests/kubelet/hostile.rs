//! Hostile images and registries: the pod reports the error, and nothing is written outside the image's directory.

use std::fs;

use tar::{Builder, EntryType, Header};

use crate::cluster::*;
use crate::registry::{LAYER, Registry};

/// Returns a raw tar entry, without the checks of the builder for its name.
fn entry(kind: EntryType, name: &str, link: &str, content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(content.len() as u64);
    header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
    header.as_gnu_mut().unwrap().linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_cksum();
    let mut builder = Builder::new(Vec::new());
    builder.append(&header, content).unwrap();
    let mut bytes = builder.into_inner().unwrap();
    // The end-of-archive marker follows the last entry.
    bytes.truncate(bytes.len() - 1024);
    bytes
}

fn archive(entries: &[Vec<u8>]) -> Vec<u8> {
    [entries.concat(), vec![0; 1024]].concat()
}

/// Returns an entry whose header claims a much larger size.
fn bomb(bytes: u64) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_path("bomb").unwrap();
    header.set_size(bytes);
    header.set_cksum();
    header.as_bytes().to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_image_is_rejected_with_a_message_and_writes_nothing() {
    let cluster = cluster_with_built_in().await;
    let victim = cluster.path("victim");
    fs::write(&victim, "untouched").unwrap();
    let outside = victim.display().to_string();
    let mut registry = Registry::default();
    let climbs = archive(&[entry(EntryType::Regular, "../../../../victim", "", b"evil")]);
    let steals = archive(&[entry(EntryType::Link, "mine", &outside, b"")]);
    let explodes = archive(&[bomb(1 << 40)]);
    for (name, tar) in [("climbs", &climbs), ("steals", &steals), ("explodes", &explodes)] {
        registry.add_image(&format!("test/{name}"), LAYER, tar.clone(), tar);
    }
    let plain = archive(&[entry(EntryType::Regular, "file", "", b"content")]);
    let layer = registry.add_image("test/lies", LAYER, plain.clone(), &plain);
    registry.forge(&layer, [&plain[..], b"more"].concat());
    let other = archive(&[entry(EntryType::Regular, "file", "", b"another")]);
    registry.add_image("test/differs", LAYER, other, &plain);
    let host = registry.start();
    for (name, expected) in [
        ("climbs", "leaves the layer"),
        ("steals", "which the layer does not have"),
        ("explodes", "the layer is larger than"),
        ("lies", "sha256:"),
        ("differs", "the layer unpacks to"),
    ] {
        let mut rejected = pod(name, "true");
        set_container(&mut rejected, "image", format!("{host}/test/{name}:1"));
        cluster.create(&PODS, &rejected).await;
        let event = cluster.event(&format!("Failed: Failed to pull image \"{host}/test/{name}:1\"")).await;
        let message = event.str_at(&["message"]).unwrap();
        assert!(message.contains(expected), "{name}: {message}");
        cluster.delete(name).await;
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
    let layers = fs::read_dir(cluster.path("runtime/images/layers")).into_iter().flatten().flatten();
    let half = layers.filter(|entry| entry.file_name().to_string_lossy().starts_with(".tmp-"));
    assert_eq!(half.count(), 0, "the partially unpacked layers are removed");
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn image_links_and_devices_do_not_escape_the_root_file_system() {
    let cluster = cluster_with_built_in().await;
    let victim = cluster.path("victim");
    fs::write(&victim, "untouched").unwrap();
    let outside = victim.display().to_string();
    let mut device = entry(EntryType::Char, "dev-mem", "", b"");
    {
        let mut header = Header::from_byte_slice(&device[..512]).clone();
        header.set_device_major(1).unwrap();
        header.set_device_minor(1).unwrap();
        header.set_mode(0o666);
        header.set_cksum();
        device[..512].copy_from_slice(header.as_bytes());
    }
    let busybox = fs::read("/bin/busybox").unwrap();
    let mut program = entry(EntryType::Regular, "bin/busybox", "", &busybox);
    {
        let mut header = Header::from_byte_slice(&program[..512]).clone();
        header.set_mode(0o755);
        header.set_cksum();
        program[..512].copy_from_slice(header.as_bytes());
    }
    let tar = archive(&[
        entry(EntryType::Symlink, "bin/sh", "busybox", b""),
        program,
        entry(EntryType::Symlink, "out", &outside, b""),
        entry(EntryType::Symlink, "etc", "/", b""),
        device,
    ]);
    let mut registry = Registry::default();
    registry.add_image("test/links", LAYER, tar.clone(), &tar);
    let host = registry.start();
    let script = "/bin/busybox cat /out 2>/dev/null || echo nothing there; \
        /bin/busybox head -c 1 /dev-mem >/dev/null 2>&1 && echo read the memory || echo refused; (echo x >/out) 2>/dev/null; echo done";
    let mut looks = pod("looks", script);
    set(&mut looks, "restartPolicy", "Never");
    set_container(&mut looks, "image", format!("{host}/test/links:1"));
    assert_eq!(cluster.output(&looks).await, "nothing there\nrefused\ndone\n");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
    cluster.finish().await;
}
