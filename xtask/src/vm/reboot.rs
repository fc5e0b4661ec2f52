//! Scenario of one node that reboots, loses power, and returns with another time: pods and their data return.

use super::machine::Spec;
use super::scenario::{Action, Scenario, Step};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "reboot",
    about: "pods and volumes after a reboot, after a power failure and with a clock that is an hour off",
    machines: &[Spec { name: "one", address: "10.99.0.1/24", memory_mib: 3072, clock_offset_seconds: 0 }],
    steps: &[
        Step::required("one", "Debian boots", Action::PowerOn),
        Step::required("one", "a Deployment with a volume claim runs and has written a file", Action::Run(START, 900)),
        Step::required("one", "the host shuts down cleanly and reboots", Action::Boot("systemctl reboot")),
        Step::check("one", "pods run again, the Service answers, the volume has its file", 600, RETURNED),
        Step::check(
            "one",
            "a file that is written now is on disk",
            60,
            "kubectl exec deploy/data -- /bin/sh -c 'echo second >>/v/file; sync'",
        ),
        Step::required("one", "the power fails and returns", Action::Boot("echo b >/proc/sysrq-trigger")),
        Step::check("one", "pods run again, the Service answers, the volume has its file", 600, RETURNED),
        Step::check(
            "one",
            "data that was synced before the power failure exists",
            60,
            "kubectl exec deploy/data -- /bin/grep second /v/file",
        ),
        Step::required("one", "the host reboots with a clock that is an hour ahead", Action::Boot(CLOCK_AHEAD)),
        Step::check("one", "pods run again, the Service answers, the volume has its file", 600, RETURNED),
        Step::check("one", "objects are created and deleted with that clock", 300, NEW_POD),
        Step::check(
            "one",
            "the clock is set back by an hour while the cluster runs, and the cluster keeps running",
            400,
            CLOCK_BACK,
        ),
    ],
};

const START: &str = r#"
start_unit knarr up
within 400 kubectl get --raw /readyz
within 120 nodes_ready 1
busybox_image
kubectl create deployment web --image=knarr.local/hello --replicas=2 --port=8080
kubectl expose deployment web --port=80 --target-port=8080
kubectl apply -f - <<OBJECTS
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: data}
spec:
  strategy: {type: Recreate}
  selector: {matchLabels: {app: data}}
  template:
    metadata: {labels: {app: data}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: main, image: "vm.local/busybox:1", command: [/bin/sleep, "100000"], volumeMounts: [{name: v, mountPath: /v}]}]
      volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]
OBJECTS
kubectl rollout status deployment web --timeout=300s
kubectl rollout status deployment data --timeout=300s
kubectl exec deploy/data -- /bin/sh -c 'echo first >/v/file; sync'
sync
"#;

/// The old pods must run again, not only be reported with their old status.
const RETURNED: &str = r#"
within 400 kubectl get --raw /readyz
within 200 nodes_ready 1
within 200 kubectl exec deploy/data -- /bin/grep first /v/file
kubectl rollout status deployment web --timeout=200s
within 100 curl -fsS --max-time 10 "http://$(kubectl get service web -o jsonpath={.spec.clusterIP})/"
within 100 kubectl exec deploy/web -- /knarr hello --ask http://web/
kubectl get pods -o wide
date
"#;

/// The hypervisor keeps the VM's clock across the reboot.
const CLOCK_AHEAD: &str = r#"
date -s '+1 hour'
hwclock --systohc --utc
systemctl reboot
"#;

const NEW_POD: &str = r#"
pod late
kubectl exec late -- /bin/true
kubectl delete pod late --wait
"#;

const CLOCK_BACK: &str = r#"
date -s '-1 hour'
pod back
kubectl exec back -- /bin/true
kubectl create deployment after --image=knarr.local/hello --port=8080
kubectl rollout status deployment after --timeout=200s
nodes_ready 1
kubectl delete deployment after --wait
kubectl delete pod back --wait
"#;
