//! Test environment of a kubelet: a directory, a cgroup, an image, and cleanup of all of them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cgroups::Cgroup;
use image_store::{Name, Recipe, Store};

use crate::leftovers;

pub(crate) const IMAGE: &str = "test.local/busybox:1";
pub(crate) const NODE: &str = "node-1";

pub(crate) struct Machine {
    dir: tempfile::TempDir,
    /// Parent of the cgroups of pods.
    pub cgroup: String,
    /// Output of the processes, printed when a test fails.
    pub log: Arc<Mutex<String>>,
    /// Whether kubelets run in a cgroup without controllers.
    pub without_controllers: bool,
}

/// Runs a command below a new cgroup without controllers: its parent, whose path is `$0`, enables none. The command sees
/// the new cgroup as the root of cgroup v2, and no other hierarchy. This works on hosts with cgroup v1 and v2.
const WITHOUT_CONTROLLERS: &str = "umount -R /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup && \
    mkdir -p /sys/fs/cgroup$0/bare && echo $$ >/sys/fs/cgroup$0/bare/cgroup.procs && \
    exec unshare --cgroup --mount sh -c \
    'umount /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec \"$@\"' sh \"$@\"";

/// With `KNARR_TEST_CGROUP=v2`, all tests run with only cgroup v2 mounted.
fn is_on_cgroup_v2() -> bool {
    std::env::var("KNARR_TEST_CGROUP").is_ok_and(|version| version == "v2")
}

impl Machine {
    /// Returns an environment with an image.
    pub(crate) async fn new() -> Self {
        test_requirements::root();
        test_requirements::file("/bin/busybox", "busybox-static");
        assert!(!is_on_cgroup_v2() || Cgroup::is_unified(), "cgroup v2 alone is to be mounted at /sys/fs/cgroup");
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let dir = tempfile::Builder::new().prefix("knarr-kubelet-").tempdir().unwrap();
        fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711)).unwrap();
        let store = Store::open(&dir.path().join("runtime/images")).unwrap();
        store.build(&Name::parse(IMAGE).unwrap(), &busybox()).await.unwrap();
        let cgroup = format!("/knarr-node-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::SeqCst));
        Self { dir, cgroup, log: Arc::default(), without_controllers: false }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes the kubelet's configuration file.
    pub(crate) fn configure(&self, more: &str) {
        let text = format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\npodLogsDir: {}\ncgroupRoot: {}\n\
             port: 0\nhealthzPort: 0\nclusterDNS: [10.96.0.10]\nclusterDomain: cluster.local\nevictionHard: {{}}\n{more}",
            self.path("logs").display(),
            self.cgroup
        );
        fs::write(self.path("kubelet.yaml"), text).unwrap();
    }

    /// Returns the configured kubelet command, not started yet.
    pub(crate) fn kubelet(&self) -> Command {
        let program = env!("CARGO_BIN_EXE_knarr");
        let mut kubelet = Command::new(if self.without_controllers { "unshare" } else { program });
        if self.without_controllers {
            kubelet.args(["--mount", "sh", "-c", WITHOUT_CONTROLLERS, &self.cgroup, program]);
        }
        kubelet
            .args(["kubelet", "--hostname-override", NODE, "--node-ip", "127.0.0.1", "--cgroup-parent", &self.cgroup])
            .arg("--config")
            .arg(self.path("kubelet.yaml"))
            .arg("--data-dir")
            .arg(self.dir.path())
            .arg("--root-dir")
            .arg(self.path("kubelet"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if is_on_cgroup_v2() && !self.without_controllers {
            // The controllers may belong to the host's cgroup v1 hierarchies.
            kubelet.arg("--allow-missing-cgroup-controllers");
        }
        kubelet
    }

    /// Starts a kubelet and waits until it is ready. Returns its ready line.
    pub(crate) fn start(&self, mut kubelet: Command) -> (Process, String) {
        let mut kubelet = Process(kubelet.spawn().unwrap());
        self.keep(BufReader::new(kubelet.0.stderr.take().unwrap()).lines(), "kubelet");
        let mut line = String::new();
        BufReader::new(kubelet.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("ready"), "{line:?}\n{}", self.log.lock().unwrap());
        (kubelet, line.trim().to_owned())
    }

    /// Records the output of a process.
    pub(crate) fn keep(
        &self,
        lines: impl Iterator<Item = std::io::Result<String>> + Send + 'static,
        who: &'static str,
    ) {
        let log = Arc::clone(&self.log);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                log.lock().unwrap().push_str(&format!("{who}: {line}\n"));
            }
        });
    }

    /// Returns the mount points below the directory.
    pub(crate) fn mounts(&self) -> Vec<String> {
        leftovers::mounts(self.dir.path())
    }
}

impl Drop for Machine {
    /// Cleans up after a failed test.
    fn drop(&mut self) {
        leftovers::sweep(self.dir.path(), &self.cgroup);
    }
}

/// A process that is killed on drop.
pub(crate) struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a component of the cluster with admin credentials.
pub(crate) fn component(machine: &Machine, name: &str, flags: &[&str]) -> Process {
    let process = Command::new(env!("CARGO_BIN_EXE_knarr"))
        .arg(name)
        .arg("--kubeconfig")
        .arg(machine.path("admin.kubeconfig"))
        .args(flags)
        .stdout(Stdio::null())
        .stderr(fs::File::create(machine.path(&format!("{name}.log"))).unwrap())
        .spawn();
    Process(process.unwrap())
}

/// Returns an image of busybox with all its applets, and users.
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
            text("/etc/passwd", "root:x:0:0::/root:/bin/sh\nweb:x:33:34::/:/bin/sh\ndev:x:1001:1001::/:/bin/sh\n"),
            text("/etc/group", "root:x:0:\nwww:x:34:\nstaff:x:50:dev\n"),
        ],
        config: image_store::Config { cmd: vec!["sh".into()], env: vec!["FROM_IMAGE=1".into()], ..Default::default() },
        pinned: false,
    }
}
