//! Attacks of hostile images and pods on the host.
//!
//! Some are published vulnerabilities of other runtimes. Those tests have the CVE in their names.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use image_store::{Name, Recipe, Store};
use node_api::cri::v1;

use crate::machine::{IMAGE, Machine, machine, script, secured, strings};

/// File descriptors that a runtime might leak into a container.
const DESCRIPTORS: std::ops::Range<u32> = 3..24;

fn volume(container_path: &str, host: &Path) -> v1::Mount {
    v1::Mount { container_path: container_path.into(), host_path: host.display().to_string(), ..Default::default() }
}

async fn try_start(m: &mut Machine, id: &str) -> Result<(), tonic::Status> {
    m.runtime.start_container(v1::StartContainerRequest { container_id: id.into() }).await.map(|_| ())
}

async fn is_rejected(m: &mut Machine, sandbox: &str, config: v1::ContainerConfig) -> bool {
    match m.try_create(sandbox, config).await {
        Err(_) => true,
        Ok(id) => try_start(m, &id).await.is_err(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn container_can_use_only_its_own_devices() {
    let mut m = machine().await;
    let sandbox = m.sandbox("devices").await;
    let id = m.run(&sandbox, script("c", "sleep 1000")).await;
    // The kernel log device, which every host has, and the block devices.
    let mut devices = vec![("c".to_owned(), "1 11".to_owned())];
    let partitions = fs::read_to_string("/proc/partitions").unwrap();
    let disks = partitions.lines().skip(2).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        Some(("b".to_owned(), format!("{} {}", fields.first()?, fields.get(1)?)))
    });
    devices.extend(disks.take(2));
    for (kind, numbers) in devices {
        let script = format!(
            "rm -f /dev/node; mknod /dev/node {kind} {numbers} && dd if=/dev/node of=/dev/null bs=512 count=1 2>&1; \
             dd if=/dev/zero of=/dev/node bs=1 count=0 2>&1; true"
        );
        let stdout = m.shell(&id, &script).await;
        assert_eq!(stdout.matches("Operation not permitted").count(), 2, "{kind} {numbers}: {stdout}");
    }
    // Even an allowed device node works only in its /dev.
    let stdout = m.shell(&id, "mknod /null c 1 3 && cat /null 2>&1; echo x >/dev/null && echo works").await;
    assert_eq!(stdout, "cat: can't open '/null': Permission denied\nworks");
    assert_eq!(m.shell(&id, "awk '$2 == \"/\" {print $4}' /proc/mounts | tr , '\\n' | grep -c nodev").await, "1");
    let privileged = secured("privileged", "mknod /dev/node c 1 11 && head -c 1 /dev/node | wc -c", |security| {
        security.privileged = true;
    });
    assert_eq!(m.output(&sandbox, privileged).await.1, "1\n");
    m.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn device_works_at_the_requested_path() {
    let mut m = machine().await;
    let sandbox = m.sandbox("outside").await;
    let mut config = script("c", "for d in /dev/mine /opt/outside; do echo x >$d && stat -c %t:%T $d; done");
    let device = |container_path: &str| v1::Device {
        container_path: container_path.into(),
        host_path: "/dev/null".into(),
        permissions: "rwm".into(),
    };
    config.devices = vec![device("/dev/mine"), device("/opt/outside")];
    assert_eq!(m.output(&sandbox, config).await.1, "1:3\n1:3\n");
    m.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn container_without_device_filter_does_not_start() {
    let mut m = machine().await;
    let sandbox = m.sandbox("unrestricted").await;
    let id = m.create(&sandbox, script("c", "sleep 1000")).await;
    let cgroup = cgroups::Cgroup::at(&format!("{}/{id}", m.cgroup));
    match cgroup.unified_dir() {
        Some(dir) => {
            // A cgroup accepts at most 64 BPF programs. These 64 allow everything.
            cgroup.create().unwrap();
            let allow = [(0xb7, 1), (0x95, 0)].map(|(code, immediate)| sys::BpfInstruction {
                code,
                registers: 0,
                offset: 0,
                immediate,
            });
            for _ in 0..64 {
                let program = sys::load_device_filter(&allow).unwrap();
                sys::attach_device_filter(fs::File::open(&dir).unwrap(), program).unwrap();
            }
            let error = try_start(&mut m, &id).await.unwrap_err();
            assert!(error.message().contains("cannot attach the device filter"), "{error}");
        }
        // On cgroup v1 a container does not start without the devices controller, which the test cannot remove.
        None => assert!(cgroups::Cgroup::has_device_controller()),
    }
    m.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn image_volumes_are_mounted_noexec_nosuid_nodev() {
    let mut m = machine().await;
    let sandbox = m.sandbox("volumes").await;
    let mut config = script("c", "sleep 1000");
    let image = v1::ImageSpec { image: IMAGE.into(), ..Default::default() };
    config.mounts = vec![v1::Mount { container_path: "/image".into(), image: Some(image), ..Default::default() }];
    let id = m.run(&sandbox, config).await;
    let flags = m.shell(&id, "awk '$2 == \"/image\" {print $4}' /proc/mounts").await;
    for flag in ["ro", "nosuid", "nodev", "noexec"] {
        assert!(flags.split(',').any(|own| own == flag), "{flag} is not in {flags}");
    }
    let output = m.shell(&id, "/image/bin/busybox true 2>&1 || true").await;
    assert!(output.contains("Permission denied"), "{output}");
    m.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn numeric_user_is_not_looked_up_in_the_image() {
    let mut m = machine().await;
    let name = "test.local/named-by-number:1";
    let mut recipe: Recipe = crate::machine::busybox();
    recipe.files[0].1 = b"1000:x:0:0::/root:/bin/sh\nroot:x:0:0::/root:/bin/sh\n".to_vec();
    let store = Store::open(&m.path("runtime/images")).unwrap();
    store.build(&Name::parse(name).unwrap(), &recipe).await.unwrap();
    m.restart().await;
    let sandbox = m.sandbox("numbers").await;
    let mut config = secured("c", "id -u", |security| security.run_as_user = Some(v1::Int64Value { value: 1000 }));
    config.image = Some(v1::ImageSpec { image: name.into(), ..Default::default() });
    assert_eq!(m.output(&sandbox, config).await.1, "1000\n");
    m.finish().await;
}

/// Local users of the host read Secrets in bundles and ran set-user-ID files of layers.
#[tokio::test(flavor = "multi_thread")]
async fn cve_2021_41103_and_2024_25621_local_users_cannot_access_bundles_or_layers() {
    let mut m = machine().await;
    let sandbox = m.sandbox("private").await;
    let mut config = script("c", "echo $SECRET; sleep 1000");
    config.envs = vec![v1::KeyValue { key: "SECRET".into(), value: "hush".into() }];
    let id = m.run(&sandbox, config).await;
    m.logged(&id, "hush").await;
    let container = m.path("runtime/containers").join(&id);
    let log = PathBuf::from(m.status(&id).await.log_path);
    assert_eq!(fs::metadata(&log).unwrap().mode() & 0o777, 0o640);
    for file in ["bundle/config.json", "inner/config.json", "record.json"] {
        assert_eq!(fs::metadata(container.join(file)).unwrap().mode() & 0o777, 0o600, "{file}");
    }
    let reads = |path: &Path| {
        let mut cat = Command::new("/bin/busybox");
        cat.arg("find").arg(path).args(["-maxdepth", "1"]).uid(65534).gid(65534).current_dir("/");
        cat.output().unwrap().status.success()
    };
    let runtime = m.path("runtime");
    let closed = [
        container.join("bundle/config.json"),
        container.join("bundle/rootfs"),
        container.join("upper"),
        container.clone(),
        runtime.join("containers"),
        runtime.join("sandboxes").join(&sandbox),
        runtime.join("images"),
        runtime.join("images/layers"),
        runtime.join("images/blobs/sha256"),
    ];
    for path in closed {
        assert!(path.exists(), "{}", path.display());
        assert!(!reads(&path), "{} is readable by other users", path.display());
    }
    m.finish().await;
}

/// Root in a container overwrote the runtime's executable through `/proc/<pid>/exe`.
#[tokio::test(flavor = "multi_thread")]
async fn cve_2019_5736_runtime_executable_cannot_be_overwritten() {
    let mut m = machine().await;
    let sandbox = m.sandbox("program").await;
    let dir = m.path("runtime/sandboxes").join(&sandbox);
    let shims: Vec<PathBuf> = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .filter(|process| {
            let line = fs::read(process.join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&dir.display().to_string())
        })
        .collect();
    assert!(!shims.is_empty());
    for process in shims {
        // A running executable is busy only until it exits. The write must fail permanently.
        let error = fs::OpenOptions::new().write(true).open(process.join("exe")).unwrap_err();
        let protected = [io::ErrorKind::ReadOnlyFilesystem, io::ErrorKind::PermissionDenied];
        assert!(protected.contains(&error.kind()), "{}: {error}", process.display());
    }
    m.finish().await;
}

/// A working directory of `/proc/self/fd/N` was a directory of the host, through a leaked file descriptor of the
/// runtime.
#[tokio::test(flavor = "multi_thread")]
async fn cve_2024_21626_no_runtime_descriptor_leaks_into_a_container() {
    let mut m = machine().await;
    let sandbox = m.sandbox("descriptors").await;
    let probe = "up=/proc/self/cwd/../../../../../../../../../../..; \
                  [ \"$(stat -L -c %d:%i $up)\" = \"$(stat -c %d:%i /)\" ] && echo inside || echo outside";
    for n in DESCRIPTORS {
        let mut config = script(&format!("c{n}"), probe);
        config.working_dir = format!("/proc/self/fd/{n}");
        let id = m.create(&sandbox, config).await;
        if try_start(&mut m, &id).await.is_ok() {
            let status = m.wait_for_exit(&id).await;
            let log = fs::read_to_string(&status.log_path).unwrap();
            assert!(!log.contains("outside"), "descriptor {n}: {log}");
        }
    }
    let mut config = script("exec", "sleep 1000");
    config.working_dir = "/root".into();
    let id = m.run(&sandbox, config).await;
    // `ls` itself has the directory open.
    assert_eq!(m.shell(&id, "ls /proc/1/fd | tr '\\n' ' '").await, "0 1 2");
    assert_eq!(m.shell(&id, "ls /proc/self/fd | tr '\\n' ' '").await, "0 1 2 3");
    let root = m.path("runtime/containers").join(&id).join("bundle/rootfs");
    for n in DESCRIPTORS {
        // Changed from the host, because the working directory of the processes inside changes.
        let work = root.join("root");
        let _ = fs::remove_dir(&work).or_else(|_| fs::remove_file(&work));
        std::os::unix::fs::symlink(format!("/proc/self/fd/{n}"), &work).unwrap();
        let request = v1::ExecSyncRequest { container_id: id.clone(), cmd: strings(&["sh", "-c", probe]), timeout: 20 };
        if let Ok(done) = m.runtime.exec_sync(request).await {
            let output = String::from_utf8(done.into_inner().stdout).unwrap();
            assert!(!output.contains("outside"), "descriptor {n}: {output}");
        }
    }
    m.finish().await;
}

/// The file that masks a path was a link made by the container, so that masking made another path writable.
#[tokio::test(flavor = "multi_thread")]
async fn cve_2025_31133_container_symlink_does_not_replace_the_mask() {
    let mut m = machine().await;
    let sandbox = m.sandbox("masked").await;
    let dev = m.path("dev");
    fs::create_dir(&dev).unwrap();
    std::os::unix::fs::symlink("/proc/sys/kernel/core_pattern", dev.join("null")).unwrap();
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    let mut config = secured("c", "cat /proc/kcore 2>/dev/null; true", |security| {
        security.masked_paths = strings(&["/proc/kcore", "/proc/sysrq-trigger"]);
        security.readonly_paths = strings(&["/proc/sys"]);
    });
    config.mounts = vec![volume("/dev", &dev)];
    let id = m.create(&sandbox, config).await;
    if try_start(&mut m, &id).await.is_ok() {
        let status = m.wait_for_exit(&id).await;
        let log = fs::read_to_string(&status.log_path).unwrap();
        assert!(!log.contains(pattern.trim()), "{log}");
    }
    assert_eq!(fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap(), pattern);
    m.finish().await;
}

/// The terminal was mounted over the target of `/dev/console` before paths were masked.
#[tokio::test(flavor = "multi_thread")]
async fn cve_2025_52565_console_is_not_mounted_through_a_container_symlink() {
    let mut m = machine().await;
    let sandbox = m.sandbox("console").await;
    let dev = m.path("dev");
    fs::create_dir(&dev).unwrap();
    std::os::unix::fs::symlink("/proc/sysrq-trigger", dev.join("console")).unwrap();
    let mut config = script("c", "grep -c sysrq-trigger /proc/mounts; sleep 1000");
    config.tty = true;
    config.mounts = vec![volume("/dev", &dev)];
    let id = m.create(&sandbox, config).await;
    if try_start(&mut m, &id).await.is_ok() {
        assert_eq!(m.shell(&id, "grep -c sysrq-trigger /proc/mounts; true").await, "0");
    }
    m.finish().await;
}

/// A mount over parts of `/proc` redirected the runtime's writes there (labels, sysctls).
#[tokio::test(flavor = "multi_thread")]
async fn cve_2025_52881_mounts_over_proc_are_rejected() {
    let mut m = machine().await;
    let sandbox = m.sandbox("proc").await;
    let host = m.path("volume");
    fs::create_dir_all(&host).unwrap();
    for (n, mount_point) in ["/proc", "/proc/self/attr", "/proc/sys/kernel", "/proc/1"].into_iter().enumerate() {
        let mut config = script(&format!("c{n}"), "sleep 1000");
        config.mounts = vec![volume(mount_point, &host)];
        assert!(is_rejected(&mut m, &sandbox, config).await, "{mount_point}");
    }
    // The same through a link in the image.
    let name = "test.local/linked-proc:1";
    let mut recipe = crate::machine::busybox();
    recipe.links.push(("/elsewhere".into(), "/proc/self/attr".into()));
    let store = Store::open(&m.path("runtime/images")).unwrap();
    store.build(&Name::parse(name).unwrap(), &recipe).await.unwrap();
    m.restart().await;
    let mut config = script("linked", "sleep 1000");
    config.image = Some(v1::ImageSpec { image: name.into(), ..Default::default() });
    config.mounts = vec![volume("/elsewhere", &host)];
    assert!(is_rejected(&mut m, &sandbox, config).await);
    m.finish().await;
}

/// A pod's sysctl set the kernel's `core_pattern`.
#[tokio::test(flavor = "multi_thread")]
async fn cve_2022_0811_host_sysctl_is_rejected() {
    let mut m = machine().await;
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    for (name, value) in [
        ("kernel.core_pattern", "|/evil"),
        ("net/../kernel/core_pattern", "|/evil"),
        ("/proc/sys/kernel/core_pattern", "|/evil"),
        ("kernel.shm_rmid_forced", "1+kernel.core_pattern=|/evil"),
    ] {
        let mut config = m.sandbox_config("sysctl");
        config.linux.as_mut().unwrap().sysctls.insert(name.into(), value.into());
        let request = v1::RunPodSandboxRequest { config: Some(config), runtime_handler: String::new() };
        let response = m.runtime.run_pod_sandbox(request).await;
        let now = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
        fs::write("/proc/sys/kernel/core_pattern", &pattern).unwrap();
        assert_eq!(now, pattern, "{name} changes the host");
        let error = response.unwrap_err();
        assert!(error.message().contains("sysctl"), "{name}: {error}");
    }
    m.finish().await;
}
