//! Time to write the rules of many Services, and of one more.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use anyhow::Result;
use apimachinery::{Key, Value, value};
use kube_proxy::config::Mode;
use kube_proxy::dataplane::Engine;
use kube_proxy::settings::Settings;
use kube_proxy::{Node, Rules};

use crate::percentile;
use crate::spaces::Space;

const SERVICES: u32 = 5_000;
const ENDPOINTS: u32 = 4;
const ROUNDS: usize = 3;
const CHANGES: u32 = 20;

pub(crate) fn measure() -> Result<()> {
    println!(
        "| {SERVICES} services with {ENDPOINTS} endpoints each | decide | all rules, best and worst of {ROUNDS} | again over them | one endpoint less, p50 and worst of {CHANGES} |"
    );
    println!("|---|---|---|---|---|");
    for (mode, name) in [(Mode::Nftables, "nftables"), (Mode::Iptables, "iptables")] {
        let mut whole = Vec::new();
        let mut again = Duration::ZERO;
        let mut decided = Duration::ZERO;
        let mut changes = Vec::new();
        for _ in 0..ROUNDS {
            let space = Space::new("rules")?;
            let mut cluster = Topology::new();
            let start = Instant::now();
            cluster.rules.changes();
            decided = start.elapsed();
            let ran = space.enter(|| run(mode, &mut cluster))?;
            let (first, second, single) = ran?;
            whole.push(first);
            again = second;
            changes = single;
        }
        whole.sort();
        changes.sort();
        println!(
            "| {name} | {} | {}, {} | {} | {}, {} |",
            ms(decided),
            ms(whole[0]),
            ms(whole[ROUNDS - 1]),
            ms(again),
            ms(percentile(&changes, 50)),
            ms(percentile(&changes, 100)),
        );
    }
    Ok(())
}

type Ran = (Duration, Duration, Vec<Duration>);

fn run(mode: Mode, cluster: &mut Topology) -> Result<Ran> {
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    executor.block_on(async {
        let settings = Settings { pods: vec!["10.244.0.0/16".parse()?], mark: 0x4000, ..Settings::default() };
        let mut engine = Engine::new(mode);
        let start = Instant::now();
        engine.everything(settings.clone(), cluster.rules.everything()).await?;
        let first = start.elapsed();
        // A restarted proxy finds its rules in the kernel.
        let mut engine = Engine::new(mode);
        let start = Instant::now();
        engine.everything(settings, cluster.rules.everything()).await?;
        let second = start.elapsed();
        let mut single = Vec::new();
        for number in 0..CHANGES {
            cluster.slice(number * 7 + 1, ENDPOINTS - 1);
            let start = Instant::now();
            let changes = cluster.rules.changes();
            engine.change(changes).await?;
            single.push(start.elapsed());
        }
        Ok((first, second, single))
    })
}

struct Topology {
    rules: Rules,
}

impl Topology {
    fn new() -> Self {
        let mut cluster = Self { rules: Rules::new(Node { name: "a".into(), zone: String::new() }, false) };
        for number in 1..=SERVICES {
            let address = Ipv4Addr::from(0x0a60_0000 + number);
            let service = value!({"spec": {"clusterIP": (address.to_string()), "ports": [{"name": "p", "port": 80}]}});
            cluster.rules.set_service(&key(number), Some(&service));
            cluster.slice(number, ENDPOINTS);
        }
        cluster
    }

    fn slice(&mut self, number: u32, endpoints: u32) {
        let one = |at| {
            let ip = IpAddr::from(Ipv4Addr::from(0x0af4_0000 + number * ENDPOINTS + at));
            value!({"addresses": [(ip.to_string())], "nodeName": "b"})
        };
        let list: Vec<Value> = (0..endpoints).map(one).collect();
        let name = key(number).name;
        let slice = value!({"metadata": {"namespace": "x", "labels": {"kubernetes.io/service-name": (name.as_str())}},
            "endpoints": list, "ports": [{"name": "p", "port": 8080}]});
        self.rules.set_slice(&key(number), Some(&slice));
    }
}

fn key(number: u32) -> Key {
    Key::new("x", format!("s{number}").as_str())
}

pub(crate) fn ms(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}
