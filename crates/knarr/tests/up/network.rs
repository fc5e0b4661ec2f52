//! Pod network of three nodes, two on one segment and one behind a router.
//!
//! Every pod reaches every pod, node and Service, in each proxy mode.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::{DEADLINE, IMAGE, KNARR, run, text};

const NODES: [&str; 3] = ["n1", "n2", "n3"];
/// IPv4 and IPv6 addresses of each node, and its default route.
const PLACES: [[&str; 3]; 3] = [
    ["192.0.2.1/24", "2001:db8:1::1/64", "via 192.0.2.254"],
    ["192.0.2.2/24", "2001:db8:1::2/64", "via 192.0.2.254"],
    ["198.51.100.3/24", "2001:db8:3::3/64", "via 198.51.100.254"],
];
const PODS: &str = "10.244.0.0/16,fd00:10:244::/48";
const SERVICES: &str = "10.96.0.0/16,fd00:10:96::/112";
const POOL: &str = "192.0.2.200-192.0.2.207,2001:db8:1::c8-2001:db8:1::cf";

/// Simulated hosts with their network namespaces and processes, all removed on drop.
struct Topology {
    prefix: String,
    dir: tempfile::TempDir,
    /// Processes by node and component.
    running: Vec<(&'static str, &'static str, Child)>,
}

impl Topology {
    fn new() -> Self {
        test_requirements::root();
        let cluster = Self {
            prefix: format!("knarr-net-{}", std::process::id()),
            dir: tempfile::tempdir().unwrap(),
            running: Vec::new(),
        };
        for name in ["switch", "router", "outside", "n1", "n2", "n3"] {
            run(Command::new("ip").args(["netns", "add", &cluster.space(name)]));
            cluster.on(name, "ip link set lo up");
        }
        cluster.on("switch", "ip link add br0 type bridge");
        cluster.on("switch", "ip link set br0 up");
        for name in ["n1", "n2", "router", "outside"] {
            cluster.join("switch", name, name, "up0");
            cluster.on("switch", &format!("ip link set {name} master br0"));
        }
        cluster.join("router", "far", "n3", "up0");
        for address in ["192.0.2.254/24 dev up0", "198.51.100.254/24 dev far"] {
            cluster.on("router", &format!("ip address add {address}"));
        }
        for address in ["2001:db8:1::fe/64 dev up0", "2001:db8:3::fe/64 dev far"] {
            cluster.on("router", &format!("ip address add {address} nodad"));
        }
        cluster.on("router", "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
        cluster.on("outside", "ip address add 192.0.2.100/24 dev up0");
        cluster.on("outside", "ip address add 2001:db8:1::64/64 dev up0 nodad");
        for (name, [four, six, way]) in NODES.iter().zip(PLACES) {
            cluster.on(name, &format!("ip address add {four} dev up0"));
            cluster.on(name, &format!("ip address add {six} dev up0 nodad"));
            cluster.on(name, &format!("ip route add default {way}"));
            let six = six.split("::").next().unwrap();
            cluster.on(name, &format!("ip route add default via {six}::fe"));
        }
        cluster.on("outside", "ip route add default via 192.0.2.254");
        cluster.on("outside", "ip route add default via 2001:db8:1::fe");
        cluster
    }

    fn space(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from("/run/netns").join(self.space(name))
    }

    /// Connects two hosts with a veth pair and sets both ends up.
    fn join(&self, one: &str, one_end: &str, other: &str, other_end: &str) {
        let other_space = self.space(other);
        self.on(one, &format!("ip link add {one_end} type veth peer name {other_end} netns {other_space}"));
        self.on(one, &format!("ip link set {one_end} up"));
        self.on(other, &format!("ip link set {other_end} up"));
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path(name).display()));
        command.env("KUBECONFIG", self.data("n1").join("admin.kubeconfig"));
        command
    }

    /// Runs a command on a host.
    fn on(&self, name: &str, line: &str) -> String {
        run(self.command(name).args(line.split(' ')))
    }

    /// Returns the output of a script on a host, whether it succeeds or not.
    fn script(&self, name: &str, script: &str) -> String {
        text(&self.command(name).args(["busybox", "sh", "-c", script]).output().unwrap())
    }

    /// Returns the output of a script in the pod of a node.
    fn pod_script(&self, node: &str, script: &str) -> String {
        let pod = self.on("n1", &format!("kubectl get pods -l app=web --field-selector spec.nodeName={node} -o name"));
        let mut command = self.command("n1");
        command.args(["kubectl", "exec", pod.trim(), "--", "busybox", "sh", "-c", script]);
        text(&command.output().unwrap())
    }

    fn data(&self, node: &str) -> PathBuf {
        self.dir.path().join(node)
    }

    fn apply(&self, objects: &str) {
        let mut kubectl = self.command("n1");
        let kubectl = kubectl.args(["kubectl", "apply", "-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut process = kubectl.spawn().unwrap();
        process.stdin.take().unwrap().write_all(objects.as_bytes()).unwrap();
        assert!(process.wait().unwrap().success());
    }

    /// Starts a component of a node.
    fn start(&mut self, node: &'static str, part: &'static str, flags: &[&str]) {
        let log = std::fs::File::create(self.dir.path().join(format!("{node}-{part}.log"))).unwrap();
        let mut command = self.command(node);
        command.arg(KNARR).arg(part).args(flags).arg("--kubeconfig").arg(self.dir.path().join("kubeconfig"));
        let child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        self.running.push((node, part, child));
    }

    /// Kills components with SIGKILL.
    fn kill(&mut self, which: impl Fn(&str, &str) -> bool) {
        for (_, _, child) in self.running.iter_mut().filter(|(node, part, _)| which(node, part)) {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.running.retain(|(node, part, _)| !which(node, part));
    }

    fn start_proxy(&mut self, node: &'static str, mode: &str) {
        let flags = [
            format!("--hostname-override={node}"),
            format!("--proxy-mode={mode}"),
            format!("--cluster-cidr={PODS}"),
            "--healthz-bind-address=127.0.0.1:0".to_owned(),
            "--metrics-bind-address=127.0.0.1:0".to_owned(),
        ];
        self.start(node, "kube-proxy", &flags.each_ref().map(String::as_str));
    }

    /// Polls until the output is as expected. Each attempt is a process, so nothing can be waited for.
    fn eventually(&self, what: &str, read: impl Fn() -> String, is_good: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let seen = read();
            if is_good(&seen) {
                return seen;
            }
            assert!(start.elapsed() < DEADLINE, "{what}: still\n{seen}\n{}", self.logs());
        }
    }

    fn logs(&self) -> String {
        let state = text(
            &self.command("n1").args(["kubectl", "get", "nodes,pods,services", "-A", "-o", "wide"]).output().unwrap(),
        );
        let files = std::fs::read_dir(self.dir.path()).unwrap().flatten().map(|file| file.path());
        let logs = files.filter(|path| path.extension().is_some_and(|it| it == "log")).map(|path| {
            let log = std::fs::read_to_string(&path).unwrap_or_default();
            let end: Vec<&str> = log.lines().rev().take(15).collect();
            format!("{}:\n{}\n", path.display(), end.into_iter().rev().collect::<Vec<_>>().join("\n"))
        });
        format!("{state}\n{}", logs.collect::<String>())
    }

    /// Starts the cluster: everything on the first node, and the node components on the others.
    fn up(&mut self) {
        let image = self.dir.path().join("image");
        std::fs::create_dir_all(image.join("bin")).unwrap();
        std::fs::copy("/bin/busybox", image.join("bin/busybox")).unwrap();
        self.up_first("192.0.2.1");
        for (node, [four, six, _]) in NODES.into_iter().zip(PLACES).skip(1) {
            let address = |text: &str| text.split('/').next().unwrap().to_owned();
            let data = self.data(node).display().to_string();
            let config = self.dir.path().join(format!("{node}.yaml"));
            let kind = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration";
            std::fs::write(&config, format!("{kind}\npodLogsDir: {data}/logs\n")).unwrap();
            let (certificate, key) = self.serving_certificate(node, &[address(four), address(six)]);
            let flags = [
                format!("--hostname-override={node}"),
                format!("--data-dir={data}"),
                format!("--root-dir={data}/kubelet"),
                format!("--cert-dir={data}/kubelet/pki"),
                format!("--node-ip={},{}", address(four), address(six)),
                format!("--cluster-cidr={PODS}"),
                format!("--cgroup-root=/{}-{node}", self.prefix),
                format!("--cgroup-parent=/{}-{node}", self.prefix),
                format!("--client-ca-file={}", self.data("n1").join("pki/ca.crt").display()),
                format!("--config={}", config.display()),
                format!("--tls-cert-file={certificate}"),
                format!("--tls-private-key-file={key}"),
                "--anonymous-auth=false".to_owned(),
                "--authorization-mode=AlwaysAllow".to_owned(),
                "--cluster-dns=10.96.0.10".to_owned(),
                "--cluster-domain=cluster.local".to_owned(),
                "--network=built-in".to_owned(),
                "--eviction-hard=nodefs.available<1Mi".to_owned(),
            ];
            let pool = format!("--load-balancer-pool={POOL}");
            self.start(node, "kubelet", &flags.each_ref().map(String::as_str));
            self.start(node, "network", &[&flags[0], &pool]);
        }
        for node in NODES {
            let build = format!(
                "{KNARR} image build {IMAGE} {} --env PATH=/bin --data-dir {}",
                image.display(),
                self.data(node).display()
            );
            self.eventually(
                "an image",
                || text(&self.command(node).args(build.split(' ')).output().unwrap()),
                |stdout| !stdout.contains("rror"),
            );
            self.start_proxy(node, "nftables");
        }
        self.apply(OBJECTS);
        let ready = || self.script("n1", "kubectl get daemonset web -o jsonpath={.status.numberReady}");
        self.eventually("pods on all nodes", ready, |ready| ready == "3");
    }

    /// Issues a serving certificate for the kubelet of a node, signed by the cluster's CA: the API server verifies it.
    fn serving_certificate(&self, node: &str, addresses: &[String; 2]) -> (String, String) {
        let file = |suffix: &str| self.dir.path().join(format!("{node}-serving.{suffix}")).display().to_string();
        let (certificate, key, request, extensions) = (file("crt"), file("key"), file("csr"), file("ext"));
        let names = format!("subjectAltName=DNS:{node},IP:{},IP:{}\n", addresses[0], addresses[1]);
        std::fs::write(&extensions, names).unwrap();
        let pki = self.data("n1").join("pki").display().to_string();
        let openssl = |line: String| run(Command::new("openssl").args(line.split(' ')));
        openssl(format!("req -newkey rsa:2048 -nodes -subj /CN=system:node:{node} -keyout {key} -out {request}"));
        openssl(format!(
            "x509 -req -in {request} -CA {pki}/ca.crt -CAkey {pki}/ca.key -set_serial 1 -days 1 -extfile {extensions} -out {certificate}"
        ));
        (certificate, key)
    }

    /// Starts the first node with all components of a cluster.
    fn up_first(&self, address: &str) {
        let line = format!(
            "{KNARR} up -d --node-name n1 --node-ip {address} --pod-cidr {PODS} --service-cidr {SERVICES} --load-balancer {POOL} \
             --disable proxy --kubelet-arg node-ip={address},2001:db8:1::1 --kubelet-arg eviction-hard=nodefs.available<1Mi \
             --kubelet-arg cgroup-root=/{0}-n1 --kubelet-arg cgroup-parent=/{0}-n1 --data-dir {1}",
            self.prefix,
            self.data("n1").display()
        );
        self.on("n1", &line);
        let admin = std::fs::read_to_string(self.data("n1").join("admin.kubeconfig")).unwrap();
        std::fs::write(self.dir.path().join("kubeconfig"), admin.replace("127.0.0.1", address)).unwrap();
    }

    /// Returns the address of the pod of a node.
    fn pod_on(&self, node: &str) -> String {
        let get = format!("kubectl get pods -l app=web --field-selector spec.nodeName={node} -o");
        format!("{}:8080", self.on("n1", &format!("{get} jsonpath={{.items[0].status.podIP}}")))
    }

    /// Returns all addresses that every host and pod must reach.
    fn targets(&self) -> Vec<String> {
        let get = |what: &str| self.on("n1", &format!("kubectl get {what}"));
        let pods = get("pods -l app=web -o jsonpath={.items[*].status.podIPs[*].ip}");
        let services = get("service web -o jsonpath={.spec.clusterIPs[*]}");
        let bracketed = |ip: &str| if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
        let mut targets: Vec<String> = pods.split_whitespace().map(|ip| format!("{}:8080", bracketed(ip))).collect();
        assert_eq!(targets.len(), 6, "two addresses a pod: {pods}");
        targets.extend(services.split_whitespace().map(|ip| format!("{}:80", bracketed(ip))));
        assert_eq!(targets.len(), 8, "two addresses of the service: {services}");
        for [four, six, _] in PLACES {
            targets.extend([four, six].map(|ip| format!("{}:30080", bracketed(ip.split('/').next().unwrap()))));
        }
        targets
    }

    /// Connects to all targets from all hosts and pods until every connection succeeds.
    fn everyone_reaches_everyone(&self, targets: &[String]) {
        let fetch_script = |targets: &[String]| {
            let each = "busybox timeout 3 busybox wget -q -O /dev/null http://$to/ || echo no way to $to";
            format!("for to in {}; do {each}; done", targets.join(" "))
        };
        let mut named = targets.to_vec();
        named.extend(["web:80", "web.default.svc.cluster.local:80"].map(str::to_owned));
        for node in NODES {
            self.eventually(&format!("from {node}"), || self.script(node, &fetch_script(targets)), str::is_empty);
            self.eventually(
                &format!("from the pod on {node}"),
                || self.pod_script(node, &fetch_script(&named)),
                str::is_empty,
            );
        }
        // Clients outside the cluster reach only node ports and load balancer addresses.
        let ports: Vec<String> = targets.iter().filter(|to| to.ends_with(":30080")).cloned().collect();
        self.eventually("from outside", || self.script("outside", &fetch_script(&ports)), str::is_empty);
    }

    fn clients_stick(&self) {
        let fetch_script = "for n in 1 2 3 4 5 6; do busybox timeout 3 busybox wget -q -O - http://sticky/; done";
        let output = self.pod_script("n2", fetch_script);
        let mut names: Vec<&str> = output.lines().collect();
        assert_eq!(names.len(), 6, "{output}");
        names.dedup();
        assert_eq!(names.len(), 1, "{output}");
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        self.kill(|_, _| true);
        for node in NODES {
            let data = self.data(node).display().to_string();
            if node != "n1" {
                // `knarr down` needs this file to accept the directory as a cluster's data directory.
                let _ = std::fs::write(self.data(node).join("knarr.lock"), "");
            }
            let _ = self.command(node).args([KNARR, "down", "--purge", "--data-dir", &data]).output();
        }
        for name in ["switch", "router", "outside", "n1", "n2", "n3"] {
            let _ = Command::new("ip").args(["netns", "delete", &self.space(name)]).output();
        }
        for node in NODES {
            let pattern = format!("*/{}-{node}*", self.prefix);
            let find = ["/sys/fs/cgroup", "-depth", "-type", "d", "-path", &pattern, "-exec", "rmdir", "{}", ";"];
            let _ = Command::new("find").args(find).output();
        }
    }
}

const OBJECTS: &str = r#"{"apiVersion": "v1", "kind": "List", "items": [
    {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "web"},
     "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "test.local/busybox:1",
            "imagePullPolicy": "Never", "command": ["/bin/busybox", "sh", "-c",
                "mkdir -p /www; busybox hostname > /www/index.html; exec busybox httpd -f -p [::]:8080 -h /www"],
            "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1}}]}}}},
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
     "spec": {"type": "NodePort", "ipFamilyPolicy": "RequireDualStack", "selector": {"app": "web"},
        "ports": [{"port": 80, "targetPort": 8080, "nodePort": 30080}]}},
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "sticky"},
     "spec": {"sessionAffinity": "ClientIP", "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}}]}"#;

const POLICY: &str = r#"{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "closed"},
    "spec": {"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "nobody"}}}]}]}}"#;

#[test]
fn three_nodes_reach_all_pods_nodes_and_services_in_each_proxy_mode() {
    let mut cluster = Topology::new();
    cluster.up();
    let targets = cluster.targets();
    for mode in ["nftables", "iptables", "userspace"] {
        if mode != "nftables" {
            cluster.kill(|_, part| part == "kube-proxy");
            for node in NODES {
                cluster.start_proxy(node, mode);
            }
        }
        println!("{mode}");
        cluster.everyone_reaches_everyone(&targets);
        cluster.clients_stick();
    }
    cluster.kill(|_, part| part == "kube-proxy");
    for node in NODES {
        cluster.on(node, &format!("{KNARR} kube-proxy --cleanup"));
        let left = cluster.script(node, "iptables-save; ip6tables-save; nft list tables; ip -o link");
        let left: Vec<&str> = left.lines().filter(|line| line.contains("KUBE-") || line.contains("kube-")).collect();
        assert!(left.is_empty(), "{node}: {left:?}");
    }
    for node in NODES {
        cluster.start_proxy(node, "nftables");
    }
    cluster.everyone_reaches_everyone(&targets);
    policy_is_enforced(&cluster);
    nodes_come_back(&cluster, &targets);
    proxy_starts_again_under_traffic(&mut cluster);
    load_balancer_moves_when_its_node_dies(&mut cluster);
    node_gets_another_address(&mut cluster);
    nothing_is_left(&mut cluster);
}

fn policy_is_enforced(cluster: &Topology) {
    let far = cluster.pod_on("n3");
    let fetch_script = format!("busybox timeout 2 busybox wget -q -O /dev/null http://{far}/ && echo through");
    cluster.apply(POLICY);
    cluster.eventually("a policy", || cluster.pod_script("n1", &fetch_script), |output| !output.contains("through"));
    cluster.on("n1", "kubectl delete networkpolicy closed");
    cluster.eventually("no policy", || cluster.pod_script("n1", &fetch_script), |output| output.contains("through"));
}

/// Disconnects and reconnects a node on the same segment and the one behind the router.
fn nodes_come_back(cluster: &Topology, targets: &[String]) {
    for (node, [_, six, way]) in NODES.into_iter().zip(PLACES).skip(1) {
        let fetch_script =
            format!("busybox timeout 1 busybox wget -q -O /dev/null http://{}/ && echo through", cluster.pod_on(node));
        cluster.on(node, "ip link set up0 down");
        cluster.eventually(
            "a disconnected node",
            || cluster.script("n1", &fetch_script),
            |output| !output.contains("through"),
        );
        cluster.on(node, "ip link set up0 up");
        // A link that was down has lost its IPv6 addresses and routes. The components restore theirs, and the test
        // restores the host's.
        cluster.on(node, &format!("ip address replace {six} dev up0 nodad"));
        cluster.on(node, &format!("ip route replace default {way}"));
        let network = six.split("::").next().unwrap();
        cluster.on(node, &format!("ip route replace default via {network}::fe"));
    }
    cluster.everyone_reaches_everyone(targets);
}

fn proxy_starts_again_under_traffic(cluster: &mut Topology) {
    let (stop, made) = (AtomicBool::new(false), AtomicUsize::new(0));
    let outside = cluster.path("outside");
    let lost = std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let call = || -> std::io::Result<()> {
                let address: SocketAddr = "192.0.2.1:30080".parse().unwrap();
                let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
                stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
                stream.read_to_end(&mut Vec::new()).map(drop)
            };
            let work = || {
                let mut lost = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    lost.extend(call().err());
                    made.fetch_add(1, Ordering::Relaxed);
                }
                lost
            };
            netlink::namespace::within(&outside, work).unwrap()
        });
        for _ in 0..3 {
            cluster.kill(|node, part| node == "n1" && part == "kube-proxy");
            cluster.start_proxy("n1", "nftables");
            let so_far = made.load(Ordering::Relaxed);
            let start = Instant::now();
            while made.load(Ordering::Relaxed) < so_far + 100 && start.elapsed() < DEADLINE {
                std::thread::yield_now();
            }
        }
        stop.store(true, Ordering::Relaxed);
        traffic.join().unwrap()
    });
    println!("{} connections while the proxy started three times, {} lost", made.load(Ordering::Relaxed), lost.len());
    assert!(lost.is_empty(), "{lost:?}");
}

fn load_balancer_moves_when_its_node_dies(cluster: &mut Topology) {
    let service = |number: usize| {
        format!(
            r#"{{"apiVersion": "v1", "kind": "Service", "metadata": {{"name": "lb-{number}"}}, "spec": {{"type": "LoadBalancer",
                "ipFamilyPolicy": "RequireDualStack", "selector": {{"app": "web"}}, "ports": [{{"port": 80, "targetPort": 8080}}]}}}}"#
        )
    };
    let items: Vec<String> = (0..6).map(service).collect();
    cluster.apply(&format!(r#"{{"apiVersion": "v1", "kind": "List", "items": [{}]}}"#, items.join(",")));
    let assigned = |node: &str| {
        let addresses = cluster.on(node, "ip -4 -o address show dev up0");
        let own = addresses.split_whitespace().filter_map(|word| word.strip_suffix("/32"));
        own.map(str::to_owned).collect::<Vec<_>>()
    };
    cluster.eventually(
        "six addresses",
        || format!("{} {}", assigned("n1").len(), assigned("n2").len()),
        |counts| counts.split(' ').map(|count| count.parse::<usize>().unwrap()).sum::<usize>() == 6,
    );
    assert!(assigned("n3").is_empty(), "it is on another network");
    let moving = assigned("n2").first().cloned().expect("six addresses are shared by two nodes");
    let six = format!("[2001:db8:1::{:x}]", moving.rsplit('.').next().unwrap().parse::<u8>().unwrap());
    let fetch_script = format!(
        "for to in {moving} {six}; do busybox timeout 2 busybox wget -q -O /dev/null http://$to/ && echo through; done"
    );
    let through = |output: &str| output.matches("through").count() == 2;
    cluster.eventually("a load balancer", || cluster.script("outside", &fetch_script), through);
    cluster.on("n2", "ip link set up0 down");
    cluster.kill(|node, part| node == "n2" && part != "kubelet");
    let assigned = || cluster.on("n1", "ip -4 -o address show dev up0");
    cluster.eventually("another node", assigned, |addresses| addresses.contains(&format!("{moving}/32")));
    // The pod of the dead node stays an endpoint until the node becomes NotReady.
    cluster.eventually("the load balancer", || cluster.script("outside", &fetch_script), through);
}

/// Restarts the control plane host with another address.
fn node_gets_another_address(cluster: &mut Topology) {
    cluster.kill(|_, _| true);
    cluster.on("n1", &format!("{KNARR} down --now --data-dir {}", cluster.data("n1").display()));
    cluster.on("n1", "ip address del 192.0.2.1/24 dev up0");
    cluster.on("n1", "ip address add 192.0.2.11/24 dev up0");
    cluster.on("n1", "ip route replace default via 192.0.2.254");
    cluster.up_first("192.0.2.11");
    cluster.start_proxy("n1", "nftables");
    let address = r#"kubectl get node n1 -o jsonpath={.status.addresses[?(@.type=="InternalIP")].address}"#;
    let read_address = || text(&cluster.command("n1").args(address.split(' ')).output().unwrap());
    cluster.eventually("the new address", read_address, |stdout| stdout.contains("192.0.2.11"));
    let fetch_script = "busybox timeout 3 busybox wget -q -O /dev/null http://192.0.2.11:30080/ && echo through";
    cluster.eventually(
        "a port of the new address",
        || cluster.script("outside", fetch_script),
        |stdout| stdout.contains("through"),
    );
    let name = "busybox nslookup web.default.svc.cluster.local";
    cluster.eventually("names", || cluster.pod_script("n1", name), |stdout| stdout.contains("10.96."));
}

/// Checks that `down --purge` removes all network resources of a node.
fn nothing_is_left(cluster: &mut Topology) {
    cluster.kill(|_, _| true);
    cluster.on("n1", &format!("{KNARR} down --purge --data-dir {}", cluster.data("n1").display()));
    let links = cluster.on("n1", "ip -o link");
    assert_eq!(links.lines().count(), 2, "the loopback interface and the cable: {links}");
    let tables = cluster.on("n1", "nft list tables");
    // Tables of iptables-nft may stay.
    assert!(!tables.contains("kube") && !tables.contains("knarr"), "{tables}");
    assert_eq!(cluster.on("n1", "ip route").lines().count(), 2);
    // Leased addresses expire automatically.
    let lent = || cluster.on("n1", "ip -4 -o address show dev up0");
    cluster.eventually("lent addresses", lent, |addresses| !addresses.contains("/32"));
    let pods: netlink::Cidr = "10.244.0.0/16".parse().unwrap();
    let left = std::sync::Mutex::new(Vec::new());
    let collect_flow = |flow: &netlink::conntrack::Flow| {
        if pods.contains(flow.from.0) || pods.contains(flow.reply_source.0) {
            left.lock().unwrap().push(flow.clone());
        }
        // The flow is inspected, not deleted.
        false
    };
    let looked = netlink::namespace::within(&cluster.path("n1"), || {
        [netlink::Protocol::Tcp, netlink::Protocol::Udp]
            .map(|protocol| netlink::conntrack::delete_flows(protocol, collect_flow).unwrap())
    });
    looked.unwrap();
    assert!(left.into_inner().unwrap().is_empty(), "connections of pods are tracked");
}
