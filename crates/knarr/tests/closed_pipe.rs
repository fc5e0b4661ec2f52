//! Commands whose output nobody reads to its end, as in `knarr image ls | head -1`.

#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]

use std::process::{Command, Output};

const KNARR: &str = env!("CARGO_BIN_EXE_knarr");

/// Runs a command whose standard output has no reader.
fn unread(arguments: &[&str]) -> Output {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    Command::new(KNARR).args(arguments).stdout(writer).output().unwrap()
}

#[test]
fn a_command_whose_reader_has_gone_ends_well_and_finishes_its_work() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = format!("--data-dir={}", dir.path().display());
    let program = dir.path().join("program");
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    let program = program.to_str().unwrap();
    let manifest = dir.path().join("pod.yaml");
    std::fs::write(&manifest, "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n").unwrap();
    let archive = dir.path().join("image.tar");
    let archive = archive.to_str().unwrap();
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["up", "--help"],
        &["licenses"],
        &["convert", "-o", "json", "-f", manifest.to_str().unwrap()],
        &["image", &data_dir, "build", "tool:1", program],
        &["image", &data_dir, "ls"],
        &["image", &data_dir, "export", "tool:1", "-o", archive],
        &["image", &data_dir, "import", archive],
        &["image", &data_dir, "prune"],
        &["node", &data_dir, "ls"],
        &["up", &data_dir, "--systemd-unit"],
        &["server", &data_dir, "--systemd-unit"],
        &["agent", &data_dir, "--server=https://192.0.2.1:6443", "--systemd-unit"],
    ] {
        let Output { status, stderr, .. } = unread(arguments);
        let stderr = String::from_utf8_lossy(&stderr);
        assert!(status.success() && stderr.is_empty(), "knarr {}: {status}: {stderr}", arguments.join(" "));
    }
    let listed = Command::new(KNARR).args(["image", &data_dir, "ls"]).output().unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).contains("docker.io/library/tool:1"), "{listed:?}");
}

/// Commands that find something wrong say so, with their own exit code.
#[test]
fn a_command_that_fails_says_so_whoever_reads_its_output() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = format!("--data-dir={}", dir.path().join("nowhere").display());
    for arguments in
        [&["status", &nowhere][..], &["down", &nowhere], &["certs", &nowhere, "ls"], &["trace", &nowhere, "pod/a"]]
    {
        let Output { status, stderr, .. } = unread(arguments);
        let stderr = String::from_utf8_lossy(&stderr);
        assert_eq!(status.code(), Some(1), "knarr {}: {stderr}", arguments.join(" "));
        assert!(stderr.starts_with(&format!("knarr {}: ", arguments[0])), "{stderr}");
    }
}

#[test]
fn output_that_cannot_be_written_fails_the_command() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let Output { status, stderr, .. } = Command::new(KNARR).arg("licenses").stdout(full).output().unwrap();
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(!status.success() && stderr.contains("standard output"), "{status}: {stderr}");
}
