//! The Watch service: multiple watchers on one stream.
//!
//! One task serves a stream. It alternates between client requests and watchers with pending events. It waits while the
//! client has not consumed the last response, so a slow client delays only itself.

use std::collections::BTreeMap;
use std::pin::{Pin, pin};

use mvcc::{Access, End, Event, Revision, Span, State, WatchId};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};
use tracing::Instrument;

use super::caller::Credentials;
use super::calls::status_text;
use super::proto::etcdserverpb as pb;
use super::proto::etcdserverpb::watch_create_request::FilterType;
use super::proto::etcdserverpb::watch_request::RequestUnion;
use super::{Server, convert, gate, status};
use crate::backend::{Backend, BackendError};
use crate::watch::Watchers;

/// Maximum number of events per response, unless one revision has more.
const BATCH_EVENTS: usize = 1000;
/// Number of responses buffered for the client.
const RESPONSES_AHEAD: usize = 2;
/// Watch ID of a response for all watchers of the stream, or for none.
const ALL: i64 = -1;
/// Cancel reason of a watch from a negative revision.
const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";

#[tonic::async_trait]
impl<B: Backend> pb::watch_server::Watch for Server<B> {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<pb::WatchResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<Streaming<pb::WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (responses, receiver) = mpsc::channel(RESPONSES_AHEAD);
        let client = Client {
            server: self.clone(),
            credentials: Credentials::of(&request),
            watchers: self.backend.hub().watchers(),
            by_id: BTreeMap::new(),
            by_hub: BTreeMap::new(),
            next_id: 0,
            progress_requested: false,
            responses,
        };
        let insists = gate::requires_leader(request.metadata().as_ref());
        tokio::spawn(client.run(request.into_inner(), insists).in_current_span());
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

/// One stream and its watchers.
struct Client<B> {
    server: Server<B>,
    credentials: Credentials,
    watchers: Watchers,
    by_id: BTreeMap<i64, Watcher>,
    by_hub: BTreeMap<WatchId, i64>,
    next_id: i64,
    /// The client requested progress, which is reported once all watchers have caught up.
    progress_requested: bool,
    responses: mpsc::Sender<Result<pb::WatchResponse, Status>>,
}

struct Watcher {
    hub_id: WatchId,
    span: Span,
    /// The first revision not read yet.
    next: Revision,
    no_put: bool,
    no_delete: bool,
    want_previous: bool,
    want_progress: bool,
    fragment: bool,
    /// Whether a response was sent since the last tick.
    responded: bool,
}

/// The client disconnected.
struct Disconnect;

impl<B: Backend> Client<B> {
    async fn run(mut self, mut requests: Streaming<pb::WatchRequest>, insists_on_leader: bool) {
        let server = self.server.clone();
        let mut leaderless = pin!(server.leaderless(insists_on_leader));
        let interval = self.server.config.progress_interval;
        let mut ticks = tokio::time::interval_at(Instant::now() + interval, interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let done = tokio::select! {
                // Client requests come first: a cancel must not wait behind the events of its watcher.
                biased;
                request = requests.next() => match request {
                    Some(Ok(request)) => self.request(request).await,
                    Some(Err(_)) | None => Err(Disconnect),
                },
                () = self.responses.closed() => Err(Disconnect),
                (hub_id, mark) = self.watchers.ready() => self.read(hub_id, mark).await,
                () = &mut leaderless => {
                    let _ = self.responses.send(Err(status::of_backend(BackendError::NoLeader))).await;
                    Err(Disconnect)
                }
                _ = ticks.tick(), if self.by_id.values().any(|watcher| watcher.want_progress) => self.tick().await,
            };
            if done.is_err() {
                return;
            }
        }
    }

    async fn request(&mut self, request: pb::WatchRequest) -> Result<(), Disconnect> {
        match request.request_union {
            Some(RequestUnion::CreateRequest(create)) => self.create(create).await,
            Some(RequestUnion::CancelRequest(cancel)) => self.cancel(cancel.watch_id).await,
            Some(RequestUnion::ProgressRequest(_)) => {
                self.progress_requested = true;
                self.report_progress().await
            }
            None => Ok(()),
        }
    }

    async fn create(&mut self, request: pb::WatchCreateRequest) -> Result<(), Disconnect> {
        let filters: Vec<FilterType> = request.filters().collect();
        // The empty key means the smallest key.
        let key = if request.key.is_empty() { bytes::Bytes::from_static(&[0]) } else { request.key };
        let span = Span::from_wire(key, request.range_end);
        let revision = self.server.backend.view(State::revision);
        if request.start_revision < 0 {
            return self.reject(COMPACTED, revision).await;
        }
        if let Err(error) = self.authorize(&span).await {
            return self.reject(&status_text(&error), revision).await;
        }
        let id = match self.choose_id(request.watch_id, &span) {
            Ok(id) => id,
            Err(reason) => return self.reject(reason, revision).await,
        };
        let from = if request.start_revision <= 0 { revision + 1 } else { request.start_revision };
        self.send(pb::WatchResponse { watch_id: id, created: true, ..self.response(revision) }).await?;
        let compact_revision = self.server.backend.view(State::compact_revision);
        if from < compact_revision {
            return self.send_compacted(id, compact_revision, revision).await;
        }
        let hub_id = self.watchers.add(span.clone(), from);
        let watcher = Watcher {
            hub_id,
            span,
            next: from,
            no_put: filters.contains(&FilterType::Noput),
            no_delete: filters.contains(&FilterType::Nodelete),
            want_previous: request.prev_kv,
            want_progress: request.progress_notify,
            fragment: request.fragment,
            responded: true,
        };
        self.by_id.insert(id, watcher);
        self.by_hub.insert(hub_id, id);
        Ok(())
    }

    async fn authorize(&self, span: &Span) -> Result<(), Status> {
        let caller = self.server.caller(&self.credentials).await?;
        self.server.permitted(|directory| directory.check_keys(caller.as_ref(), Access::Read, span))
    }

    /// Returns the ID that the client requests, or the next free one.
    fn choose_id(&mut self, requested: i64, span: &Span) -> Result<i64, &'static str> {
        if matches!(&span.end, End::Before(end) if *end <= span.start) {
            return Err("mvcc: watcher range is empty");
        }
        if requested != 0 {
            let taken = self.by_id.contains_key(&requested);
            return if taken { Err("mvcc: duplicate watch ID provided on the WatchStream") } else { Ok(requested) };
        }
        while self.by_id.contains_key(&self.next_id) {
            self.next_id += 1;
        }
        self.next_id += 1;
        Ok(self.next_id - 1)
    }

    async fn reject(&self, reason: &str, revision: Revision) -> Result<(), Disconnect> {
        let response = pb::WatchResponse {
            watch_id: ALL,
            created: true,
            canceled: true,
            cancel_reason: reason.to_owned(),
            ..self.response(revision)
        };
        self.send(response).await
    }

    async fn cancel(&mut self, id: i64) -> Result<(), Disconnect> {
        if !self.remove_watcher(id) {
            return Ok(());
        }
        let revision = self.server.backend.view(State::revision);
        self.send(pb::WatchResponse { watch_id: id, canceled: true, ..self.response(revision) }).await
    }

    fn remove_watcher(&mut self, id: i64) -> bool {
        let Some(watcher) = self.by_id.remove(&id) else { return false };
        self.by_hub.remove(&watcher.hub_id);
        self.watchers.remove(watcher.hub_id);
        true
    }

    /// Sends the next events of a watcher whose mark was taken.
    async fn read(&mut self, hub_id: WatchId, mark: Revision) -> Result<(), Disconnect> {
        let Some(id) = self.by_hub.get(&hub_id).copied() else { return Ok(()) };
        let Some(watcher) = self.by_id.get_mut(&id) else { return Ok(()) };
        let from = mark.max(watcher.next);
        let (batch, revision) =
            self.server.backend.view(|state| (state.event_batch(&watcher.span, from, BATCH_EVENTS), state.revision()));
        let Ok(batch) = batch else {
            let compact_revision = self.server.backend.view(State::compact_revision);
            self.remove_watcher(id);
            return self.send_compacted(id, compact_revision, revision).await;
        };
        watcher.next = batch.next.max(watcher.next);
        if batch.more {
            self.watchers.again(hub_id, batch.next);
        }
        let events: Vec<_> = batch.events.iter().filter(|event| watcher.wants(event)).collect();
        if !events.is_empty() {
            watcher.responded = true;
            let events = events.into_iter().map(|event| convert::event(event, watcher.want_previous)).collect();
            let fragment = watcher.fragment;
            self.send_events(id, events, revision, fragment).await?;
        }
        self.report_progress().await
    }

    async fn send_events(
        &self,
        id: i64,
        events: Vec<super::proto::mvccpb::Event>,
        revision: Revision,
        fragment: bool,
    ) -> Result<(), Disconnect> {
        let mut parts = if fragment { split(events, self.server.config.request_bytes_max) } else { vec![events] };
        let last = parts.pop().unwrap_or_default();
        for events in parts {
            self.send(pb::WatchResponse { watch_id: id, events, fragment: true, ..self.response(revision) }).await?;
        }
        self.send(pb::WatchResponse { watch_id: id, events: last, ..self.response(revision) }).await
    }

    async fn send_compacted(&self, id: i64, compact_revision: Revision, revision: Revision) -> Result<(), Disconnect> {
        let canceled = pb::WatchResponse { watch_id: id, canceled: true, compact_revision, ..self.response(revision) };
        self.send(canceled).await
    }

    /// Reports progress if it was requested and all watchers have caught up. The revision is read first, so every event
    /// up to it was sent before.
    async fn report_progress(&mut self) -> Result<(), Disconnect> {
        if !self.progress_requested {
            return Ok(());
        }
        let revision = self.server.backend.view(State::revision);
        if let Some((hub_id, mark)) = self.watchers.try_ready() {
            // The watcher has pending events; the progress response follows them.
            self.watchers.again(hub_id, mark);
            return Ok(());
        }
        if self.by_id.values().any(|watcher| self.unread(watcher, revision)) {
            // Applied but not published yet: publication wakes the watcher, and the progress response follows.
            return Ok(());
        }
        for watcher in self.by_id.values_mut() {
            watcher.next = watcher.next.max(revision + 1);
        }
        self.progress_requested = false;
        self.send(pb::WatchResponse { watch_id: ALL, ..self.response(revision) }).await
    }

    /// Whether a watcher has pending events up to a revision. Published events are known by the watcher's mark, so the
    /// log is scanned only after it, regardless of how long the watcher was idle.
    fn unread(&self, watcher: &Watcher, revision: Revision) -> bool {
        let Some(published) = self.watchers.quiet_until(watcher.hub_id) else { return true };
        let from = watcher.next.max(published + 1);
        from <= revision
            && self.server.backend.view(|state| {
                let unread = state.events(&watcher.span, from);
                unread.is_ok_and(|mut events| events.next().is_some_and(|event| event.record.mod_revision <= revision))
            })
    }

    /// Sends progress notifications to watchers that requested them and have no pending events.
    async fn tick(&mut self) -> Result<(), Disconnect> {
        let revision = self.server.backend.view(State::revision);
        let mut quiet = Vec::new();
        for (id, watcher) in &mut self.by_id {
            if watcher.want_progress && !watcher.responded {
                quiet.push(*id);
            }
            watcher.responded = false;
        }
        quiet.retain(|id| self.by_id.get(id).is_some_and(|watcher| !self.unread(watcher, revision)));
        for id in quiet {
            if let Some(watcher) = self.by_id.get_mut(&id) {
                watcher.next = watcher.next.max(revision + 1);
            }
            self.send(pb::WatchResponse { watch_id: id, ..self.response(revision) }).await?;
        }
        Ok(())
    }

    fn response(&self, revision: Revision) -> pb::WatchResponse {
        pb::WatchResponse { header: self.server.header(revision), ..pb::WatchResponse::default() }
    }

    async fn send(&self, response: pb::WatchResponse) -> Result<(), Disconnect> {
        self.responses.send(Ok(response)).await.map_err(|_| Disconnect)
    }
}

impl Watcher {
    fn wants(&self, event: &Event) -> bool {
        if event.record.is_tombstone() { !self.no_delete } else { !self.no_put }
    }
}

/// Splits events into parts of about `bytes_max`; single events are not split.
fn split(events: Vec<super::proto::mvccpb::Event>, bytes_max: usize) -> Vec<Vec<super::proto::mvccpb::Event>> {
    let mut parts = vec![Vec::new()];
    let mut bytes = 0;
    for event in events {
        let len = prost::Message::encoded_len(&event);
        if bytes > 0 && bytes + len > bytes_max {
            parts.push(Vec::new());
            bytes = 0;
        }
        bytes += len;
        parts.last_mut().expect("the list of parts starts with one").push(event);
    }
    parts
}
