//! High availability: failures of three servers and an agent on one segment, and their effect on clients.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Child;

use super::*;

/// Numbers of the hosts that run a server.
const SERVERS: [usize; 3] = [1, 2, 3];
/// Load balancer pool of the segment. Only the first server is configured with it.
const POOL: &str = "203.0.113.100-203.0.113.109";
/// Maximum time without accepted writes after a server failure. The goal is two seconds for a release build on an idle
/// host; this build is not optimised and shares its host.
const GAP_MAX: Duration = Duration::from_secs(6);
/// Disables the components that are not needed to test server failures.
const BARE: &str = "--disable kubelet,proxy,network,dns,local-path";

/// Size of a disk that has room for one log segment and its reserve, but not for a second one beside the filler.
const DISK: &str = "size=400m";
/// Duration for which a server is stopped: longer than any lease that it holds.
const STILL: Duration = Duration::from_secs(60);
/// Timeout of a client per server: longer than an election, so that the client does not leave a server that is about to
/// respond.
const TIMEOUT: &str = "1.3";
/// Raft timeouts for a local network, shorter than etcd's defaults: no writes succeed during an election.
const SOON: &str = "--heartbeat-interval 50 --election-timeout 500";

/// Size and number of objects that do not fit into one log segment.
const BIG_BYTES: usize = 900_000;
const BIG_COUNT: usize = 90;

/// Hosts on one segment. The segment is a network namespace too, and the clients run there.
struct Segment {
    name: String,
    dir: tempfile::TempDir,
    machines: Vec<String>,
    /// Flags of every server.
    flags: String,
    /// Index of the server that accepted the last write.
    last_server: AtomicUsize,
}

impl Segment {
    fn new(count: usize, flags: &str) -> Self {
        test_requirements::root();
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("knarr-ha-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let machines = (1..=count).map(|number| format!("{name}-{number}")).collect();
        let (dir, flags) = (tempfile::tempdir().unwrap(), format!("{BARE} {flags}"));
        let segment = Self { name, dir, machines, flags, last_server: AtomicUsize::new(0) };
        run(Command::new("ip").args(["netns", "add", &segment.name]));
        segment.at(0, "ip link set lo up");
        segment.at(0, "ip link add segment type bridge");
        segment.at(0, "ip link set segment up");
        segment.at(0, "ip address add 203.0.113.254/24 dev segment");
        for (index, machine) in segment.machines.iter().enumerate() {
            let number = index + 1;
            run(Command::new("ip").args(["netns", "add", machine]));
            segment.at(0, &format!("ip link add port{number} type veth peer name eth0 netns {machine}"));
            segment.at(0, &format!("ip link set port{number} master segment up"));
            for line in [
                "ip link set lo up".to_owned(),
                format!("ip address add 203.0.113.{number}/24 dev eth0"),
                "ip link set eth0 up".to_owned(),
                "ip route add default via 203.0.113.254".to_owned(),
            ] {
                segment.at(number, &line);
            }
        }
        segment
    }

    /// Returns a command on a host; 0 is the segment.
    fn command(&self, number: usize, line: &str) -> Command {
        let name = if number == 0 { &self.name } else { &self.machines[number - 1] };
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{name}")).args(line.split(' '));
        command.env("KUBECONFIG", self.data(number.max(1)).join("admin.kubeconfig"));
        command
    }

    fn at(&self, number: usize, line: &str) -> String {
        run(&mut self.command(number, line))
    }

    fn output_of(&self, number: usize, line: &str) -> String {
        text(&self.command(number, line).output().unwrap())
    }

    fn data(&self, number: usize) -> PathBuf {
        self.dir.path().join(number.to_string())
    }

    fn knarr(&self, number: usize, arguments: &str) -> String {
        self.at(number, &self.line(number, arguments))
    }

    fn line(&self, number: usize, arguments: &str) -> String {
        format!("{KNARR} {arguments} --data-dir {}", self.data(number).display())
    }

    /// Starts or restarts a server.
    fn server(&self, number: usize, token: Option<&str>) {
        self.server_at(number, &format!("203.0.113.{number}"), token);
    }

    fn server_at(&self, number: usize, address: &str, token: Option<&str>) {
        let join = token.map_or_else(String::new, |token| format!("--join https://203.0.113.1:6443 --token {token}"));
        let pool = if number == 1 { format!("--load-balancer {POOL}") } else { String::new() };
        let line = format!("server -d --node-name s{number} --node-ip {address} {} {pool} {join}", self.flags.trim());
        self.knarr(number, &line.split_whitespace().collect::<Vec<_>>().join(" "));
    }

    fn process(&self, number: usize) -> String {
        let lock = std::fs::read_to_string(self.data(number).join("knarr.lock")).unwrap();
        lock.lines().next().unwrap().to_owned()
    }

    fn signal(&self, number: usize, signal: &str) {
        run(Command::new("kill").args([signal, &self.process(number)]));
    }

    /// Polls until the output is as expected. Each attempt is a process, so nothing can be waited for.
    fn eventually(&self, number: usize, line: &str, is_good: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let seen = self.output_of(number, line);
            if is_good(&seen) {
                return seen;
            }
            assert!(start.elapsed() < DEADLINE, "{line} on {number} still prints {seen}");
        }
    }

    /// Waits until a server reports another one as unreachable. These servers have no node, whose heartbeat would give
    /// the time.
    fn sees_unreachable(&self, server: usize, other: usize) {
        self.eventually(server, &self.line(server, "members"), |members| {
            let line = members.lines().find(|line| line.contains(&format!(" s{other} ")));
            line.is_some_and(|line| line.contains(" unreachable "))
        });
    }

    /// Returns the number of the server whose store member is the leader.
    fn leader(&self, server: usize) -> usize {
        let output = self.eventually(server, &self.line(server, "members"), |output| output.contains("leader"));
        let leader = output.lines().find(|line| line.contains("leader")).unwrap();
        let name = leader.split_whitespace().nth(1).unwrap();
        name.trim_start_matches('s').parse().unwrap()
    }

    /// Creates an object through the first server that accepts it, starting with the last one that did.
    fn write(&self, name: &str, bytes: usize) -> bool {
        let pki = self.data(1).join("pki");
        let data = "v".repeat(bytes);
        let body = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"v":"{data}"}}}}"#
        );
        let first = self.last_server.load(Ordering::Relaxed);
        let taken = (first..first + SERVERS.len()).find(|turn| {
            let server = SERVERS[turn % SERVERS.len()];
            let mut curl = self.command(0, "curl -s -o /dev/null -w %{http_code} -H Content-Type:application/json");
            curl.args(["--connect-timeout", "0.5", "--max-time", if bytes == BIG_BYTES { "2" } else { TIMEOUT }]);
            curl.arg("--cacert").arg(pki.join("ca.crt")).arg("--cert").arg(pki.join("admin.crt"));
            curl.arg("--key").arg(pki.join("admin.key")).args(["-d", "@-"]);
            curl.arg(format!("https://203.0.113.{server}:6443/api/v1/namespaces/default/configmaps"));
            let mut curl = curl.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            // A server that is down does not read its input.
            let _ = curl.stdin.take().unwrap().write_all(body.as_bytes());
            // 409: the object was created, but the response was lost.
            matches!(text(&curl.wait_with_output().unwrap()).as_str(), "201" | "409")
        });
        self.last_server.store(taken.unwrap_or(first), Ordering::Relaxed);
        taken.is_some()
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        for number in 1..=self.machines.len() {
            if self.data(number).join("knarr.lock").is_file() {
                let _ = Command::new("kill").args(["-CONT", &self.process(number)]).output();
                let _ = self.command(number, &self.line(number, "down --purge")).output();
            }
            // Only servers have a separate disk.
            let _ = Command::new("umount").arg(self.data(number)).output();
        }
        for name in self.machines.iter().chain([&self.name]) {
            let _ = Command::new("ip").args(["netns", "delete", name]).output();
        }
    }
}

/// All acknowledged writes.
#[derive(Default)]
struct AcknowledgedWrites(BTreeSet<String>);

impl AcknowledgedWrites {
    /// Writes sequentially during a failure, until [`STILL`] has passed.
    fn for_long(&mut self, segment: &Segment, what: &str, fail: impl FnOnce()) {
        self.while_failing(segment, what, FEW, || {
            let since = Instant::now();
            fail();
            std::thread::sleep(STILL.saturating_sub(since.elapsed()));
        });
    }

    /// Writes sequentially during a failure, and until `count` writes were acknowledged after it.
    fn while_failing(&mut self, segment: &Segment, what: &str, (count, bytes): (usize, usize), fail: impl FnOnce()) {
        let (stop, taken) = (AtomicBool::new(false), Mutex::new((Vec::new(), Duration::ZERO)));
        let first = self.0.len();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut last = Instant::now();
                for number in first.. {
                    let name = format!("written-{number}");
                    while !segment.write(&name, bytes) && !stop.load(Ordering::Relaxed) {}
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let mut taken = taken.lock().unwrap();
                    taken.0.push(name);
                    taken.1 = taken.1.max(last.elapsed());
                    last = Instant::now();
                }
            });
            let written = || taken.lock().unwrap().0.len();
            let wait_for = |more: usize| {
                let mut last = (written(), Instant::now());
                let target = last.0 + more;
                while last.0 < target {
                    let now = written();
                    if now > last.0 {
                        last = (now, Instant::now());
                    }
                    assert!(last.1.elapsed() < DEADLINE, "{what}: nothing is taken any more");
                    std::thread::yield_now();
                }
            };
            wait_for(3);
            fail();
            wait_for(count);
            stop.store(true, Ordering::Relaxed);
        });
        let (taken, gap) = taken.into_inner().unwrap();
        println!("{what}: {} taken, none for {gap:?}", taken.len());
        assert!(gap < GAP_MAX, "{what}: nothing was taken for {gap:?}");
        self.0.extend(taken);
    }

    /// Checks that every server has all objects: the failed server has recovered, and another one may fail.
    fn are_everywhere(&self, segment: &Segment) {
        for server in SERVERS {
            segment.eventually(server, "kubectl get configmaps -o jsonpath={.items[*].metadata.name}", |seen| {
                let seen: BTreeSet<&str> = seen.split(' ').collect();
                self.0.iter().all(|name| seen.contains(name.as_str()))
            });
        }
    }
}

/// Fills a disk and keeps it full.
struct Filler {
    file: PathBuf,
    process: Option<Child>,
}

impl Filler {
    fn of(disk: &Path) -> Self {
        Self { file: disk.join("filler"), process: None }
    }

    fn start(&mut self) {
        let mut fill = Command::new("sh");
        fill.args(["-c", "while :; do cat /dev/zero >> $0; sleep 0.05; done"]).arg(&self.file).stderr(Stdio::null());
        self.process = Some(fill.spawn().unwrap());
    }

    /// Frees the disk again.
    fn end(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
            std::fs::remove_file(&self.file).unwrap();
        }
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        self.end();
    }
}

/// Number and size of writes during a failure, where the amount does not matter.
const FEW: (usize, usize) = (10, 1);

/// Checks that the token is neither in the arguments nor in the environment of any process.
fn no_process_exposes(token: &str) {
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    for file in processes.flat_map(|process| [process.join("cmdline"), process.join("environ")]) {
        // Some entries are not processes, and some processes have exited meanwhile.
        let content = std::fs::read(&file).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&content).contains(token), "{} shows the token", file.display());
    }
}

#[test]
fn sequential_server_failures_lose_no_acknowledged_writes() {
    let segment = Segment::new(4, "");
    for server in SERVERS {
        std::fs::create_dir(segment.data(server)).unwrap();
        run(Command::new("mount").args(["-t", "tmpfs", "-o", DISK, "tmpfs"]).arg(segment.data(server)));
    }
    segment.server(1, None);
    let token = segment.knarr(1, "token create --server");
    segment.server(2, Some(&token));
    segment.server(3, Some(&token));
    let members = segment.knarr(3, "members");
    assert_eq!(members.lines().count(), 4, "{members}");
    assert!(!members.contains("learner"), "{members}");
    let status = segment.knarr(2, "status");
    assert_eq!(status.matches("member s").count(), 3, "{status}");
    assert_eq!(status.matches("is leader").count(), 1, "{status}");

    let token = segment.knarr(2, "token create");
    let agent = format!(
        "agent -d --server https://203.0.113.2:6443 --token {token} --node-name node --node-ip 203.0.113.4 --kubelet-arg eviction-hard=nodefs.available<1Mi"
    );
    let output = segment.knarr(4, &agent);
    assert!(output.contains("joined as node in"), "{output}");
    no_process_exposes(token.trim());
    let ready = "kubectl get node node -o jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
    segment.eventually(1, ready, |status| status == "True");
    segment.at(1, "kubectl create deployment web --image=knarr.local/pause --replicas=5");
    let available = "kubectl get deployment web -o jsonpath={.status.availableReplicas}";
    segment.eventually(1, available, |count| count == "5");
    let pods = segment.at(1, "kubectl get pods -l app=web -o jsonpath={.items[*].metadata.uid}");

    agent_announces_load_balancer_addresses(&segment);
    looking_at_an_agent_leaves_its_trust_alone(&segment);
    certificates_of_the_store_are_made_anew(&segment);
    manifest_on_all_servers_is_applied_once_and_deleted_with_the_last(&segment);

    let mut taken = AcknowledgedWrites::default();
    // The leader is killed and restarts automatically.
    let leader = segment.leader(1);
    taken.while_failing(&segment, "the leader was killed", FEW, || segment.signal(leader, "-9"));
    segment.server(leader, None);
    taken.are_everywhere(&segment);

    // A server is disconnected from the network, and reconnected.
    let lost = segment.leader(leader);
    let cut = || drop(segment.at(0, &format!("ip link set port{lost} down")));
    taken.while_failing(&segment, "one was cut off", FEW, cut);
    segment.at(0, &format!("ip link set port{lost} up"));
    taken.are_everywhere(&segment);

    // A server is stopped with SIGSTOP, and continued.
    let still = segment.leader(other_than(lost));
    taken.for_long(&segment, "one stood still", || segment.signal(still, "-STOP"));
    segment.signal(still, "-CONT");
    taken.are_everywhere(&segment);

    // The disk of a server is full, and has space again.
    let full = segment.leader(other_than(still));
    let mut filler = Filler::of(&segment.data(full));
    taken.while_failing(&segment, "the disk of one was full", (BIG_COUNT, BIG_BYTES), || filler.start());
    let members = segment.knarr(other_than(full), "members");
    let of_full = members.lines().find(|line| line.contains(&format!(" s{full} "))).unwrap();
    assert!(of_full.contains("no space") && !of_full.contains("leader"), "{members}");
    filler.end();
    segment.eventually(full, &segment.line(full, "members"), |members| !members.contains("no space"));

    taken.are_everywhere(&segment);
    for server in SERVERS {
        segment.eventually(server, ready, |status| status == "True");
    }
    let still_there = segment.at(2, "kubectl get pods -l app=web -o jsonpath={.items[*].metadata.uid}");
    assert_eq!(still_there, pods, "no step ran twice");
    segment.at(3, "kubectl scale deployment web --replicas=7");
    segment.eventually(1, available, |count| count == "7");

    // A server does not come back.
    let removed = segment.leader(1);
    segment.knarr(removed, "down --now");
    let rest = other_than(removed);
    segment.sees_unreachable(rest, removed);
    segment.knarr(rest, &format!("members rm s{removed}"));
    let members = segment.knarr(rest, "members");
    assert!(members.lines().count() == 3 && !members.contains(&format!(" s{removed} ")), "{members}");
    segment.at(rest, "kubectl scale deployment web --replicas=8");
    segment.eventually(rest, available, |count| count == "8");
    let forgotten = format!("203.0.113.{removed}:");
    segment.eventually(4, &segment.line(4, "status"), |output| {
        output.contains("203.0.113.") && !output.contains(&forgotten)
    });
}

/// Only the first server was configured with the pool. The other servers and the agent get it from the cluster,
/// whichever server leads.
fn agent_announces_load_balancer_addresses(segment: &Segment) {
    segment.at(1, "kubectl create deployment hello --image=knarr.local/hello");
    segment.at(1, "kubectl expose deployment hello --type=LoadBalancer --port=80 --target-port=8080");
    let given = "kubectl get service hello -o jsonpath={.status.loadBalancer.ingress[*].ip}";
    segment.eventually(1, given, |given| given == "203.0.113.100");
    segment.eventually(0, "curl -s --max-time 2 http://203.0.113.100/", |page| page.starts_with("Hello from hello-"));
    for server in SERVERS {
        let cmdline = std::fs::read(format!("/proc/{}/cmdline", segment.process(server))).unwrap();
        assert_eq!(server == 1, String::from_utf8_lossy(&cmdline).contains(POOL));
    }
    let stored = std::fs::read_to_string(segment.data(2).join("cluster.json")).unwrap();
    assert!(stored.contains(POOL), "{stored}");
    segment.at(1, "kubectl delete service,deployment hello");
}

fn looking_at_an_agent_leaves_its_trust_alone(segment: &Segment) {
    let ca = segment.data(4).join("pki").join("ca.crt");
    let trusted = std::fs::read(&ca).unwrap();
    let status = segment.knarr(4, "status");
    assert!(status.contains("kubelet running") && status.contains("run `knarr status` on one of them"), "{status}");
    segment.knarr(4, "certs ls");
    segment.output_of(4, &segment.line(4, "doctor"));
    assert!(segment.output_of(4, &segment.line(4, "certs rotate")).contains("is not a server"));
    assert_eq!(std::fs::read(&ca).unwrap(), trusted);
    assert!(!segment.data(4).join("pki").join("ca.key").exists());
}

/// Rotates the store's certificates without a restart. Clients and members accept the new ones.
fn manifest_on_all_servers_is_applied_once_and_deleted_with_the_last(segment: &Segment) {
    let file = |server: usize| segment.data(server).join("manifests/app.yaml");
    for server in SERVERS {
        std::fs::write(file(server), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app}\n").unwrap();
    }
    let status = segment.line(1, "status");
    segment.eventually(1, &status, |status| {
        let count = |text: &str| status.matches(text).count();
        (count("1 file, 1 object (knarr-manifests-s"), count("0 objects, 1 applied by another server")) == (1, 2)
    });
    let uid = || segment.output_of(1, "kubectl get configmap app -o jsonpath={.metadata.uid}");
    let first = uid();
    for server in &SERVERS[..2] {
        std::fs::remove_file(file(*server)).unwrap();
        let gone = format!("0 files, 0 objects (knarr-manifests-s{server})");
        segment.eventually(1, &status, |status| status.contains(&gone) && status.contains("1 file, 1 object"));
        assert_eq!(uid(), first, "the object was handed over");
    }
    std::fs::remove_file(file(SERVERS[2])).unwrap();
    segment.eventually(1, "kubectl get configmap app", |error| error.contains("NotFound"));
}

fn certificates_of_the_store_are_made_anew(segment: &Segment) {
    let served_certificate = |server: usize, port: u16| {
        let pki = segment.data(1).join("pki");
        let mut curl = segment.command(0, "curl -sk -o /dev/null --max-time 2 -w %{certs}");
        curl.arg("--cert").arg(pki.join("etcd-peer.crt")).arg("--key").arg(pki.join("etcd-peer.key"));
        text(&curl.arg(format!("https://203.0.113.{server}:{port}/health")).output().unwrap())
    };
    let ports: Vec<(usize, u16)> = SERVERS.iter().flat_map(|server| [(*server, 2379), (*server, 2380)]).collect();
    let before: Vec<String> = ports.iter().map(|(server, port)| served_certificate(*server, *port)).collect();
    assert!(before.iter().all(|served_certificate| served_certificate.contains("BEGIN CERTIFICATE")), "{before:?}");
    let processes = SERVERS.map(|server| segment.process(server));
    for server in SERVERS {
        let stdout = segment.knarr(server, "certs rotate");
        assert!(stdout.contains("renewed"), "{stdout}");
    }
    for ((server, port), before) in ports.iter().zip(before) {
        let now = served_certificate(*server, *port);
        assert!(now.contains("BEGIN CERTIFICATE") && now != before, "port {port} of server {server} shows {now}");
    }
    // All connections are re-established, including those between members.
    segment.at(0, "ip link set port3 down");
    segment.eventually(1, &segment.line(1, "members"), |stdout| stdout.contains("leader"));
    segment.at(0, "ip link set port3 up");
    segment.at(1, "kubectl create configmap after-rotation");
    let seen = "kubectl get configmap after-rotation -o name";
    for server in SERVERS {
        segment.eventually(server, seen, |name| name == "configmap/after-rotation");
    }
    segment.at(1, "kubectl delete configmap after-rotation");
    assert_eq!(SERVERS.map(|server| segment.process(server)), processes, "nothing was restarted");
}

#[test]
fn server_changes_its_address_and_cluster_is_restored_from_a_snapshot() {
    let segment = Segment::new(3, "");
    segment.server(1, None);
    let token = segment.knarr(1, "token create --server");
    segment.server(2, Some(&token));
    segment.server(3, Some(&token));

    // The member is unreachable at the address that the others know, until it updates its peer URL.
    segment.knarr(2, "down --now");
    segment.at(2, "ip address add 203.0.113.12/24 dev eth0");
    segment.at(2, "ip address delete 203.0.113.2/24 dev eth0");
    segment.output_of(2, "ip address add 203.0.113.12/24 dev eth0");
    segment.output_of(2, "ip route add default via 203.0.113.254");
    segment.server_at(2, "203.0.113.12", None);
    let members = segment.knarr(3, "members");
    let moved = members.lines().find(|line| line.contains(" s2 ")).unwrap();
    assert!(moved.contains("https://203.0.113.12:2380") && moved.contains("follower"), "{members}");
    segment.at(1, "kubectl create configmap kept");
    segment.eventually(2, "kubectl get configmap kept -o name", |name| name == "configmap/kept");

    let snapshot = segment.dir.path().join("snapshot");
    let output = segment.knarr(3, &format!("store snapshot save {}", snapshot.display()));
    assert!(output.contains("Snapshot saved"), "{output}");
    segment.at(1, "kubectl create configmap lost");
    let last = |server| segment.at(server, "kubectl get configmap kept -o jsonpath={.metadata.resourceVersion}");
    let before: u64 = last(1).parse().unwrap();
    for server in SERVERS {
        segment.knarr(server, "down --now");
        std::fs::remove_dir_all(segment.data(server).join("etcd")).unwrap();
    }
    let store = segment.data(1).join("etcd");
    segment.at(1, &format!(
        "{KNARR} store snapshot restore {} --name s1 --initial-advertise-peer-urls https://203.0.113.1:2380 --bump-revision 1000000 --data-dir {}",
        snapshot.display(),
        store.display()
    ));
    segment.server(1, None);
    let token = segment.knarr(1, "token create --server");
    segment.server_at(2, "203.0.113.12", Some(&token));
    segment.server(3, Some(&token));
    let members = segment.knarr(2, "members");
    assert!(members.lines().count() == 4 && !members.contains("learner"), "{members}");
    for server in SERVERS {
        let names = segment.at(server, "kubectl get configmaps -o jsonpath={.items[*].metadata.name}");
        assert!(names.contains("kept") && !names.contains("lost"), "{names}");
    }
    assert_eq!(last(2).parse::<u64>().unwrap(), before);
    segment.at(2, "kubectl label configmap kept a=b");
    assert!(last(3).parse::<u64>().unwrap() > before + 1_000_000, "resource versions of the restored store are higher");
}

fn other_than(server: usize) -> usize {
    SERVERS.into_iter().find(|number| *number != server).unwrap()
}

/// Members of Debian's etcd, one on each server's host.
struct Etcd<'a> {
    segment: &'a Segment,
    processes: BTreeMap<usize, Child>,
}

impl Etcd<'_> {
    fn disk(&self, number: usize) -> PathBuf {
        self.segment.dir.path().join(format!("etcd{number}"))
    }

    fn start(&mut self, number: usize) {
        let host = format!("http://203.0.113.{number}");
        let all = SERVERS.map(|number| format!("e{number}=http://203.0.113.{number}:2380")).join(",");
        let line = format!(
            "etcd {SOON} --logger zap --log-level error --name e{number} --data-dir {} --listen-client-urls {host}:2379,http://127.0.0.1:2379 \
             --advertise-client-urls {host}:2379 --listen-peer-urls {host}:2380 --initial-advertise-peer-urls {host}:2380 --initial-cluster {all}",
            self.disk(number).display(),
        );
        let mut command = self.segment.command(number, &line.split_whitespace().collect::<Vec<_>>().join(" "));
        self.processes.insert(number, command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    }

    fn signal(&mut self, number: usize, signal: &str) {
        run(Command::new("kill").args([signal, &self.processes[&number].id().to_string()]));
    }

    /// Returns the number of the leader, according to a running member.
    fn leader(&self, server: usize) -> usize {
        let endpoints = SERVERS.map(|number| format!("http://203.0.113.{number}:2379")).join(",");
        let line = format!("etcdctl --endpoints {endpoints} endpoint status --write-out=simple");
        let leads = |line: &&str| line.split(", ").nth(4) == Some("true");
        let output = self.segment.eventually(server, &line, |output| output.lines().any(|line| leads(&line)));
        let leader = output.lines().find(leads).unwrap();
        SERVERS.into_iter().find(|number| leader.contains(&format!("203.0.113.{number}:"))).unwrap()
    }
}

impl Drop for Etcd<'_> {
    fn drop(&mut self) {
        for process in self.processes.values_mut() {
            let _ = process.kill();
            let _ = process.wait();
        }
        for number in SERVERS {
            let _ = Command::new("umount").arg(self.disk(number)).output();
        }
    }
}

#[test]
fn servers_with_external_etcd_survive_failures_of_members_and_servers() {
    let endpoints = SERVERS.map(|number| format!("http://203.0.113.{number}:2379")).join(",");
    let segment = Segment::new(3, &format!("--etcd-servers {endpoints}"));
    let mut etcd = Etcd { segment: &segment, processes: BTreeMap::new() };
    for number in SERVERS {
        std::fs::create_dir(etcd.disk(number)).unwrap();
        run(Command::new("mount").args(["-t", "tmpfs", "-o", DISK, "tmpfs"]).arg(etcd.disk(number)));
        etcd.start(number);
    }
    segment.eventually(1, "etcdctl endpoint health", |output| output.contains("is healthy"));
    segment.server(1, None);
    let token = segment.knarr(1, "token create --server");
    segment.server(2, Some(&token));
    segment.server(3, Some(&token));
    segment.at(1, "kubectl create deployment web --image=knarr.local/pause --replicas=5");
    let uids = "kubectl get pods -l app=web -o jsonpath={.items[*].metadata.uid}";
    let pods = segment.eventually(1, uids, |uids| uids.split(' ').count() == 5);

    let mut taken = AcknowledgedWrites::default();
    let leader = etcd.leader(1);
    taken.while_failing(&segment, "the leader of etcd was killed", FEW, || etcd.signal(leader, "-9"));
    etcd.start(leader);
    let still = etcd.leader(other_than(leader));
    taken.for_long(&segment, "the leader of etcd stood still", || etcd.signal(still, "-STOP"));
    etcd.signal(still, "-CONT");
    taken.while_failing(&segment, "a server was killed", FEW, || segment.signal(1, "-9"));
    segment.server(1, None);
    let lost = etcd.leader(1);
    let cut = || drop(segment.at(0, &format!("ip link set port{lost} down")));
    taken.while_failing(&segment, "a server and its member were cut off", FEW, cut);
    segment.at(0, &format!("ip link set port{lost} up"));
    // An etcd member does not survive a full disk: the others keep running, and the member recovers after a restart.
    let full = etcd.leader(1);
    let mut filler = Filler::of(&etcd.disk(full));
    taken.while_failing(&segment, "the disk of a member was full", (BIG_COUNT, BIG_BYTES), || filler.start());
    filler.end();
    if etcd.processes.get_mut(&full).unwrap().try_wait().unwrap().is_some() {
        etcd.start(full);
    }

    taken.are_everywhere(&segment);
    assert_eq!(segment.at(2, uids), pods, "no step ran twice");
    segment.at(3, "kubectl scale deployment web --replicas=6");
    segment.eventually(1, uids, |uids| uids.split(' ').count() == 6);
}
