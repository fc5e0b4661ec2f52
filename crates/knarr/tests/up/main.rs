//! End-to-end tests of `knarr up` in a network namespace, with the real kubectl.
#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod backup;
mod dashboard;
mod examples;
mod gateway;
mod logs;
mod manifests;
mod network;
mod nodes;
mod operate;
mod reach;
mod readme;
#[path = "../kubectl/real.rs"]
mod real;
mod residue;
mod safety;
mod servers;
mod service;
mod six;
mod start_errors;
mod stop;
mod terminal;
#[path = "../common/tmux.rs"]
mod tmux;
mod upgrade;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const KNARR: &str = env!("CARGO_BIN_EXE_knarr");
/// Time limit for an asynchronous change.
const DEADLINE: Duration = Duration::from_secs(60);
const IMAGE: &str = "test.local/busybox:1";

/// A simulated host with a network namespace and a directory; both are removed on drop.
struct Machine {
    namespace: String,
    dir: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        test_requirements::root();
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("knarr-up-{}-{number}", std::process::id());
        let machine = Self { namespace, dir: tempfile::tempdir().unwrap() };
        let name = machine.namespace.as_str();
        run(Command::new("ip").args(["netns", "add", name]));
        machine.succeed("ip link set lo up");
        machine.succeed("ip link add uplink type veth peer name wire");
        machine.succeed("ip link set wire up");
        machine.succeed("ip address add 198.51.100.2/24 dev uplink");
        machine.succeed("ip link set uplink up");
        machine.succeed("ip route add default via 198.51.100.1");
        machine
    }

    /// Returns a command on this host. Only the network namespace is private, mounts are shared.
    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.namespace));
        command.args(line.split(' ')).env("KUBECONFIG", self.data().join("admin.kubeconfig"));
        command
    }

    fn succeed(&self, line: &str) -> String {
        run(&mut self.command(line))
    }

    /// Returns the output of a command, whether it succeeds or not.
    fn output_of(&self, line: &str) -> String {
        text(&self.command(line).output().unwrap())
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn knarr(&self, arguments: &str) -> String {
        self.succeed(&format!("{KNARR} {arguments} --data-dir {}", self.data().display()))
    }

    /// Starts a cluster. Disk pressure is disabled: the real host's disk may be nearly full.
    fn up(&self) -> String {
        self.knarr(&self.up_arguments())
    }

    fn up_arguments(&self) -> String {
        let arguments = "up -d --node-name only --kubelet-arg eviction-hard=nodefs.available<1Mi \
             --kube-controller-manager-arg horizontal-pod-autoscaler-sync-period=5s \
             --kube-controller-manager-arg horizontal-pod-autoscaler-cpu-initialization-period=0s --kubelet-arg cgroup-root";
        format!("{arguments}={}", self.group())
    }

    /// Returns the cgroup root of this host's pods, separate from those of others. `down` removes a cgroup of this
    /// name.
    fn group(&self) -> String {
        format!("/knarr-{}", self.data().display().to_string().trim_start_matches('/').replace('/', "-"))
    }

    fn process(&self) -> String {
        let lock = std::fs::read_to_string(self.data().join("knarr.lock")).unwrap();
        lock.lines().next().unwrap().to_owned()
    }

    /// Kills the cluster's process with SIGKILL, and waits until it has exited.
    fn kill(&self) {
        let process = self.process();
        run(Command::new("kill").args(["-9", &process]));
        let deadline = Instant::now() + DEADLINE;
        while std::fs::read_link(format!("/proc/{process}/exe")).is_ok() {
            assert!(Instant::now() < deadline, "process {process} does not die");
            std::thread::yield_now();
        }
    }

    fn apply(&self, objects: &str) {
        let mut kubectl = self.command("kubectl apply -f -");
        let mut process = kubectl.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        process.stdin.take().unwrap().write_all(objects.as_bytes()).unwrap();
        assert!(process.wait().unwrap().success());
    }

    /// Polls until the output is as expected. Each attempt is a process, so nothing can be waited for.
    fn eventually(&self, line: &str, is_good: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let seen = self.output_of(line);
            if is_good(&seen) {
                return seen;
            }
            assert!(
                start.elapsed() < DEADLINE,
                "{line} still prints {seen}\n{}",
                self.output_of("kubectl get nodes,events -A -o wide")
            );
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if self.data().is_dir() {
            let _ = self.command(&format!("{KNARR} down --purge --data-dir {}", self.data().display())).output();
        }
        let _ = Command::new("ip").args(["netns", "delete", &self.namespace]).output();
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", text(&output));
    text(&output)
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)).trim().to_owned()
}

const WEB: &str = r#"{"apiVersion": "v1", "kind": "List", "items": [
    {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
     "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "test.local/busybox:1",
            "command": ["/bin/busybox", "sh", "-c",
                "mkdir -p /www; busybox hostname > /www/index.html; exec busybox httpd -f -p 8080 -h /www"],
            "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}}]}}}},
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
     "spec": {"type": "NodePort", "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080, "nodePort": 30080}]}}]}"#;

#[test]
fn up_runs_a_cluster_that_survives_kills_and_purge_leaves_nothing() {
    let machine = Machine::new();
    let output = machine.up();
    assert!(output.contains("ready in "), "{output}");
    build_image(&machine);
    machine.apply(WEB);
    machine.eventually("kubectl get deployment web -o jsonpath={.status.readyReplicas}", |ready| ready == "3");
    let address = machine.succeed("kubectl get service web -o jsonpath={.spec.clusterIP}");
    for url in [format!("http://{address}/"), "http://198.51.100.2:30080/".to_owned()] {
        let page = machine.eventually(&format!("curl -s --max-time 5 {url}"), |page| page.starts_with("web-"));
        assert!(page.starts_with("web-"), "{url}: {page}");
    }
    let pods = "kubectl get pods -l app=web --sort-by=.metadata.name -o jsonpath={.items[*].status.containerStatuses[0].containerID}";
    let before = machine.succeed(pods);
    let first = machine.succeed("kubectl get pods -l app=web -o jsonpath={.items[0].metadata.name}");
    let found = machine.succeed(&format!("kubectl exec {first} -- busybox nslookup web.default.svc.cluster.local"));
    assert!(found.contains(&address), "{found}");
    operate::run_checks(&machine);

    port_of_the_machine_leads_to_a_pod(&machine);
    pods_are_limited_from_their_first_moment(&machine);
    metrics_are_reported_and_used_by_autoscaler(&machine);
    leave_nothing_after_a_hundred_pods(&machine);

    nothing_is_lost_when_it_dies_twenty_times(&machine);
    assert_eq!(machine.succeed(pods), before, "the same containers keep running");
    machine.succeed("kubectl scale deployment web --replicas=1");
    machine.eventually("kubectl get pods -l app=web -o name", |pods| pods.lines().count() == 1);
    machine.eventually(&format!("curl -s --max-time 5 http://{address}/"), |page| page.starts_with("web-"));

    it_follows_the_machine_to_another_address(&machine);
    it_is_saved_while_it_runs_and_restored_after_a_purge(&machine);
    let rejection = machine.output_of(&format!("{KNARR} up -d --data-dir {}", machine.data().display()));
    assert!(rejection.contains("already runs as process"), "{rejection}");
    let uids = machine.succeed("kubectl get pods -A -o jsonpath={.items[*].metadata.uid}");
    machine.knarr("down --purge");
    assert!(!machine.data().exists());
    let logs = machine.output_of("find /var/log/pods /var/log/containers -maxdepth 1 -printf %p%l");
    assert!(!uids.is_empty() && !uids.split(' ').any(|uid| logs.contains(uid)), "{uids}: {logs}");
    let links = machine.succeed("ip -o link");
    assert_eq!(links.lines().count(), 3, "only the links that existed before: {links}");
    assert_eq!(machine.succeed("nft list tables"), "");
    assert_eq!(machine.succeed("ip route").lines().count(), 2);
}

#[test]
fn static_pod_control_plane_keeps_running_without_its_process() {
    operate::live_in_pods(&Machine::new());
}

const AT_HOST: &str = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "at-host"}, "spec": {"terminationGracePeriodSeconds": 1,
    "containers": [{"name": "c", "image": "knarr.local/hello", "ports": [{"containerPort": 8080, "hostPort": 8099}]}]}}"#;

fn port_of_the_machine_leads_to_a_pod(machine: &Machine) {
    machine.apply(AT_HOST);
    let curl = "curl -s --max-time 2 http://198.51.100.2:8099/";
    machine.eventually(curl, |output| output.starts_with("Hello from at-host"));
    machine.succeed("kubectl delete pod at-host");
    machine.eventually(curl, str::is_empty);
}

const CLOSED: &str = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: closed}\n\
    spec: {podSelector: {matchLabels: {app: closed}}, policyTypes: [Egress]}\n";

/// Ten pods connect to another pod immediately at start. Pods that a policy isolates never get a response.
fn pods_are_limited_from_their_first_moment(machine: &Machine) {
    let address = machine.succeed("kubectl get pods -l app=web -o jsonpath={.items[0].status.podIP}");
    let pod = |name: String, app: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{app: {app}, first: act}}}}\nspec: {{restartPolicy: Never, \
             containers: [{{name: c, image: {IMAGE}, command: [busybox, sh, -c, \
             'busybox timeout 3 busybox wget -q -O /dev/null http://{address}:8080/; exit $?']}}]}}\n"
        )
    };
    machine.apply(CLOSED);
    let pods: Vec<String> =
        (0..10).map(|n| pod(format!("closed-{n}"), "closed")).chain([pod("open".to_owned(), "open")]).collect();
    machine.apply(&pods.join("---\n"));
    let phases = "kubectl get pods -l first=act --sort-by=.metadata.name -o jsonpath={.items[*].status.phase}";
    let final_phases = machine.eventually(phases, |phases| !phases.contains("Pending") && !phases.contains("Running"));
    assert_eq!(final_phases, format!("{}Succeeded", "Failed ".repeat(10)));
    machine.succeed("kubectl delete pods -l first=act");
    machine.succeed("kubectl delete networkpolicy closed");
}

const BUSY: &str = r#"{"apiVersion": "v1", "kind": "List", "items": [
    {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "busy"},
     "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "busy"}},
        "template": {"metadata": {"labels": {"app": "busy"}}, "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "c",
            "image": "test.local/busybox:1", "command": ["/bin/busybox", "sh", "-c", "while :; do :; done"],
            "resources": {"requests": {"cpu": "50m"}, "limits": {"cpu": "200m"}}}]}}}},
    {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "busy"},
     "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "busy"}, "minReplicas": 1, "maxReplicas": 2,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]}}]}"#;

/// `kubectl top` reports usage, unauthorized users get an error, and an autoscaler uses the metrics.
fn metrics_are_reported_and_used_by_autoscaler(machine: &Machine) {
    let top = machine.eventually("kubectl top node --no-headers", |top| top.starts_with("only ") && top.contains('%'));
    assert!(top.split_whitespace().nth(1).is_some_and(|cpu| cpu.ends_with('m')), "{top}");
    let web = "kubectl top pod -l app=web --no-headers";
    let top = machine.eventually(web, |top| top.lines().filter(|line| line.starts_with("web-")).count() == 3);
    assert!(top.lines().all(|line| line.trim_end().ends_with("Mi")), "{top}");
    let table = machine.succeed("kubectl get pods.metrics.k8s.io -l app=web");
    assert!(table.starts_with("NAME") && table.contains("CPU") && table.contains("WINDOW"), "{table}");
    let missing = machine.output_of("kubectl get --raw /apis/metrics.k8s.io/v1beta1/namespaces/default/pods/none");
    assert!(missing.contains("not found"), "{missing}");
    let direct = machine.output_of("curl -sk https://198.51.100.2:4443/apis/metrics.k8s.io/v1beta1/nodes");
    assert!(direct.contains("User \\\"system:anonymous\\\" cannot list resource"), "{direct}");

    machine.apply(BUSY);
    machine.eventually("kubectl get deployment busy -o jsonpath={.spec.replicas}", |replicas| replicas == "2");
    let events = machine.eventually("kubectl get events", |events| events.contains("SuccessfulRescale"));
    assert!(events.contains("cpu resource utilization (percentage of request) above target"), "{events}");
    machine.succeed("kubectl delete deployment,horizontalpodautoscaler busy");
    machine.eventually("kubectl get pods -l app=busy -o name", str::is_empty);
}

/// Creates and deletes ten times ten pods, and compares the host resources of pods before and after.
fn leave_nothing_after_a_hundred_pods(machine: &Machine) {
    let uids = machine.succeed("kubectl get pods -A -o jsonpath={.items[*].metadata.uid}");
    // The rules of all endpoints are in place, including those of the last ones.
    let has_rules = |rules: &str| rules.contains("numgen random mod 3");
    machine.eventually("nft list ruleset", has_rules);
    let before = machine.count_resources(&uids);
    let pod = |n: usize| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: round-{n}, labels: {{app: round}}}}\nspec: {{containers: \
             [{{name: c, image: knarr.local/pause, imagePullPolicy: IfNotPresent}}], terminationGracePeriodSeconds: 5}}\n"
        )
    };
    let pods: Vec<String> = (0..10).map(pod).collect();
    for _ in 0..10 {
        machine.apply(&pods.join("---\n"));
        machine.succeed("kubectl wait --for=condition=Ready pods -l app=round --timeout=60s");
        machine.succeed("kubectl delete pods -l app=round --wait --timeout=60s");
    }
    let deadline = Instant::now() + DEADLINE;
    while machine.count_resources(&uids) != before {
        assert!(Instant::now() < deadline, "before {before:?}, after {:?}", machine.count_resources(&uids));
        std::thread::yield_now();
    }
}

/// Time limit of a restart. The goal is one second for a release build on an idle host; this build is not optimised and
/// shares its host.
const RETURN_MAX: Duration = Duration::from_secs(15);

/// Sets the flag on drop, also when a test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes objects continuously. Objects acknowledged before a kill exist after the last one.
fn nothing_is_lost_when_it_dies_twenty_times(machine: &Machine) {
    let (stop, taken) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0.. {
                let name = format!("written-{number}");
                if machine.output_of(&format!("kubectl create configmap {name}")).contains("created") {
                    taken.lock().unwrap().push(name);
                }
                if stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let _stop = Stop(&stop);
        let mut slowest = Duration::ZERO;
        for _ in 0..20 {
            machine.kill();
            let killed = Instant::now();
            machine.up();
            slowest = slowest.max(killed.elapsed());
        }
        println!("killed twenty times under load: usable again after {slowest:?} at most");
        assert!(slowest < RETURN_MAX, "it took {slowest:?} to return");
    });
    let names = machine.succeed("kubectl get configmaps -o jsonpath={.items[*].metadata.name}");
    let names: Vec<&str> = names.split(' ').collect();
    let taken = taken.into_inner().unwrap();
    assert!(!taken.is_empty());
    assert!(taken.iter().all(|name| names.contains(&name.as_str())), "{taken:?} but {names:?}");
}

/// Changes the host's address while the cluster runs. Pods keep running, and the cluster adapts automatically.
fn it_follows_the_machine_to_another_address(machine: &Machine) {
    let containers = "kubectl get pods -l app=web -o jsonpath={.items[*].status.containerStatuses[0].containerID}";
    let (before, process) = (machine.succeed(containers), machine.process());
    machine.succeed("ip address delete 198.51.100.2/24 dev uplink");
    machine.succeed("ip address add 198.51.100.7/24 dev uplink");
    machine.succeed("ip route add default via 198.51.100.1");
    let address = "kubectl get node only -o jsonpath={.status.addresses[?(@.type==\"InternalIP\")].address}";
    machine.eventually(address, |address| address == "198.51.100.7");
    machine.eventually("curl -s --max-time 5 http://198.51.100.7:30080/", |page| page.starts_with("web-"));
    let first = machine.succeed("kubectl get pods -l app=web -o jsonpath={.items[0].metadata.name}");
    let lookup = format!("kubectl exec {first} -- busybox nslookup web.default.svc.cluster.local");
    machine.eventually(&lookup, |found| found.contains("web.default.svc.cluster.local") && !found.contains("can't"));
    let servers = "kubectl get endpointslices kubernetes -o jsonpath={.endpoints[*].addresses[0]}";
    machine.eventually(servers, |servers| servers == "198.51.100.7");
    assert_eq!(machine.succeed(containers), before, "the same containers keep running");
    assert_eq!(machine.process(), process, "the process is the same");
}

/// Restores a cluster in an empty data directory from a snapshot of the running store and the CAs.
fn it_is_saved_while_it_runs_and_restored_after_a_purge(machine: &Machine) {
    machine.succeed("kubectl create configmap before-the-snapshot --from-literal=a=b");
    let (snapshot, pki) = (machine.dir.path().join("snapshot"), machine.dir.path().join("pki"));
    let output = machine.knarr(&format!("store snapshot save {}", snapshot.display()));
    assert!(output.contains("Snapshot saved"), "{output}");
    let process = machine.process();
    machine.succeed("kubectl create configmap after-the-snapshot");
    assert_eq!(machine.process(), process, "nothing was stopped");
    run(Command::new("cp").arg("-a").arg(machine.data().join("pki")).arg(&pki));
    machine.knarr("down --purge");

    std::fs::create_dir(machine.data()).unwrap();
    run(Command::new("cp").arg("-a").arg(&pki).arg(machine.data().join("pki")));
    let store = machine.data().join("store");
    machine.succeed(&format!(
        "{KNARR} store snapshot restore {} --embedded --data-dir {}",
        snapshot.display(),
        store.display()
    ));
    build_image(machine);
    machine.up();
    let names = machine.succeed("kubectl get configmaps -o jsonpath={.items[*].metadata.name}");
    assert!(names.contains("before-the-snapshot") && !names.contains("after-the-snapshot"), "{names}");
    let none = machine.output_of(&format!("{KNARR} store snapshot save x --data-dir {}", machine.dir.path().display()));
    assert!(none.contains("no store runs in"), "{none}");
    machine.eventually("kubectl get deployment web -o jsonpath={.status.readyReplicas}", |ready| ready == "1");
}

fn build_image(machine: &Machine) {
    let image = machine.dir.path().join("image");
    std::fs::create_dir_all(image.join("bin")).unwrap();
    std::fs::copy("/bin/busybox", image.join("bin/busybox")).unwrap();
    let _ = std::os::unix::fs::symlink("busybox", image.join("bin/sh"));
    machine.knarr(&format!("image build {IMAGE} {} --env PATH=/bin", image.display()));
}

/// Host resources of pods.
#[derive(Debug, PartialEq, Eq)]
struct HostResources {
    interfaces: usize,
    addresses: usize,
    rules: usize,
    mounts: usize,
    processes: usize,
    sandboxes: usize,
    groups: usize,
}

impl Machine {
    /// Counts host resources. Cgroups of the pods with `uids` are not counted.
    fn count_resources(&self, uids: &str) -> HostResources {
        let own = self.data().display().to_string();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let lines = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = lines.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        let entries = |path: &str| std::fs::read_dir(self.data().join(path)).map_or(0, Iterator::count);
        HostResources {
            interfaces: self.succeed("ip -o link").lines().count(),
            addresses: self.succeed("ip route").lines().count(),
            rules: self.succeed("nft list ruleset").lines().count(),
            mounts: mounts.lines().filter(|line| line.contains(&own)).count(),
            processes: lines.filter(|line| String::from_utf8_lossy(line).contains(&own)).count(),
            sandboxes: entries("runtime/sandboxes") + entries("runtime/containers") + entries("kubelet/pods"),
            groups: groups(&self.group(), uids),
        }
    }
}

/// Counts the cgroups of pods, except those of pods with `uids`.
fn groups(root: &str, uids: &str) -> usize {
    let below = format!("*{root}/*");
    let found = Command::new("find").args(["/sys/fs/cgroup", "-type", "d", "-path", &below, "-name", "pod*"]).output();
    let found = String::from_utf8(found.unwrap().stdout).unwrap();
    let stray = |line: &&str| !uids.split(' ').any(|uid| line.ends_with(&format!("pod{uid}")));
    found.lines().filter(stray).count()
}

#[test]
fn start_errors_are_one_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let up = |more: &[&str]| {
        let output = Command::new(KNARR)
            .args(["up", "--disable", "kubelet,proxy,dns", "--data-dir"])
            .arg(dir.path())
            .args(more)
            .output()
            .unwrap();
        assert!(!output.status.success());
        text(&output)
    };
    let port = taken.local_addr().unwrap().port().to_string();
    let stderr = up(&["--secure-port", &port]);
    assert!(stderr.contains("is in use by another process") && stderr.contains("--secure-port"), "{stderr}");
    let stderr = up(&["--service-cidr", "nonsense", "--secure-port", "0"]);
    assert!(stderr.contains("--service-cidr"), "{stderr}");
    let output = Command::new(KNARR).args(["down", "--data-dir", "/proc"]).output().unwrap();
    assert!(text(&output).contains("has never been the data directory of a cluster"), "{}", text(&output));
}

#[test]
fn host_without_a_reachable_address_is_rejected() {
    let machine = Machine::new();
    machine.succeed("ip route del default");
    let output = machine.output_of(&format!("{KNARR} up -d --data-dir {}", machine.data().display()));
    assert!(output.contains("that pods can reach") && output.contains("--node-ip"), "{output}");
    assert!(!machine.data().join("pki").exists(), "nothing is written before the preflight checks pass");
}
