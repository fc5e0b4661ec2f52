//! The dashboard of a cluster, in a browser.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{KNARR, Machine, build_image, is_root, text};

/// Sources of the user interface, with the browser tests.
const UI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../dashboard/ui");
/// Screenshots that the README shows, by the names that the browser tests give them.
const SHOWN: &[(&str, &str)] = &[("overview-dark", "dashboard-overview.png"), ("chain", "dashboard-chain.png")];

/// Objects whose texts would run or mislead if they were interpreted.
const HOSTILE: &str = r#"{"apiVersion": "v1", "kind": "List", "items": [
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

/// Pods that are not well, a pod that logs, a policy, and users.
const SCENE: &str = r#"{"apiVersion": "v1", "kind": "List", "items": [
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "chatty", "labels": {"app": "chatty"}}, "spec": {"terminationGracePeriodSeconds": 1, "containers": [
        {"name": "c", "image": "test.local/busybox:1", "ports": [{"name": "http", "containerPort": 80}], "resources": {"requests": {"cpu": "10m"}, "limits": {"memory": "64Mi"}},
         "command": ["/bin/busybox", "sh", "-c",
            "i=0; while :; do i=$((i+1)); printf '\\033[32minfo\\033[0m tick %d of the clock\\n' $i; busybox usleep 500000; done"]}]}},
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "no-image"}, "spec": {"containers": [{"name": "c", "image": "test.local/missing:1", "imagePullPolicy": "Never"}]}},
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "too-large"}, "spec": {"containers": [{"name": "c", "image": "knarr.local/pause",
        "resources": {"requests": {"cpu": "1000"}}}]}},
    {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "closed"}, "spec": {"podSelector": {"matchLabels": {"app": "shop"}},
        "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "chatty"}}}], "ports": [{"port": 8080}]}]}},
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
    if !is_root() {
        println!("skipped: a cluster needs root");
        return;
    }
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
    let phases = "kubectl get pods hostile chatty -o jsonpath={.items[*].status.phase}";
    machine.eventually(phases, |phases| phases == "Running Running");
    let token = |name: &str| machine.succeed(&format!("{KNARR} kubectl create token {name}"));
    let screenshots = machine.dir.path().join("screenshots");
    let output = machine
        .command(&format!("node {UI}/tests/browser/run.mjs"))
        .env("DASHBOARD_URL", "https://198.51.100.2:6443/dashboard/")
        .env("ADMIN_TOKEN", token("boss"))
        .env("VIEWER_TOKEN", token("viewer"))
        .env("KNARR", KNARR)
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
