//! Pod network of three nodes, two on one segment and one behind a router.
//!
//! Every pod reaches every pod, node and Service, in each proxy mode.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::{DEADLINE, IMAGE, KNARR, is_root, run, text};

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
struct World {
    prefix: String,
    folder: tempfile::TempDir,
    /// Processes by node and component.
    running: Vec<(&'static str, &'static str, Child)>,
}

impl World {
    fn new() -> Self {
        let world = Self {
            prefix: format!("knarr-net-{}", std::process::id()),
            folder: tempfile::tempdir().unwrap(),
            running: Vec::new(),
        };
        for name in ["switch", "router", "outside", "n1", "n2", "n3"] {
            run(Command::new("ip").args(["netns", "add", &world.space(name)]));
            world.on(name, "ip link set lo up");
        }
        world.on("switch", "ip link add br0 type bridge");
        world.on("switch", "ip link set br0 up");
        for name in ["n1", "n2", "router", "outside"] {
            world.join("switch", name, name, "up0");
            world.on("switch", &format!("ip link set {name} master br0"));
        }
        world.join("router", "far", "n3", "up0");
        for address in ["192.0.2.254/24 dev up0", "198.51.100.254/24 dev far"] {
            world.on("router", &format!("ip address add {address}"));
        }
        for address in ["2001:db8:1::fe/64 dev up0", "2001:db8:3::fe/64 dev far"] {
            world.on("router", &format!("ip address add {address} nodad"));
        }
        world.on("router", "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
        world.on("outside", "ip address add 192.0.2.100/24 dev up0");
        world.on("outside", "ip address add 2001:db8:1::64/64 dev up0 nodad");
        for (name, [four, six, way]) in NODES.iter().zip(PLACES) {
            world.on(name, &format!("ip address add {four} dev up0"));
            world.on(name, &format!("ip address add {six} dev up0 nodad"));
            world.on(name, &format!("ip route add default {way}"));
            let six = six.split("::").next().unwrap();
            world.on(name, &format!("ip route add default via {six}::fe"));
        }
        world.on("outside", "ip route add default via 192.0.2.254");
        world.on("outside", "ip route add default via 2001:db8:1::fe");
        world
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
        self.folder.path().join(node)
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
        let log = std::fs::File::create(self.folder.path().join(format!("{node}-{part}.log"))).unwrap();
        let mut command = self.command(node);
        command.arg(KNARR).arg(part).args(flags).arg("--kubeconfig").arg(self.folder.path().join("kubeconfig"));
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
    fn eventually(&self, what: &str, look: impl Fn() -> String, is_good: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let seen = look();
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
        let files = std::fs::read_dir(self.folder.path()).unwrap().flatten().map(|file| file.path());
        let logs = files.filter(|path| path.extension().is_some_and(|it| it == "log")).map(|path| {
            let log = std::fs::read_to_string(&path).unwrap_or_default();
            let end: Vec<&str> = log.lines().rev().take(15).collect();
            format!("{}:\n{}\n", path.display(), end.into_iter().rev().collect::<Vec<_>>().join("\n"))
        });
        format!("{state}\n{}", logs.collect::<String>())
    }

    /// Starts the cluster: everything on the first node, and the node components on the others.
    fn up(&mut self) {
        let image = self.folder.path().join("image");
        std::fs::create_dir_all(image.join("bin")).unwrap();
        std::fs::copy("/bin/busybox", image.join("bin/busybox")).unwrap();
        self.up_first("192.0.2.1");
        for (node, [four, six, _]) in NODES.into_iter().zip(PLACES).skip(1) {
            let address = |text: &str| text.split('/').next().unwrap().to_owned();
            let data = self.data(node).display().to_string();
            let config = self.folder.path().join(format!("{node}.yaml"));
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
                |said| !said.contains("rror"),
            );
            self.start_proxy(node, "nftables");
        }
        self.apply(OBJECTS);
        let ready = || self.script("n1", "kubectl get daemonset web -o jsonpath={.status.numberReady}");
        self.eventually("pods on all nodes", ready, |ready| ready == "3");
    }

    /// Issues a serving certificate for the kubelet of a node, signed by the cluster's CA: the API server verifies it.
    fn serving_certificate(&self, node: &str, addresses: &[String; 2]) -> (String, String) {
        let file = |suffix: &str| self.folder.path().join(format!("{node}-serving.{suffix}")).display().to_string();
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
        std::fs::write(self.folder.path().join("kubeconfig"), admin.replace("127.0.0.1", address)).unwrap();
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
        let ask = |targets: &[String]| {
            let each = "busybox timeout 3 busybox wget -q -O /dev/null http://$to/ || echo no way to $to";
            format!("for to in {}; do {each}; done", targets.join(" "))
        };
        let mut named = targets.to_vec();
        named.extend(["web:80", "web.default.svc.cluster.local:80"].map(str::to_owned));
        for node in NODES {
            self.eventually(&format!("from {node}"), || self.script(node, &ask(targets)), str::is_empty);
            self.eventually(&format!("from the pod on {node}"), || self.pod_script(node, &ask(&named)), str::is_empty);
        }
        // Clients outside the cluster reach only node ports and load balancer addresses.
        let ports: Vec<String> = targets.iter().filter(|to| to.ends_with(":30080")).cloned().collect();
        self.eventually("from outside", || self.script("outside", &ask(&ports)), str::is_empty);
    }

    fn clients_stick(&self) {
        let ask = "for n in 1 2 3 4 5 6; do busybox timeout 3 busybox wget -q -O - http://sticky/; done";
        let said = self.pod_script("n2", ask);
        let mut names: Vec<&str> = said.lines().collect();
        assert_eq!(names.len(), 6, "{said}");
        names.dedup();
        assert_eq!(names.len(), 1, "{said}");
    }
}

impl Drop for World {
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
    if !is_root() {
        println!("skipped: network namespaces need root");
        return;
    }
    let mut world = World::new();
    world.up();
    let targets = world.targets();
    for mode in ["nftables", "iptables", "userspace"] {
        if mode != "nftables" {
            world.kill(|_, part| part == "kube-proxy");
            for node in NODES {
                world.start_proxy(node, mode);
            }
        }
        println!("{mode}");
        world.everyone_reaches_everyone(&targets);
        world.clients_stick();
    }
    world.kill(|_, part| part == "kube-proxy");
    for node in NODES {
        world.on(node, &format!("{KNARR} kube-proxy --cleanup"));
        let left = world.script(node, "iptables-save; ip6tables-save; nft list tables; ip -o link");
        let left: Vec<&str> = left.lines().filter(|line| line.contains("KUBE-") || line.contains("kube-")).collect();
        assert!(left.is_empty(), "{node}: {left:?}");
    }
    for node in NODES {
        world.start_proxy(node, "nftables");
    }
    world.everyone_reaches_everyone(&targets);
    a_policy_is_enforced(&world);
    nodes_come_back(&world, &targets);
    a_proxy_starts_again_under_traffic(&mut world);
    a_load_balancer_moves_when_its_node_dies(&mut world);
    a_node_gets_another_address(&mut world);
    nothing_is_left(&mut world);
}

fn a_policy_is_enforced(world: &World) {
    let far = world.pod_on("n3");
    let ask = format!("busybox timeout 2 busybox wget -q -O /dev/null http://{far}/ && echo through");
    world.apply(POLICY);
    world.eventually("a policy", || world.pod_script("n1", &ask), |said| !said.contains("through"));
    world.on("n1", "kubectl delete networkpolicy closed");
    world.eventually("no policy", || world.pod_script("n1", &ask), |said| said.contains("through"));
}

/// Disconnects and reconnects a node on the same segment and the one behind the router.
fn nodes_come_back(world: &World, targets: &[String]) {
    for (node, [_, six, way]) in NODES.into_iter().zip(PLACES).skip(1) {
        let ask =
            format!("busybox timeout 1 busybox wget -q -O /dev/null http://{}/ && echo through", world.pod_on(node));
        world.on(node, "ip link set up0 down");
        world.eventually("a node that is cut off", || world.script("n1", &ask), |said| !said.contains("through"));
        world.on(node, "ip link set up0 up");
        // A link that was down has lost its IPv6 addresses and routes. The components restore theirs, and the test
        // restores the host's.
        world.on(node, &format!("ip address replace {six} dev up0 nodad"));
        world.on(node, &format!("ip route replace default {way}"));
        let network = six.split("::").next().unwrap();
        world.on(node, &format!("ip route replace default via {network}::fe"));
    }
    world.everyone_reaches_everyone(targets);
}

fn a_proxy_starts_again_under_traffic(world: &mut World) {
    let (stop, made) = (AtomicBool::new(false), AtomicUsize::new(0));
    let outside = world.path("outside");
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
            world.kill(|node, part| node == "n1" && part == "kube-proxy");
            world.start_proxy("n1", "nftables");
            let so_far = made.load(Ordering::Relaxed);
            let begun = Instant::now();
            while made.load(Ordering::Relaxed) < so_far + 100 && begun.elapsed() < DEADLINE {
                std::thread::yield_now();
            }
        }
        stop.store(true, Ordering::Relaxed);
        traffic.join().unwrap()
    });
    println!("{} connections while the proxy started three times, {} lost", made.load(Ordering::Relaxed), lost.len());
    assert!(lost.is_empty(), "{lost:?}");
}

fn a_load_balancer_moves_when_its_node_dies(world: &mut World) {
    let service = |number: usize| {
        format!(
            r#"{{"apiVersion": "v1", "kind": "Service", "metadata": {{"name": "lb-{number}"}}, "spec": {{"type": "LoadBalancer",
                "ipFamilyPolicy": "RequireDualStack", "selector": {{"app": "web"}}, "ports": [{{"port": 80, "targetPort": 8080}}]}}}}"#
        )
    };
    let items: Vec<String> = (0..6).map(service).collect();
    world.apply(&format!(r#"{{"apiVersion": "v1", "kind": "List", "items": [{}]}}"#, items.join(",")));
    let held = |node: &str| {
        let addresses = world.on(node, "ip -4 -o address show dev up0");
        let own = addresses.split_whitespace().filter_map(|word| word.strip_suffix("/32"));
        own.map(str::to_owned).collect::<Vec<_>>()
    };
    world.eventually(
        "six addresses",
        || format!("{} {}", held("n1").len(), held("n2").len()),
        |counts| counts.split(' ').map(|count| count.parse::<usize>().unwrap()).sum::<usize>() == 6,
    );
    assert!(held("n3").is_empty(), "it is on another network");
    let moving = held("n2").first().cloned().expect("six addresses are shared by two nodes");
    let six = format!("[2001:db8:1::{:x}]", moving.rsplit('.').next().unwrap().parse::<u8>().unwrap());
    let ask = format!(
        "for to in {moving} {six}; do busybox timeout 2 busybox wget -q -O /dev/null http://$to/ && echo through; done"
    );
    let through = |said: &str| said.matches("through").count() == 2;
    world.eventually("a load balancer", || world.script("outside", &ask), through);
    world.on("n2", "ip link set up0 down");
    world.kill(|node, part| node == "n2" && part != "kubelet");
    let held = || world.on("n1", "ip -4 -o address show dev up0");
    world.eventually("another node", held, |addresses| addresses.contains(&format!("{moving}/32")));
    // The pod of the dead node stays an endpoint until the cluster notices.
    world.eventually("the load balancer", || world.script("outside", &ask), through);
}

/// Restarts the control plane host with another address.
fn a_node_gets_another_address(world: &mut World) {
    world.kill(|_, _| true);
    world.on("n1", &format!("{KNARR} down --now --data-dir {}", world.data("n1").display()));
    world.on("n1", "ip address del 192.0.2.1/24 dev up0");
    world.on("n1", "ip address add 192.0.2.11/24 dev up0");
    world.on("n1", "ip route replace default via 192.0.2.254");
    world.up_first("192.0.2.11");
    world.start_proxy("n1", "nftables");
    let address = r#"kubectl get node n1 -o jsonpath={.status.addresses[?(@.type=="InternalIP")].address}"#;
    let look = || text(&world.command("n1").args(address.split(' ')).output().unwrap());
    world.eventually("the new address", look, |said| said.contains("192.0.2.11"));
    let ask = "busybox timeout 3 busybox wget -q -O /dev/null http://192.0.2.11:30080/ && echo through";
    world.eventually("a port of the new address", || world.script("outside", ask), |said| said.contains("through"));
    let name = "busybox nslookup web.default.svc.cluster.local";
    world.eventually("names", || world.pod_script("n1", name), |said| said.contains("10.96."));
}

/// Checks that `down --purge` removes all network resources of a node.
fn nothing_is_left(world: &mut World) {
    world.kill(|_, _| true);
    world.on("n1", &format!("{KNARR} down --purge --data-dir {}", world.data("n1").display()));
    let links = world.on("n1", "ip -o link");
    assert_eq!(links.lines().count(), 2, "the loopback interface and the cable: {links}");
    let tables = world.on("n1", "nft list tables");
    // Tables of iptables-nft may stay.
    assert!(!tables.contains("kube") && !tables.contains("knarr"), "{tables}");
    assert_eq!(world.on("n1", "ip route").lines().count(), 2);
    // Leased addresses expire automatically.
    let lent = || world.on("n1", "ip -4 -o address show dev up0");
    world.eventually("lent addresses", lent, |addresses| !addresses.contains("/32"));
    let pods: netlink::Cidr = "10.244.0.0/16".parse().unwrap();
    let left = std::sync::Mutex::new(Vec::new());
    let look = |flow: &netlink::conntrack::Flow| {
        if pods.contains(flow.from.0) || pods.contains(flow.answered_by.0) {
            left.lock().unwrap().push(flow.clone());
        }
        // The flow is inspected, not deleted.
        false
    };
    let looked = netlink::namespace::within(&world.path("n1"), || {
        [netlink::Protocol::Tcp, netlink::Protocol::Udp]
            .map(|protocol| netlink::conntrack::forget(protocol, look).unwrap())
    });
    looked.unwrap();
    assert!(left.into_inner().unwrap().is_empty(), "connections of pods are remembered");
}
