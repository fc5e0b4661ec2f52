//! Scenario of one node under systemd on cgroup v2: container escapes, safe deletion, and file permissions.

use super::machine::Spec;
use super::scenario::{Action, Scenario, Step};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "node",
    about: "knarr up on one Debian 12 host whose data directory is behind a symbolic link",
    machines: &[Spec { name: "one", address: "10.99.0.1/24", memory_mib: 3072, clock_offset_seconds: 0 }],
    steps: &[
        Step::required("one", "Debian boots", Action::PowerOn),
        Step::required(
            "one",
            "the host has systemd, only cgroup v2, and kernel 6.1",
            Action::Run(
                r#"
                [ "$(cat /proc/1/comm)" = systemd ]
                [ "$(stat -fc %T /sys/fs/cgroup)" = cgroup2fs ]
                uname -r
                case $(uname -r) in 6.1.*) ;; *) fail "another kernel" ;; esac
                "#,
                60,
            ),
        ),
        Step::required("one", "knarr up, started by its systemd unit, has a Ready node", Action::Run(UP, 600)),
        Step::required(
            "one",
            "pods run, a Service answers, and its name resolves in a pod",
            Action::Run(
                r#"
                busybox_image
                kubectl create deployment web --image=knarr.local/hello --replicas=2 --port=8080
                kubectl expose deployment web --port=80 --target-port=8080
                kubectl rollout status deployment web --timeout=300s
                within 60 curl -fsS --max-time 10 "http://$(kubectl get service web -o jsonpath={.spec.clusterIP})/"
                within 60 kubectl exec deploy/web -- /knarr hello --ask http://web/
                "#,
                600,
            ),
        ),
        Step::check(
            "one",
            "C3: a container that makes a device node of the root disk can neither read nor write it",
            300,
            DEVICES,
        ),
        Step::check("one", "C3: a device node from an image opens nothing", 300, DEVICE_FROM_IMAGE),
        Step::check("one", "H6: deleting a pod leaves the content of its hostPath volume", 300, HOST_PATH),
        Step::check(
            "one",
            "NFS: a volume of Debian's NFS server is written, read and unmounted, and keeps its content",
            400,
            NFS,
        ),
        Step::check("one", "H7: an unprivileged user reads nothing of a pod with secrets", 300, MODES),
        Step::check("one", "the kernel log has at most one warning about an overlay option", 30, KERNEL_LOG),
        Step::check("one", "the log does not repeat warnings about cgroup controllers", 30, CGROUP_WARNINGS),
        Step::check("one", "CIS: files, ports and rejected requests are as docs/operating/cis.md says", 200, CIS),
        Step::check(
            "one",
            "H6: down --purge leaves the content of hostPath and NFS volumes, and nothing else",
            400,
            PURGE,
        ),
        Step::check("one", "CIS: with the flags of docs/operating/cis.md the other rows pass too", 900, CIS_HARDENED),
        Step::check(
            "one",
            "systemd's cgroup driver: pods are slices with their limits, containers are in a delegated scope below",
            900,
            SYSTEMD_DRIVER,
        ),
    ],
};

const UP: &str = r#"
mkdir -p /srv/disk/knarr
ln -s /srv/disk/knarr /var/lib/knarr
start_unit knarr up
within 400 kubectl get --raw /readyz
within 120 nodes_ready 1
kubectl get nodes -o wide
"#;

/// `MKNOD` is a default capability: the cgroup's device filter must block the access.
const DEVICES: &str = r#"
pod devices
numbers=$(lsblk -dno MAJ:MIN /dev/vda | tr -d ' ')
in_pod() { kubectl exec devices -- "$@"; }
in_pod /bin/sh -c 'echo x >/dev/null && head -c 1 /dev/zero | wc -c'
in_pod /bin/mknod /tmp/disk b ${numbers%:*} ${numbers#*:} || echo "mknod is refused"
refused in_pod /bin/dd if=/tmp/disk of=/tmp/copy bs=512 count=1
refused in_pod /bin/sh -c 'echo overwritten >>/tmp/disk && [ -b /tmp/disk ]'
kubectl delete pod devices --wait
"#;

const DEVICE_FROM_IMAGE: &str = r#"
numbers=$(lsblk -dno MAJ:MIN /dev/vda | tr -d ' ')
mkdir -p /tmp/device/bin /tmp/device/tmp
cp /bin/busybox /tmp/device/bin/dd
cp /bin/busybox /tmp/device/bin/sleep
mknod -m 0666 /tmp/device/disk b ${numbers%:*} ${numbers#*:}
if ! knarr image build vm.local/device:1 /tmp/device; then
    echo "the image is refused"
    exit 0
fi
rm -rf /tmp/device
kubectl apply -f - <<POD
apiVersion: v1
kind: Pod
metadata: {name: image-device}
spec:
  terminationGracePeriodSeconds: 0
  securityContext: {runAsUser: 1000, runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: main
    image: vm.local/device:1
    command: [/bin/sleep, "100000"]
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
POD
kubectl wait --for=condition=Ready pod/image-device --timeout=180s
refused kubectl exec image-device -- /bin/dd if=/disk of=/dev/null bs=512 count=1
kubectl delete pod image-device --wait
"#;

const HOST_PATH: &str = r#"
mkdir -p /srv/precious/below
echo treasure >/srv/precious/file
echo treasure >/srv/precious/below/file
pod hostpath 'volumes: [{name: v, hostPath: {path: /srv/precious}}]' \
    'volumeMounts: [{name: v, mountPath: /v}, {name: v, mountPath: /s, subPath: below}]'
kubectl exec hostpath -- /bin/cat /v/below/file /s/file
kubectl delete pod hostpath --wait
within 60 sh -c '! grep -q precious /proc/self/mountinfo'
cat /srv/precious/file /srv/precious/below/file
"#;

const NFS: &str = r#"
mkdir -p /srv/nfs
echo from-the-server >/srv/nfs/file
echo '/srv/nfs 10.99.0.1(rw,no_root_squash,no_subtree_check,fsid=1)' >/etc/exports
systemctl start nfs-server.service
pod nfs 'volumes: [{name: v, nfs: {server: 10.99.0.1, path: /srv/nfs}}]' 'volumeMounts: [{name: v, mountPath: /v}]'
grep ' nfs4\? ' /proc/mounts
[ "$(kubectl exec nfs -- /bin/cat /v/file)" = from-the-server ]
kubectl exec nfs -- /bin/sh -c 'echo from-the-pod >/v/answer'
[ "$(cat /srv/nfs/answer)" = from-the-pod ]
kubectl delete pod nfs --wait
within 60 sh -c '! grep -q " nfs4\? " /proc/mounts'
cat /srv/nfs/file /srv/nfs/answer
"#;

/// Checks all files below the data directory, and the node's files elsewhere.
const MODES: &str = r#"
kubectl create secret generic password --from-literal=password=hunter2-hunter2
pod secrets 'volumes: [{name: v, secret: {secretName: password}}]' \
    'volumeMounts: [{name: v, mountPath: /v}], env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: password, key: password}}}]'
as_user() { setpriv --reuid=user --regid=user --clear-groups "$@"; }
places="/var/lib/knarr/ /srv/disk/knarr/ /var/log/pods/ /var/log/containers/ /run/knarr/"
for place in $places; do
    if as_user ls "$place" >/dev/null 2>&1; then
        echo "can be listed: $place"
    fi
done
readable=$(as_user find -L $places -type f -readable 2>/dev/null | head -n 20 || true)
[ -z "$readable" ] || fail "can be read:
$readable"
setuid=$(as_user find -L $places -type f -perm /6000 -executable 2>/dev/null | head -n 20 || true)
[ -z "$setuid" ] || fail "can be executed with another user's rights:
$setuid"
as_user grep -rl hunter2-hunter2 $places 2>/dev/null && fail "the secret can be read"
# Should the data directory ever be opened, files that have the secret are still for root alone; files of volumes have the mode
# that the pod asks for.
open=$(grep -rl hunter2-hunter2 /srv/disk/knarr /var/log/pods /run/knarr 2>/dev/null | grep -v '/volumes/kubernetes.io~' |
    while read -r file; do find "$file" -perm /077 -exec stat -c '%a %n' {} +; done)
[ -z "$open" ] || fail "files with the secret are open to others:
$open"
kubectl delete pod secrets --wait
stat -c '%a %n' /srv/disk/knarr
"#;

const KERNEL_LOG: &str = r#"
count=$(dmesg | grep -c 'overlayfs: unrecognized mount option' || true)
echo "$count lines"
[ "$count" -le 1 ] || fail "$(dmesg | grep overlayfs | tail -n 5)"
"#;

const CGROUP_WARNINGS: &str = r#"
count=$(grep -c -E 'WARN.*(rdma|misc)' /var/lib/knarr/knarr.log || true)
echo "$count lines"
[ "$count" -le 2 ] || fail "$(grep -E 'WARN.*(rdma|misc)' /var/lib/knarr/knarr.log | tail -n 5)"
"#;

const PURGE: &str = r#"
mkdir -p /srv/precious/below
echo treasure | tee /srv/precious/file >/srv/precious/below/file
pod keeps 'volumes: [{name: v, hostPath: {path: /srv/precious}}, {name: w, nfs: {server: 10.99.0.1, path: /srv/nfs}}]' \
    'volumeMounts: [{name: v, mountPath: /v}, {name: v, mountPath: /s, subPath: below}, {name: w, mountPath: /w}]'
systemctl disable --now --quiet knarr.service
knarr down --purge
cat /srv/precious/file /srv/precious/below/file /srv/nfs/file
left=$(ls -A /srv/disk/knarr 2>/dev/null || true)
[ -z "$left" ] || fail "left in the data directory: $left"
! grep knarr /proc/self/mountinfo || fail "mounts are left"
! find /sys/fs/cgroup -path '*kubepods*' -name cgroup.procs -exec cat {} + | grep . || fail "processes are left"
"#;

/// The rows of the CIS benchmark that apply to this host and not to users' objects.
const CIS: &str = r#"
D=/var/lib/knarr
bad=0
# row NUMBER EXPECTED FOUND
row() {
    if [ "$2" = "$3" ]; then echo "$1 $3"; else echo "$1 is '$3', not '$2'"; bad=1; fi
}
code() { curl -sk --max-time 20 -o /dev/null -w '%{http_code}' "$@"; }
code_of() { if "$@" >/dev/null 2>&1; then echo 0; else echo $?; fi; }
row data-directory '711 root:root' "$(stat -Lc '%a %U:%G' $D)"
row 1.1.11 700 "$(stat -c %a $D/store)"
row 1.1.13 '600 root:root' "$(stat -c '%a %U:%G' $D/admin.kubeconfig)"
for name in scheduler controller-manager proxy kubelet; do
    row "1.1.15-1.1.18,4.1.3-4.1.6 $name" '600 root:root' "$(stat -c '%a %U:%G' $D/$name.kubeconfig)"
done
row 1.1.19 '' "$(find $D/pki ! -user root -o ! -group root)"
row 1.1.20 '' "$(find $D/pki -name '*.crt' -perm /133)"
row 1.1.21 '' "$(find $D/pki -name '*.key' -perm /177)"
row 1.2.1 403 "$(code https://127.0.0.1:6443/api)"
row 1.2.2 401 "$(code -H 'Authorization: Bearer x' https://127.0.0.1:6443/api)"
row 1.2.6 no "$(kubectl auth can-i list secrets --as nobody 2>/dev/null || true)"
row 1.2.13 1 "$(code_of kubectl create configmap x -n absent)"
row 1.2.14 1 "$(KUBECONFIG=$D/kubelet.kubeconfig code_of kubectl label node "$(hostname)" node-restriction.kubernetes.io/x=y)"
row 1.2.15 1 "$(code_of kubectl get --raw /debug/pprof/)"
row 1.2.24 200 "$(curl -s --max-time 20 -o /dev/null -w '%{http_code}' --cacert $D/pki/ca.crt https://127.0.0.1:6443/version)"
row 1.3.7,1.4.2,2,4.2.4,4.3.1 '' "$(ss -Hltn | grep -E ':(1025[579]|10249|2379|2380) ' || true)"
row 4.2.1 401 "$(code https://127.0.0.1:10250/pods)"
row 1.2.5,4.2.9 401 "$(curl -s --max-time 20 -o /dev/null -w '%{http_code}' --cacert $D/pki/ca.crt https://10.99.0.1:10250/pods || true)"
[ $bad = 0 ]
"#;

const CIS_HARDENED: &str = r#"
# Also if an earlier step failed half-way.
systemctl disable --now --quiet knarr.service 2>/dev/null || true
[ ! -e /var/lib/knarr/knarr.lock ] || knarr down --purge
rm -f /var/lib/knarr
mkdir -p /etc/knarr
cat >/etc/knarr/admission.yaml <<FILE
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: EventRateLimit
  configuration:
    apiVersion: eventratelimit.admission.k8s.io/v1alpha1
    kind: Configuration
    limits: [{type: Server, qps: 100, burst: 1000}]
FILE
cat >/etc/knarr/audit.yaml <<FILE
apiVersion: audit.k8s.io/v1
kind: Policy
rules: [{level: Metadata}]
FILE
cat >/etc/knarr/encryption.yaml <<FILE
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - secretbox: {keys: [{name: one, secret: $(head -c 32 /dev/urandom | base64)}]}
FILE
start_unit knarr up \
    --kube-apiserver-arg anonymous-auth=false \
    --kube-apiserver-arg enable-admission-plugins=NodeRestriction,DenyServiceExternalIPs,AlwaysPullImages,EventRateLimit \
    --kube-apiserver-arg admission-control-config-file=/etc/knarr/admission.yaml \
    --kube-apiserver-arg audit-policy-file=/etc/knarr/audit.yaml \
    --kube-apiserver-arg audit-log-path=/var/log/knarr-audit.log \
    --kube-apiserver-arg audit-log-maxage=30 \
    --kube-apiserver-arg audit-log-maxbackup=10 \
    --kube-apiserver-arg audit-log-maxsize=100 \
    --kube-apiserver-arg encryption-provider-config=/etc/knarr/encryption.yaml \
    --kube-apiserver-arg service-account-extend-token-expiration=false \
    --kubelet-arg pod-max-pids=4096 \
    --kubelet-arg seccomp-default=true
within 400 kubectl get --raw /readyz
within 120 nodes_ready 1
echo "1.2.1 $(curl -sk --max-time 20 -o /dev/null -w '%{http_code}' https://127.0.0.1:6443/version)" | tee /tmp/row
grep -q 401 /tmp/row
echo "1.2.3 $(refused kubectl create -f - <<SERVICE
{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}, "spec": {"ports": [{"port": 80}], "externalIPs": ["192.0.2.1"]}}
SERVICE
)"
kubectl create --raw '/api/v1/namespaces/default/pods?dryRun=All' -f - >/tmp/row <<POD
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "a:1"}]}}
POD
grep -q '"imagePullPolicy": *"Always"' /tmp/row || fail "1.2.11 $(cat /tmp/row)"
kubectl create secret generic hidden --from-literal=k=in-plain-sight
! grep -rq in-plain-sight /var/lib/knarr/store || fail "1.2.27: the secret is on disk in plain text"
grep -q '"resource":"secrets"' /var/log/knarr-audit.log || fail "1.2.16: the request is not in the audit log"
kubectl create deployment web --image=knarr.local/hello
kubectl rollout status deployment web --timeout=200s
process=$(pgrep -f '^/knarr hello' | head -n 1)
grep '^Seccomp:.*2' /proc/$process/status || fail "4.2.14: $(grep Seccomp /proc/$process/status)"
group=/sys/fs/cgroup$(cut -d: -f3 /proc/$process/cgroup)
cat $group/pids.max $group/../pids.max | tee /tmp/row
grep -q 4096 /tmp/row || fail 4.2.13
systemctl disable --now --quiet knarr.service
knarr down --purge
"#;

const SYSTEMD_DRIVER: &str = r#"
# Also if an earlier step failed half-way.
systemctl disable --now --quiet knarr.service 2>/dev/null || true
[ ! -e /var/lib/knarr/knarr.lock ] || knarr down --purge
rm -f /var/lib/knarr
start_unit knarr up --kubelet-arg cgroup-driver=systemd
within 400 kubectl get --raw /readyz
within 120 nodes_ready 1
busybox_image
pod limited '' 'resources: {requests: {memory: 32Mi, cpu: 100m}, limits: {memory: 64Mi, cpu: 125m}}'
pods() { systemctl list-units --all --plain --no-legend 'kubepods*' 'knarr-*.scope' | awk '{print $1, $3}'; }
pods
uid=$(kubectl get pod limited -o jsonpath='{.metadata.uid}')
container=$(kubectl get pod limited -o jsonpath='{.status.containerStatuses[0].containerID}' | sed 's,.*//,,')
process=$(pgrep -f '/bin/sleep 100000' | head -n 1)
group=/sys/fs/cgroup$(cut -d: -f3 /proc/$process/cgroup)
scope=$(basename "${group%/*}")
slice=kubepods-burstable-pod$(echo $uid | tr - _).slice
echo "$group"
[ "$group" = /sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/$slice/$scope/$container ] || fail "the container is elsewhere"
row() { [ "$2" = "$3" ] || fail "$1 is '$3', not '$2'"; }
limits() {
    row "$1: the pod's memory.max" 67108864 "$(cat ${group%/*/*}/memory.max)"
    # systemd rounds the quota of a slice up to a whole percent, after it has answered; the container's own is exact.
    case "$(cat ${group%/*/*}/cpu.max)" in '12500 100000' | '13000 100000') ;; *) fail "$1: $(cat ${group%/*/*}/cpu.max)" ;; esac
    row "$1: the container's memory.max" 67108864 "$(cat $group/memory.max)"
    row "$1: the container's cpu.max" '12500 100000' "$(cat $group/cpu.max)"
}
limits 'at the start'
row ActiveState active "$(systemctl show -P ActiveState $scope)"
row Delegate yes "$(systemctl show -P Delegate $scope)"
row TasksMax infinity "$(systemctl show -P TasksMax $scope)"
row MemoryMax 67108864 "$(systemctl show -P MemoryMax $slice)"
row CPUQuotaPerSecUSec 130ms "$(systemctl show -P CPUQuotaPerSecUSec $slice)"
weight=$(cat ${group%/*/*}/cpu.weight)
row CPUWeight $weight "$(systemctl show -P CPUWeight $slice)"
# systemd resets what it does not know of when it reads its units again.
systemctl daemon-reload
limits 'after daemon-reload'
# C3 holds for this driver as well.
numbers=$(lsblk -dno MAJ:MIN /dev/vda | tr -d ' ')
kubectl exec limited -- /bin/mknod /tmp/disk b ${numbers%:*} ${numbers#*:} || echo "mknod is refused"
refused kubectl exec limited -- /bin/dd if=/tmp/disk of=/tmp/copy bs=512 count=1
systemctl restart knarr.service
within 200 kubectl get --raw /readyz
[ -d /proc/$process ] || fail "the container ended with the restart of knarr"
# A container that needs more than its limit is killed and says so.
kubectl apply -f - <<POD
apiVersion: v1
kind: Pod
metadata: {name: greedy}
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: vm.local/busybox:1
    command: [/bin/sh, -c, "x=0123456789abcdef; while true; do x=\$x\$x; done"]
    resources: {limits: {memory: 16Mi}}
POD
reason() { [ "$(kubectl get pod greedy -o jsonpath='{.status.containerStatuses[0].state.terminated.reason}')" = OOMKilled ]; }
within 120 reason
# systemd learns of a resize.
kubectl get pod limited -o json | sed 's/"memory": "64Mi"/"memory": "96Mi"/' |
    kubectl replace --raw /api/v1/namespaces/default/pods/limited/resize -f - >/dev/null
resized() { [ "$(systemctl show -P MemoryMax $slice)" = 100663296 ] && [ "$(cat $group/memory.max)" = 100663296 ]; }
within 60 resized
kubectl delete pod limited greedy --wait
within 60 test ! -d $group
within 30 sh -c "! systemctl list-units --all --plain --no-legend '*-pod*.slice' 'knarr-*.scope' | grep ."
systemctl disable --now --quiet knarr.service
knarr down --purge
! systemctl list-units --all --plain --no-legend 'kubepods*' 'knarr-*.scope' | grep . || fail "units are left"
[ ! -d /sys/fs/cgroup/kubepods.slice ] || fail "kubepods.slice is left"
"#;
