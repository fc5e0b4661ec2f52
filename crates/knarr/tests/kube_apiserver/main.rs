//! End-to-end tests of the API server with the real kubectl and a real etcd.
#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod abuse;
mod clients;
mod filters;
mod health;
mod identity;
mod kinds;
mod managers;
mod outside;
mod schedulers;
mod server;
mod stopping;
mod storage;

use std::path::{Path, PathBuf};
use std::process::Command;

use server::Server;

#[test]
fn kubectl_works() {
    let server = Server::start();
    let check = |arguments: &str, expect: &str| assert_eq!(server.kubectl(arguments), expect, "kubectl {arguments}");
    check("create deployment web --image=nginx", "deployment.apps/web created");
    check("get deployment web -o jsonpath={.spec.strategy.type}", "RollingUpdate");
    check("scale deployment web --replicas=3", "deployment.apps/web scaled");
    check("get deployment web -o jsonpath={.spec.replicas}/{.metadata.generation}", "3/2");
    check("label deployment web tier=front", "deployment.apps/web labeled");
    check("annotate deployment web note=x", "deployment.apps/web annotated");
    check("get deployments -l tier=front -o name", "deployment.apps/web");
    check("get deployments -l tier=back -o name", "");
    check("patch deployment web -p {\"spec\":{\"paused\":true}}", "deployment.apps/web patched");
    check("expose deployment web --port=80", "service/web exposed");
    check("get service web -o jsonpath={.spec.ports[0].port}", "80");
    check("auth can-i delete pods", "yes");
    check("auth can-i delete pods --as=jane", "no");
    let review = "{\"apiVersion\": \"authentication.k8s.io/v1\", \"kind\": \"SelfSubjectReview\"}";
    let username = server.kubectl_with("create -f - -o jsonpath={.status.userInfo.username}", review);
    assert_eq!(username, "admin", "what kubectl auth whoami shows");
    check("delete deployment web", "deployment.apps \"web\" deleted");
    check("get deployment web", "Error from server (NotFound): deployments.apps \"web\" not found");
    let applied =
        "{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {\"name\": \"c\"}, \"data\": {\"a\": \"b\"}}";
    assert_eq!(server.kubectl_with("apply -f -", applied), "configmap/c created");
    assert_eq!(server.kubectl_with("apply -f -", applied), "configmap/c unchanged");
    assert_eq!(server.kubectl_with("apply --server-side -f -", applied), "configmap/c serverside-applied");
    let changed = applied.replace("\"b\"", "\"changed\"");
    let difference = server.kubectl_with("diff -f -", &changed);
    assert!(difference.contains("-  a: b") && difference.contains("+  a: changed"), "{difference}");
    assert_eq!(server.kubectl_with("diff -f -", applied), "");
    check("edit configmap c", "configmap/c edited");
    check("get configmap c -o jsonpath={.data.a}", "b-edited");
    assert!(server.kubectl("describe configmap c").contains("Name:         c"));
    let table = server.kubectl("get configmaps c");
    assert!(table.starts_with("NAME   DATA   AGE\nc      1      "), "{table}");
    let explained = server.kubectl("explain deployment.spec.paused");
    assert!(explained.contains("<boolean>") && explained.contains("paused"), "{explained}");
    assert!(server.kubectl("api-resources --no-headers").lines().count() > 55);
    assert!(server.kubectl("api-versions").lines().any(|line| line == "apps/v1"));
}

#[test]
fn kubectl_output_formats_watch_wait_and_proxy_work() {
    let server = Server::start();
    let has = |arguments: &str, expected: &[&str]| {
        let stdout = server.kubectl(arguments);
        assert!(expected.iter().all(|word| stdout.contains(word)), "kubectl {arguments}: {stdout}");
    };
    has("create configmap c --from-literal=a=b", &["configmap/c created"]);
    has("get configmap c -o yaml", &["apiVersion: v1\ndata:\n  a: b\nkind: ConfigMap"]);
    has("get configmap c -o json", &["\"kind\": \"ConfigMap\""]);
    has("get configmap c -o wide", &["NAME   DATA   AGE"]);
    has("get configmap c -o custom-columns=X:.data.a", &["X\nb"]);
    has("get configmap c -o go-template={{.data.a}}", &["b"]);
    has("get all,configmaps", &["service/kubernetes", "configmap/c"]);
    has("get --raw=/api/v1/namespaces/default/configmaps/c", &["\"a\":\"b\""]);
    has("get configmaps --chunk-size=1 -A -o name", &["configmap/c"]);
    has("cluster-info", &["https://", "is running at"]);
    has("version", &["Server Version"]);
    has("config view", &["insecure-skip-tls-verify: true"]);
    has("api-resources --api-group=apps -o name", &["deployments.apps"]);
    has("wait --for=delete configmap/c --timeout=1s", &["timed out"]);

    let mut watch = server.start_kubectl("get configmaps -w -o name --request-timeout=30s");
    assert!(watch.any(|line| line == "configmap/c"));
    has("create configmap d", &["configmap/d created"]);
    assert!(watch.any(|line| line == "configmap/d"), "a watch prints new objects");

    let mut proxy = server.start_kubectl("proxy --port=0");
    let line = proxy.next().expect("the proxy prints its address");
    let address = line.rsplit(' ').next().unwrap();
    let output = Command::new("curl")
        .args([
            "-s",
            "-A",
            "test",
            "--max-time",
            "10",
            &format!("http://{address}/api/v1/namespaces/default/configmaps/c"),
        ])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("\"a\":\"b\""), "through kubectl proxy: {output:?}");
}

#[test]
fn crd_serves_its_kind_until_it_is_deleted() {
    let server = Server::start();
    let definition = r#"{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
                "properties": {"size": {"type": "integer", "minimum": 1, "default": 2}}}}}]}}"#;
    let created = server.kubectl_with("create -f -", definition);
    assert_eq!(created, "customresourcedefinition.apiextensions.k8s.io/widgets.example.com created");
    let waited = server.kubectl("wait --for=condition=Established crd/widgets.example.com --timeout=10s");
    assert_eq!(waited, "customresourcedefinition.apiextensions.k8s.io/widgets.example.com condition met");
    let widget = r#"{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}"#;
    assert_eq!(server.kubectl_with("create -f -", widget), "widget.example.com/w created");
    assert_eq!(server.kubectl("get widget w -o jsonpath={.size}"), "2");
    let output = server.kubectl("patch widget w --type=merge -p {\"size\":0}");
    assert!(output.contains("size: Invalid value: 0: size in body should be greater than or equal to 1"), "{output}");
    let deleted = server.kubectl("delete crd widgets.example.com --timeout=10s");
    assert_eq!(deleted, "customresourcedefinition.apiextensions.k8s.io \"widgets.example.com\" deleted");
    let (code, _) = server.code(&[], "/apis/example.com/v1/namespaces/default/widgets");
    assert_eq!(code, "404");
}

#[test]
fn invalid_requests_are_rejected_with_a_message() {
    let server = Server::start();
    let path = "/api/v1/namespaces/default/configmaps";
    let json = ["-H", "Content-Type: application/json"];
    let post = |body: &str| {
        let file = server.dir.path().join("body");
        std::fs::write(&file, body).unwrap();
        let body = format!("@{}", file.display());
        server.code(&[json[0], json[1], "--data-binary", &body], path)
    };
    let check = |(code, body): (String, String), expect: &str, text: &str| {
        assert!(code == expect && body.contains(text), "{code} {body}, not {expect} {text}");
    };
    check(post("{\"broken"), "400", "unexpected end of JSON input");
    check(post(&"[".repeat(100_000)), "400", "json parse error");
    check(post(&format!("{{\"data\": {{\"a\": \"{}\"}}}}", "x".repeat(4 << 20))), "413", "Request entity too large");
    check(post("{\"metadata\": {\"name\": \"Bad_Name\"}}"), "422", "a lowercase RFC 1123 subdomain");
    check(server.code(&["-X", "BREW"], path), "405", "does not allow this method");
    check(server.code(&["-X", "PUT"], path), "405", "does not allow this method");
    check(server.code(&["-H", "Authorization: Bearer wrong"], path), "401", "Unauthorized");
    check(server.code(&["-H", "Accept: application/nonsense"], path), "406", "Not Acceptable");
    check(server.code(&[], "/api/v1/nothings"), "404", "could not find the requested resource");
    let header = format!("X-Flood: {}", "y".repeat(2 << 20));
    let file = server.dir.path().join("header");
    std::fs::write(&file, header).unwrap();
    let (code, _) = server.code(&["-H", &format!("@{}", file.display())], path);
    assert!(matches!(code.as_str(), "431" | "000"), "a flood of headers: {code}");
    check(server.code(&[], "/readyz"), "200", "ok");
}

#[test]
fn killed_server_restarts_with_all_objects() {
    let server = Server::start();
    assert_eq!(server.kubectl("create configmap kept --from-literal=a=b"), "configmap/kept created");
    let server = server.again(&[]);
    assert_eq!(server.kubectl("get configmap kept -o jsonpath={.data.a}"), "b");
}

#[test]
fn compare_responses_with_recordings() {
    let dir = test_requirements::upstream("golden");
    let player = dir.join("golden.py");
    let server = Server::start();
    let output = Command::new("python3")
        .arg(&player)
        .args(["replay", "--server", &server.address, "--token", "a-token", "--show", "20", "--fail-under", "98"])
        .args(recordings(&dir))
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{}", stdout.lines().rev().take(16).collect::<Vec<_>>().join("\n"));
    assert!(output.status.success(), "{stdout}");
}

fn recordings(dir: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> = files.filter(|file| file.extension().is_some_and(|ending| ending == "jsonl")).collect();
    files.sort();
    files
}
