//! Three servers and an agent, each a machine of its own on one segment: what a client notices when one of them fails.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;

/// What is not needed to see that servers fail.
const BARE: &str = "--disable kubelet,proxy,network,dns,local-path";

/// Machines on one segment. The segment is a namespace too, and clients are there.
struct Segment {
    name: String,
    folder: tempfile::TempDir,
    machines: Vec<String>,
}

impl Segment {
    fn new(count: usize) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("knarr-ha-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let machines = (1..=count).map(|number| format!("{name}-{number}")).collect();
        let segment = Self { name, folder: tempfile::tempdir().unwrap(), machines };
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

    /// A command on a machine; 0 is the segment itself.
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

    fn said(&self, number: usize, line: &str) -> String {
        text(&self.command(number, line).output().unwrap())
    }

    fn data(&self, number: usize) -> PathBuf {
        self.folder.path().join(number.to_string())
    }

    fn knarr(&self, number: usize, arguments: &str) -> String {
        self.at(number, &format!("{KNARR} {arguments} --data-dir {}", self.data(number).display()))
    }

    /// Starts a server, or starts it again.
    fn server(&self, number: usize, token: Option<&str>) {
        let join = token.map_or_else(String::new, |token| format!("--join https://203.0.113.1:6443 --token {token}"));
        let line = format!("server -d --node-name s{number} --node-ip 203.0.113.{number} {BARE} {join}");
        self.knarr(number, line.trim());
    }

    fn process(&self, number: usize) -> String {
        let lock = std::fs::read_to_string(self.data(number).join("knarr.lock")).unwrap();
        lock.lines().next().unwrap().to_owned()
    }

    fn signal(&self, number: usize, signal: &str) {
        run(Command::new("kill").args([signal, &self.process(number)]));
    }

    /// Looks again until it is as it should be; each look is a process, so there is nothing to wait on.
    fn eventually(&self, number: usize, line: &str, is_good: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let seen = self.said(number, line);
            if is_good(&seen) {
                return seen;
            }
            assert!(start.elapsed() < DEADLINE, "{line} on {number} still says {seen}");
        }
    }

    /// The number of the server whose member leads the store.
    fn leader(&self, asked: usize) -> usize {
        let line = format!("{KNARR} members --data-dir {}", self.data(asked).display());
        let said = self.eventually(asked, &line, |said| said.contains("leader"));
        let leader = said.lines().find(|line| line.contains("leader")).unwrap();
        let name = leader.split_whitespace().nth(1).unwrap();
        name.trim_start_matches('s').parse().unwrap()
    }

    /// Writes an object by whichever of these servers takes it.
    fn write(&self, servers: &[usize], name: &str) -> bool {
        let pki = self.data(1).join("pki");
        let body = format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}}}}"#);
        servers.iter().any(|server| {
            let mut curl =
                self.command(0, "curl -s -o /dev/null -w %{http_code} --max-time 2 -H Content-Type:application/json");
            curl.arg("--cacert").arg(pki.join("ca.crt")).arg("--cert").arg(pki.join("admin.crt"));
            curl.arg("--key").arg(pki.join("admin.key")).arg("-d").arg(&body);
            curl.arg(format!("https://203.0.113.{server}:6443/api/v1/namespaces/default/configmaps"));
            // What was taken before its answer got lost is there already.
            matches!(text(&curl.output().unwrap()).as_str(), "201" | "409")
        })
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        for number in 1..=self.machines.len() {
            if self.data(number).join("knarr.lock").is_file() {
                let _ = Command::new("kill").args(["-CONT", &self.process(number)]).output();
                let down = format!("{KNARR} down --purge --data-dir {}", self.data(number).display());
                let _ = self.command(number, &down).output();
            }
        }
        for name in self.machines.iter().chain([&self.name]) {
            let _ = Command::new("ip").args(["netns", "delete", name]).output();
        }
    }
}

/// Writes one object after the other for as long as something else is done, and gives the names of those that were taken and
/// the longest time between two of them.
fn under_load(segment: &Segment, servers: &[usize], meanwhile: impl FnOnce()) -> (BTreeSet<String>, Duration) {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let (stop, taken) = (AtomicBool::new(false), Mutex::new((BTreeSet::new(), Duration::ZERO)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut last = Instant::now();
            while !stop.load(Ordering::Relaxed) {
                let name = format!("written-{}", COUNT.fetch_add(1, Ordering::Relaxed));
                if segment.write(servers, &name) {
                    let mut taken = taken.lock().unwrap();
                    taken.0.insert(name);
                    taken.1 = taken.1.max(last.elapsed());
                    last = Instant::now();
                }
            }
        });
        let written = || taken.lock().unwrap().0.len();
        let wait_for = |more: usize| {
            let (from, start) = (written(), Instant::now());
            while written() < from + more {
                assert!(start.elapsed() < DEADLINE, "nothing is taken any more");
                std::thread::yield_now();
            }
        };
        wait_for(3);
        meanwhile();
        wait_for(10);
        stop.store(true, Ordering::Relaxed);
    });
    taken.into_inner().unwrap()
}

#[test]
fn servers_fail_one_after_the_other_and_nothing_is_lost() {
    if !is_root() {
        println!("skipped: network namespaces need root");
        return;
    }
    let segment = Segment::new(4);
    segment.server(1, None);
    let token = segment.knarr(1, "token create --server");
    segment.server(2, Some(&token));
    segment.server(3, Some(&token));
    let members = segment.knarr(3, "members");
    assert_eq!(members.lines().count(), 4, "{members}");
    assert!(!members.contains("learner"), "{members}");

    let token = segment.knarr(2, "token create");
    let agent = format!(
        "{KNARR} agent --server https://203.0.113.2:6443 --token {token} --node-name node --node-ip 203.0.113.4 --kubelet-arg eviction-hard=nodefs.available<1Mi --data-dir {}",
        segment.data(4).display()
    );
    let mut agent = segment.command(4, &agent).stdout(Stdio::null()).spawn().unwrap();
    let ready = "kubectl get node node -o jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
    segment.eventually(1, ready, |status| status == "True");
    segment.at(1, "kubectl create deployment web --image=knarr.local/pause --replicas=5");
    let available = "kubectl get deployment web -o jsonpath={.status.availableReplicas}";
    segment.eventually(1, available, |count| count == "5");
    let pods = segment.at(1, "kubectl get pods -l app=web -o jsonpath={.items[*].metadata.uid}");

    let mut all = BTreeSet::new();
    // The leader is killed, and comes back by itself.
    let leader = segment.leader(1);
    let (taken, gap) = under_load(&segment, &[1, 2, 3], || segment.signal(leader, "-9"));
    println!("the leader was killed: nothing was taken for {gap:?}");
    all.extend(taken);
    segment.server(leader, None);

    // One is cut off, and returns.
    let lost = segment.leader(leader);
    let (taken, gap) =
        under_load(&segment, &[1, 2, 3], || drop(segment.at(0, &format!("ip link set port{lost} down"))));
    println!("one was cut off: nothing was taken for {gap:?}");
    all.extend(taken);
    segment.at(0, &format!("ip link set port{lost} up"));

    // One stands still, and goes on.
    let other = (1..=3).find(|number| *number != lost).unwrap();
    let still = segment.leader(other);
    let (taken, gap) = under_load(&segment, &[1, 2, 3], || segment.signal(still, "-STOP"));
    println!("one stood still: nothing was taken for {gap:?}");
    all.extend(taken);
    segment.signal(still, "-CONT");

    let names = "kubectl get configmaps -o jsonpath={.items[*].metadata.name}";
    for server in 1..=3 {
        segment.eventually(server, names, |seen| {
            let seen: BTreeSet<&str> = seen.split(' ').collect();
            all.iter().all(|name| seen.contains(name.as_str()))
        });
        segment.eventually(server, ready, |status| status == "True");
    }
    assert_eq!(
        segment.at(2, "kubectl get pods -l app=web -o jsonpath={.items[*].metadata.uid}"),
        pods,
        "no work was done twice"
    );
    segment.at(3, "kubectl scale deployment web --replicas=7");
    segment.eventually(1, available, |count| count == "7");
    run(Command::new("kill").arg(agent.id().to_string()));
    agent.wait().unwrap();
}
