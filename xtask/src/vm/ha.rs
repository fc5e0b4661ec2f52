//! Scenario of three servers: the cluster keeps running without one of them, which rejoins when it returns.

use super::machine::Spec;
use super::scenario::{Action, Scenario, Step};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "ha",
    about: "three servers on three machines, of which the first loses its power",
    machines: &[
        Spec { name: "one", address: "10.99.0.1/24", memory_mib: 2048, clock_offset_seconds: 0 },
        Spec { name: "two", address: "10.99.0.2/24", memory_mib: 2048, clock_offset_seconds: 0 },
        Spec { name: "three", address: "10.99.0.3/24", memory_mib: 2048, clock_offset_seconds: 0 },
    ],
    steps: &[
        Step::required("one", "Debian boots", Action::PowerOn),
        Step::required("two", "Debian boots", Action::PowerOn),
        Step::required("three", "Debian boots", Action::PowerOn),
        Step::required("one", "the first server creates the cluster", Action::Run(FOUND, 700)),
        Step::required("two", "the second server joins", Action::Run(JOIN, 700)),
        Step::required("three", "the third server joins", Action::Run(JOIN, 700)),
        Step::required(
            "two",
            "three nodes are Ready, three members vote, and a Deployment runs",
            Action::Run(RUN, 700),
        ),
        Step::required("one", "the power of the first server fails", Action::PowerOff),
        Step::check("two", "the second server reads and writes", 300, WRITES),
        Step::check("three", "the third server reads and writes", 300, WRITES),
        Step::check(
            "two",
            "the lost node is not Ready, and the Service answers from the pods that are left",
            400,
            LOST,
        ),
        Step::check(
            "two",
            "controllers and scheduler keep working: a new Deployment is rolled out",
            400,
            NEW_DEPLOYMENT,
        ),
        Step::required("one", "the first server is powered on again", Action::PowerOn),
        Step::check(
            "one",
            "the first server rejoins without a token and has the writes made in its absence",
            600,
            RETURNED,
        ),
    ],
};

const FOUND: &str = r#"
start_unit knarr server
within 500 kubectl get --raw /readyz
within 120 nodes_ready 1
knarr token create --server >/lab/token
"#;

const JOIN: &str = r#"
install -m 0600 /lab/token /root/token
start_unit knarr server --join https://10.99.0.1:6443 --token-file /root/token
within 500 kubectl get --raw /readyz
rm /root/token
"#;

const RUN: &str = r#"
within 300 nodes_ready 3
members=$(knarr members)
echo "$members"
[ "$(echo "$members" | grep -c -w -E 'one|two|three')" = 3 ]
kubectl apply -f - <<OBJECTS
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
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
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
OBJECTS
kubectl rollout status deployment web --timeout=500s
kubectl create configmap before --from-literal=key=value
kubectl get service web -o jsonpath='{.spec.clusterIP}' >/lab/service
"#;

const WRITES: &str = r#"
within 120 kubectl get configmap before
within 120 kubectl create configmap after-$(hostname) --from-literal=key=value
kubectl get configmaps
"#;

const LOST: &str = r#"
within 200 sh -c 'kubectl get node one --no-headers | grep -q NotReady'
kubectl get nodes
# The endpoints follow the node's condition.
lost_endpoints() {
    kubectl get endpointslices -l kubernetes.io/service-name=web \
        -o jsonpath='{range .items[*].endpoints[?(@.nodeName=="one")]}ready={.conditions.ready} {end}'
}
no_lost_endpoints() { ! lost_endpoints | grep ready=true; }
within 60 no_lost_endpoints
service=http://$(cat /lab/service)/
within 120 curl -fsS --max-time 5 $service
for attempt in 1 2 3 4 5 6 7 8; do curl -fsS --max-time 5 $service; done
"#;

const NEW_DEPLOYMENT: &str = r#"
kubectl create deployment second --image=knarr.local/hello --replicas=2
kubectl rollout status deployment second --timeout=300s
kubectl get pods -o wide
"#;

const RETURNED: &str = r#"
within 300 kubectl get --raw /readyz
within 200 nodes_ready 3
kubectl get configmap after-two after-three
knarr members
kubectl create configmap after-one --from-literal=key=value
"#;
