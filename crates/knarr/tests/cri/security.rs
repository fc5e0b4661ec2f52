//! Security contexts of containers.

use node_api::cri::v1;
use node_api::cri::v1::security_profile::ProfileType;

use crate::machine::{machine, machine_with, script, secured, strings};

#[tokio::test(flavor = "multi_thread")]
async fn users_groups_and_capabilities_are_as_requested() {
    let mut m = machine().await;
    let sandbox = m.sandbox("users").await;
    let report =
        "id -u; id -g; id -G; grep CapEff /proc/self/status | cut -f2; grep NoNewPrivs /proc/self/status | cut -f2";
    let (_, plain) = m.output(&sandbox, script("plain", report)).await;
    assert_eq!(plain, "0\n0\n0\n00000000a80425fb\n0\n");
    let web = secured("web", report, |security| {
        security.run_as_username = "web".into();
        security.no_new_privs = true;
        security.supplemental_groups = vec![7];
    });
    let (status, web) = m.output(&sandbox, web).await;
    assert_eq!(web, "33\n34\n34 7 50\n0000000000000000\n1\n");
    let user = status.user.unwrap().linux.unwrap();
    assert_eq!((user.uid, user.gid, user.supplemental_groups), (33, 34, vec![7, 34, 50]));
    let strict = secured("strict", "id -G", |security| {
        security.run_as_user = Some(v1::Int64Value { value: 33 });
        security.run_as_group = Some(v1::Int64Value { value: 99 });
        security.supplemental_groups_policy = v1::SupplementalGroupsPolicy::Strict.into();
    });
    assert_eq!(m.output(&sandbox, strict).await.1, "99\n");
    let few = secured("few", "grep CapEff /proc/self/status | cut -f2", |security| {
        security.capabilities = Some(v1::Capability {
            add_capabilities: strings(&["NET_ADMIN"]),
            drop_capabilities: strings(&["ALL"]),
            ..Default::default()
        });
    });
    assert_eq!(m.output(&sandbox, few).await.1, "0000000000001000\n");
    m.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn system_calls_are_filtered_with_and_without_new_privileges() {
    let mut m = machine().await;
    let sandbox = m.sandbox("seccomp").await;
    let profile = |kind: ProfileType, path: &str| {
        Some(v1::SecurityProfile { profile_type: kind.into(), localhost_ref: path.into() })
    };
    let probe = "grep Seccomp: /proc/self/status | cut -f2; unshare -U true 2>/dev/null && echo yes || echo no; grep CapEff /proc/self/status | cut -f2";
    let unconfined = secured("unconfined", probe, |security| security.seccomp = profile(ProfileType::Unconfined, ""));
    assert_eq!(m.output(&sandbox, unconfined).await.1, "0\nyes\n00000000a80425fb\n");
    for (name, locked) in [("default", false), ("locked", true)] {
        let config = secured(name, probe, |security| {
            security.seccomp = profile(ProfileType::RuntimeDefault, "");
            security.no_new_privs = locked;
        });
        assert_eq!(m.output(&sandbox, config).await.1, "2\nno\n00000000a80425fb\n", "{name}");
    }
    let path = m.path("profile.json");
    let text = r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mkdir","mkdirat"],"action":"SCMP_ACT_ERRNO","errnoRet":1}]}"#;
    std::fs::write(&path, text).unwrap();
    let local = secured("local", "mkdir /x 2>/dev/null || echo refused; sleep 1000", |security| {
        security.seccomp = profile(ProfileType::Localhost, path.to_str().unwrap());
    });
    let id = m.run(&sandbox, local).await;
    assert_eq!(m.shell(&id, "mkdir /y 2>/dev/null || echo refused").await, "refused");
    m.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_are_masked_and_read_only_unless_privileged() {
    let mut m = machine().await;
    let sandbox = m.sandbox("paths").await;
    let probe = "cat /proc/kcore 2>/dev/null | head -c1 | wc -c; ls /proc/acpi /proc/scsi 2>/dev/null | grep -vc :; \
                 touch /x 2>/dev/null && echo rw || echo ro; (echo 1 >/proc/sys/kernel/printk) 2>/dev/null && echo w || echo r";
    let strict = secured("strict", probe, |security| {
        security.masked_paths = strings(&["/proc/acpi", "/proc/kcore", "/proc/scsi"]);
        security.readonly_paths = strings(&["/proc/sys"]);
        security.readonly_rootfs = true;
    });
    let log = m.output(&sandbox, strict).await.1;
    assert!(log.starts_with("0\n") && log.ends_with("ro\nr\n"), "{log}");
    let privileged = secured(
        "privileged",
        "touch /x && ls /dev | wc -l; grep ' /sys sysfs' /proc/mounts | cut -c1-20",
        |security| {
            security.privileged = true;
        },
    );
    let log = m.output(&sandbox, privileged).await.1;
    let devices: usize = log.lines().next().unwrap().parse().unwrap();
    assert!(devices > 14 && log.contains("sysfs /sys sysfs rw"), "{log}");
    m.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mounts_are_read_only_recursively_and_propagate() {
    let mut m = machine().await;
    let sandbox = m.sandbox("mounts").await;
    let host = m.path("volume");
    std::fs::create_dir_all(host.join("sub")).unwrap();
    std::fs::write(host.join("file"), "data").unwrap();
    // Mounts propagate only from shared mounts, and the root of the host may be private.
    rustix::mount::mount_bind(&host, &host).unwrap();
    rustix::mount::mount_change(&host, rustix::mount::MountPropagationFlags::SHARED).unwrap();
    rustix::mount::mount("tmpfs", host.join("sub"), "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
    let mount = |path: &str| v1::Mount {
        container_path: path.into(),
        host_path: host.display().to_string(),
        ..Default::default()
    };
    let mut config = script("c", "sleep 1000");
    config.mounts = vec![
        mount("/rw"),
        v1::Mount { readonly: true, ..mount("/ro") },
        v1::Mount { readonly: true, recursive_read_only: true, ..mount("/rro") },
        v1::Mount { propagation: v1::MountPropagation::PropagationHostToContainer.into(), ..mount("/slave") },
        v1::Mount { host_path: host.join("file").display().to_string(), ..mount("/etc/one-file") },
    ];
    config.devices = vec![v1::Device {
        container_path: "/dev/mine".into(),
        host_path: "/dev/null".into(),
        permissions: "rwm".into(),
    }];
    let id = m.run(&sandbox, config).await;
    let writable = |dir: &str| format!("touch {dir}/new 2>/dev/null && echo yes || echo no");
    for (dir, expect) in [("/rw", "yes"), ("/ro", "no"), ("/ro/sub", "yes"), ("/rro", "no"), ("/rro/sub", "no")] {
        assert_eq!(m.shell(&id, &writable(dir)).await, expect, "{dir}");
    }
    assert_eq!(m.shell(&id, "cat /etc/one-file; echo x >/dev/mine && echo ok").await, "dataok");
    for mounted in [&host.join("sub"), &host] {
        rustix::mount::unmount(mounted, rustix::mount::UnmountFlags::DETACH).unwrap();
    }
    m.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn later_mounts_are_visible_only_with_mount_propagation() {
    use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, unmount};
    let mut m = machine().await;
    let sandbox = m.sandbox("later").await;
    let host = m.path("shared");
    std::fs::create_dir_all(host.join("late")).unwrap();
    mount_bind(&host, &host).unwrap();
    mount_change(&host, MountPropagationFlags::SHARED).unwrap();
    let volume = |path: &str, propagation: v1::MountPropagation| v1::Mount {
        container_path: path.into(),
        host_path: host.display().to_string(),
        propagation: propagation.into(),
        ..Default::default()
    };
    let (none, down, both) = (
        v1::MountPropagation::PropagationPrivate,
        v1::MountPropagation::PropagationHostToContainer,
        v1::MountPropagation::PropagationBidirectional,
    );
    let mut ids = Vec::new();
    for (name, mounts) in [
        ("alone", vec![volume("/none", none)]),
        ("down", vec![volume("/none", none), volume("/down", down)]),
        ("both", vec![volume("/none", none), volume("/down", down), volume("/both", both)]),
    ] {
        let config = secured(name, "sleep 1000", |security| security.privileged = true);
        ids.push(m.run(&sandbox, v1::ContainerConfig { mounts, ..config }).await);
    }
    mount("tmpfs", host.join("late"), "tmpfs", MountFlags::empty(), None).unwrap();
    std::fs::write(host.join("late/seen"), "").unwrap();
    let seen = "for dir in none down both; do ls /$dir/late/seen 2>/dev/null; done; true";
    assert_eq!(m.shell(&ids[0], seen).await, "");
    assert_eq!(m.shell(&ids[1], seen).await, "/down/late/seen");
    assert_eq!(m.shell(&ids[2], seen).await, "/down/late/seen\n/both/late/seen");
    // Propagation from the container to the host.
    let own = "for dir in none down both; do mkdir -p /$dir/of-$dir && mount -t tmpfs t /$dir/of-$dir && touch /$dir/of-$dir/in; done";
    m.shell(&ids[2], own).await;
    let came = |name: &str| host.join(name).join("in").exists();
    assert_eq!([came("of-none"), came("of-down"), came("of-both")], [false, false, true]);
    for dir in [host.join("of-both"), host.join("late"), host.clone()] {
        unmount(dir, UnmountFlags::DETACH).unwrap();
    }
    m.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn default_ulimits_apply_to_containers() {
    let mut m = machine_with(&["--default-ulimit", "nofile=123:456", "--default-ulimit", "core=0"]).await;
    let sandbox = m.sandbox("limits").await;
    let (_, output) = m.output(&sandbox, script("c", "ulimit -Sn; ulimit -Hn; ulimit -c")).await;
    assert_eq!(output, "123\n456\n0\n");
    m.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn user_namespace_maps_root_to_another_uid() {
    let mut m = machine().await;
    let map = v1::IdMapping { host_id: 200_000, container_id: 0, length: 65_536 };
    let users = v1::UserNamespace { mode: v1::NamespaceMode::Pod.into(), uids: vec![map], gids: vec![map] };
    let options = v1::NamespaceOption { userns_options: Some(users), ..Default::default() };
    let mut config = m.sandbox_config("userns");
    config.linux.as_mut().unwrap().security_context =
        Some(v1::LinuxSandboxSecurityContext { namespace_options: Some(options.clone()), ..Default::default() });
    let sandbox = m.sandbox_of(config).await;
    let container =
        secured("c", "id -u; cat /proc/self/uid_map; stat -c %u /bin/busybox; touch /mine; sleep 1000", |security| {
            security.namespace_options =
                Some(v1::NamespaceOption { pid: v1::NamespaceMode::Container.into(), ..options });
        });
    let volume = m.path("volume");
    std::fs::create_dir_all(&volume).unwrap();
    std::fs::write(volume.join("file"), "").unwrap();
    std::os::unix::fs::chown(volume.join("file"), Some(33), Some(33)).unwrap();
    let mut container = container;
    container.mounts = vec![v1::Mount {
        container_path: "/volume".into(),
        host_path: volume.display().to_string(),
        uid_mappings: vec![map],
        gid_mappings: vec![map],
        ..Default::default()
    }];
    let id = m.run(&sandbox, container).await;
    assert_eq!(m.shell(&id, "stat -c %u /volume /volume/file").await, "0\n33");
    assert_eq!(m.shell(&id, "id -u; stat -c %u /bin/busybox /mine").await, "0\n0\n0");
    let command =
        "grep -E '^(Cap(Eff|Bnd)|NoNewPrivs)' /proc/self/status | cut -f2; cat /proc/self/uid_map | tr -s ' '";
    assert_eq!(m.shell(&id, command).await, "00000000a80425fb\n00000000a80425fb\n0\n 0 200000 65536");
    let written = m.path("runtime/containers").join(&id).join("upper/mine");
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(written).unwrap()), 200_000);
    m.finish().await;
}
