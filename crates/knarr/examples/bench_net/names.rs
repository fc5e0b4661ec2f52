//! DNS throughput and latency.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use apimachinery::{Key, value};
use dns::Zone;
use dns::clients::Clients;
use dns::forward::Forwarder;
use dns::serve::{Knowledge, Listeners};

use crate::percentile;

const SERVICES: u32 = 5_000;
const SPAN: Duration = Duration::from_secs(3);
const CLIENTS: &[u32] = &[1, 4, 16, 64];

pub(crate) fn measure() -> Result<()> {
    let executor = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let server = executor.block_on(async {
        let listeners = Listeners::bind(&["127.0.0.1:0".parse()?]).await?;
        let address = listeners.addresses()?[0];
        tokio::spawn(listeners.serve(Arc::new(Knowledge::new(zone()?, Forwarder::new(Vec::new()), Clients::all()))));
        anyhow::Ok(address)
    })?;
    println!("\n| names of {SERVICES} services over UDP, concurrent queries | responses/s | p50 | p99 |");
    println!("|---|---|---|---|");
    for at_once in CLIENTS {
        let mut times = send_queries(server, *at_once)?;
        times.sort();
        let micros = |percent| percentile(&times, percent).as_secs_f64() * 1e6;
        let rate = times.len() as f64 / SPAN.as_secs_f64();
        println!("| {at_once} | {rate:.0} | {:.0} µs | {:.0} µs |", micros(50), micros(99));
    }
    Ok(())
}

fn zone() -> Result<Zone> {
    let mut zone = Zone::of("cluster.local").context("it is a name")?;
    zone.complete = true;
    zone.set_namespace("default", true);
    for number in 0..SERVICES {
        let ip = std::net::Ipv4Addr::from(0x0a60_0000 + number);
        let service = value!({"spec": {"clusterIP": (ip.to_string()), "ports": [{"name": "http", "port": 80}]}});
        zone.set_service(&Key::new("default", format!("s{number}").as_str()), Some(&service));
    }
    Ok(zone)
}

/// Sends queries with `at_once` of them in flight, identified by their IDs. Returns the latency of each.
fn send_queries(server: SocketAddr, at_once: u32) -> Result<Vec<Duration>> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    let start = Instant::now();
    let mut sent = vec![start; usize::from(u16::MAX) + 1];
    let mut times = Vec::new();
    let mut next = 0_u16;
    let mut send = |sent: &mut Vec<Instant>| {
        sent[usize::from(next)] = Instant::now();
        let done = socket.send(&question(next, u32::from(next) * 7919 % SERVICES));
        next = next.wrapping_add(1);
        done
    };
    for _ in 0..at_once {
        send(&mut sent)?;
    }
    let mut buffer = [0; 1500];
    while start.elapsed() < SPAN {
        let length = socket.recv(&mut buffer)?;
        // The response has no error and one address.
        ensure!(length > 12 && buffer[3] & 0xf == 0 && buffer[7] == 1, "a query was not answered");
        let number = u16::from_be_bytes([buffer[0], buffer[1]]);
        times.push(sent[usize::from(number)].elapsed());
        send(&mut sent)?;
    }
    Ok(times)
}

fn question(number: u16, service: u32) -> Vec<u8> {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.extend_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in [format!("s{service}").as_str(), "default", "svc", "cluster", "local"] {
        bytes.push(label.len() as u8);
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.extend_from_slice(&[0, 0, 1, 0, 1]);
    bytes
}
