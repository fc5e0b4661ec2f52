//! The kubelet with Debian's containerd and runc.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use apimachinery::{Value, value};
use image_store::{Name, Store};

use crate::cluster::*;

/// A containerd that is killed with the test. Its pods' network namespaces are mounted below its own directory, so that
/// leftovers of a killed one are found.
pub(crate) struct Daemon {
    process: Child,
    dir: tempfile::TempDir,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        kill_shims(&self.socket().display().to_string());
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let own = self.dir.path().display().to_string();
        for mount_point in
            table.lines().filter_map(|line| line.split(' ').nth(4)).filter(|mount_point| mount_point.starts_with(&own))
        {
            let _ = rustix::mount::unmount(mount_point, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

impl Daemon {
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("containerd.sock")
    }
}

/// Kills the shims that a failed test left running.
fn kill_shims(socket: &str) {
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let own = String::from_utf8_lossy(&line).contains(socket);
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw).filter(|_| own) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// Writes a CNI configuration with a veth pair per pod and a subnet that no other test uses.
fn write_network(dir: &Path) {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = std::process::id() as usize * 64 + COUNT.fetch_add(1, Ordering::SeqCst);
    let subnet = format!("10.{}.{}.0/24", 200 + number / 256 % 50, number % 256);
    std::fs::create_dir_all(dir.join("cni")).unwrap();
    let text = format!(
        r#"{{"cniVersion": "0.4.0", "name": "test", "plugins": [{{"type": "ptp", "ipam": {{"type": "host-local",
            "dataDir": {:?}, "ranges": [[{{"subnet": "{subnet}"}}]], "routes": [{{"dst": "0.0.0.0/0"}}]}}}}]}}"#,
        dir.join("addresses")
    );
    std::fs::write(dir.join("cni/10-test.conflist"), text).unwrap();
}

/// Starts a containerd for this test.
pub(crate) async fn containerd() -> Daemon {
    test_requirements::root();
    test_requirements::file("/usr/bin/containerd", "containerd");
    test_requirements::file("/usr/lib/cni/ptp", "containernetworking-plugins");
    let dir = tempfile::Builder::new().prefix("knarr-containerd-").tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let store = Store::open(&at("images")).unwrap();
    let tool = store.build(&Name::parse(IMAGE).unwrap(), &busybox()).await.unwrap();
    let mut pause = busybox();
    pause.config.cmd = ["/bin/sleep", "1000000"].map(str::to_owned).to_vec();
    let pause = store.build(&Name::parse("test.local/pause:1").unwrap(), &pause).await.unwrap();
    store.export(&[&tool, &pause], std::fs::File::create(at("images.tar")).unwrap()).unwrap();
    let config = format!(
        "version = 2\nroot = {:?}\nstate = {:?}\noom_score = 0\n[grpc]\n  address = {:?}\n\
         [plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = \"test.local/pause:1\"\n  restrict_oom_score_adj = true\n  \
         netns_mounts_under_state_dir = true\n  stream_server_port = \"0\"\n  [plugins.\"io.containerd.grpc.v1.cri\".cni]\n    \
         bin_dir = \"/usr/lib/cni\"\n    conf_dir = {:?}\n",
        at("root"),
        at("state"),
        at("containerd.sock"),
        at("cni")
    );
    write_network(dir.path());
    std::fs::write(at("config.toml"), config).unwrap();
    let mut process = Command::new("/usr/bin/containerd")
        .arg("--config")
        .arg(at("config.toml"))
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
    let daemon = Daemon { process, dir };
    started.recv_timeout(TIMEOUT).expect("containerd starts");
    let import = Command::new("ctr")
        .arg("--address")
        .arg(daemon.socket())
        .args(["--namespace", "k8s.io", "images", "import", "--all-platforms"])
        .arg(daemon.dir.path().join("images.tar"))
        .output()
        .unwrap();
    assert!(import.status.success(), "{}", String::from_utf8_lossy(&import.stderr));
    daemon
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_run_restart_and_terminate_with_containerd() {
    let daemon = containerd().await;
    let cluster = cluster_on(Some(daemon)).await;
    let mut prints = pod("prints", "echo $NAME; cat /conf/k; exit 0");
    set(&mut prints, "hostNetwork", true);
    set(&mut prints, "restartPolicy", "Never");
    set(&mut prints, "volumes", value!([{"name": "conf", "configMap": {"name": "conf"}}]));
    set_container(&mut prints, "volumeMounts", value!([{"name": "conf", "mountPath": "/conf"}]));
    set_container(
        &mut prints,
        "env",
        value!([{"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
    );
    let map = value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf", "namespace": "default"}, "data": {"k": "v\n"}});
    cluster.create(&CONFIG_MAPS, &map).await;
    assert_eq!(cluster.output(&prints).await, "prints\nv\n");
    let mut crashes = pod("crashes", "exit 1");
    set(&mut crashes, "hostNetwork", true);
    let again = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"].as_int() >= Some(1);
    let found = cluster.run(&crashes, "started again", again).await;
    assert!(found["status"]["containerStatuses"][0].str_at(&["containerID"]).unwrap().starts_with("containerd://"));
    cluster.finish().await;
}
