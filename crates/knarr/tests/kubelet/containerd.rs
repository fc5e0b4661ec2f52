//! The same kubelet over Debian's containerd and runc.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use image::{Name, Store};
use machinery::{Value, value};

use crate::cluster::*;

/// Ends with the test.
struct Daemon {
    process: Child,
    dir: tempfile::TempDir,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let own = self.dir.path().display().to_string();
        for place in table.lines().filter_map(|line| line.split(' ').nth(4)).filter(|place| place.starts_with(&own)) {
            let _ = rustix::mount::unmount(place, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

impl Daemon {
    fn socket(&self) -> PathBuf {
        self.dir.path().join("containerd.sock")
    }
}

async fn containerd() -> Option<Daemon> {
    if !rustix::process::geteuid().is_root() || !Path::new("/usr/bin/containerd").exists() {
        eprintln!("skipped: containerd is not here, or not for this user");
        return None;
    }
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
         stream_server_port = \"0\"\n",
        at("root"),
        at("state"),
        at("containerd.sock")
    );
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
    if started.recv_timeout(PATIENCE).is_err() {
        eprintln!("skipped: containerd does not start here");
        return None;
    }
    let import = Command::new("ctr")
        .arg("--address")
        .arg(daemon.socket())
        .args(["--namespace", "k8s.io", "images", "import", "--all-platforms"])
        .arg(daemon.dir.path().join("images.tar"))
        .output()
        .unwrap();
    assert!(import.status.success(), "{}", String::from_utf8_lossy(&import.stderr));
    Some(daemon)
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_run_restart_and_go_with_containerd() {
    let Some(daemon) = containerd().await else { return };
    let endpoint = format!("unix://{}", daemon.socket().display());
    let Some(cluster) = cluster_with(&["--container-runtime-endpoint", &endpoint]).await else { return };
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
