//! Failed starts: the reason is one sentence, and checks change nothing on the host.

use std::net::{TcpListener, UdpSocket};

use super::*;

/// Returns the error message of a start that fails.
fn start_error(machine: &Machine, how: &str, arguments: &str) -> String {
    let line = format!("{how} {KNARR} {arguments} --data-dir {}", machine.data().display());
    let output = machine.command(line.trim()).output().unwrap();
    assert!(!output.status.success(), "{line} succeeds");
    text(&output)
}

#[test]
fn failed_start_reports_the_reason_and_the_remedy() {
    let machine = Machine::new();
    let space = PathBuf::from(format!("/run/netns/{}", machine.namespace));
    let check = |how: &str, arguments: &str, expect: &[&str]| {
        let message = start_error(&machine, how, arguments);
        for text in expect {
            assert!(message.contains(text), "{text:?} is not in {message:?}");
        }
        assert_eq!(message.lines().count(), 1, "{message}");
    };
    // Each check uses a different port, so that the order of the checks does not matter.
    for (port, flag) in [(6443, "--secure-port"), (10250, "--kubelet-port"), (10053, "--dns-port")] {
        let taken = netlink::namespace::within(&space, || TcpListener::bind(("198.51.100.2", port)).unwrap()).unwrap();
        let expect = [format!("port {port} is in use by another process"), format!("choose another port with {flag}")];
        for way in ["up", "up -d"] {
            check("", way, &expect.each_ref().map(String::as_str));
        }
        drop(taken);
    }
    let taken = netlink::namespace::within(&space, || UdpSocket::bind(("198.51.100.2", 10053)).unwrap()).unwrap();
    check(
        "",
        "up",
        &["port 10053 is in use by another process, but the DNS server needs it: choose another port with --dns-port"],
    );
    drop(taken);
    let taken = netlink::namespace::within(&space, || TcpListener::bind(("127.0.0.1", 2379)).unwrap()).unwrap();
    check(
        "",
        "server",
        &["port 2379 is in use by another process, but the store's member needs it: stop that process"],
    );
    drop(taken);
    check("", "up --node-ip 198.51.100.77", &["198.51.100.77 is not an address of this host"]);

    let without = "setpriv --bounding-set=-sys_admin,-mknod --inh-caps=-all";
    let lacking = "running pods needs CAP_SYS_ADMIN, CAP_MKNOD, which this process does not have";
    check(without, "up", &[lacking, "--disable kubelet"]);
    check(without, "agent --server https://198.51.100.9:6443", &[lacking]);

    std::fs::create_dir_all(machine.data()).unwrap();
    run(Command::new("mount").args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]).arg(machine.data()));
    std::fs::write(machine.data().join("filler"), vec![0; 7 << 20]).unwrap();
    for way in ["up", "up -d", "server", "agent -d --server https://198.51.100.9:6443"] {
        check("", way, &["is full (", "free some space, or choose another directory with --data-dir"]);
    }
    run(Command::new("umount").arg(machine.data()));

    let bare = "up -d --disable kubelet,proxy,network,dns,local-path,metrics";
    machine.knarr(bare);
    check("", bare, &["a cluster already runs as process", "stop it with `knarr down`"]);
    check("", "up", &["belongs to a cluster that runs as process", "stop it with `knarr down`"]);
    machine.knarr("down --purge");
}

#[test]
fn certs_ls_does_not_change_an_agents_ca() {
    let dir = tempfile::tempdir().unwrap();
    let pki = dir.path().join("pki");
    let ca = pki::Pki::open(&pki).unwrap().ca_certificate(pki::CertificateAuthority::Cluster);
    let trusted = std::fs::read(&ca).unwrap();
    // An agent has only the CA certificate, not its key.
    for entry in std::fs::read_dir(&pki).unwrap().flatten().filter(|entry| entry.path() != ca) {
        std::fs::remove_file(entry.path()).unwrap();
    }
    let output_of = |arguments: &str| {
        let mut command = Command::new(KNARR);
        text(&command.args(arguments.split(' ')).arg("--data-dir").arg(dir.path()).output().unwrap())
    };
    let listed = output_of("certs ls");
    assert!(listed.contains("kubernetes-ca") && listed.lines().count() == 2, "{listed}");
    assert!(output_of("certs rotate").contains("this host is not a server"));
    output_of("doctor -o json");
    assert!(output_of("status").contains("no cluster runs"));
    assert!(
        output_of("up --disable kubelet,proxy,network,dns,local-path,metrics --secure-port 0 --node-ip 127.0.0.1")
            .contains("without its key")
    );
    assert_eq!(std::fs::read(&ca).unwrap(), trusted);
    assert_eq!(std::fs::read_dir(&pki).unwrap().flatten().filter(|it| it.path().ends_with("ca.key")).count(), 0);
}

#[test]
fn agent_prints_a_systemd_unit() {
    let mut unit = Command::new(KNARR);
    let unit =
        run(unit.args(["agent", "--server", "https://192.0.2.1:6443", "--node-name", "n", "--systemd-unit", "-d"]));
    assert!(
        unit.contains(&format!("ExecStart={KNARR} agent --server https://192.0.2.1:6443 --node-name n\n")),
        "{unit}"
    );
}

#[test]
fn systemd_unit_has_a_token_file_that_only_its_owner_may_read() {
    let directory = tempfile::tempdir().unwrap();
    let token = format!("abcdef.0123456789abcdef.{}", "0".repeat(64));
    for command in [["agent", "--server"], ["server", "--join"]] {
        let mut unit = Command::new(KNARR);
        let unit = run(unit
            .args(command)
            .args(["https://192.0.2.1:6443", "--token", &token, "--systemd-unit"])
            .args(["--data-dir", directory.path().to_str().unwrap()]));
        let file = directory.path().join("join-token");
        assert!(!unit.contains("0123456789abcdef"), "{unit}");
        assert!(unit.contains(&format!(" --token-file={}\n", file.display())), "{unit}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), token);
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        std::fs::remove_file(&file).unwrap();
    }
}
