//! DNS metrics, with CoreDNS' names.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::Instrument;

use crate::message::Transport;

/// Query types by number and name; all others are `other`.
const TYPES: [(u16, &str); 9] =
    [(1, "A"), (28, "AAAA"), (33, "SRV"), (12, "PTR"), (5, "CNAME"), (2, "NS"), (6, "SOA"), (16, "TXT"), (255, "ANY")];
/// Names of response codes, indexed by number.
const CODES: [&str; 6] = ["NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED"];
/// Number of histogram buckets: from 250 microseconds, doubling.
const BOUNDS: usize = 16;
const FIRST_MICROS: u64 = 250;
/// Timeout of a metrics request.
const TIMEOUT: Duration = Duration::from_secs(5);
const REQUEST_BYTES_MAX: usize = 8 << 10;
const CONNECTIONS_MAX: usize = 16;

/// Counters of queries and answers.
#[derive(Debug, Default)]
pub struct Metrics {
    requests: [[AtomicU64; TYPES.len() + 1]; 2],
    responses: [AtomicU64; CODES.len() + 1],
    durations: [AtomicU64; BOUNDS + 1],
    sum_micros: AtomicU64,
    cache_hits: AtomicU64,
    cache_misses: AtomicU64,
    dropped: AtomicU64,
}

impl Metrics {
    /// Counts an answered query.
    pub fn count_response(&self, request: &[u8], reply: &[u8], transport: Transport, took: Duration) {
        let kind = question_type(request).and_then(|kind| TYPES.iter().position(|(number, _)| *number == kind));
        let over = usize::from(transport == Transport::Tcp);
        count(&self.requests[over][kind.unwrap_or(TYPES.len())]);
        let code = reply.get(3).map_or(CODES.len(), |flags| usize::from(flags & 0xf).min(CODES.len()));
        count(&self.responses[code]);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let at = (0..BOUNDS).find(|at| micros <= FIRST_MICROS << at).unwrap_or(BOUNDS);
        count(&self.durations[at]);
        self.sum_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Counts a cache hit.
    pub fn known(&self) {
        count(&self.cache_hits);
    }

    /// Counts a cache miss.
    pub fn count_cache_miss(&self) {
        count(&self.cache_misses);
    }

    /// Counts an ignored packet: its client is outside the cluster or exceeds its rate limit.
    pub fn count_dropped(&self) {
        count(&self.dropped);
    }

    /// Formats all metrics in the Prometheus text format.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let name = "coredns_dns_requests_total";
        head(&mut out, name, "Counter of DNS requests made per protocol and type.", "counter");
        for (over, row) in ["udp", "tcp"].iter().zip(&self.requests) {
            let kinds = TYPES.iter().map(|(_, kind)| *kind).chain(["other"]);
            for (kind, value) in kinds.zip(row).filter(|(_, value)| value.load(Ordering::Relaxed) > 0) {
                let value = value.load(Ordering::Relaxed);
                let _ = writeln!(out, "{name}{{proto=\"{over}\",type=\"{kind}\"}} {value}");
            }
        }
        let name = "coredns_dns_responses_total";
        head(&mut out, name, "Counter of response status codes.", "counter");
        let codes = CODES.iter().copied().chain(["other"]);
        for (code, value) in codes.zip(&self.responses).filter(|(_, value)| value.load(Ordering::Relaxed) > 0) {
            let _ = writeln!(out, "{name}{{rcode=\"{code}\"}} {}", value.load(Ordering::Relaxed));
        }
        self.print_durations(&mut out);
        for (name, help, value) in [
            ("coredns_cache_hits_total", "The count of cache hits.", &self.cache_hits),
            ("coredns_cache_misses_total", "The count of cache misses.", &self.cache_misses),
            ("coredns_acl_dropped_requests_total", "Counter of DNS requests being dropped.", &self.dropped),
        ] {
            head(&mut out, name, help, "counter");
            let _ = writeln!(out, "{name} {}", value.load(Ordering::Relaxed));
        }
        out
    }

    fn print_durations(&self, out: &mut String) {
        let name = "coredns_dns_request_duration_seconds";
        head(out, name, "Histogram of the time (in seconds) each request took.", "histogram");
        let mut total = 0;
        for (at, value) in self.durations.iter().enumerate() {
            total += value.load(Ordering::Relaxed);
            let bound = match at {
                BOUNDS => "+Inf".to_owned(),
                at => ((FIRST_MICROS << at) as f64 / 1e6).to_string(),
            };
            let _ = writeln!(out, "{name}_bucket{{le=\"{bound}\"}} {total}");
        }
        let _ = writeln!(out, "{name}_sum {}", self.sum_micros.load(Ordering::Relaxed) as f64 / 1e6);
        let _ = writeln!(out, "{name}_count {total}");
    }
}

/// Serves the metrics for as long as the future is polled.
pub async fn serve(listener: TcpListener, text: impl Fn() -> String + Send + Sync + 'static) {
    let text = Arc::new(text);
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Ok(permit) = Arc::clone(&places).acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let text = Arc::clone(&text);
        let task = async move {
            // The client may disconnect early; there is nothing left to do.
            let _ = timeout(TIMEOUT, serve_text(stream, &*text)).await;
            drop(permit);
        };
        tokio::spawn(task.in_current_span());
    }
}

async fn serve_text(mut stream: TcpStream, text: impl Fn() -> String) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < REQUEST_BYTES_MAX {
        let length = stream.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        request.extend_from_slice(&buffer[..length]);
    }
    let (status, body) = match request.starts_with(b"GET /metrics") {
        true => ("200 OK", text()),
        false => ("404 Not Found", "404 page not found\n".to_owned()),
    };
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

/// Returns the type of the first question without decoding the message.
fn question_type(request: &[u8]) -> Option<u16> {
    let mut at = 12;
    loop {
        match request.get(at)? {
            0 => break,
            length if *length < 64 => at += usize::from(*length) + 1,
            _ => return None,
        }
    }
    Some(u16::from_be_bytes([*request.get(at + 1)?, *request.get(at + 2)?]))
}

fn count(value: &AtomicU64) {
    value.fetch_add(1, Ordering::Relaxed);
}

fn head(out: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_coredns_names() {
        let metrics = Metrics::default();
        let question = b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x01a\x01b\0\0\x1c\0\x01";
        metrics.count_response(question, b"\0\x01\x81\x83", Transport::Udp, Duration::from_micros(300));
        metrics.count_response(b"short", b"", Transport::Tcp, Duration::from_secs(60));
        let text = metrics.text();
        for expect in [
            "coredns_dns_requests_total{proto=\"udp\",type=\"AAAA\"} 1\n",
            "coredns_dns_requests_total{proto=\"tcp\",type=\"other\"} 1\n",
            "coredns_dns_responses_total{rcode=\"NXDOMAIN\"} 1\n",
            "coredns_dns_request_duration_seconds_bucket{le=\"0.00025\"} 0\n",
            "coredns_dns_request_duration_seconds_bucket{le=\"0.0005\"} 1\n",
            "coredns_dns_request_duration_seconds_bucket{le=\"+Inf\"} 2\n",
            "coredns_cache_hits_total 0\n",
        ] {
            assert!(text.contains(expect), "{expect} is not in\n{text}");
        }
    }
}
