//! Further features of the pod API.

use std::fs;
use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

use apimachinery::{Value, json, value};

use crate::cluster::*;

#[tokio::test(flavor = "multi_thread")]
async fn shared_process_namespace_hostname_and_dns_config_are_applied() {
    let cluster = cluster().await;
    let mut shared = with(
        "shared",
        value!({"restartPolicy": "Never", "shareProcessNamespace": true, "terminationGracePeriodSeconds": 1, "containers": [
        (container("c", "while ! ps | grep -v grep | grep -q 'sleep 31415'; do sleep 0.1; done; echo seen")),
        (container("other", "exec sleep 31415"))]}),
    );
    shared.get_mut("metadata").unwrap().as_object_mut().unwrap().insert("labels", value!({"a": "b"}));
    cluster.run(&shared, "running", |pod| phase(pod) == "Running").await;
    cluster.logged("shared", "c", 0, "seen").await;

    let mut named = pod("named", "hostname; cat /etc/resolv.conf");
    set(&mut named, "restartPolicy", "Never");
    set(&mut named, "hostname", "host");
    set(&mut named, "subdomain", "sub");
    set(&mut named, "setHostnameAsFQDN", true);
    set(&mut named, "dnsPolicy", "None");
    set(
        &mut named,
        "dnsConfig",
        value!({"nameservers": ["192.0.2.53"], "searches": ["example.com"], "options": [{"name": "ndots", "value": "2"}, {"name": "rotate"}]}),
    );
    let fqdn = "host.sub.default.svc.cluster.local";
    let resolver = "nameserver 192.0.2.53\nsearch example.com\noptions ndots:2 rotate\n";
    let stdout = cluster.output(&named).await;
    assert!(stdout.starts_with(&format!("{fqdn}\n")), "{stdout}");
    for line in resolver.lines() {
        assert!(stdout.contains(line), "{line} is not in {stdout}");
    }
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_start_in_a_shared_pid_namespace_with_high_pids() {
    let cluster = cluster().await;
    // The other containers get PIDs that no process of the host has.
    let mut containers = vec![container("c", "while :; do /bin/true; done")];
    containers.extend(["d", "e", "f"].map(|name| container(name, "exec sleep 1000")));
    let spec = value!({"restartPolicy": "Never", "shareProcessNamespace": true, "terminationGracePeriodSeconds": 1,
        "containers": containers});
    cluster.run(&with("shared", spec), "ready", is_ready).await;
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn termination_message_falls_back_to_log_and_restart_rules_use_exit_codes() {
    let cluster = cluster().await;
    let mut fails = pod("fails", "echo the reason; exit 3");
    set(&mut fails, "restartPolicy", "Never");
    set_container(&mut fails, "terminationMessagePolicy", "FallbackToLogsOnError");
    let finished = cluster.run(&fails, "over", |pod| phase(pod) == "Failed").await;
    let state = &finished["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(state["message"], Value::from("the reason\n"));
    let mut breaks_off = pod("breaks-off", "echo -n DONE; false");
    set(&mut breaks_off, "restartPolicy", "Never");
    set_container(&mut breaks_off, "terminationMessagePolicy", "FallbackToLogsOnError");
    let finished = cluster.run(&breaks_off, "over", |pod| phase(pod) == "Failed").await;
    let state = &finished["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(state["message"], Value::from("DONE"), "no end is added to a line that has none");

    let mut again = pod("again", "test -e /v/once && exit 0; touch /v/once; exit 42");
    set(&mut again, "restartPolicy", "Never");
    set(&mut again, "volumes", value!([{"name": "v", "emptyDir": {}}]));
    set_container(&mut again, "volumeMounts", value!([{"name": "v", "mountPath": "/v"}]));
    set_container(&mut again, "restartPolicy", "Never");
    set_container(
        &mut again,
        "restartPolicyRules",
        value!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]),
    );
    let finished = cluster.run(&again, "over", |pod| matches!(phase(pod), "Succeeded" | "Failed")).await;
    assert_eq!(
        (phase(&finished), &finished["status"]["containerStatuses"][0]["restartCount"]),
        ("Succeeded", &Value::Int(1))
    );
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_all_containers_and_init_container_restart_rules_work() {
    let cluster = cluster().await;
    let witness = cluster.path("witness");
    fs::create_dir(&witness).unwrap();
    let mounted = |name: &str, script: &str, more: Value| {
        let mut container = container(name, script);
        let fields = container.as_object_mut().unwrap();
        fields.insert("volumeMounts", value!([{"name": "v", "mountPath": "/v"}]));
        for (field, value) in more.as_object().unwrap().iter() {
            fields.insert(field, value.clone());
        }
        container
    };
    let rule = |action: &str| value!([{"action": action, "exitCodes": {"operator": "In", "values": [42]}}]);
    let own = |action: &str| value!({"restartPolicy": "Never", "restartPolicyRules": (rule(action))});
    let first =
        mounted("first", "echo first >>/v/log; test -e /v/tried && exit 0; touch /v/tried; exit 42", own("Restart"));
    let main = mounted("c", "test -e /v/once && exec cat /v/log; touch /v/once; exit 42", own("RestartAllContainers"));
    let hook = value!({"lifecycle": {"preStop": {"exec": {"command": ["touch", "/w/hook"]}}}});
    // The container terminates slowly, so that the test sees the others wait for it.
    let script = "echo other >>/v/log; trap 'sleep 0.5; exit 1' TERM; \
        until grep -c first /v/log | grep -q 3; do sleep 0.1; done";
    let mut other = mounted("other", script, hook);
    let mounts = other.get_mut("volumeMounts").unwrap().as_array_mut().unwrap();
    mounts.push(value!({"name": "w", "mountPath": "/w"}));
    let spec = value!({"restartPolicy": "Never", "initContainers": [first], "containers": [main, other],
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "hostPath": {"path": (witness.display().to_string())}}],
        "terminationGracePeriodSeconds": 1});
    let restarting_condition = |pod: &Value| -> (String, String) {
        let conditions = pod["status"]["conditions"].as_array().unwrap_or_default();
        let condition = conditions.iter().find(|one| one.str_at(&["type"]) == Some("AllContainersRestarting"));
        let text = |field: &str| condition.and_then(|one| one.str_at(&[field])).unwrap_or_default().to_owned();
        (text("status"), text("reason"))
    };
    let restarting = cluster.run(&with("all", spec), "restarting", |pod| restarting_condition(pod).0 == "True").await;
    assert_eq!(
        (phase(&restarting), restarting_condition(&restarting).1.as_str()),
        ("Running", "RestartAllContainersStarted")
    );
    let over = |pod: &Value| matches!(phase(pod), "Succeeded" | "Failed");
    let finished = cluster.wait(&PODS, "all", "over", over).await;
    let status = &finished["status"];
    assert_eq!(phase(&finished), "Succeeded", "{status:?}");
    assert_eq!(restarting_condition(&finished), ("False".into(), "PodCompleted".into()));
    assert!(!fs::exists(witness.join("hook")).unwrap(), "hooks do not run");
    let restarts = |list: &str| -> Vec<Value> {
        let statuses = status[list].as_array().unwrap();
        statuses.iter().map(|one| one["restartCount"].clone()).collect()
    };
    assert_eq!(restarts("containerStatuses"), [Value::Int(1), Value::Int(1)]);
    assert_eq!(restarts("initContainerStatuses"), [Value::Int(2)]);
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn init_container_writes_environment_variables_for_later_containers() {
    let cluster = cluster().await;
    let mut writes = container("writes", "echo \"WORD='from the first'\" >/v/words");
    writes.as_object_mut().unwrap().insert("volumeMounts", value!([{"name": "v", "mountPath": "/v"}]));
    let mut reads = container("c", "echo $SAID");
    let from = value!({"fileKeyRef": {"volumeName": "v", "path": "words", "key": "WORD"}});
    reads.as_object_mut().unwrap().insert("env", value!([{"name": "SAID", "valueFrom": from}]));
    let spec = value!({"restartPolicy": "Never", "initContainers": [writes], "containers": [reads],
        "volumes": [{"name": "v", "emptyDir": {}}]});
    assert_eq!(cluster.output(&with("words", spec)).await, "from the first\n");
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sub_path_expr_is_expanded_and_named_port_is_probed() {
    let cluster = cluster().await;
    let mut parts = pod("parts", "echo mine >/part/file; cat /whole/parts/file");
    set(&mut parts, "restartPolicy", "Never");
    set(&mut parts, "volumes", value!([{"name": "v", "emptyDir": {}}]));
    set_container(
        &mut parts,
        "env",
        value!([{"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
    );
    set_container(
        &mut parts,
        "volumeMounts",
        value!([{"name": "v", "mountPath": "/part", "subPathExpr": "$(NAME)"}, {"name": "v", "mountPath": "/whole"}]),
    );
    // A user who may write to the volume may write to its created subPath.
    set(&mut parts, "securityContext", value!({"runAsUser": 33}));
    assert_eq!(cluster.output(&parts).await, "mine\n");

    let mut hole = parts.clone();
    hole.get_mut("metadata").unwrap().as_object_mut().unwrap().insert("name", "hole");
    set_container(&mut hole, "env", value!([{"name": "NAME", "value": ""}]));
    let waiting = |pod: &Value| pod["status"]["containerStatuses"][0]["state"]["waiting"].clone();
    let found =
        cluster.run(&hole, "refused", |pod| waiting(pod)["reason"] == Value::from("CreateContainerConfigError")).await;
    assert_eq!(waiting(&found)["message"], Value::from("missing value for NAME"));

    let mut listens = pod("listens", "sleep 1; exec httpd -f -p 127.0.0.1:8098 -h /tmp");
    set(&mut listens, "hostNetwork", true);
    set_container(
        &mut listens,
        "startupProbe",
        value!({"tcpSocket": {"host": "127.0.0.1", "port": 8098}, "periodSeconds": 1, "failureThreshold": 30}),
    );
    cluster.run(&listens, "ready", is_ready).await;
    cluster.event("Unhealthy: Startup probe failed: dial tcp 127.0.0.1:8098: connect: connection refused").await;
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn image_volume_is_mounted() {
    let cluster = cluster_with_built_in().await;
    let mut reads =
        pod("reads", "test -x /image/bin/busybox && echo there; touch /image/x 2>/dev/null || echo protected");
    set(&mut reads, "restartPolicy", "Never");
    set(&mut reads, "volumes", value!([{"name": "i", "image": {"reference": IMAGE, "pullPolicy": "IfNotPresent"}}]));
    set_container(&mut reads, "volumeMounts", value!([{"name": "i", "mountPath": "/image"}]));
    assert_eq!(cluster.output(&reads).await, "there\nprotected\n");
    cluster.finish().await;
}

/// Starts a web server that returns the current document to every request.
fn serve(document: Arc<Mutex<String>>) -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            // The client sends its request in one packet.
            let length = stream.read(&mut request).unwrap_or(0);
            let has_header = String::from_utf8_lossy(&request[..length]).to_ascii_lowercase().contains("x-who: node");
            let body = if has_header { document.lock().unwrap().clone() } else { String::new() };
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn static_pod_from_url_runs_until_it_is_removed() {
    let spec = value!({"containers": [(container("c", "sleep 1000"))], "terminationGracePeriodSeconds": 1});
    let manifest = value!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec});
    let document = Arc::new(Mutex::new(json::to_string(&manifest)));
    let url = format!("http://127.0.0.1:{}/pods?all=1", serve(Arc::clone(&document)));
    let flags = ["--manifest-url", &url, "--manifest-url-header", "X-Who:node", "--http-check-frequency", "1s"];
    let cluster = cluster_with(&flags).await;
    let name = format!("web-{NODE}");
    let mirror = cluster.wait(&PODS, &name, "ready", is_ready).await;
    assert_eq!(mirror["metadata"]["annotations"]["kubernetes.io/config.source"], Value::from("http"));
    *document.lock().unwrap() = "{\"kind\": \"PodList\", \"apiVersion\": \"v1\", \"items\": []}".to_owned();
    cluster.wait_until_deleted(&name).await;
    cluster.finish().await;
}
