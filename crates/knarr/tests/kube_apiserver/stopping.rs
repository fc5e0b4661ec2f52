//! Components stop promptly on SIGTERM, whatever the state of the API server.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::server::Server;
use crate::storage::eventually;

/// Components and their flags; upper-case values are placeholders for paths.
const COMPONENTS: &[(&str, &[&str])] = &[
    ("kube-controller-manager", &["--secure-port=0", "--kubeconfig=KUBECONFIG"]),
    ("kube-scheduler", &["--secure-port=0", "--kubeconfig=KUBECONFIG"]),
    ("dns", &["--listen=127.0.0.1:0", "--kubeconfig=KUBECONFIG"]),
    ("metrics-server", &["--bind-address=127.0.0.1", "--secure-port=0", "--kubeconfig=KUBECONFIG"]),
    ("local-path", &["--root=FOLDER/volumes", "--hostname-override=n1", "--kubeconfig=KUBECONFIG"]),
];

/// Time limit for a component to stop. It is shorter than the grace period after which the component is forced to exit.
const SOON: Duration = Duration::from_secs(8);

struct Component {
    name: &'static str,
    process: Child,
}

impl Component {
    fn start(server: &Server, name: &'static str, flags: &[&str]) -> Self {
        let dir = server.dir.path().display().to_string();
        let flags =
            flags.iter().map(|flag| flag.replace("KUBECONFIG", &format!("{dir}/kubeconfig")).replace("FOLDER", &dir));
        let process = Command::new(env!("CARGO_BIN_EXE_knarr"))
            .arg(name)
            .args(flags)
            .stdout(Stdio::null())
            .stderr(fs::File::create(format!("{dir}/{name}.log")).unwrap())
            .spawn()
            .unwrap();
        Self { name, process }
    }
}

impl Drop for Component {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn components_stop_on_sigterm_without_an_api_server() {
    let mut server = Server::start();
    let mut components: Vec<Component> =
        COMPONENTS.iter().map(|(name, flags)| Component::start(&server, name, flags)).collect();
    for lease in ["kube-controller-manager", "kube-scheduler"] {
        let holder =
            || server.kubectl(&format!("-n kube-system get lease {lease} -o jsonpath={{.spec.holderIdentity}}"));
        eventually(holder, |holder| !holder.is_empty() && !holder.contains("rror"));
    }
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    for component in &components {
        let id = component.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    }
    let signaled_at = Instant::now();
    for component in &mut components {
        let status = loop {
            if let Some(status) = component.process.try_wait().unwrap() {
                break status;
            }
            let log = || fs::read_to_string(server.dir.path().join(format!("{}.log", component.name))).unwrap();
            assert!(signaled_at.elapsed() < SOON, "{} still runs:\n{}", component.name, log());
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(status.success(), "{}: {status}", component.name);
    }
}
