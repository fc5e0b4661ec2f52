//! Latency from the creation of a Service to the first connection through it, in a real cluster.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use apimachinery::value;
use client::config::Kubeconfig;
use client::{Client, Settings, Target, WriteOptions};
use controller::kinds;

use crate::percentile;
use crate::rules::ms;
use crate::spaces::Space;

const NODE: &str = "198.51.100.2";
const ROUNDS: u32 = 100;
const TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of one connection attempt. A connection on the same host is much faster.
const TRY: Duration = Duration::from_millis(2);

pub(crate) fn measure() -> Result<()> {
    let space = Space::new("cluster")?;
    for line in [
        "ip link add uplink type veth peer name wire",
        "ip link set wire up",
        "ip address add 198.51.100.2/24 dev uplink",
        "ip link set uplink up",
        "ip route add default via 198.51.100.1",
    ] {
        space.run(line)?;
    }
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data");
    let this = std::env::current_exe()?;
    let program = this.ancestors().nth(2).context("this executable is not in a target directory")?.join("knarr");
    let command = |verb: &str| {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", space.path().display())).arg(&program).args(verb.split(' '));
        command.arg("--data-dir").arg(&data).output()
    };
    let up = command("up -d --node-name bench --disable kubelet --kube-proxy-arg nodeport-addresses=198.51.100.0/24")?;
    ensure!(up.status.success(), "knarr up: {}", String::from_utf8_lossy(&up.stderr));
    let times = space.enter(|| rounds(data.join("admin.kubeconfig")));
    let down = command("down --purge")?;
    let mut times = times??;
    ensure!(down.status.success(), "knarr down: {}", String::from_utf8_lossy(&down.stderr));
    times.sort();
    println!(
        "\n| from the answer to the slice's creation to the first connection through the ClusterIP | |\n|---|---|"
    );
    for percent in [50, 90, 99, 100] {
        println!("| p{percent} of {ROUNDS} | {} |", ms(percentile(&times, percent)));
    }
    Ok(())
}

fn rounds(kubeconfig: PathBuf) -> Result<Vec<Duration>> {
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = TcpListener::bind((NODE, 8080))?;
    std::thread::spawn(move || listener.incoming().for_each(drop));
    executor.block_on(async {
        let config = Kubeconfig::load(&[kubeconfig])?.config(None)?;
        let client = Client::connect(&config, Settings::default())?;
        let mut times = Vec::new();
        for number in 0..ROUNDS {
            times.push(round(&client, number).await?);
        }
        Ok(times)
    })
}

async fn round(client: &Client, number: u32) -> Result<Duration> {
    let name = format!("first-{number}");
    let service = value!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": (name.as_str()), "namespace": "default"},
        "spec": {"ports": [{"name": "p", "port": 80, "targetPort": 8080}]}});
    let service =
        client.create(&Target::within(&kinds::SERVICES, "default"), &service, &WriteOptions::default()).await?;
    let ip = service.str_at(&["spec", "clusterIP"]).context("a service has an address")?;
    let to = SocketAddr::new(ip.parse()?, 80);
    let slice = value!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": (name.as_str()), "namespace": "default",
            "labels": {"kubernetes.io/service-name": (name.as_str())}},
        "endpoints": [{"addresses": [NODE], "conditions": {"ready": true}}],
        "ports": [{"name": "p", "port": 8080, "protocol": "TCP"}]});
    let target = Target::within(&kinds::ENDPOINT_SLICES, "default");
    client.create(&target, &slice, &WriteOptions::default()).await?;
    let start = Instant::now();
    // Without rules the packets leave the host and are never answered.
    while TcpStream::connect_timeout(&to, TRY).is_err() {
        ensure!(start.elapsed() < TIMEOUT, "the Service does not respond");
    }
    Ok(start.elapsed())
}
