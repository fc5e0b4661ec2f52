//! Loads of the store benchmark, and their throughput and latency.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use store::etcd::proto::etcdserverpb as pb;
use store::etcd::proto::etcdserverpb::watch_client::WatchClient;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

use crate::wire::Wire;
use crate::{KEYS, VALUE_BYTES};

/// Maximum number of connections. More clients share them.
const CONNECTIONS: usize = 16;
/// Prefix of ten thousand of the keys that [`fill`] writes.
const RANGE_PREFIX: &str = "k/01";
const START: Duration = Duration::from_secs(30);

/// The operation that a client repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// Overwrites one of the keys.
    Put,
    /// Overwrites its own key if the revision is unchanged, as the API server writes.
    TxnPut,
    /// Reads one of the keys, linearizable.
    Get,
    /// Reads ten thousand of the keys.
    Range,
}

pub(crate) struct Measurement {
    /// Responses per second.
    pub per_second: f64,
    /// Median latency.
    pub p50: Duration,
    /// 99th percentile of the latency.
    pub p99: Duration,
}

struct Client {
    kv: Wire,
    value: Bytes,
    random: u64,
    own_key: String,
    own_revision: i64,
}

impl Load {
    /// Returns the name for the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Load::Put => "put",
            Load::TxnPut => "txn: compare mod revision, put",
            Load::Get => "get",
            Load::Range => "range of 10,000 keys",
        }
    }
}

/// Runs a load with `clients` clients.
pub(crate) async fn run(url: &str, load: Load, clients: usize, time: Duration) -> Result<Measurement> {
    let clients = connect(url, clients).await?;
    measure(clients.into_iter().map(|client| (client, load)).collect(), time).await.map(|[measured, _]| measured)
}

/// Runs 16 readers and 64 writers. Returns the results of the reads and of the writes.
pub(crate) async fn reads_under_writes(url: &str, time: Duration) -> Result<(Measurement, Measurement)> {
    let readers = connect(url, 16).await?.into_iter().map(|client| (client, Load::Get));
    let writers = connect(url, 64).await?.into_iter().map(|client| (client, Load::Put));
    let [reads, writes] = measure(readers.chain(writers).collect(), time).await?;
    Ok((reads, writes))
}

/// Puts repeatedly. Each put waits until every watcher has received the previous one.
pub(crate) async fn fan_out(url: &str, watchers: usize, time: Duration) -> Result<Measurement> {
    let (heard, mut hearing) = mpsc::channel(watchers);
    let mut tasks = JoinSet::new();
    for channel in channels(url, CONNECTIONS).await? {
        tasks.spawn(listen(channel, watchers / CONNECTIONS, heard.clone()));
    }
    let watchers = watchers / CONNECTIONS * CONNECTIONS;
    for _ in 0..watchers {
        hearing.recv().await.context("a watch did not start")?;
    }
    let mut client = connect(url, 1).await?.remove(0);
    let began = Instant::now();
    let mut times = Vec::new();
    while began.elapsed() < time {
        let start = Instant::now();
        client.put("watched".to_owned()).await?;
        for _ in 0..watchers {
            hearing.recv().await.context("a watch ended")?;
        }
        times.push(start.elapsed());
    }
    Ok(measured(times, began.elapsed()))
}

/// Writes the keys. Returns the duration.
pub(crate) async fn fill(url: &str, keys: usize) -> Result<Duration> {
    wait_until_ready(url).await?;
    let clients = connect(url, 64).await?;
    let step = clients.len();
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for (first, mut client) in clients.into_iter().enumerate() {
        tasks.spawn(async move {
            for key in (first..keys).step_by(step) {
                client.put(format!("k/{key:06}")).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(began.elapsed())
}

/// Waits until a linearizable read succeeds.
pub(crate) async fn wait_until_ready(url: &str) -> Result<()> {
    let began = Instant::now();
    while let Err(error) = try_read(url).await {
        if began.elapsed() > START {
            return Err(error.context("the server does not respond"));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

async fn try_read(url: &str) -> Result<()> {
    Client::new(Wire::connect(url).await?, 0).get("k/000000".into(), Bytes::new()).await.map(drop)
}

/// Runs every client until the time is over. Returns reads and writes separately.
async fn measure(clients: Vec<(Client, Load)>, time: Duration) -> Result<[Measurement; 2]> {
    let first = clients.first().context("no clients")?.1;
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for (mut client, load) in clients {
        tasks.spawn(async move {
            let mut times = Vec::new();
            while began.elapsed() < time {
                let start = Instant::now();
                client.send(load).await?;
                times.push(start.elapsed());
            }
            anyhow::Ok((load, times))
        });
    }
    let mut times = [Vec::new(), Vec::new()];
    while let Some(done) = tasks.join_next().await {
        let (load, mut some) = done??;
        times[usize::from(load != first)].append(&mut some);
    }
    let elapsed = began.elapsed();
    Ok(times.map(|times| measured(times, elapsed)))
}

#[expect(clippy::cast_precision_loss, reason = "printed for users, precision is not needed")]
fn measured(mut times: Vec<Duration>, elapsed: Duration) -> Measurement {
    times.sort_unstable();
    let at = |part: usize| times.get(times.len().saturating_sub(1) * part / 100).copied().unwrap_or_default();
    Measurement { per_second: times.len() as f64 / elapsed.as_secs_f64(), p50: at(50), p99: at(99) }
}

async fn channels(url: &str, count: usize) -> Result<Vec<Channel>> {
    let mut channels = Vec::new();
    for _ in 0..count {
        let endpoint = Endpoint::from_shared(url.to_owned())?;
        channels.push(endpoint.connect().await?);
    }
    Ok(channels)
}

async fn connect(url: &str, clients: usize) -> Result<Vec<Client>> {
    let mut wires = Vec::new();
    for _ in 0..clients.min(CONNECTIONS) {
        wires.push(Wire::connect(url).await?);
    }
    Ok((0..clients).map(|index| Client::new(wires[index % wires.len()].clone(), index)).collect())
}

impl Client {
    fn new(kv: Wire, index: usize) -> Self {
        Self {
            kv,
            value: Bytes::from(vec![b'v'; VALUE_BYTES]),
            random: 0x9e37_79b9_7f4a_7c15 ^ (index as u64 + 1),
            own_key: format!("t/{index:06}"),
            own_revision: 0,
        }
    }

    async fn send(&mut self, load: Load) -> Result<()> {
        match load {
            Load::Put => {
                let key = self.any_key();
                self.put(key).await
            }
            Load::TxnPut => self.swap().await,
            Load::Get => {
                let key = self.any_key();
                let found = self.get(key.into(), Bytes::new()).await?;
                anyhow::ensure!(found.kvs.len() == 1, "a key is missing");
                Ok(())
            }
            Load::Range => {
                let found = self.get(RANGE_PREFIX.into(), "k/02".into()).await?;
                anyhow::ensure!(found.kvs.len() == 10_000, "{} keys instead of 10,000", found.kvs.len());
                Ok(())
            }
        }
    }

    async fn put(&mut self, key: String) -> Result<()> {
        let put = pb::PutRequest { key: key.into(), value: self.value.clone(), ..pb::PutRequest::default() };
        self.kv.call::<pb::PutResponse>(|methods| &methods.put, &put).await.map(drop)
    }

    async fn get(&mut self, key: Bytes, range_end: Bytes) -> Result<pb::RangeResponse> {
        let range = pb::RangeRequest { key, range_end, ..pb::RangeRequest::default() };
        self.kv.call(|methods| &methods.range, &range).await
    }

    async fn swap(&mut self) -> Result<()> {
        use pb::compare::{CompareResult, CompareTarget, TargetUnion};
        use pb::request_op::Request;
        use pb::response_op::Response;
        let key = Bytes::from(self.own_key.clone());
        let put = pb::PutRequest { key: key.clone(), value: self.value.clone(), ..pb::PutRequest::default() };
        let get = pb::RangeRequest { key: key.clone(), ..pb::RangeRequest::default() };
        let compare = pb::Compare {
            result: CompareResult::Equal.into(),
            target: CompareTarget::Mod.into(),
            key,
            target_union: Some(TargetUnion::ModRevision(self.own_revision)),
            ..pb::Compare::default()
        };
        let txn = pb::TxnRequest {
            compare: vec![compare],
            success: vec![pb::RequestOp { request: Some(Request::RequestPut(put)) }],
            failure: vec![pb::RequestOp { request: Some(Request::RequestRange(get)) }],
        };
        let txn_response: pb::TxnResponse = self.kv.call(|methods| &methods.txn, &txn).await?;
        self.own_revision = match txn_response.responses.into_iter().next().and_then(|response| response.response) {
            Some(Response::ResponsePut(_)) => txn_response.header.map_or(0, |header| header.revision),
            // The key exists from an earlier measurement.
            Some(Response::ResponseRange(range)) => range.kvs.first().map_or(0, |kv| kv.mod_revision),
            other => bail!("unexpected response of a transaction: {other:?}"),
        };
        Ok(())
    }

    /// Returns a random key. The xorshift sequence is the same for both servers.
    fn any_key(&mut self) -> String {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        format!("k/{:06}", self.random % KEYS as u64)
    }
}

/// Opens watches on one stream. Sends a value for each started watch and for each event.
async fn listen(channel: Channel, watches: usize, heard: mpsc::Sender<()>) -> Result<()> {
    use pb::watch_request::RequestUnion;
    let (requests, receiver) = mpsc::channel(watches);
    for _ in 0..watches {
        let create = pb::WatchCreateRequest { key: "watched".into(), ..pb::WatchCreateRequest::default() };
        let union = RequestUnion::CreateRequest(create);
        requests.send(pb::WatchRequest { request_union: Some(union) }).await.context("the stream takes its watches")?;
    }
    let mut responses = WatchClient::new(channel).watch(ReceiverStream::new(receiver)).await?.into_inner();
    while let Some(response) = responses.message().await? {
        let count = response.events.len() + usize::from(response.created);
        for _ in 0..count {
            if heard.send(()).await.is_err() {
                return Ok(());
            }
        }
    }
    drop(requests);
    Ok(())
}
