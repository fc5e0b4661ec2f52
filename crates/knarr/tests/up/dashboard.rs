//! The dashboard of a cluster, in a browser.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{KNARR, Machine, build_image, run, text};

/// Sources of the user interface, with the browser tests.
const UI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../dashboard/ui");
/// Screenshots that the README shows, by the names that the browser tests give them.
const SHOWN: &[(&str, &str)] = &[("overview-dark", "dashboard-overview.png"), ("rollout", "dashboard-chain.png")];

/// Objects whose texts would run or mislead if they were interpreted.
const HOSTILE: &str = r#"{"apiVersion": "v1", "kind": "List", "items": [
    {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "<img src=x onerror=hacked=1>\"'?a#b&c"}, "rules": []},
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "prototype", "labels": {"constructor": "a", "toString": "b"}},
        "data": {"__proto__": "{\"polluted\": 1}"}},
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hostile", "annotations": {"a": "<img src=x onerror=hacked=1>"}},
        "data": {"k": "<script>hacked=1</script>"}},
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hostile"}, "spec": {"terminationGracePeriodSeconds": 1, "containers": [
        {"name": "c", "image": "test.local/busybox:1", "command": ["/bin/busybox", "sh", "-c", "busybox cat /etc/hostile; exec busybox sleep 1000"],
         "volumeMounts": [{"name": "v", "mountPath": "/etc/hostile", "subPath": "text"}]}], "volumes": [{"name": "v", "configMap": {"name": "lines"}}]}},
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "lines"}, "data": {"text":
        "<script>hacked=1</script>\n\u001b]0;owned\u0007\u001b[2J\u001b[1;1Hbefore-\u001b[31mred\u001b[0m-after-escape\n\u001b]8;;javascript:hacked=1\u001b\\link\u001b]8;;\u001b\\\n"}},
    {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"}, "versions": [{"name": "v1", "served": true,
        "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"note": {"type": "string"}}}},
        "additionalPrinterColumns": [{"name": "<i>Note", "type": "string", "jsonPath": ".note"}]}]}}]}"#;

const WIDGET: &str = r#"{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "hostile"}, "note": "<b onclick=hacked=1>"}"#;

/// Pods that are not well, a pod that logs, objects of every kind with an overview, a policy, and users.
const SCENE: &str = r#"{"apiVersion": "v1", "kind": "List", "items": [
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "chatty", "labels": {"app": "chatty"}}, "spec": {"terminationGracePeriodSeconds": 1, "containers": [
        {"name": "c", "image": "test.local/busybox:1", "ports": [{"name": "http", "containerPort": 80}], "resources": {"requests": {"cpu": "10m"}, "limits": {"memory": "64Mi"}},
         "command": ["/bin/busybox", "sh", "-c",
            "i=0; while :; do i=$((i+1)); printf '\\033[32minfo\\033[0m tick %d of the clock\\n' $i; busybox usleep 500000; done"]},
        {"name": "side", "image": "test.local/busybox:1", "command": ["/bin/busybox", "sh", "-c", "echo a second container; exec busybox sleep 10000"]}]}},
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "crashing"}, "spec": {"terminationGracePeriodSeconds": 1, "containers": [
        {"name": "c", "image": "test.local/busybox:1", "command": ["/bin/busybox", "sh", "-c", "echo cannot open the database; exit 3"]}]}},
    {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"}, "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [
        {"name": "c", "image": "test.local/busybox:1", "command": ["/bin/busybox", "true"]}]}}}},
    {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly"}, "spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template":
        {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "test.local/busybox:1", "command": ["/bin/busybox", "true"]}]}}}}}},
    {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "disk"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "10Mi"}}}},
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "with-disk"}, "spec": {"terminationGracePeriodSeconds": 1, "containers": [
        {"name": "c", "image": "test.local/busybox:1", "command": ["/bin/busybox", "sleep", "10000"], "volumeMounts": [{"name": "v", "mountPath": "/data"}]}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "disk"}}]}},
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "no-image"}, "spec": {"containers": [{"name": "c", "image": "test.local/missing:1", "imagePullPolicy": "Never"}]}},
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "too-large"}, "spec": {"containers": [{"name": "c", "image": "knarr.local/pause",
        "resources": {"requests": {"cpu": "1000"}}}]}},
    {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "closed"}, "spec": {"podSelector": {"matchLabels": {"app": "shop"}},
        "policyTypes": ["Ingress", "Egress"], "ingress": [
            {"from": [{"podSelector": {"matchLabels": {"app": "chatty"}}}], "ports": [{"port": 8080}]},
            {"from": [{"namespaceSelector": {"matchLabels": {"team": "ops"}}}, {"ipBlock": {"cidr": "203.0.113.0/24"}}]}],
        "egress": [{"ports": [{"port": 53, "protocol": "UDP"}]}]}},
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "boss"}},
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "viewer"}},
    {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "boss"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "boss", "namespace": "default"}]}]}"#;

const EVENT: &str = r#"{"apiVersion": "v1", "kind": "Event", "metadata": {"name": "hostile.1"}, "type": "Warning", "reason": "Hostile", "message": "<svg onload=hacked=1>",
    "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": "hostile", "namespace": "default", "uid": "UID"},
    "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z", "count": 3, "source": {"component": "test"}}"#;

/// Node.js, chromium and the npm packages of the tests are installed by `cargo xtask ci`, or by `cargo xtask dashboard`
/// and Debian's package `chromium`.
#[test]
fn dashboard_works_in_a_browser() {
    install_packages();
    let machine = Machine::new();
    machine.up();
    build_image(&machine);
    machine.apply(HOSTILE);
    machine.apply(SCENE);
    machine.eventually("kubectl get crd widgets.example.com -o jsonpath={.status.conditions}", |it| {
        it.contains("Established")
    });
    machine.apply(WIDGET);
    let uid = machine.succeed("kubectl get pod hostile -o jsonpath={.metadata.uid}");
    machine.apply(&EVENT.replace("UID", &uid));
    let phases = "kubectl get pods hostile chatty with-disk -o jsonpath={.items[*].status.phase}";
    machine.eventually(phases, |phases| phases == "Running Running Running");
    let token = |name: &str| machine.succeed(&format!("{KNARR} kubectl create token {name}"));
    let screenshots = machine.dir.path().join("screenshots");
    let desk = Desk::new(&machine);
    let output = desk
        .command(&format!("node {UI}/tests/browser/run.mjs"))
        .env("DASHBOARD_URL", "https://198.51.100.2:6443/dashboard/")
        .env("ADMIN_TOKEN", token("boss"))
        .env("VIEWER_TOKEN", token("viewer"))
        .env("KNARR", KNARR)
        .env("ON_HOST", format!("nsenter --net=/run/netns/{}", machine.namespace))
        .env("DATA_DIR", machine.data())
        .env("UP", format!("{} --data-dir {}", machine.up_arguments(), machine.data().display()))
        .env("SCREENSHOTS", &screenshots)
        .output()
        .unwrap();
    if let Some(target) = std::env::var_os("KNARR_SCREENSHOTS").map(PathBuf::from) {
        copy_all(&screenshots, &target);
    }
    println!("{}", text(&output));
    assert!(output.status.success(), "{}", text(&output));
    for (name, file) in SHOWN {
        let picture = screenshots.join(format!("{name}.png"));
        assert!(picture.is_file(), "no screenshot {name}");
        if std::env::var_os("UPDATE").is_some() {
            let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images");
            std::fs::copy(&picture, images.join(file)).unwrap();
        }
    }
    let page = "curl -sk -o /dev/null -w %{http_code} https://198.51.100.2:6443/dashboard/";
    assert_eq!(machine.succeed(page), "200");
    machine.kill();
    machine.knarr(&format!("{} --disable dashboard", machine.up_arguments()));
    assert_eq!(machine.succeed(page), "403", "the path is like any other one that anonymous users must not read");
}

/// The host of a user, beside that of the cluster. A browser ends its connections when its own host gets a network
/// interface, as that of the cluster does for each pod.
struct Desk {
    namespace: String,
    kubeconfig: PathBuf,
}

impl Desk {
    fn new(machine: &Machine) -> Self {
        let kubeconfig = machine.dir.path().join("desk.kubeconfig");
        let admin = std::fs::read_to_string(machine.data().join("admin.kubeconfig")).unwrap();
        std::fs::write(&kubeconfig, admin.replace("https://127.0.0.1:", "https://198.51.100.2:")).unwrap();
        let desk = Self { namespace: format!("{}-desk", machine.namespace), kubeconfig };
        run(Command::new("ip").args(["netns", "add", &desk.namespace]));
        machine.succeed(&format!("ip link set wire netns {}", desk.namespace));
        for line in ["link set lo up", "address add 198.51.100.1/24 dev wire", "link set wire addrgenmode none up"] {
            run(&mut desk.command(&format!("ip {line}")));
        }
        desk
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.namespace)).args(line.split(' '));
        command.env("KUBECONFIG", &self.kubeconfig);
        command
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.namespace]).output();
    }
}

/// Installs the npm packages of the tests, unless they are there.
fn install_packages() {
    if Path::new(UI).join("node_modules/playwright-core/package.json").is_file() {
        return;
    }
    let install = ["--prefix", UI, "install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund"];
    let output = Command::new("npm").args(install).output();
    let output = output.expect("npm starts; install Debian's packages nodejs and npm");
    assert!(output.status.success(), "{}", text(&output));
}

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}
