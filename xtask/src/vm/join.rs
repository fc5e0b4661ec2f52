//! Scenario of a server and an agent on separate VMs: traffic between them, and a clock that is an hour off.

use super::machine::Spec;
use super::scenario::{Action, Scenario, Step};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "join",
    about: "knarr server and knarr agent on two machines, of which one has a clock that is an hour off",
    machines: &[
        Spec { name: "one", address: "10.99.0.1/24", memory_mib: 3072, clock_offset_seconds: 0 },
        Spec { name: "two", address: "10.99.0.2/24", memory_mib: 2048, clock_offset_seconds: -3600 },
    ],
    steps: &[
        Step::required("one", "Debian boots", Action::PowerOn),
        Step::required("two", "Debian boots", Action::PowerOn),
        Step::required("one", "knarr server has a Ready node and creates a token", Action::Run(SERVER, 700)),
        Step::check(
            "two",
            "an agent whose clock is an hour behind is rejected and reports that the times differ",
            200,
            BEHIND,
        ),
        Step::required(
            "two",
            "with the right time the agent joins; no process or unit shows the token, which is not needed any more",
            Action::Run(AGENT, 400),
        ),
        Step::required("one", "both nodes are Ready, and pods run on each", Action::Run(SPREAD, 700)),
        Step::check("one", "pods reach each other across the hosts, by address and by name", 200, ACROSS),
        Step::check("one", "from the server's host: the Service, and its NodePort on both nodes", 100, NODE_PORTS),
        Step::check(
            "two",
            "from the agent's host: the Service, and its NodePort on both nodes",
            100,
            NODE_PORTS_OF_AGENT,
        ),
        Step::check("one", "logs, exec and top work for pods on the other host", 200, STREAMS),
        Step::check("two", "the clock of the agent jumps an hour ahead", 30, "date -s '+1 hour'"),
        Step::check("one", "the node whose clock is an hour ahead stays Ready and runs new pods", 500, AHEAD),
        Step::required("two", "the agent's host reboots", Action::Boot("systemctl reboot")),
        Step::check("one", "the node is Ready again and its pods are reachable", 600, REBOOTED),
    ],
};

const SERVER: &str = r#"
start_unit knarr server
within 500 kubectl get --raw /readyz
within 120 nodes_ready 1
knarr token create >/lab/token
busybox_image
"#;

const BEHIND: &str = r#"
install -m 0600 /lab/token /root/token
refused timeout 100 knarr agent --server https://10.99.0.1:6443 --token-file /root/token
grep -i -E 'clock|not valid (yet|before)|NotValidYet' /tmp/refused.out
"#;

const AGENT: &str = r#"
date -s '+1 hour'
hwclock --systohc --utc
install -m 0600 /lab/token /root/token
start_unit knarr agent --server https://10.99.0.1:6443 --token-file /root/token
within 300 curl -fsk --max-time 5 -o /dev/null -w '%{http_code}' https://127.0.0.1:6444/readyz
! grep -F "$(cat /lab/token)" /etc/systemd/system/knarr.service || fail "the token is in the unit"
! cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | grep -aF -f /lab/token || fail "a process shows the token"
rm /root/token
systemctl restart knarr.service
busybox_image
"#;

const SPREAD: &str = r#"
within 300 nodes_ready 2
kubectl apply -f - <<OBJECTS
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: web}}}
      containers: [{name: main, image: knarr.local/hello, ports: [{containerPort: 8080}]}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8080, nodePort: 30080}]}
OBJECTS
kubectl rollout status deployment web --timeout=400s
kubectl get pods -o wide
[ "$(kubectl get pods -l app=web -o jsonpath='{.items[*].spec.nodeName}' | wc -w)" = 2 ]
for number in 1 2; do
    node=one
    [ $number = 1 ] || node=two
    pod on-$node "nodeName: $node"
done
kubectl get service web -o jsonpath='{.spec.clusterIP}' >/lab/service
"#;

const ACROSS: &str = r#"
web_on() { kubectl get pods -l app=web -o jsonpath="{.items[?(@.spec.nodeName==\"$1\")].metadata.name}"; }
for from in one two; do
    for address in $(kubectl get pods -l app=web -o jsonpath='{.items[*].status.podIP}'); do
        within 60 kubectl exec $(web_on $from) -- /knarr hello --ask http://$address:8080/
        cat /tmp/within.out
    done
    within 60 kubectl exec $(web_on $from) -- /knarr hello --ask http://web.default.svc.cluster.local/
    cat /tmp/within.out
done
"#;

const NODE_PORTS: &str = r#"
for url in http://$(cat /lab/service)/ http://10.99.0.1:30080/ http://10.99.0.2:30080/; do
    for attempt in 1 2 3 4; do curl -fsS --max-time 10 $url; done
done
"#;

const NODE_PORTS_OF_AGENT: &str = NODE_PORTS;

const STREAMS: &str = r#"
other=$(kubectl get pods -l app=web -o jsonpath='{.items[?(@.spec.nodeName=="two")].metadata.name}')
kubectl exec $other -- /knarr hello --ask http://web/
kubectl logs $other | head -n 5
[ "$(kubectl exec on-two -- /bin/cat /etc/hostname)" = on-two ]
"#;

/// Longer than the grace period after which an unresponsive node is lost.
const AHEAD: &str = r#"
before=$(cut -d. -f1 /proc/uptime)
while [ $(($(cut -d. -f1 /proc/uptime) - before)) -lt 70 ]; do
    nodes_ready 2 || fail "$(kubectl get nodes; kubectl describe node two | grep -A 8 Conditions)"
    sleep 5
done
pod ahead 'nodeName: two'
kubectl exec ahead -- /bin/date
kubectl delete pod ahead --wait
"#;

const REBOOTED: &str = r#"
web_on() { kubectl get pods -l app=web -o jsonpath="{.items[?(@.spec.nodeName==\"$1\")].metadata.name}"; }
within 300 nodes_ready 2
within 300 kubectl exec on-two -- /bin/true
other=$(kubectl get pods -l app=web -o jsonpath='{.items[?(@.spec.nodeName=="two")].status.podIP}')
within 120 kubectl exec $(web_on one) -- /knarr hello --ask http://$other:8080/
"#;
