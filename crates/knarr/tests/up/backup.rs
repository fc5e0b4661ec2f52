//! Backups of a running cluster, made by hand and on schedule, and their restoration after a purge.

use super::service::ALONE;
use super::*;

#[test]
fn purged_cluster_is_restored_from_an_encrypted_backup_and_backups_are_made_on_schedule() {
    let machine = Machine::new();
    let at = |name: &str| machine.dir.path().join(name).display().to_string();
    let up = format!("up -d {ALONE} --node-name one");
    let secret = at("key");
    let public = machine.succeed(&format!("{KNARR} backup key {secret}"));

    machine.knarr(&format!("{up} --backup-every 1h --keep 2 --backup-dir {}", at("scheduled")));
    let list = format!("find {} -name knarr-*.backup", at("scheduled"));
    machine.eventually(&list, |files| files.lines().count() == 1);
    let metric = "kubectl get --raw /metrics";
    machine.eventually(metric, |text| text.contains("\nknarr_backup_last_success_timestamp_seconds 1"));
    let doctor = machine.output_of(&format!("{KNARR} doctor --data-dir {}", machine.data().display()));
    assert!(
        doctor.lines().any(|line| line.starts_with("ok") && line.contains(" backup ") && line.contains("0 h ago")),
        "{doctor}"
    );

    machine.succeed("kubectl create configmap saved --from-literal=a=b");
    let saved = machine.knarr(&format!("backup --to {} --encrypt-to {public}", at("saved")));
    assert!(saved.contains("it was verified by restoring it"), "{saved}");
    machine.succeed("kubectl create configmap later");
    let ca = std::fs::read(machine.data().join("pki/ca.crt")).unwrap();
    machine.knarr("down --purge");

    let restore =
        format!("{KNARR} restore {} --root {} --data-dir {}", at("saved"), at("root"), machine.data().display());
    assert!(machine.output_of(&restore).contains("is encrypted; give the private key with --key"));
    let restored = machine.succeed(&format!("{restore} --key {secret}"));
    assert!(restored.contains("--node-name one"), "{restored}");
    assert_eq!(std::fs::read(machine.data().join("pki/ca.crt")).unwrap(), ca);
    machine.knarr(&up);
    assert_eq!(machine.succeed("kubectl get configmap saved -o jsonpath={.data.a}"), "b");
    assert!(machine.output_of("kubectl get configmap later").contains("NotFound"));
    let refused = machine.output_of(&format!("{restore} --key {secret}"));
    assert!(refused.contains("is not empty"), "{refused}");
    machine.knarr("down --purge");
}
