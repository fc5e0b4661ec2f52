//! Forwards queries for external names to the host's resolvers, with a cache.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{RData, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::message::{PAYLOAD, question, reply};
use crate::metrics::Metrics;

/// Timeout per server.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time in the cache, as in CoreDNS' default configuration.
const CACHE_TTL_MAX: Duration = Duration::from_secs(30);
/// Maximum cached answers; each has a few hundred bytes.
const ENTRIES_MAX: usize = 10_000;
/// Maximum concurrent forwarded queries; further ones fail with SERVFAIL.
const FORWARDS_MAX: usize = 1_000;

/// Forwards queries to upstream resolvers.
pub struct Forwarder {
    servers: Vec<SocketAddr>,
    cache: Mutex<Cache>,
    asking: Semaphore,
}

/// Cache key: the name in lower case, and all fields that affect the answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CacheKey {
    name: String,
    kind: u16,
    class: u16,
    dnssec_ok: bool,
    checking_disabled: bool,
}

#[derive(Default)]
struct Cache {
    entries: BTreeMap<CacheKey, Entry>,
    /// Insertion order, which approximates the order of expiry.
    order: VecDeque<CacheKey>,
}

struct Entry {
    message: Message,
    since: Instant,
    until: Instant,
}

impl Forwarder {
    /// Creates a forwarder that tries these servers in order.
    pub fn new(servers: Vec<SocketAddr>) -> Self {
        Self { servers, cache: Mutex::new(Cache::default()), asking: Semaphore::new(FORWARDS_MAX) }
    }

    /// Returns the cached or forwarded answer to a query.
    pub async fn resolve(&self, request: &Message, metrics: &Metrics) -> Message {
        let Some(cache_key) = CacheKey::of(request) else { return reply(request, ResponseCode::FormErr) };
        let now = Instant::now();
        if let Some(known) = self.cache().find(&cache_key, now) {
            metrics.known();
            return addressed(known, request);
        }
        metrics.count_cache_miss();
        let Ok(_permit) = self.asking.try_acquire() else { return reply(request, ResponseCode::ServFail) };
        for server in &self.servers {
            let response = timeout(TIMEOUT, exchange(*server, request)).await;
            match response {
                Ok(Ok(response)) if response.metadata.response_code != ResponseCode::ServFail => {
                    self.cache().keep(cache_key, &response, Instant::now());
                    return addressed(response, request);
                }
                Ok(Ok(_)) => {}
                Ok(Err(error)) => tracing::debug!(%server, %error, "failed to query the upstream resolver"),
                Err(_) => tracing::debug!(%server, "upstream resolver timed out"),
            }
        }
        reply(request, ResponseCode::ServFail)
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the servers of a `resolv.conf`, without our own addresses.
pub fn nameservers(resolv_conf: &str, ourselves: &[SocketAddr]) -> Vec<SocketAddr> {
    let lines = resolv_conf.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    let texts = lines.filter_map(|rest| rest.split_whitespace().next());
    // Addresses with a zone such as %eth0 are link-local and are skipped.
    let servers = texts.filter_map(|text| text.parse::<IpAddr>().ok()).map(|ip| SocketAddr::new(ip, 53));
    servers.filter(|server| !ourselves.contains(server)).collect()
}

/// Queries one server, over TCP if the UDP answer is truncated.
async fn exchange(server: SocketAddr, request: &Message) -> std::io::Result<Message> {
    let mut question = request.clone();
    // A random ID and a random source port protect against spoofed answers.
    question.metadata.id = Message::query().metadata.id;
    if let Some(edns) = &mut question.edns {
        edns.set_max_payload(PAYLOAD);
    }
    let bytes = question.to_vec().map_err(std::io::Error::other)?;
    let any: SocketAddr = if server.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0; 16], 0).into() };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(server).await?;
    socket.send(&bytes).await?;
    let mut buffer = vec![0; 4096];
    loop {
        let length = socket.recv(&mut buffer).await?;
        let Ok(response) = Message::from_vec(&buffer[..length]) else { continue };
        if response.metadata.id == question.metadata.id && response.queries == question.queries {
            return if response.metadata.truncation { over_tcp(server, &question, &bytes).await } else { Ok(response) };
        }
    }
}

async fn over_tcp(server: SocketAddr, question: &Message, bytes: &[u8]) -> std::io::Result<Message> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(bytes.len()).map_err(std::io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), bytes].concat()).await?;
    let length = stream.read_u16().await?;
    let mut response = vec![0; usize::from(length)];
    stream.read_exact(&mut response).await?;
    let response = Message::from_vec(&response).map_err(std::io::Error::other)?;
    if response.metadata.id != question.metadata.id {
        return Err(std::io::Error::other("the response is for another query"));
    }
    Ok(response)
}

/// Adapts an answer to another request with the same question.
fn addressed(mut response: Message, request: &Message) -> Message {
    let shape = reply(request, response.metadata.response_code);
    response.metadata.id = shape.metadata.id;
    response.metadata.recursion_desired = shape.metadata.recursion_desired;
    response.metadata.recursion_available = true;
    response.metadata.authoritative = false;
    response.queries = shape.queries;
    response.edns = shape.edns;
    response
}

impl CacheKey {
    fn of(message: &Message) -> Option<Self> {
        let query = question(message)?;
        Some(Self {
            name: query.name().to_lowercase().to_ascii(),
            kind: query.query_type().into(),
            class: query.query_class().into(),
            dnssec_ok: message.edns.as_ref().is_some_and(|edns| edns.flags().dnssec_ok),
            checking_disabled: message.metadata.checking_disabled,
        })
    }
}

impl Cache {
    fn find(&self, cache_key: &CacheKey, now: Instant) -> Option<Message> {
        let entry = self.entries.get(cache_key).filter(|entry| entry.until > now)?;
        let mut message = entry.message.clone();
        let age = u32::try_from(now.duration_since(entry.since).as_secs()).unwrap_or(u32::MAX);
        for record in message.answers.iter_mut().chain(&mut message.authorities).chain(&mut message.additionals) {
            record.ttl = record.ttl.saturating_sub(age);
        }
        Some(message)
    }

    fn keep(&mut self, cache_key: CacheKey, message: &Message, now: Instant) {
        let Some(ttl) = cache_ttl(message) else { return };
        while self.entries.len() >= ENTRIES_MAX {
            let Some(oldest) = self.order.pop_front() else { break };
            self.entries.remove(&oldest);
        }
        let entry = Entry { message: message.clone(), since: now, until: now + ttl };
        if self.entries.insert(cache_key.clone(), entry).is_none() {
            self.order.push_back(cache_key);
        }
    }
}

/// Returns how long an answer may be cached; `None` for errors.
fn cache_ttl(message: &Message) -> Option<Duration> {
    let seconds = match message.metadata.response_code {
        ResponseCode::NoError if !message.answers.is_empty() => message.answers.iter().map(|record| record.ttl).min(),
        // The SOA record determines how long a negative answer is valid.
        ResponseCode::NoError | ResponseCode::NXDomain => {
            message.authorities.iter().filter(|record| record.record_type() == RecordType::SOA).find_map(|record| {
                match &record.data {
                    RData::SOA(soa) => Some(soa.minimum.min(record.ttl)),
                    _ => None,
                }
            })
        }
        _ => None,
    };
    seconds.filter(|seconds| *seconds > 0).map(|seconds| Duration::from_secs(seconds.into()).min(CACHE_TTL_MAX))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hickory_proto::op::Query;
    use hickory_proto::rr::rdata::A;
    use hickory_proto::rr::{Name, Record};

    use super::*;

    /// Starts a server that answers every query with this code and counts queries.
    async fn server(ttl: u32, code: ResponseCode) -> (SocketAddr, Arc<AtomicUsize>) {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (address, count) = (socket.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&count);
        tokio::spawn(async move {
            let mut buffer = vec![0; 4096];
            loop {
                let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                let request = Message::from_vec(&buffer[..length]).unwrap();
                let mut response = reply(&request, code);
                let name = request.queries[0].name().clone();
                response.add_answer(Record::from_rdata(name, ttl, RData::A(A([192, 0, 2, 7].into()))));
                socket.send_to(&response.to_vec().unwrap(), from).await.unwrap();
            }
        });
        (address, count)
    }

    fn request(name: &str) -> Message {
        let mut message = Message::query();
        message.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
        message
    }

    #[tokio::test]
    async fn cached_answer_is_not_queried_again() {
        let metrics = Metrics::default();
        let (address, count) = server(10, ResponseCode::NoError).await;
        let forwarder = Forwarder::new(vec![address]);
        let first = forwarder.resolve(&request("example.org."), &metrics).await;
        assert_eq!(first.answers[0].data.to_string(), "192.0.2.7");
        let again = request("EXAMPLE.org.");
        let second = forwarder.resolve(&again, &metrics).await;
        assert_eq!(second.metadata.id, again.metadata.id);
        assert_eq!(second.queries, again.queries, "in the case of the query");
        assert_eq!(count.load(Ordering::SeqCst), 1);
        forwarder.resolve(&request("other.org."), &metrics).await;
        assert_eq!(count.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn answers_are_cached_for_their_ttl() {
        let mut cache = Cache::default();
        let mut message = reply(&request("a."), ResponseCode::NoError);
        message.add_answer(Record::from_rdata(Name::root(), 10, RData::A(A([0; 4].into()))));
        let (cache_key, now) = (CacheKey::of(&request("a.")).unwrap(), Instant::now());
        cache.keep(cache_key.clone(), &message, now);
        let after =
            |seconds| cache.find(&cache_key, now + Duration::from_secs(seconds)).map(|found| found.answers[0].ttl);
        assert_eq!([after(0), after(4), after(10)], [Some(10), Some(6), None]);
    }

    #[tokio::test]
    async fn failing_server_is_skipped() {
        let (bad, _) = server(1, ResponseCode::ServFail).await;
        let (good, _) = server(1, ResponseCode::NoError).await;
        let response = Forwarder::new(vec![bad, good]).resolve(&request("a.b."), &Metrics::default()).await;
        assert_eq!(response.metadata.response_code, ResponseCode::NoError);
        let none = Forwarder::new(vec![bad]).resolve(&request("a.b."), &Metrics::default()).await;
        assert_eq!(none.metadata.response_code, ResponseCode::ServFail);
    }

    #[test]
    fn cache_is_bounded() {
        let mut cache = Cache::default();
        let mut message = reply(&request("a."), ResponseCode::NoError);
        message.add_answer(Record::from_rdata(Name::root(), 60, RData::A(A([0; 4].into()))));
        let now = Instant::now();
        for number in 0..ENTRIES_MAX + 500 {
            let cache_key = CacheKey::of(&request(&format!("n{number}."))).unwrap();
            cache.keep(cache_key, &message, now);
        }
        assert_eq!((cache.entries.len(), cache.order.len()), (ENTRIES_MAX, ENTRIES_MAX));
    }

    #[test]
    fn resolvers_are_read_from_resolv_conf() {
        let text = "# x\nsearch a b\nnameserver 10.0.0.1\n nameserver fd00::1 \nnameserver fe80::1%eth0\nnameserver 10.0.0.2\n";
        let ourselves = ["10.0.0.2:53".parse().unwrap()];
        let expect: Vec<SocketAddr> = vec!["10.0.0.1:53".parse().unwrap(), "[fd00::1]:53".parse().unwrap()];
        assert_eq!(nameservers(text, &ourselves), expect);
    }
}
