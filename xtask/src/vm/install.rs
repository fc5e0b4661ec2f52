//! Scenario of `knarr install`: readiness, watchdog and shutdown of the service with a real systemd, and its removal.

use super::machine::Spec;
use super::scenario::{Action, Scenario, Step};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "install",
    about: "the service of knarr install on a Debian 12 host: start, watchdog, reboot, removal",
    machines: &[Spec { name: "one", address: "10.99.0.1/24", memory_mib: 3072, clock_offset_seconds: 0 }],
    steps: &[
        Step::required("one", "Debian boots", Action::PowerOn),
        Step::required(
            "one",
            "knarr install returns when the API server is ready, and its options are in the configuration file",
            Action::Run(INSTALL, 900),
        ),
        Step::check("one", "systemd restarts a process that hangs, and pods keep running", 400, WATCHDOG),
        Step::required("one", "a pod that ignores SIGTERM runs", Action::Run(STUBBORN, 300)),
        Step::required("one", "the host shuts down and reboots", Action::Boot(REBOOT)),
        Step::check("one", "the host was off within its pods' grace periods, and pods run again", 600, RETURNED),
        Step::check("one", "knarr uninstall keeps the data and leaves nothing else", 400, UNINSTALL),
        Step::check("one", "knarr uninstall --purge deletes the data too", 900, PURGE),
    ],
};

const INSTALL: &str = r#"
rm -f /usr/local/bin/knarr
/lab/knarr install up --node-name one
kubectl get --raw /readyz
[ "$(systemctl is-active knarr.service)" = active ]
[ "$(systemctl is-enabled knarr.service)" = enabled ]
[ "$(systemctl show -P Type knarr.service)" = notify ]
systemctl show -P ExecStart knarr.service | grep -F 'argv[]=/usr/local/bin/knarr up ;'
knarr config show up | grep 'node-name .* one .*/etc/knarr/config.d/install.yaml:'
[ -s /usr/local/share/man/man1/knarr-up.1 ] && [ -s /usr/local/share/bash-completion/completions/knarr ]
within 120 nodes_ready 1
busybox_image
"#;

const WATCHDOG: &str = r#"
pod steady
before=$(kubectl get pod steady -o jsonpath='{.status.containerStatuses[0].containerID}')
[ "$(systemctl show -P NRestarts knarr.service)" = 0 ]
kill -STOP "$(systemctl show -P MainPID knarr.service)"
restarted() { [ "$(systemctl show -P NRestarts knarr.service)" = 1 ] && [ "$(systemctl is-active knarr.service)" = active ]; }
within 200 restarted
within 60 kubectl get --raw /readyz
journalctl -u knarr.service | grep -i watchdog
[ "$(kubectl get pod steady -o jsonpath='{.status.containerStatuses[0].containerID}')" = "$before" ]
"#;

const STUBBORN: &str = r#"
kubectl apply -f - <<POD
apiVersion: v1
kind: Pod
metadata: {name: stubborn}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: main
    image: vm.local/busybox:1
    command: [/bin/sh, -c, "trap '' TERM; while true; do sleep 1; done"]
POD
kubectl wait --for=condition=Ready pod/stubborn --timeout=180s
"#;

const REBOOT: &str = r#"
date +%s >/var/tmp/shutdown-began
sync
systemctl reboot
"#;

/// systemd waits 90 seconds for a process that ignores SIGTERM and belongs to no unit.
const RETURNED: &str = r#"
took=$(($(date -d "$(uptime -s)" +%s) - $(cat /var/tmp/shutdown-began)))
echo "off after $took s"
[ "$took" -lt 60 ] || fail "the shutdown took $took s"
within 400 kubectl get --raw /readyz
within 200 nodes_ready 1
kubectl wait --for=condition=Ready pod/steady pod/stubborn --timeout=200s
"#;

const UNINSTALL: &str = r#"
knarr uninstall
for path in /usr/local/bin/knarr /usr/local/share/knarr /usr/local/share/man/man1/knarr-up.1 /etc/knarr \
    /etc/systemd/system/knarr.service /etc/systemd/system/multi-user.target.wants/knarr.service; do
    [ ! -e $path ] && [ ! -L $path ] || fail "$path is left"
done
! systemctl cat knarr.service 2>/dev/null || fail "systemd knows the unit"
! pgrep -f /usr/local/bin/knarr || fail "processes are left"
! find /sys/fs/cgroup -path '*kubepods*' -name cgroup.procs -exec cat {} + | grep . || fail "processes of pods are left"
[ -d /var/lib/knarr/pki ]
"#;

const PURGE: &str = r#"
/lab/knarr install up --node-name one
within 200 nodes_ready 1
kubectl wait --for=condition=Ready pod/steady --timeout=200s
knarr uninstall --purge
[ ! -e /var/lib/knarr ] || fail "the data directory is left"
"#;
