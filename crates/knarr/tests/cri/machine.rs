//! Test environment of the runtime: a data directory, a cgroup, a runtime process, and cleanup of all of them.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cgroups::Cgroup;
use image_store::{Name, Recipe, Store};
use node_api::cri::v1;
use node_api::cri::v1::image_service_client::ImageServiceClient;
use node_api::cri::v1::runtime_service_client::RuntimeServiceClient;
use tonic::transport::Channel;

use crate::leftovers;

/// Time limit of every wait.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
pub(crate) const IMAGE: &str = "test.local/busybox:1";

pub(crate) struct Machine {
    dir: tempfile::TempDir,
    process: Child,
    pub cgroup: String,
    pub runtime: RuntimeServiceClient<Channel>,
    pub images: ImageServiceClient<Channel>,
    args: Vec<String>,
}

/// Returns a test environment.
pub(crate) async fn machine() -> Machine {
    machine_with(&[]).await
}

pub(crate) async fn machine_with(args: &[&str]) -> Machine {
    test_requirements::root();
    test_requirements::file("/bin/busybox", "busybox-static");
    if std::env::var("KNARR_TEST_CGROUP").is_ok_and(|version| version == "v2") {
        assert!(Cgroup::is_unified(), "cgroup v2 alone is to be mounted at /sys/fs/cgroup");
    }
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let dir = tempfile::Builder::new().prefix("knarr-cri-").tempdir().unwrap();
    // The root user of a user namespace is another user on the host and must traverse the directory.
    fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711)).unwrap();
    let store = Store::open(&dir.path().join("runtime/images")).unwrap();
    store.build(&Name::parse(IMAGE).unwrap(), &busybox()).await.unwrap();
    let cgroup = format!("/knarr-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::SeqCst));
    let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    let (process, channel) = start(dir.path(), &cgroup, &args).await;
    let (runtime, images) = clients(&channel);
    Machine { dir, process, cgroup, runtime, images, args }
}

async fn start(dir: &Path, cgroup: &str, args: &[String]) -> (Child, Channel) {
    let socket = dir.join("cri.sock");
    let mut process = Command::new(env!("CARGO_BIN_EXE_knarr"))
        .args(["cri", "--cgroup-parent", cgroup, "--data-dir"])
        .arg(dir)
        .arg("--listen")
        .arg(&socket)
        .args(args)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("ready: "), "{line:?}");
    (process, node_api::cri::connect(socket.to_str().unwrap()).await.unwrap())
}

fn clients(channel: &Channel) -> (RuntimeServiceClient<Channel>, ImageServiceClient<Channel>) {
    (RuntimeServiceClient::new(channel.clone()), ImageServiceClient::new(channel.clone()))
}

/// Returns an image of busybox with all its applets, and a user.
pub(crate) fn busybox() -> Recipe {
    let names = Command::new("/bin/busybox").arg("--list").output().unwrap().stdout;
    let names = String::from_utf8(names).unwrap();
    let links = names.lines().filter(|name| *name != "busybox");
    let text = |path: &str, content: &str| (PathBuf::from(path), content.as_bytes().to_vec(), 0o644);
    Recipe {
        dirs: [("/bin", 0o755), ("/etc", 0o755), ("/tmp", 0o1777), ("/root", 0o700), ("/proc", 0o755), ("/sys", 0o755)]
            .map(|(path, mode)| (PathBuf::from(path), mode))
            .to_vec(),
        copies: vec![("/bin/busybox".into(), "/bin/busybox".into())],
        links: links.map(|name| (Path::new("/bin").join(name), "busybox".into())).collect(),
        files: vec![
            text("/etc/passwd", "root:x:0:0::/root:/bin/sh\nweb:x:33:34::/:/bin/sh\n"),
            text("/etc/group", "root:x:0:\nwww:x:34:\nlogs:x:50:web\n"),
        ],
        config: image_store::Config { cmd: vec!["sh".into()], env: vec!["FROM_IMAGE=1".into()], ..Default::default() },
        pinned: false,
    }
}

impl Machine {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn sandbox_config(&self, name: &str) -> v1::PodSandboxConfig {
        v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: name.into(),
                uid: format!("uid-{name}"),
                namespace: "test".into(),
                attempt: 0,
            }),
            hostname: name.into(),
            log_directory: self.path("logs").display().to_string(),
            labels: HashMap::from([("app".into(), name.into())]),
            linux: Some(v1::LinuxPodSandboxConfig { cgroup_parent: self.cgroup.clone(), ..Default::default() }),
            ..Default::default()
        }
    }

    pub(crate) async fn sandbox(&mut self, name: &str) -> String {
        let config = self.sandbox_config(name);
        self.sandbox_of(config).await
    }

    pub(crate) async fn sandbox_of(&mut self, config: v1::PodSandboxConfig) -> String {
        let request = v1::RunPodSandboxRequest { config: Some(config), runtime_handler: String::new() };
        self.runtime.run_pod_sandbox(request).await.unwrap().into_inner().pod_sandbox_id
    }

    pub(crate) async fn create(&mut self, sandbox: &str, config: v1::ContainerConfig) -> String {
        self.try_create(sandbox, config).await.unwrap()
    }

    pub(crate) async fn try_create(
        &mut self,
        sandbox: &str,
        config: v1::ContainerConfig,
    ) -> Result<String, tonic::Status> {
        let request =
            v1::CreateContainerRequest { pod_sandbox_id: sandbox.into(), config: Some(config), sandbox_config: None };
        Ok(self.runtime.create_container(request).await?.into_inner().container_id)
    }

    pub(crate) async fn start(&mut self, id: &str) {
        self.runtime.start_container(v1::StartContainerRequest { container_id: id.into() }).await.unwrap();
    }

    pub(crate) async fn run(&mut self, sandbox: &str, config: v1::ContainerConfig) -> String {
        let id = self.create(sandbox, config).await;
        self.start(&id).await;
        id
    }

    pub(crate) async fn status(&mut self, id: &str) -> v1::ContainerStatus {
        let request = v1::ContainerStatusRequest { container_id: id.into(), verbose: false };
        self.runtime.container_status(request).await.unwrap().into_inner().status.unwrap()
    }

    /// Waits until a container has exited, using the event stream.
    pub(crate) async fn wait_for_exit(&mut self, id: &str) -> v1::ContainerStatus {
        let mut events = self.runtime.get_container_events(v1::GetEventsRequest {}).await.unwrap().into_inner();
        let wait = async {
            loop {
                let status = self.status(id).await;
                if status.state() == v1::ContainerState::ContainerExited {
                    return status;
                }
                events.message().await.unwrap();
            }
        };
        tokio::time::timeout(TIMEOUT, wait).await.expect("the container exits")
    }

    /// Runs a container until it exits. Returns its status and log.
    pub(crate) async fn output(&mut self, sandbox: &str, config: v1::ContainerConfig) -> (v1::ContainerStatus, String) {
        let id = self.run(sandbox, config).await;
        let status = self.wait_for_exit(&id).await;
        let log = text_of(&fs::read_to_string(&status.log_path).unwrap());
        (status, log)
    }

    /// Waits until a container's log contains `text`.
    pub(crate) async fn logged(&mut self, id: &str, text: &str) -> String {
        let path = self.status(id).await.log_path;
        let deadline = std::time::Instant::now() + TIMEOUT;
        loop {
            let log = fs::read_to_string(&path).unwrap();
            if log.contains(text) {
                return path;
            }
            assert!(std::time::Instant::now() < deadline, "{text:?} is not in {log:?}");
            self.exec(id, &["true"]).await;
        }
    }

    pub(crate) async fn exec(&mut self, id: &str, command: &[&str]) -> v1::ExecSyncResponse {
        let cmd = command.iter().map(|word| (*word).to_owned()).collect();
        let request = v1::ExecSyncRequest { container_id: id.into(), cmd, timeout: 20 };
        self.runtime.exec_sync(request).await.unwrap().into_inner()
    }

    /// Runs a shell command in a container and returns its output.
    pub(crate) async fn shell(&mut self, id: &str, script: &str) -> String {
        let done = self.exec(id, &["sh", "-c", script]).await;
        assert_eq!(done.exit_code, 0, "{script}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().trim_end().to_owned()
    }

    /// Kills the runtime with SIGKILL and starts it again.
    pub(crate) async fn restart(&mut self) {
        self.kill();
        let (process, channel) = start(self.dir.path(), &self.cgroup, &self.args).await;
        self.process = process;
        (self.runtime, self.images) = clients(&channel);
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Removes everything and checks that nothing is left.
    pub(crate) async fn finish(mut self) {
        let list = self.runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await.unwrap().into_inner();
        for sandbox in list.items {
            let request = v1::RemovePodSandboxRequest { pod_sandbox_id: sandbox.id };
            self.runtime.remove_pod_sandbox(request).await.unwrap();
        }
        assert_eq!(self.mounts(), Vec::<String>::new());
        let cgroup = Cgroup::at(&self.cgroup);
        assert_eq!(cgroup.pids().len(), 0);
        for dir in ["sandboxes", "containers"] {
            let left = fs::read_dir(self.path("runtime").join(dir)).unwrap().count();
            assert_eq!(left, 0, "{dir}");
        }
    }

    pub(crate) fn mounts(&self) -> Vec<String> {
        leftovers::mounts(self.dir.path())
    }
}

impl Drop for Machine {
    /// Cleans up after a failed test.
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        leftovers::sweep(self.dir.path(), &self.cgroup);
    }
}

pub(crate) fn strings(values: &[&str]) -> Vec<String> {
    values.iter().map(|word| (*word).to_owned()).collect()
}

/// Returns the configuration of a container that runs a shell script.
pub(crate) fn script(name: &str, script: &str) -> v1::ContainerConfig {
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: name.into(), attempt: 0 }),
        image: Some(v1::ImageSpec { image: IMAGE.into(), ..Default::default() }),
        command: strings(&["sh", "-c", script]),
        log_path: format!("{name}.log"),
        linux: Some(v1::LinuxContainerConfig {
            security_context: Some(v1::LinuxContainerSecurityContext {
                namespace_options: Some(v1::NamespaceOption {
                    pid: v1::NamespaceMode::Container.into(),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Returns the configuration of a script with a security context.
pub(crate) fn secured(
    name: &str,
    text: &str,
    change: impl FnOnce(&mut v1::LinuxContainerSecurityContext),
) -> v1::ContainerConfig {
    let mut config = script(name, text);
    change(config.linux.as_mut().unwrap().security_context.as_mut().unwrap());
    config
}

/// Returns the lines of a CRI log without timestamps, each with the initials of its stream and its tag.
pub(crate) fn text_of(log: &str) -> String {
    let strip = |line: &str| {
        let mut parts = line.splitn(4, ' ');
        let (time, stream, tag) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        assert!(time.ends_with('Z') && ["F", "P"].contains(&tag), "{line}");
        format!("{}{}\n", if stream == "stderr" { "! " } else { "" }, parts.next().unwrap())
    };
    log.lines().map(strip).collect()
}
