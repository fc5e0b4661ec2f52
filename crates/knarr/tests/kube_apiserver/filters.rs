//! Request filters: audit, priority and fairness, timeouts, health, metrics, compression.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::outside::Outside;
use crate::server::Server;

/// Time limit of every wait.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// Repeats a request until the response is the expected one.
pub(crate) fn until<T: std::fmt::Debug>(mut poll: impl FnMut() -> T, is_right: impl Fn(&T) -> bool) -> T {
    let start = Instant::now();
    loop {
        let value = poll();
        if is_right(&value) {
            return value;
        }
        assert!(start.elapsed() < TIMEOUT, "still {value:?}");
    }
}

fn write(server_dir: &std::path::Path, name: &str, text: &str) -> String {
    let file = server_dir.join(name);
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

const POLICY: &str = r"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  nonResourceURLs: ['*']
- level: Metadata
  resources: [{group: '', resources: [secrets, serviceaccounts/token]}]
- level: RequestResponse
  omitManagedFields: true
  resources: [{group: '', resources: [configmaps]}]
- level: Metadata
";

#[test]
fn audit_log_follows_the_policy() {
    let dir = tempfile::tempdir().unwrap();
    let policy = write(dir.path(), "policy.yaml", POLICY);
    let log = dir.path().join("audit.log");
    let log_path = log.to_str().unwrap();
    let server = Server::start_with(&["--audit-policy-file", &policy, "--audit-log-path", log_path]);
    server.kubectl("create configmap noted --from-literal=a=b");
    server.kubectl("create secret generic hidden --from-literal=password=hunter2");
    server.code(&["-H", "Authorization: Bearer plain-token"], "/api/v1/namespaces/default/pods");
    server.kubectl("get configmaps --as=jane --as-group=system:masters");
    // Earlier requests are in the log once this one has a response.
    server.code(&[], "/version");
    drop(server);
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(!text.contains("hunter2") && !text.contains("a-token") && !text.contains("plain-token"), "secrets leak");
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let find = |verb: &str, resource: &str| {
        let is = |event: &&Value| event["verb"] == verb && event["objectRef"]["resource"] == resource;
        events.iter().find(is).unwrap_or_else(|| panic!("no {verb} of {resource} in {text}"))
    };
    let created = find("create", "configmaps");
    assert_eq!(created["stage"], "ResponseComplete");
    assert_eq!(created["objectRef"]["name"], "noted");
    assert_eq!(created["requestObject"]["data"]["a"], "b");
    assert_eq!(created["responseObject"]["metadata"].get("managedFields"), None);
    assert_eq!(created["responseStatus"]["code"], 201);
    assert_eq!(created["annotations"]["authorization.k8s.io/decision"], "allow");
    assert_eq!(created["user"]["username"], "admin");
    assert_eq!(created["sourceIPs"][0], "127.0.0.1");
    let secret = find("create", "secrets");
    assert_eq!((secret["level"].as_str(), secret.get("requestObject")), (Some("Metadata"), None));
    let forbidden = find("list", "pods");
    assert_eq!(forbidden["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_eq!(forbidden["responseStatus"]["reason"], "Forbidden");
    assert_eq!(find("list", "configmaps")["impersonatedUser"]["username"], "jane");
}

#[test]
fn audit_events_are_sent_to_the_webhook() {
    let (sender, received) = mpsc::channel();
    let webhook = Outside::start(move |_, head, body| {
        let _ = sender.send((head.to_owned(), body.to_owned()));
        "{}".to_owned()
    });
    let dir = tempfile::tempdir().unwrap();
    let ca = write(dir.path(), "ca.crt", &webhook.ca.pem());
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- name: c\n  cluster: {{server: '{}/events?from=a', certificate-authority: {ca}}}\ncontexts:\n- name: c\n  context: {{cluster: c, user: u}}\nusers:\n- name: u\n  user: {{}}\n",
        webhook.url
    );
    let (config, policy) = (write(dir.path(), "kubeconfig", &kubeconfig), write(dir.path(), "policy.yaml", POLICY));
    let flags = ["--audit-policy-file", &policy, "--audit-webhook-config-file", &config];
    let more = ["--audit-webhook-batch-max-wait=10ms"];
    let server = Server::start_with(&flags.iter().chain(&more).copied().collect::<Vec<_>>());
    server.kubectl("create configmap told --from-literal=a=b");
    let receive = || received.recv_timeout(TIMEOUT).unwrap();
    let (head, body) = until(receive, |(_, body)| body.contains("\"name\":\"told\""));
    assert!(head.starts_with("POST /events?from=a "), "{head}");
    let list: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((list["kind"].as_str(), list["apiVersion"].as_str()), (Some("EventList"), Some("audit.k8s.io/v1")));
}

#[test]
fn blocking_strict_audit_rejects_requests_if_the_log_fails() {
    let dir = tempfile::tempdir().unwrap();
    let policy = write(
        dir.path(),
        "policy.yaml",
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: None\n  nonResourceURLs: ['*']\n- level: Metadata\n",
    );
    // A directory at the path of the log file.
    let log = dir.path().to_str().unwrap();
    let flags = ["--audit-policy-file", &policy, "--audit-log-path", log, "--audit-log-mode=blocking-strict"];
    let server = Server::start_with(&flags);
    let (code, body) = server.code(&[], "/api/v1/namespaces");
    assert!(code == "500" && body.contains("failed to store audit event"), "{code} {body}");
}

const LEVEL: &str = r#"{"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
    "metadata": {"name": "nothing"}, "spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 0,
    "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}}}}"#;
const SCHEMA: &str = r#"{"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
    "metadata": {"name": "janes"}, "spec": {"matchingPrecedence": 10, "priorityLevelConfiguration": {"name": "nothing"},
    "rules": [{"subjects": [{"kind": "User", "user": {"name": "jane"}}],
    "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]}]}]}}"#;

#[test]
fn flow_schemas_and_priority_levels_limit_requests() {
    let server = Server::start();
    let jane = ["-i", "-H", "Authorization: Bearer plain-token"];
    let headers = |arguments: &[&str]| String::from_utf8(server.curl(arguments, "/api/v1/namespaces").stdout).unwrap();
    let admitted = headers(&["-i"]).to_lowercase();
    assert!(admitted.contains("x-kubernetes-pf-flowschema-uid: "), "{admitted}");
    assert!(admitted.contains("x-kubernetes-pf-prioritylevel-uid: ") && admitted.contains("audit-id: "), "{admitted}");
    assert_eq!(server.kubectl_with("create -f -", SCHEMA), "flowschema.flowcontrol.apiserver.k8s.io/janes created");
    let dangling = || {
        let status = "get flowschema janes -o jsonpath={.status.conditions[0].type}={.status.conditions[0].status}";
        server.kubectl(status)
    };
    until(dangling, |text| text == "Dangling=True");
    let made = server.kubectl_with("create -f -", LEVEL);
    assert_eq!(made, "prioritylevelconfiguration.flowcontrol.apiserver.k8s.io/nothing created");
    until(dangling, |text| text == "Dangling=False");
    // This request takes the only seat of a level without shares.
    let mut slow = slow_post(&server, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
    let response = until(|| headers(&jane), |text| text.contains(" 429")).to_lowercase();
    slow.kill().unwrap();
    slow.wait().unwrap();
    assert!(response.contains("retry-after: ") && response.contains("x-kubernetes-pf-flowschema-uid: "), "{response}");
    assert!(response.contains("too many requests, please try again later."), "{response}");
    assert!(headers(&["-i"]).contains(" 200"), "exempt requests are served");
    server.kubectl("delete flowschema catch-all exempt");
    until(|| server.kubectl("get flowschema catch-all exempt -o name"), |text| text.lines().count() == 2);
}

/// Starts a request of user jane whose body never ends.
fn slow_post(server: &Server, path: &str) -> Child {
    let jane = "Authorization: Bearer plain-token";
    let slow = Command::new("curl")
        .args(["-sk", "--max-time", "30", "-X", "POST", "-H", jane, "-T", "-", "-H", "Content-Type: application/json"])
        .arg(format!("https://{}{path}", server.address))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    slow.stdin.as_ref().unwrap().write_all(b"{").unwrap();
    slow
}

#[test]
fn max_inflight_limits_reject_excess_requests() {
    let flags = ["--enable-priority-and-fairness=false", "--max-mutating-requests-inflight=1"];
    let server = Server::start_with(&flags);
    let jane = "Authorization: Bearer plain-token";
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let mut slow = slow_post(&server, path);
    let post = || server.code(&["-i", "-X", "POST", "-H", jane, "-d", "{}"], path);
    let (_, response) = until(post, |(code, _)| code == "429");
    assert!(response.to_lowercase().contains("retry-after: 1"), "{response}");
    slow.kill().unwrap();
    slow.wait().unwrap();
    // A disconnected client releases its seat.
    until(post, |(code, _)| code != "429");
}

#[test]
fn requests_time_out() {
    let server = Server::start_with(&["--request-timeout", "2s"]);
    let (code, response) = server.code(&[], "/api/v1/namespaces?timeout=soon");
    assert!(code == "400" && response.contains("invalid timeout specified in the request URL"), "{code} {response}");
    let start = Instant::now();
    // Not curl, which reads no response while it waits for more input to send.
    let program = "import http.client, ssl, sys
connection = http.client.HTTPSConnection(sys.argv[1], context=ssl._create_unverified_context(), timeout=20)
connection.putrequest('POST', '/api/v1/namespaces')
for header in ('Authorization', 'Bearer a-token'), ('Content-Type', 'application/json'), ('Content-Length', '100'):
    connection.putheader(*header)
connection.endheaders(b'{')
answer = connection.getresponse()
print(answer.read().decode(), answer.status)";
    let slow = Command::new("python3").args(["-c", program, &server.address]).output().unwrap();
    let response = String::from_utf8_lossy(&slow.stdout).trim().to_owned();
    assert!(
        response.contains("request did not complete within the allotted timeout") && response.ends_with("504"),
        "{response}"
    );
    assert!(start.elapsed() < TIMEOUT);
    let watched: Vec<String> = server.stream("/api/v1/namespaces?watch=true&timeoutSeconds=3").collect();
    assert!(watched.len() >= 4 && start.elapsed() > Duration::from_secs(4), "a watch may take longer");
}

#[test]
fn health_endpoints_list_checks() {
    let server = Server::start();
    let check = |path: &str, code: &str, text: &str| {
        let (got, body) = server.code(&[], path);
        assert!(got == code && body.contains(text), "{path}: {got} {body}");
    };
    check("/readyz", "200", "ok");
    check("/readyz?verbose", "200", "[+]etcd-readiness ok\n");
    check("/livez?verbose&exclude=etcd", "200", "[+]etcd excluded: ok\n");
    check("/healthz/ping", "200", "ok");
    check("/healthz/nonsense", "404", "");
    let nobody = server.code(&["-H", "Authorization:"], "/readyz");
    assert_eq!(nobody, ("200".to_owned(), "ok".to_owned()));
}

#[test]
fn metrics_have_upstream_names() {
    let server = Server::start();
    server.kubectl("create configmap counted --from-literal=a=b");
    server.code(&["-H", "Authorization: Bearer wrong"], "/api/v1/namespaces");
    let (_, text) = server.code(&[], "/metrics");
    let has = |start: &str, parts: &[&str]| {
        let found = text.lines().any(|line| line.starts_with(start) && parts.iter().all(|part| line.contains(part)));
        assert!(found, "no {start} {parts:?} in\n{text}");
    };
    let created = ["code=\"201\"", "resource=\"configmaps\"", "scope=\"resource\"", "verb=\"POST\"", "version=\"v1\""];
    has("apiserver_request_total{", &created);
    has("apiserver_request_duration_seconds_bucket{", &["resource=\"configmaps\"", "le=\"+Inf\""]);
    has("apiserver_storage_objects{resource=\"configmaps\"}", &[]);
    has("apiserver_current_inflight_requests{request_kind=\"readOnly\"}", &[]);
    has("apiserver_flowcontrol_nominal_limit_seats{priority_level=\"catch-all\"}", &[]);
    has("authentication_attempts{result=\"failure\"}", &[]);
    has("authorization_attempts_total{result=\"allowed\"}", &[]);
    has("apiserver_admission_step_admission_duration_seconds_count{", &["operation=\"CREATE\"", "type=\"admit\""]);
    has("etcd_request_duration_seconds_count{", &[]);
    has("process_resident_memory_bytes ", &[]);
    let helped = text.lines().filter(|line| line.starts_with("# TYPE")).count();
    let names: std::collections::BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert_eq!(helped, names.len(), "a name is described once");
}

#[test]
fn large_responses_are_compressed_if_accepted() {
    let server = Server::start();
    let large = format!(
        r#"{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {{"name": "large"}}, "data": {{"a": "{}"}}}}"#,
        "x".repeat(200 * 1024)
    );
    assert_eq!(server.kubectl_with("create -f -", &large), "configmap/large created");
    let path = "/api/v1/namespaces/default/configmaps/large";
    let plain = server.curl(&[], path).stdout;
    let packed = server.curl(&["-H", "Accept-Encoding: gzip", "-i"], path).stdout;
    let head = String::from_utf8_lossy(&packed).to_lowercase();
    assert!(head.contains("content-encoding: gzip") && head.contains("vary: accept-encoding"), "{}", &head[..400]);
    assert!(packed.len() < plain.len() / 10);
    assert_eq!(server.curl(&["--compressed"], path).stdout, plain);
    let small = server.curl(&["-H", "Accept-Encoding: gzip", "-i"], "/api/v1/namespaces/default").stdout;
    assert!(!String::from_utf8_lossy(&small).to_lowercase().contains("content-encoding"));
}

#[test]
fn delete_returns_warnings_of_admission_policies() {
    let server = Server::start();
    let policy = r#"{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "careful"}, "spec": {"matchConstraints": {"resourceRules": [{"apiGroups": [""],
        "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["configmaps"]}]},
        "validations": [{"expression": "false", "message": "think twice"}]}}"#;
    let binding = r#"{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "careful"}, "spec": {"policyName": "careful", "validationActions": ["Warn", "Audit"]}}"#;
    server.kubectl_with("create -f -", policy);
    server.kubectl_with("create -f -", binding);
    server.kubectl("create configmap going --from-literal=a=b");
    let path = "/api/v1/namespaces/default/configmaps/going?dryRun=All";
    let delete = || String::from_utf8_lossy(&server.curl(&["-i", "-X", "DELETE"], path).stdout).into_owned();
    until(delete, |response| {
        response.contains(" 200")
            && response.to_lowercase().contains("warning: 299")
            && response.contains("think twice")
    });
}
