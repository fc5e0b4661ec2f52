//! Commands with a closed standard output, as in `knarr image ls | head -1`.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

use std::process::{Command, Output};

const KNARR: &str = env!("CARGO_BIN_EXE_knarr");

/// Runs a command whose standard output is a pipe without a reader.
fn unread(arguments: &[&str]) -> Output {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    Command::new(KNARR).args(arguments).stdout(writer).output().unwrap()
}

#[test]
fn command_with_closed_stdout_finishes_and_succeeds() {
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

/// Commands that fail keep their exit code.
#[test]
fn failing_command_with_closed_stdout_keeps_its_exit_code() {
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
fn write_error_on_stdout_fails_the_command() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let Output { status, stderr, .. } = Command::new(KNARR).arg("licenses").stdout(full).output().unwrap();
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(!status.success() && stderr.contains("standard output"), "{status}: {stderr}");
}
