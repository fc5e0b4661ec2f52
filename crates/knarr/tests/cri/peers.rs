//! Comparison of runtimes: the built-in library, runc, crun and containerd give the same responses to the same calls.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use image_store::{Name, Store};
use node_api::cri::v1;
use node_api::cri::v1::runtime_service_client::RuntimeServiceClient;
use tonic::transport::Channel;

use crate::machine::{IMAGE, TIMEOUT, busybox, machine, machine_with, script, secured, strings, text_of};

/// Returns what a client sees of a few containers, one line each.
async fn transcript(
    client: &mut RuntimeServiceClient<Channel>,
    mut sandbox: v1::PodSandboxConfig,
    handler: &str,
) -> Vec<String> {
    let mut lines = Vec::new();
    let host = v1::NamespaceOption { network: v1::NamespaceMode::Node.into(), ..Default::default() };
    sandbox.hostname = String::new();
    sandbox.log_directory += &format!("/{}", sandbox.metadata.as_ref().unwrap().name);
    sandbox.linux.as_mut().unwrap().security_context =
        Some(v1::LinuxSandboxSecurityContext { namespace_options: Some(host.clone()), ..Default::default() });
    let request = v1::RunPodSandboxRequest { config: Some(sandbox.clone()), runtime_handler: handler.into() };
    let sandbox_id = client.run_pod_sandbox(request).await.unwrap().into_inner().pod_sandbox_id;
    let own_pids = v1::NamespaceOption { pid: v1::NamespaceMode::Container.into(), ..host };
    let report = "id; pwd; env | grep -v HOSTNAME | sort; grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status; umask; \
                  echo $0 pid $$; awk '$2 ~ \"^/(proc|sys|dev)\" && $2 !~ \"cgroup/\" {print $2, $3}' /proc/mounts | sort -u; \
                  ls -l /dev | awk '{print $1, $NF}' | sort; ulimit -c; echo to stderr >&2; exit 3";
    let plain = secured("plain", report, |security| security.namespace_options = Some(own_pids.clone()));
    let web = secured("web", report, |security| {
        security.namespace_options = Some(own_pids.clone());
        security.run_as_username = "web".into();
        security.no_new_privs = true;
        security.seccomp = Some(v1::SecurityProfile::default());
        security.capabilities = Some(v1::Capability { drop_capabilities: strings(&["ALL"]), ..Default::default() });
    });
    for config in [plain, web] {
        let id = create(client, &sandbox_id, &sandbox, config).await;
        client.start_container(v1::StartContainerRequest { container_id: id.clone() }).await.unwrap();
        let status = wait_for_exit(client, &id).await;
        lines.push(format!("{} {:?} {}", status.exit_code, status.state(), status.reason));
        let mut log: Vec<String> =
            text_of(&std::fs::read_to_string(&status.log_path).unwrap()).lines().map(str::to_owned).collect();
        // The two streams are read concurrently, so their order is not defined.
        log.sort_by_key(|line| line.starts_with("! "));
        lines.extend(log);
    }
    let mut missing = script("missing", "");
    missing.command = strings(&["no-such-program"]);
    let id = create(client, &sandbox_id, &sandbox, missing).await;
    let error = client.start_container(v1::StartContainerRequest { container_id: id.clone() }).await.unwrap_err();
    lines.push(format!("start: {}", error.message().contains("executable file not found in $PATH")));
    let status = status(client, &id).await;
    lines.push(format!("{} {:?} {}", status.exit_code, status.state(), status.reason));
    let sleeper = secured("sleeper", "trap 'exit 5' TERM; while :; do sleep 0.01; done", |security| {
        security.namespace_options = Some(own_pids.clone());
    });
    let id = create(client, &sandbox_id, &sandbox, sleeper).await;
    client.start_container(v1::StartContainerRequest { container_id: id.clone() }).await.unwrap();
    let request = v1::ExecSyncRequest {
        container_id: id.clone(),
        cmd: strings(&["sh", "-c", "echo hi; echo no >&2; exit 7"]),
        timeout: 10,
    };
    let done = client.exec_sync(request).await.unwrap().into_inner();
    lines.push(format!("{:?} {:?} {}", String::from_utf8(done.stdout), String::from_utf8(done.stderr), done.exit_code));
    client.stop_container(v1::StopContainerRequest { container_id: id.clone(), timeout: 10 }).await.unwrap();
    let status = self::status(client, &id).await;
    lines.push(format!("{} {:?} {}", status.exit_code, status.state(), status.reason));
    client.remove_pod_sandbox(v1::RemovePodSandboxRequest { pod_sandbox_id: sandbox_id }).await.unwrap();
    lines
}

async fn create(
    client: &mut RuntimeServiceClient<Channel>,
    sandbox: &str,
    config: &v1::PodSandboxConfig,
    container: v1::ContainerConfig,
) -> String {
    let request = v1::CreateContainerRequest {
        pod_sandbox_id: sandbox.into(),
        config: Some(container),
        sandbox_config: Some(config.clone()),
    };
    client.create_container(request).await.unwrap().into_inner().container_id
}

async fn status(client: &mut RuntimeServiceClient<Channel>, id: &str) -> v1::ContainerStatus {
    let request = v1::ContainerStatusRequest { container_id: id.into(), verbose: false };
    client.container_status(request).await.unwrap().into_inner().status.unwrap()
}

/// Waits until a container has exited by polling its status: old runtimes have no event stream.
async fn wait_for_exit(client: &mut RuntimeServiceClient<Channel>, id: &str) -> v1::ContainerStatus {
    let wait = async {
        loop {
            let status = status(client, id).await;
            if status.state() == v1::ContainerState::ContainerExited {
                return status;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, wait).await.expect("the container exits")
}

#[tokio::test(flavor = "multi_thread")]
async fn runc_and_crun_handlers_behave_like_the_built_in_runtime() {
    let mut found = vec![format!("--runtime-handler=runc={}", test_requirements::program("runc", "runc").display())];
    // crun rejects hosts with hybrid cgroups (v1 and v2 controllers mounted). The gate does not install it.
    let crun = Path::new("/usr/bin/crun");
    if crun.exists() && !Path::new("/sys/fs/cgroup/unified").exists() {
        found.push(format!("--runtime-handler=crun={}", crun.display()));
    }
    let args: Vec<&str> = found.iter().map(String::as_str).collect();
    let mut m = machine_with(&args).await;
    let config = m.sandbox_config("own");
    let own = transcript(&mut m.runtime, config, "").await;
    for arg in &found {
        let handler = arg.split('=').nth(1).unwrap();
        let config = m.sandbox_config(handler);
        let expected = transcript(&mut m.runtime, config, handler).await;
        assert_eq!(own.join("\n"), expected.join("\n"), "{handler}");
    }
    let request =
        v1::RunPodSandboxRequest { config: Some(m.sandbox_config("none")), runtime_handler: "no-such".into() };
    let error = m.runtime.run_pod_sandbox(request).await.unwrap_err();
    assert!(error.message().contains("no runtime for \"no-such\" is configured"), "{}", error.message());
    m.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn containerd_behaves_like_the_built_in_runtime() {
    test_requirements::file("/usr/bin/containerd", "containerd");
    let mut m = machine().await;
    let config = m.sandbox_config("own");
    let own = transcript(&mut m.runtime, config, "").await;
    let (daemon, mut client) = containerd(&m.path("containerd"), &m.path("images")).await;
    let expected = transcript(&mut client, m.sandbox_config("theirs"), "").await;
    drop(daemon);
    assert_eq!(own.join("\n"), expected.join("\n"));
    m.finish().await;
}

/// A daemon that is killed with the test.
struct Daemon(Child, std::path::PathBuf);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let own = self.1.display().to_string();
        for mount_point in
            table.lines().filter_map(|line| line.split(' ').nth(4)).filter(|mount_point| mount_point.starts_with(&own))
        {
            let _ = rustix::mount::unmount(mount_point, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

async fn containerd(dir: &Path, images: &Path) -> (Daemon, RuntimeServiceClient<Channel>) {
    std::fs::create_dir_all(dir).unwrap();
    let archive = dir.join("images.tar");
    let store = Store::open(images).unwrap();
    let tool = store.build(&Name::parse(IMAGE).unwrap(), &busybox()).await.unwrap();
    let mut pause = busybox();
    pause.config.cmd = strings(&["/bin/sleep", "1000000"]);
    let pause = store.build(&Name::parse("test.local/pause:1").unwrap(), &pause).await.unwrap();
    store.export(&[&tool, &pause], std::fs::File::create(&archive).unwrap()).unwrap();
    let socket = dir.join("containerd.sock");
    let config = format!(
        "version = 2\nroot = {root:?}\nstate = {state:?}\noom_score = 0\n[grpc]\n  address = {socket:?}\n\
         [plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = \"test.local/pause:1\"\n  restrict_oom_score_adj = true\n  \
         stream_server_port = \"0\"\n",
        root = dir.join("root"),
        state = dir.join("state"),
    );
    std::fs::write(dir.join("config.toml"), config).unwrap();
    let mut process = Command::new("/usr/bin/containerd")
        .arg("--config")
        .arg(dir.join("config.toml"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(process.stderr.take().unwrap()).lines();
    let (ready, started) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            if line.contains("containerd successfully booted") {
                let _ = ready.send(());
            }
        }
    });
    let daemon = Daemon(process, dir.to_owned());
    started.recv_timeout(TIMEOUT).expect("containerd starts");
    let import = Command::new("ctr")
        .arg("--address")
        .arg(&socket)
        .args(["--namespace", "k8s.io", "images", "import", "--all-platforms"])
        .arg(&archive)
        .output()
        .unwrap();
    assert!(import.status.success(), "{}", String::from_utf8_lossy(&import.stderr));
    let channel = node_api::cri::connect(socket.to_str().unwrap()).await.unwrap();
    (daemon, RuntimeServiceClient::new(channel))
}
