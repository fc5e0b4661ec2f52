//! Log lines of a cluster: each carries its component, and the request, pod or controller key that it belongs to.

use regex::Regex;

use super::Machine;

#[test]
fn log_lines_carry_component_request_pod_and_controller_key() {
    let machine = Machine::new();
    let levels = "--log kubelet=debug,controller-runtime=debug,kube-apiserver=debug,info";
    let flags = "--node-name only --kubelet-arg eviction-hard=nodefs.available<1Mi --kubelet-arg cgroup-root";
    machine.knarr(&format!("up -d {levels} {flags}={}", machine.group()));
    machine.succeed("kubectl create deployment web --image=knarr.local/hello");
    machine.eventually("kubectl get deployment web -o jsonpath={.status.readyReplicas}", |ready| ready == "1");
    let pod = machine.succeed("kubectl get pods -l app=web -o jsonpath={.items[0].metadata.name}");
    let uid = machine.succeed("kubectl get pods -l app=web -o jsonpath={.items[0].metadata.uid}");
    let log = std::fs::read_to_string(machine.data().join("knarr.log")).unwrap();
    for expect in [
        format!(r#"component\{{name="kubelet"\}}:pod\{{namespace="default" name="{pod}" uid="{uid}"\}}: kubelet::pod_worker: "#),
        r#"component\{name="kube-controller-manager"\}:reconcile\{controller="deployment[a-z-]*" key=default/web\}: controller_runtime::run: "#.to_owned(),
        r#"component\{name="kube-apiserver"\}:request\{audit_id="[0-9a-f-]+" verb="create" resource="deployments" namespace="default" user="[^"]+"\}: .*code=201 "#.to_owned(),
        r#"component\{name="store"\}: store::"#.to_owned(),
    ] {
        let pattern = Regex::new(&format!("(DEBUG|INFO) +{expect}")).unwrap();
        assert!(log.lines().any(|line| pattern.is_match(line)), "no line matches {pattern} in\n{log}");
    }
    // The request of a client in the same process is not in the client's spans.
    let nested = log
        .lines()
        .find(|line| line.contains(":request{") && !line.contains("component{name=\"kube-apiserver\"}:request{"));
    assert_eq!(nested, None);
    let without = log.lines().find(|line| !line.contains(" component{"));
    assert_eq!(without, None, "a line has no component");
}
