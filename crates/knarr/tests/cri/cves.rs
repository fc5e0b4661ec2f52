//! Published vulnerabilities of other container runtimes: none of the attacks escapes a container here.

use std::path::{Path, PathBuf};

use image_store::{Name, Recipe, Store};
use node_api::cri::v1;

use crate::machine::{Machine, busybox, machine, script, secured, strings};

/// Runs a container until it exits and returns its log, or `None` if it cannot be created or started.
async fn log_of(m: &mut Machine, sandbox: &str, config: v1::ContainerConfig) -> Option<String> {
    let id = m.try_create(sandbox, config).await.ok()?;
    m.runtime.start_container(v1::StartContainerRequest { container_id: id.clone() }).await.ok()?;
    let status = m.wait_for_exit(&id).await;
    Some(crate::machine::text_of(&std::fs::read_to_string(&status.log_path).unwrap()))
}

async fn build(m: &Machine, name: &str, recipe: &Recipe) {
    let store = Store::open(&m.path("runtime/images")).unwrap();
    store.build(&Name::parse(name).unwrap(), recipe).await.unwrap();
}

/// CVE-2024-21626: a working directory that is a leaked file descriptor of the runtime leads to the host's root.
#[tokio::test(flavor = "multi_thread")]
async fn working_directory_in_proc_self_fd_does_not_lead_to_the_host() {
    let mut m = machine().await;
    let marker = m.path("marker");
    std::fs::write(&marker, "of the host").unwrap();
    let sandbox = m.sandbox("fds").await;
    for fd in 3..24 {
        let up = "../".repeat(12);
        let mut config = script(&format!("fd{fd}"), &format!("cat ./{up}{} 2>/dev/null; echo done", marker.display()));
        config.working_dir = format!("/proc/self/fd/{fd}");
        if let Some(log) = log_of(&mut m, &sandbox, config).await {
            assert_eq!(log, "done\n", "descriptor {fd}");
        }
    }
    m.finish().await;
}

/// CVE-2019-19921, CVE-2023-27561, CVE-2023-28642, CVE-2025-54867: an image whose `/proc`, `/sys` or `/dev` is a
/// symbolic link gets these file systems mounted elsewhere, and masked paths are not masked. CVE-2025-31133,
/// CVE-2025-62161: the image's `/dev/null` is a link whose target is then mounted over the masked paths.
#[tokio::test(flavor = "multi_thread")]
async fn image_with_symlinked_proc_sys_or_dev_unmasks_no_path() {
    let mut m = machine().await;
    let sandbox = m.sandbox("links").await;
    for (n, (link, to)) in [("/proc", "/tmp"), ("/sys", "/tmp"), ("/dev", "/tmp"), ("/dev/null", "/proc/sysrq-trigger")]
        .into_iter()
        .enumerate()
    {
        let mut recipe = busybox();
        recipe.dirs.retain(|(path, _)| path != Path::new(link));
        if link == "/dev/null" {
            recipe.dirs.push((PathBuf::from("/dev"), 0o755));
        }
        recipe.links.push((PathBuf::from(link), to.into()));
        let image = format!("test.local/links{n}:1");
        build(&m, &image, &recipe).await;
        let probe = "head -c1 /proc/kcore 2>/dev/null | wc -c; (echo h >/proc/sysrq-trigger) 2>/dev/null && echo written || echo refused; \
                     [ -c /dev/null ] && echo device";
        let mut config = secured(&format!("c{n}"), probe, |security| {
            security.masked_paths = strings(&["/proc/kcore"]);
            security.readonly_paths = strings(&["/proc/sysrq-trigger"]);
        });
        config.image = Some(v1::ImageSpec { image, ..Default::default() });
        if let Some(log) = log_of(&mut m, &sandbox, config).await {
            assert_eq!(log, "0\nrefused\ndevice\n", "{link} -> {to}");
        }
    }
    m.finish().await;
}

/// CVE-2022-24769, CVE-2022-29162, CVE-2025-27612: processes had inheritable capabilities, which files could turn into
/// effective ones.
#[tokio::test(flavor = "multi_thread")]
async fn processes_have_no_inheritable_capabilities() {
    let mut m = machine().await;
    let sandbox = m.sandbox("inheritable").await;
    let probe = "grep -E 'CapInh|CapAmb' /proc/self/status | cut -f2";
    let none = "0000000000000000\n0000000000000000";
    for (name, user) in [("root", 0), ("user", 1000)] {
        let config = secured(name, &format!("{probe}; sleep 1000"), |security| {
            security.run_as_user = Some(v1::Int64Value { value: user });
        });
        let id = m.run(&sandbox, config).await;
        let log = m.logged(&id, "0\n").await;
        let log = crate::machine::text_of(&std::fs::read_to_string(log).unwrap());
        assert!(log.starts_with("0000000000000000\n"), "{name}: {log}");
        assert_eq!(m.shell(&id, probe).await, none, "{name}");
    }
    m.finish().await;
}

/// CVE-2024-40635: a UID beyond 32 bits became user 0.
#[tokio::test(flavor = "multi_thread")]
async fn uid_beyond_32_bits_is_rejected() {
    let mut m = machine().await;
    let sandbox = m.sandbox("numbers").await;
    for (n, user) in
        ["4294967296", "4294967296:4294967296", "1000:4294967296", "18446744073709551616", "-1"].into_iter().enumerate()
    {
        let mut recipe = busybox();
        recipe.config.user = user.to_owned();
        let image = format!("test.local/user{n}:1");
        build(&m, &image, &recipe).await;
        let mut config = script(&format!("c{n}"), "id -u; id -g");
        config.image = Some(v1::ImageSpec { image, ..Default::default() });
        let log = log_of(&mut m, &sandbox, config).await;
        assert_eq!(log, None, "{user}");
    }
    m.finish().await;
}

/// CVE-2022-31030: the output of ExecSync was collected in memory without a limit.
#[tokio::test(flavor = "multi_thread")]
async fn exec_sync_output_is_bounded() {
    let mut m = machine().await;
    let sandbox = m.sandbox("much").await;
    let id = m.run(&sandbox, script("c", "sleep 1000")).await;
    let cmd = strings(&["sh", "-c", "head -c 67108864 /dev/zero"]);
    let request = v1::ExecSyncRequest { container_id: id.clone(), cmd, timeout: 25 };
    let mut client = m.runtime.clone().max_decoding_message_size(128 << 20);
    if let Ok(response) = client.exec_sync(request).await {
        let length = response.into_inner().stdout.len();
        assert!(length <= 16 << 20, "{length} bytes");
    }
    assert_eq!(m.shell(&id, "echo alive").await, "alive");
    m.finish().await;
}

/// CVE-2020-15257: abstract sockets are reachable from every container with the host's network, as any user.
#[tokio::test(flavor = "multi_thread")]
async fn runtime_has_no_abstract_sockets() {
    let mut m = machine().await;
    let mut config = m.sandbox_config("host");
    let context = v1::LinuxSandboxSecurityContext {
        namespace_options: Some(v1::NamespaceOption { network: v1::NamespaceMode::Node.into(), ..Default::default() }),
        ..Default::default()
    };
    config.linux.as_mut().unwrap().security_context = Some(context);
    let sandbox = m.sandbox_of(config).await;
    let looks = secured("c", "grep -c '@.*knarr' /proc/net/unix", |security| {
        let options = security.namespace_options.as_mut().unwrap();
        options.network = v1::NamespaceMode::Node.into();
    });
    assert_eq!(log_of(&mut m, &sandbox, looks).await.as_deref(), Some("0\n"));
    m.finish().await;
}
