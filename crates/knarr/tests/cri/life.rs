//! Life cycle of sandboxes and containers.

use std::fs;

use node_api::cri::v1;

use crate::machine::{IMAGE, machine, script, strings, text_of};

#[tokio::test(flavor = "multi_thread")]
async fn container_writes_its_log_and_reports_its_exit_code() {
    let mut m = machine().await;
    let sandbox = m.sandbox("one").await;
    let (status, log) = m.output(&sandbox, script("c", "echo out; echo err >&2; printf end; exit 3")).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (3, "Error"));
    assert!(status.created_at > 0 && status.started_at >= status.created_at && status.finished_at >= status.started_at);
    let mut lines: Vec<&str> = log.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["! err", "end", "out"]);
    let (status, _) = m.output(&sandbox, script("d", "true")).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (0, "Completed"));
    m.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sandbox_has_its_own_namespaces_files_and_loopback() {
    let mut m = machine().await;
    let mut config = m.sandbox_config("box");
    config.dns_config = Some(v1::DnsConfig {
        servers: strings(&["10.0.0.10"]),
        searches: strings(&["a.local"]),
        options: strings(&["ndots:5"]),
    });
    config.linux.as_mut().unwrap().sysctls.insert("net.ipv4.ip_unprivileged_port_start".into(), "80".into());
    let sandbox = m.sandbox_of(config).await;
    let id = m.run(&sandbox, script("c", "sleep 1000")).await;
    assert_eq!(m.shell(&id, "hostname; cat /etc/hostname").await, "box\nbox");
    assert_eq!(m.shell(&id, "cat /etc/resolv.conf").await, "search a.local\nnameserver 10.0.0.10\noptions ndots:5");
    assert_eq!(m.shell(&id, "cat /proc/sys/net/ipv4/ip_unprivileged_port_start").await, "80");
    assert_eq!(m.shell(&id, "ip -o link | wc -l; ip -o addr show lo | grep -c 127.0.0.1").await, "1\n1");
    assert_eq!(m.shell(&id, "echo $$ $FROM_IMAGE $HOSTNAME; cat /proc/1/comm").await.lines().nth(1), Some("sleep"));
    assert_eq!(
        m.shell(&id, "echo x >/dev/shm/f; stat -f -c %T /dev/shm; grep -c ' /dev/shm ' /proc/mounts").await,
        "tmpfs\n1"
    );
    let other = m.run(&sandbox, script("d", "sleep 1000")).await;
    assert_eq!(m.shell(&other, "cat /dev/shm/f").await, "x");
    let request = v1::PodSandboxStatusRequest { pod_sandbox_id: sandbox.clone(), verbose: true };
    let response = m.runtime.pod_sandbox_status(request).await.unwrap().into_inner();
    assert_eq!(response.status.unwrap().state(), v1::PodSandboxState::SandboxReady);
    assert_eq!(response.containers_statuses.len(), 2);
    m.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_pid_namespace_contains_other_containers_and_ends_with_its_init() {
    let mut m = machine().await;
    let mut config = m.sandbox_config("shared");
    let shared = v1::NamespaceOption { pid: v1::NamespaceMode::Pod.into(), ..Default::default() };
    config.linux.as_mut().unwrap().security_context =
        Some(v1::LinuxSandboxSecurityContext { namespace_options: Some(shared.clone()), ..Default::default() });
    let sandbox = m.sandbox_of(config).await;
    let with = |name: &str, text: &str| {
        crate::machine::secured(name, text, |security| security.namespace_options = Some(shared.clone()))
    };
    let one = m.run(&sandbox, with("one", "sleep 1000 & sleep 2000 & exec sleep 3000")).await;
    let two = m.run(&sandbox, with("two", "sleep 4000")).await;
    assert_eq!(
        m.shell(&two, "cat /proc/1/comm; ls /proc/1/root 2>/dev/null | wc -l; ps | grep -c '[s]leep [1234]000'").await,
        "pause\n0\n4"
    );
    let stop = v1::StopContainerRequest { container_id: one.clone(), timeout: 0 };
    m.runtime.stop_container(stop).await.unwrap();
    // Orphans of the container's first process are killed with it.
    assert_eq!(
        m.shell(
            &two,
            "for i in $(seq 100); do n=$(ps | grep -c '[s]leep [1234]000'); [ $n = 1 ] && break; done; echo $n"
        )
        .await,
        "1"
    );
    m.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_sends_sigterm_and_then_sigkill() {
    let mut m = machine().await;
    let sandbox = m.sandbox("stop").await;
    let polite =
        m.run(&sandbox, script("polite", "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done")).await;
    let rude = m.run(&sandbox, script("rude", "trap '' TERM; echo ready; while :; do sleep 0.01; done")).await;
    for (id, timeout, code) in [(&polite, 20, 7), (&rude, 1, 137)] {
        m.logged(id, "ready").await;
        let request = v1::StopContainerRequest { container_id: id.clone(), timeout };
        m.runtime.stop_container(request).await.unwrap();
        assert_eq!(m.status(id).await.exit_code, code);
    }
    let request = v1::StopContainerRequest { container_id: "no-such".into(), timeout: 1 };
    m.runtime.stop_container(request).await.unwrap();
    m.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_sync_returns_output_and_kills_at_timeout() {
    let mut m = machine().await;
    let sandbox = m.sandbox("exec").await;
    let id = m.run(&sandbox, script("c", "sleep 1000")).await;
    let done = m.exec(&id, &["sh", "-c", "echo out; echo err >&2; exit 5"]).await;
    assert_eq!((done.stdout, done.stderr, done.exit_code), (b"out\n".to_vec(), b"err\n".to_vec(), 5));
    let early = m.exec(&id, &["sh", "-c", "echo early; sleep 500 & exit 0"]).await;
    assert_eq!((early.stdout, early.exit_code), (b"early\n".to_vec(), 0));
    let big = m.exec(&id, &["sh", "-c", "dd if=/dev/zero bs=1M count=3 2>/dev/null"]).await;
    assert_eq!(big.stdout.len(), 3 << 20);
    let request = v1::ExecSyncRequest { container_id: id.clone(), cmd: strings(&["sleep", "777"]), timeout: 1 };
    let error = m.runtime.exec_sync(request).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::DeadlineExceeded);
    assert_eq!(
        m.shell(&id, "for i in $(seq 100); do n=$(ps | grep -c '[s]leep 777'); [ $n = 0 ] && break; done; echo $n")
            .await,
        "0"
    );
    let request = v1::ExecSyncRequest { container_id: id.clone(), cmd: strings(&["no-such-program"]), timeout: 0 };
    let error = m.runtime.exec_sync(request).await.unwrap_err();
    assert!(error.message().contains("executable file not found in $PATH"), "{}", error.message());
    m.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn start_fails_if_the_command_cannot_run() {
    let mut m = machine().await;
    let sandbox = m.sandbox("bad").await;
    for (command, expect) in [
        (&["no-such"][..], "executable file not found in $PATH"),
        (&["/no/such"], "no such file or directory"),
        (&["/etc/passwd"], "permission denied"),
    ] {
        let mut config = script("c", "");
        config.command = strings(command);
        let id = m.create(&sandbox, config).await;
        let error =
            m.runtime.start_container(v1::StartContainerRequest { container_id: id.clone() }).await.unwrap_err();
        assert!(error.message().contains(expect), "{}", error.message());
        let status = m.status(&id).await;
        assert_eq!((status.exit_code, status.reason.as_str()), (128, "StartError"));
    }
    let mut config = script("c", "");
    config.image = Some(v1::ImageSpec { image: "no.such/image:1".into(), ..Default::default() });
    assert_eq!(m.try_create(&sandbox, config).await.unwrap_err().code(), tonic::Code::NotFound);
    m.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_filtered_and_image_status_is_reported() {
    let mut m = machine().await;
    let (one, two) = (m.sandbox("one").await, m.sandbox("two").await);
    m.runtime.stop_pod_sandbox(v1::StopPodSandboxRequest { pod_sandbox_id: two.clone() }).await.unwrap();
    let mut list = async |filter: v1::PodSandboxFilter| {
        let request = v1::ListPodSandboxRequest { filter: Some(filter) };
        let items = m.runtime.list_pod_sandbox(request).await.unwrap().into_inner().items;
        items.into_iter().map(|item| item.id).collect::<Vec<_>>()
    };
    let ready = v1::PodSandboxStateValue { state: v1::PodSandboxState::SandboxReady.into() };
    assert_eq!(
        list(v1::PodSandboxFilter { state: Some(ready), ..Default::default() }).await,
        std::slice::from_ref(&one)
    );
    let label_selector = [("app".to_owned(), "two".to_owned())].into();
    assert_eq!(list(v1::PodSandboxFilter { label_selector, ..Default::default() }).await, [two]);
    assert_eq!(list(v1::PodSandboxFilter { id: one[..13].into(), ..Default::default() }).await, [one]);
    let images = m.images.list_images(v1::ListImagesRequest::default()).await.unwrap().into_inner().images;
    assert_eq!(images[0].repo_tags, [IMAGE]);
    let image = v1::ImageSpec { image: "no-such".into(), ..Default::default() };
    let request = v1::ImageStatusRequest { image: Some(image), verbose: false };
    assert!(m.images.image_status(request).await.unwrap().into_inner().image.is_none());
    let info = m.images.image_fs_info(v1::ImageFsInfoRequest {}).await.unwrap().into_inner();
    assert!(info.image_filesystems[0].used_bytes.as_ref().unwrap().value > 1 << 20);
    m.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_limits_apply_and_are_updated_and_stats_report_usage() {
    let mut m = machine().await;
    let sandbox = m.sandbox("limits").await;
    let mut config = script("c", "sleep 1000");
    config.linux.as_mut().unwrap().resources = Some(v1::LinuxContainerResources {
        memory_limit_in_bytes: 64 << 20,
        cpu_shares: 512,
        cpu_quota: 50_000,
        cpu_period: 100_000,
        oom_score_adj: 500,
        ..Default::default()
    });
    let id = m.run(&sandbox, config.clone()).await;
    let limit = |m: &crate::machine::Machine| {
        let paths = ["memory/{}/memory.limit_in_bytes", "{}/memory.max"];
        let read = |path: &str| {
            fs::read_to_string(format!("/sys/fs/cgroup/{}", path.replace("{}", &format!("{}/{id}", &m.cgroup[1..]))))
        };
        paths.iter().find_map(|path| read(path).ok()).unwrap().trim().to_owned()
    };
    assert_eq!(limit(&m), (64 << 20).to_string());
    assert_eq!(m.shell(&id, "cat /proc/1/oom_score_adj").await, "500");
    let change = v1::LinuxContainerResources { memory_limit_in_bytes: 96 << 20, ..Default::default() };
    let request =
        v1::UpdateContainerResourcesRequest { container_id: id.clone(), linux: Some(change), ..Default::default() };
    m.runtime.update_container_resources(request).await.unwrap();
    assert_eq!(limit(&m), (96 << 20).to_string());
    let resources = m.status(&id).await.resources.unwrap().linux.unwrap();
    assert_eq!((resources.memory_limit_in_bytes, resources.cpu_shares), (96 << 20, 512));
    m.shell(&id, "echo 123456 >/written; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done").await;
    let request = v1::ContainerStatsRequest { container_id: id.clone() };
    let stats = m.runtime.container_stats(request).await.unwrap().into_inner().stats.unwrap();
    assert!(stats.cpu.unwrap().usage_core_nano_seconds.unwrap().value > 0);
    assert!(stats.memory.unwrap().working_set_bytes.unwrap().value > 0);
    assert!(stats.writable_layer.unwrap().used_bytes.unwrap().value >= 4096);
    let request = v1::PodSandboxStatsRequest { pod_sandbox_id: sandbox.clone() };
    let stats = m.runtime.pod_sandbox_stats(request).await.unwrap().into_inner().stats.unwrap();
    assert_eq!(stats.linux.unwrap().containers.len(), 1);
    config.command = strings(&["sh", "-c", "a=x; while :; do a=$a$a; done"]);
    config.log_path = "oom.log".into();
    let id = m.run(&sandbox, config).await;
    let status = m.wait_for_exit(&id).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (137, "OOMKilled"));
    m.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rotated_log_is_reopened() {
    let mut m = machine().await;
    let sandbox = m.sandbox("log").await;
    let id = m.run(&sandbox, script("c", "echo one; while [ ! -e /go ]; do sleep 0.01; done; echo two")).await;
    let log = m.logged(&id, "one").await;
    let rotated = format!("{log}.1");
    fs::rename(&log, &rotated).unwrap();
    let request = v1::ReopenContainerLogRequest { container_id: id.clone() };
    m.runtime.reopen_container_log(request).await.unwrap();
    m.exec(&id, &["touch", "/go"]).await;
    m.wait_for_exit(&id).await;
    assert_eq!(text_of(&fs::read_to_string(&rotated).unwrap()), "one\n");
    assert_eq!(text_of(&fs::read_to_string(&log).unwrap()), "two\n");
    m.finish().await;
}
