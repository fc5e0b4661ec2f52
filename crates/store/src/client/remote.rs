//! Client of a remote etcd cluster.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mvcc::{Event, LeaseId, Range, RangeReply, Revision, Span, Txn};
use pb::watch_request::RequestUnion;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};

use super::choice::{Choice, Effect};
use super::connector::Connector;
use super::once::{self, ConditionalWrite};
use super::{ClientError, Freshness, TxnOutcome, WatchBatch, request};
use crate::etcd::gate;
use crate::etcd::proto::etcdserverpb as pb;
use crate::etcd::tls::TlsError;

/// Endpoints and TLS files of a remote cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteConfig {
    /// Client URLs of the members.
    pub servers: Vec<String>,
    /// CA of the server certificates.
    pub ca_file: Option<PathBuf>,
    /// Client certificate and key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// The configuration of a remote cluster is unusable.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    #[error("no etcd server is configured")]
    NoServers,
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("{url:?} is not a server URL: use http://host:port, https://host:port or unix:///path")]
    Server {
        /// The URL as configured.
        url: String,
    },
}

/// A client of a remote cluster. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Remote {
    members: Arc<Choice>,
}

impl Remote {
    /// Connects lazily and reconnects automatically.
    pub fn new(config: &RemoteConfig) -> Result<Self, RemoteError> {
        Ok(Self { members: Arc::new(Choice::new(channels(config)?)) })
    }

    /// Returns a maintenance client of the selected member.
    pub(crate) fn maintenance(&self) -> pb::maintenance_client::MaintenanceClient<Channel> {
        pb::maintenance_client::MaintenanceClient::new(self.members.channel())
    }

    pub(super) async fn range(&self, range: Range, freshness: Freshness) -> Result<RangeReply, ClientError> {
        let (keys_only, revision) = (range.keys_only, range.revision);
        let request = request::range(range, freshness);
        let response = self.members.call(Effect::None, |channel| {
            let (mut kv, request) = (kv(channel), request.clone());
            async move { kv.range(request).await }
        });
        let (_, response) = response.await.map_err(|status| client_error(&status, revision))?;
        Ok(request::range_reply(response.get_ref(), keys_only))
    }

    pub(super) async fn txn(&self, txn: Txn) -> Result<TxnOutcome, ClientError> {
        let request = request::txn(txn);
        let written = once::written(&request);
        let effect = if written.is_some() { Effect::Once } else { Effect::Write };
        let tries = AtomicUsize::new(0);
        let response = self.members.call(effect, |channel| {
            tries.fetch_add(1, Ordering::Relaxed);
            let (mut kv, request) = (kv(channel), request.clone());
            async move { kv.txn(request).await }
        });
        let (_, response) = response.await.map_err(|status| client_error(&status, 0))?;
        let response = response.into_inner();
        if let Some(written) = written.filter(|_| !response.succeeded && tries.into_inner() > 1)
            && let Some(revision) = self.done_before(&written).await?
        {
            return Ok(once::outcome(revision, written.len()));
        }
        let revision = response.header.as_ref().map_or(0, |header| header.revision);
        Ok(TxnOutcome { revision, reply: request::txn_reply(&response) })
    }

    /// Returns the revision at which all these keys were written together, if they were.
    async fn done_before(&self, written: &[ConditionalWrite]) -> Result<Option<Revision>, ClientError> {
        let mut at = None;
        for one in written {
            let there = self.range(Range::of(Span::key(one.key.clone())), Freshness::Linearizable).await?;
            let Some(revision) = one.done_at(there.records.first().map(AsRef::as_ref)) else { return Ok(None) };
            if *at.get_or_insert(revision) != revision {
                return Ok(None);
            }
        }
        Ok(at)
    }

    pub(super) async fn compact(&self, revision: Revision) -> Result<(), ClientError> {
        let request = pb::CompactionRequest { revision, physical: false };
        let compacted = self.members.call(Effect::Write, |channel| {
            let mut kv = kv(channel);
            async move { kv.compact(request).await }
        });
        compacted.await.map_err(|status| client_error(&status, revision))?;
        Ok(())
    }

    pub(super) async fn lease(&self, ttl_seconds: i64) -> Result<LeaseId, ClientError> {
        let request = pb::LeaseGrantRequest { ttl: ttl_seconds, id: 0 };
        let granted = self.members.call(Effect::Write, |channel| {
            let mut lease = pb::lease_client::LeaseClient::new(channel);
            async move { lease.lease_grant(request).await }
        });
        let (_, granted) = granted.await.map_err(|status| client_error(&status, 0))?;
        Ok(granted.get_ref().id)
    }

    pub(super) async fn watch(&self, span: Span, from: Revision) -> Result<RemoteWatch, ClientError> {
        let create = pb::WatchCreateRequest {
            range_end: span.wire_end(),
            key: request::first_key(span.start),
            start_revision: from.max(0),
            prev_kv: true,
            progress_notify: true,
            fragment: true,
            ..pb::WatchCreateRequest::default()
        };
        let create = pb::WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
        let opened = self.members.call(Effect::None, |channel| {
            let mut watch = pb::watch_client::WatchClient::new(channel).max_decoding_message_size(usize::MAX);
            let create = create.clone();
            async move {
                let (requests, receiver) = mpsc::channel(4);
                let closed = |_| Status::unavailable("the watch has ended");
                requests.send(create).await.map_err(closed)?;
                // Without this, a member that lost its quorum would deliver no events and no error.
                let mut request = Request::new(ReceiverStream::new(receiver));
                request.metadata_mut().insert(gate::REQUIRES_LEADER, MetadataValue::from_static(gate::YES));
                Ok((requests, watch.watch(request).await?.into_inner()))
            }
        });
        let (member, (requests, responses)) = opened.await.map_err(|status| client_error(&status, from))?;
        let chosen = self.members.chosen.subscribe();
        Ok(RemoteWatch { requests, responses, member, chosen, fragments: Vec::new() })
    }
}

fn kv(channel: Channel) -> pb::kv_client::KvClient<Channel> {
    pb::kv_client::KvClient::new(channel).max_decoding_message_size(usize::MAX)
}

/// A watch of a remote cluster.
pub struct RemoteWatch {
    requests: mpsc::Sender<pb::WatchRequest>,
    responses: Streaming<pb::WatchResponse>,
    /// The watched member, and the member selected for requests.
    member: usize,
    chosen: watch::Receiver<usize>,
    /// Events of a fragmented response that is still incomplete.
    fragments: Vec<Event>,
}

impl RemoteWatch {
    pub(super) async fn next(&mut self) -> Result<WatchBatch, ClientError> {
        loop {
            let member = self.member;
            let response = tokio::select! {
                response = self.responses.message() => response.map_err(|status| client_error(&status, 0))?,
                // A member that does not respond to requests may not deliver events either, without reporting it.
                Ok(_) = self.chosen.wait_for(|chosen| *chosen != member) => None,
            };
            let response = response.ok_or_else(|| client_error(&Status::unavailable("the watch has ended"), 0))?;
            if response.canceled {
                return Err(canceled(&response));
            }
            self.fragments.extend(response.events.iter().filter_map(request::event));
            if response.created || response.fragment {
                continue;
            }
            let events = std::mem::take(&mut self.fragments);
            // While a watch catches up, the header has the store's revision, which is ahead of the events.
            let header_revision = response.header.as_ref().map_or(0, |header| header.revision);
            let revision = events.last().map_or(header_revision, |event| event.record.mod_revision);
            return Ok(WatchBatch { events, revision });
        }
    }

    pub(super) async fn request_progress(&self) -> Result<(), ClientError> {
        let union = RequestUnion::ProgressRequest(pb::WatchProgressRequest {});
        let sent = self.requests.send(pb::WatchRequest { request_union: Some(union) }).await;
        sent.map_err(|_| client_error(&Status::unavailable("the watch has ended"), 0))
    }
}

fn canceled(response: &pb::WatchResponse) -> ClientError {
    if response.compact_revision != 0 {
        return mvcc::Error::Compacted { compact_revision: response.compact_revision }.into();
    }
    ClientError::Remote { code: Code::Cancelled, message: response.cancel_reason.clone() }
}

/// Maps a status to an error. Errors of the key-value store are recognized by their message, as in etcd's clients.
fn client_error(status: &Status, revision: Revision) -> ClientError {
    let known = [
        mvcc::Error::Compacted { compact_revision: revision },
        mvcc::Error::FutureRevision,
        mvcc::Error::NoSpace,
        mvcc::Error::Corrupt,
        mvcc::Error::KeyNotFound,
        mvcc::Error::LeaseNotFound(0),
        mvcc::Error::LeaseExists(0),
    ];
    let store_error = known.into_iter().find(|error| error.to_string() == status.message());
    store_error.map_or_else(
        || ClientError::Remote { code: status.code(), message: status.message().to_owned() },
        ClientError::Rejected,
    )
}

/// Returns a channel per member, which connects lazily and reconnects automatically.
pub(super) fn channels(config: &RemoteConfig) -> Result<Vec<Channel>, RemoteError> {
    if config.servers.is_empty() {
        return Err(RemoteError::NoServers);
    }
    let connectors = Connector::all(config)?;
    let channel = |(url, connector): (&String, Connector)| {
        let wrong = || RemoteError::Server { url: url.clone() };
        // The connector handles TLS; the URL determines the origin.
        let endpoint = Endpoint::from_shared(connector.plain_url()).map_err(|_| wrong())?;
        let origin: http::Uri = connector.origin(url).parse().map_err(|_| wrong())?;
        let endpoint = endpoint
            .origin(origin)
            .connect_timeout(Duration::from_secs(2))
            .http2_keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(10))
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(4 << 20);
        Ok(endpoint.connect_with_connector_lazy(tower::service_fn(move |_: http::Uri| connector.clone().connect())))
    };
    config.servers.iter().zip(connectors).map(channel).collect()
}
