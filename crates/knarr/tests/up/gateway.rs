//! Ingress and Gateway API with pods: load through changes, WebSocket and gRPC.

mod load;

use load::{Certificate, Load, connect};

use super::*;

/// Address of the node, on which the proxy listens.
const NODE: &str = "198.51.100.2";

const ROUTES: &str = r#"{"apiVersion": "v1", "kind": "List", "items": [
    {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "hello"},
     "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "hello"}},
        "template": {"metadata": {"labels": {"app": "hello"}}, "spec": {"terminationGracePeriodSeconds": 2,
            "containers": [{"name": "c", "image": "knarr.local/hello",
                "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 1}}]}}}},
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hello"},
     "spec": {"selector": {"app": "hello"}, "ports": [{"port": 80, "targetPort": 8080}]}},
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "etcd", "labels": {"app": "etcd"}},
     "spec": {"containers": [{"name": "c", "image": "knarr.local/hello", "command": ["/knarr", "etcd"],
        "args": ["--data-dir", "/data", "--listen-client-urls", "http://0.0.0.0:2379",
            "--advertise-client-urls", "http://127.0.0.1:2379"],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
        "volumes": [{"name": "data", "emptyDir": {}}]}},
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "etcd"},
     "spec": {"selector": {"app": "etcd"}, "ports": [{"port": 2379}]}},
    {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "hello"},
     "spec": {"tls": [{"hosts": ["ingress.test"], "secretName": "ingress"}], "rules": [{"host": "ingress.test", "http": {"paths": [
        {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "hello", "port": {"number": 80}}}}]}}]}},
    {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "gateway"},
     "spec": {"gatewayClassName": "knarr", "listeners": [
        {"name": "https", "port": 443, "protocol": "HTTPS", "hostname": "*.gateway.test",
         "tls": {"certificateRefs": [{"name": "gateway"}]}},
        {"name": "grpc", "port": 8080, "protocol": "HTTP", "hostname": "etcd.test"}]}},
    {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "hello"},
     "spec": {"parentRefs": [{"name": "gateway"}], "hostnames": ["hello.gateway.test"],
        "rules": [{"backendRefs": [{"name": "hello", "port": 80}]}]}},
    {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GRPCRoute", "metadata": {"name": "etcd"},
     "spec": {"parentRefs": [{"name": "gateway", "sectionName": "grpc"}],
        "rules": [{"matches": [{"method": {"service": "etcdserverpb.Maintenance", "method": "Status"}}],
            "backendRefs": [{"name": "etcd", "port": 2379}]}]}},
    {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "api"},
     "spec": {"parentRefs": [{"name": "gateway"}], "hostnames": ["api.gateway.test"],
        "rules": [{"backendRefs": [{"name": "kubernetes", "port": 443}]}]}},
    {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "BackendTLSPolicy", "metadata": {"name": "api"},
     "spec": {"targetRefs": [{"group": "", "kind": "Service", "name": "kubernetes"}],
        "validation": {"hostname": "kubernetes.default.svc",
            "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "kube-root-ca.crt"}]}}}]}"#;

#[test]
fn ingress_and_gateway_serve_pods_through_changes() {
    let machine = Machine::new();
    machine.up();
    let ingress = store_certificate(&machine, "ingress", "ingress.test");
    let gateway = store_certificate(&machine, "gateway", "*.gateway.test");
    machine.apply(ROUTES);
    machine.succeed("kubectl rollout status deployment hello --timeout=60s");
    let programmed = "kubectl get gateway gateway -o jsonpath={.status.conditions[?(@.type=='Programmed')].status}";
    machine.eventually(programmed, |status| status == "True");
    let accepted = "kubectl get httproute,grpcroute -o jsonpath={.items[*].status.parents[*].conditions[*].status}";
    machine.eventually(accepted, |statuses| statuses == ["True"; 6].join(" "));
    no_request_fails_through_changes(&machine, ingress, gateway);
    exec_by_websocket(&machine);
    call_by_grpc(&machine);
    no_request_fails_while_the_controller_restarts(&machine);
}

/// An instance of the controller that runs alone, stopped on drop.
struct Instance(std::process::Child);

impl Instance {
    /// Starts an instance, and waits until this number of instances listen.
    fn start(machine: &Machine, count: usize) -> Self {
        let line = format!(
            "{KNARR} ingress --bind-address {NODE} --http-port 8081 --https-port 8443 --reuse-port --leader-elect \
             --kubeconfig {}/admin.kubeconfig",
            machine.data().display()
        );
        let child = machine.command(&line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let instance = Self(child);
        machine.eventually("ss -Hltn sport = :8443", |listening| listening.lines().count() == count);
        instance
    }

    /// Stops the instance with SIGTERM, and waits until it has exited.
    fn stop(mut self) {
        run(Command::new("kill").args(["-TERM", &self.0.id().to_string()]));
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A new instance starts before the old one stops.
fn no_request_fails_while_the_controller_restarts(machine: &Machine) {
    machine.succeed("kubectl delete gateway gateway");
    let certificate = store_certificate(machine, "ingress", "ingress.test");
    // Connections that the old instance has not accepted move to the new one.
    machine.succeed("sysctl -qw net.ipv4.tcp_migrate_req=1");
    let mut instance = Instance::start(machine, 1);
    let load = Load::start(&machine.namespace, (NODE, 8443), &[("ingress.test", certificate)]);
    for _ in 0..3 {
        load.wait_for_requests(100);
        let next = Instance::start(machine, 2);
        std::mem::replace(&mut instance, next).stop();
    }
    load.wait_for_requests(100);
    load.check("while the controller restarted");
}

/// Makes a certificate for a name and stores it as a Secret, as a new one or instead of another.
fn store_certificate(machine: &Machine, secret: &str, name: &str) -> Certificate {
    let certificate = Certificate::new(name);
    let encode = |text: &str| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
    machine.apply(
        &serde_json::json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret}, "type": "kubernetes.io/tls",
            "data": {"tls.crt": encode(&certificate.chain), "tls.key": encode(&certificate.key)},
        })
        .to_string(),
    );
    certificate
}

/// Two hosts with TLS under constant load: a rolling update, a scaling and a change of both certificates.
fn no_request_fails_through_changes(machine: &Machine, ingress: Certificate, gateway: Certificate) {
    let hosts = [("ingress.test", ingress), ("hello.gateway.test", gateway)];
    let load = Load::start(&machine.namespace, (NODE, 443), &hosts);
    load.wait_for_requests(200);
    machine.succeed("kubectl set env deployment hello COLOUR=blue");
    machine.succeed("kubectl rollout status deployment hello --timeout=60s");
    machine.succeed("kubectl scale deployment hello --replicas=4");
    machine.succeed("kubectl rollout status deployment hello --timeout=60s");
    machine.succeed("kubectl scale deployment hello --replicas=1");
    // Clients trust the new certificates before the proxy serves them.
    for (secret, name, host) in
        [("ingress", "ingress.test", "ingress.test"), ("gateway", "*.gateway.test", "hello.gateway.test")]
    {
        let replaced = Certificate::new(name);
        load.trust(host, &replaced);
        let encode = |text: &str| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
        let (chain, key) = (encode(&replaced.chain), encode(&replaced.key));
        let patch = format!(r#"{{"data":{{"tls.crt":"{chain}","tls.key":"{key}"}}}}"#);
        machine.succeed(&format!("kubectl patch secret {secret} -p {patch}"));
        load.wait_for_certificate(host, &replaced);
    }
    let one = "kubectl get endpointslices -l kubernetes.io/service-name=hello \
         -o jsonpath={.items[*].endpoints[*].addresses[0]}";
    machine.eventually(one, |addresses| addresses.split(' ').count() == 1);
    load.wait_for_requests(200);
    load.check("through changes");
}

/// Runs a command in a pod over WebSocket, through the proxy to the API server, whose certificate the proxy verifies.
fn exec_by_websocket(machine: &Machine) {
    machine.succeed("kubectl create serviceaccount tester");
    machine.succeed(
        "kubectl create clusterrolebinding tester --clusterrole=cluster-admin --serviceaccount=default:tester",
    );
    let token = machine.succeed("kubectl create token tester");
    let hosts = machine.dir.path().join("hosts");
    std::fs::write(&hosts, format!("127.0.0.1 localhost\n{NODE} api.gateway.test\n")).unwrap();
    // A mount namespace of its own keeps the name out of the real host's table.
    let script = format!(
        "mount --bind {} /etc/hosts && exec {KNARR} kubectl --kubeconfig=/dev/null --server=https://api.gateway.test \
         --insecure-skip-tls-verify --token={token} exec etcd -- /knarr --version",
        hosts.display()
    );
    let output = machine.command("unshare --mount sh -c").arg(&script).output().unwrap();
    assert!(output.status.success() && text(&output).contains("knarr"), "{}", text(&output));
}

/// Calls the etcd of a pod by a GRPCRoute. Other methods have no route.
fn call_by_grpc(machine: &Machine) {
    let call = |path: &'static str| {
        let namespace = Path::new("/run/netns").join(&machine.namespace);
        let calling = netlink::namespace::within(&namespace, || load::block_on(grpc(path)));
        calling.unwrap()
    };
    let start = Instant::now();
    loop {
        let (status, message) = call("/etcdserverpb.Maintenance/Status");
        if status == "200 0" && message > 5 {
            break;
        }
        assert!(start.elapsed() < DEADLINE, "{status}, {message} bytes\n{}", machine.output_of("kubectl logs etcd"));
    }
    assert_eq!(call("/etcdserverpb.Maintenance/Snapshot").0, "404 ");
}

/// Sends an empty gRPC message. Returns the HTTP status with the gRPC status, and the bytes of the response.
async fn grpc(path: &str) -> (String, usize) {
    let stream = connect(NODE, 8080).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::post(format!("http://etcd.test{path}"));
    let request = request.header("content-type", "application/grpc").header("te", "trailers").body(()).unwrap();
    let (response, mut body) = client.ready().await.unwrap().send_request(request, false).unwrap();
    body.send_data(bytes::Bytes::from_static(&[0; 5]), true).unwrap();
    let (head, mut body) = response.await.unwrap().into_parts();
    let mut length = 0;
    while let Some(Ok(data)) = body.data().await {
        length += data.len();
        let _ = body.flow_control().release_capacity(data.len());
    }
    let trailers = body.trailers().await.ok().flatten().unwrap_or_default();
    let status = trailers.get("grpc-status").and_then(|status| status.to_str().ok()).unwrap_or_default();
    (format!("{} {status}", head.status.as_u16()), length)
}
