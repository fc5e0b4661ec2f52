//! `knarr install` into a root directory, and the notifications of the process to systemd.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;

use super::*;

/// Components other than the API server and the store, which start faster alone.
pub(super) const ALONE: &str =
    "--disable controller-manager,scheduler,kubelet,proxy,network,dns,local-path,metrics,ingress,manifests,dashboard";

fn knarr(arguments: &[&str]) -> Output {
    Command::new(KNARR).args(arguments).env("KNARR_CONFIG", "").output().unwrap()
}

#[test]
fn installation_into_a_root_directory_has_the_token_only_in_a_file_and_is_removed_completely() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().to_str().unwrap();
    let token = format!("abcdef.q7w8e3r5t6z1u2i3.{}", "0".repeat(64));
    let install = ["install", "--root", dir, "--init", "systemd"];
    let agent = ["agent", "--server", "https://192.0.2.1:6443", "--token", &token];
    let output = knarr(&[&install[..], &agent[..]].concat());
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("installed /usr/local/bin/knarr"), "{}", text(&output));
    let found = run(Command::new("grep").args(["-rl", "q7w8e3r5t6z1u2i3", dir]));
    assert_eq!(found, format!("{dir}/var/lib/knarr/join-token"));
    let mode = |path: &str| std::fs::metadata(root.path().join(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("var/lib/knarr/join-token"), mode("var/lib/knarr")), (0o600, 0o711));
    assert_eq!(mode("usr/local/bin/knarr"), 0o755);
    let settings = std::fs::read_to_string(root.path().join("etc/knarr/config.d/install.yaml")).unwrap();
    assert!(
        settings.ends_with("\nserver: https://192.0.2.1:6443\ntoken-file: /var/lib/knarr/join-token\n"),
        "{settings}"
    );
    let output = knarr(&["uninstall", "--root", dir]);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0, "{}", run(Command::new("find").arg(dir)));
    let output = knarr(&["uninstall", "--root", dir]);
    assert!(text(&output).contains("this host has no installation by `knarr install`"), "{}", text(&output));
}

#[test]
fn invalid_installations_are_rejected_and_change_nothing() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().to_str().unwrap();
    let check = |arguments: &[&str], expect: &str| {
        let output = knarr(&[&["install", "--root", dir], arguments].concat());
        assert!(!output.status.success() && text(&output).contains(expect), "{arguments:?}: {}", text(&output));
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
    };
    check(&["up"], "neither systemd nor OpenRC was found; choose one with --init");
    check(&["--init", "systemd", "up", "-d"], "--background is not a setting of a service");
    check(&["--init", "systemd", "up", "--secure-port", "x"], "invalid value 'x' for '--secure-port");
    check(&["--init", "openrc", "agent"], "--server");
    check(&["--init", "openrc", "agent", "--server", "https://a", "--token", "x"], "a join token has the form");
}

#[test]
fn systemd_is_notified_when_the_api_server_is_ready_and_while_it_is_alive() {
    let machine = Machine::new();
    let path = machine.dir.path().join("notify");
    let systemd = UnixDatagram::bind(&path).unwrap();
    systemd.set_read_timeout(Some(DEADLINE)).unwrap();
    let receive = || {
        let mut message = [0; 64];
        let length = systemd.recv(&mut message).unwrap();
        String::from_utf8(message[..length].to_vec()).unwrap()
    };
    let mut process = machine
        .command(&format!("{KNARR} up {ALONE} --data-dir {}", machine.data().display()))
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "1500000")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while receive() != "READY=1" {}
    assert_eq!(machine.succeed("curl -sk https://127.0.0.1:6443/readyz"), "ok");
    for _ in 0..3 {
        assert_eq!(receive(), "WATCHDOG=1");
    }
    run(Command::new("kill").arg(process.id().to_string()));
    assert!(process.wait().unwrap().success());
}
