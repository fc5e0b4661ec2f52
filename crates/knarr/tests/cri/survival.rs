//! Crashes: containers survive a killed runtime, and are killed with their shim.

use node_api::cri::v1;

use crate::machine::{machine, script};

#[tokio::test(flavor = "multi_thread")]
async fn restarted_runtime_finds_its_containers_and_missed_exits() {
    let mut m = machine().await;
    let sandbox = m.sandbox("survivor").await;
    let running = m.run(&sandbox, script("running", "echo before; sleep 1000")).await;
    let volume = m.path("volume");
    std::fs::create_dir_all(&volume).unwrap();
    let mut config = script("ending", "while [ ! -e /volume/go ]; do sleep 0.01; done; exit 9");
    config.mounts = vec![v1::Mount {
        container_path: "/volume".into(),
        host_path: volume.display().to_string(),
        ..Default::default()
    }];
    let ending = m.run(&sandbox, config).await;
    let created = m.create(&sandbox, script("created", "echo late")).await;
    m.kill();
    std::fs::write(volume.join("go"), "").unwrap();
    let exit = m.path("runtime/containers").join(&ending).join("exit.json");
    tokio::task::spawn_blocking(move || {
        let deadline = std::time::Instant::now() + crate::machine::TIMEOUT;
        while !exit.exists() && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
    })
    .await
    .unwrap();
    m.restart().await;
    assert_eq!(m.status(&running).await.state(), v1::ContainerState::ContainerRunning);
    assert_eq!(m.shell(&running, "echo alive").await, "alive");
    let status = m.wait_for_exit(&ending).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (9, "Error"));
    m.start(&created).await;
    assert_eq!(m.wait_for_exit(&created).await.exit_code, 0);
    let request = v1::PodSandboxStatusRequest { pod_sandbox_id: sandbox.clone(), verbose: false };
    let status = m.runtime.pod_sandbox_status(request).await.unwrap().into_inner().status.unwrap();
    assert_eq!(status.state(), v1::PodSandboxState::SandboxReady);
    let stop = v1::StopContainerRequest { container_id: running.clone(), timeout: 0 };
    m.runtime.stop_container(stop).await.unwrap();
    assert_eq!(m.status(&running).await.exit_code, 137);
    m.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_shim_kills_its_containers_and_is_reported() {
    let mut m = machine().await;
    let sandbox = m.sandbox("orphan").await;
    let id = m.run(&sandbox, script("c", "sleep 1000")).await;
    let dir = m.path("runtime/sandboxes").join(&sandbox).display().to_string();
    let shim = std::fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        String::from_utf8_lossy(&line).contains(&dir).then(|| entry.file_name().to_str()?.parse::<i32>().ok())?
    });
    let pid = rustix::process::Pid::from_raw(shim.expect("the shim exists")).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let status = m.wait_for_exit(&id).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (255, "Unknown"));
    let request = v1::PodSandboxStatusRequest { pod_sandbox_id: sandbox.clone(), verbose: false };
    let status = m.runtime.pod_sandbox_status(request).await.unwrap().into_inner().status.unwrap();
    assert_eq!(status.state(), v1::PodSandboxState::SandboxNotready);
    m.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_sandboxes_leave_no_processes_or_mounts() {
    let mut m = machine().await;
    let count = || {
        let namespaces = |kind: &str| {
            let links = std::fs::read_dir("/proc")
                .unwrap()
                .flatten()
                .filter_map(|entry| std::fs::read_link(entry.path().join("ns").join(kind)).ok());
            links.collect::<std::collections::BTreeSet<_>>().len()
        };
        (namespaces("net"), namespaces("ipc"))
    };
    let before = count();
    for round in 0..20 {
        let sandbox = m.sandbox(&format!("round{round}")).await;
        let id = m.run(&sandbox, script("c", "sleep 1000")).await;
        assert_eq!(m.status(&id).await.state(), v1::ContainerState::ContainerRunning);
        let request = v1::RemovePodSandboxRequest { pod_sandbox_id: sandbox };
        m.runtime.remove_pod_sandbox(request).await.unwrap();
        assert_eq!(m.mounts(), Vec::<String>::new());
    }
    let after = count();
    // Other tests create and delete namespaces meanwhile. Twenty leaked ones would be noticed.
    assert!(after.0 < before.0 + 15 && after.1 < before.1 + 15, "{before:?} {after:?}");
    m.finish().await;
}
