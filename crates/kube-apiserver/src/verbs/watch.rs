//! Watch: streams the changes of a collection.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use api::codec;
use api::kind::{Shape, Version};
use api_registry::conversion::from_stored;
use api_registry::negotiate::{Encoding, Form};
use api_registry::options::ListOptions;
use api_registry::selection::Selection;
use apimachinery::status::Status;
use apimachinery::table::{self, IncludeObject};
use apimachinery::{Key, Object, Value};
use bytes::Bytes;
use client::shared_objects::{self, Objects, SharedEvent, SharedObject};
use http::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use mvcc::Revision;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;

use super::get::{parse_version, wait};
use super::selected::{Item, Selecting};
use super::{Call, render};
use crate::conversion;
use crate::metrics::Events;
use crate::response::{Body, HttpResponse, as_protobuf};
use crate::state::State;
use crate::watch_cache::{Change, Entry, FrameKey, KindCache, WatchEventType};
use client::clock::now;

/// Interval of bookmarks, if the client requested them.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// A watch is closed if its client reads nothing for this time.
const STALLED: Duration = Duration::from_secs(60);
/// Maximum duration of a watch, so that its deadline does not overflow the clock.
const LIFE_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Maximum number of chunks queued for the client.
const PIECES_MAX: usize = 16;

/// A running watch.
struct Watching {
    state: Arc<State>,
    kind_cache: Arc<KindCache>,
    kind: Arc<api::kind::Kind>,
    version: String,
    namespace: String,
    selection: Selection,
    encoding: Encoding,
    form: Form,
    include: IncludeObject,
    bookmarks: bool,
    pieces: mpsc::Sender<Bytes>,
    /// The channel of decoded objects, for clients in this process. Errors are still sent as bytes.
    objects: Option<mpsc::Sender<SharedEvent>>,
    /// All changes up to this revision were sent.
    at: Revision,
    events: Events,
    /// Whether the table columns were sent already: only the first Table of a watch has them.
    described: bool,
}

/// The client has disconnected or must be disconnected.
struct Disconnect;

/// One side of a change, with its object in the watched version if it was converted.
type Side<'c> = (&'c Arc<Entry>, Option<Arc<Value>>);

/// The event type of a change for this watch, and the side of the change that is sent.
type VisibleChange<'c> = (WatchEventType, &'c Arc<Entry>, Option<Arc<Value>>);

/// Starts a watch.
pub(super) async fn serve(call: &Call<'_>) -> Result<HttpResponse, Status> {
    let options = ListOptions::of_watch(&call.request.query)?;
    let selection = Selection::of(&call.kind, call.version(), &options)?;
    let initial = match (options.send_initial_events, options.resource_version.as_str()) {
        (Some(initial), _) => initial,
        (None, "" | "0") => true,
        (None, _) => false,
    };
    let from = match options.resource_version.as_str() {
        "" | "0" => None,
        version => Some(parse_version(version)?),
    };
    match from {
        Some(version) => wait(call, version).await?,
        None if options.resource_version.is_empty() => drop(call.state.storage.catch_up().await?),
        None => {}
    }
    let (pieces, received) = mpsc::channel(PIECES_MAX);
    // A client in this process that requests metadata gets complete objects, which costs less than extracting it.
    let as_they_are = call.request.want_shared.filter(|_| matches!(call.accepted.form, Form::Object | Form::Metadata));
    let (objects, coming) = as_they_are.map(|_| Objects::channel()).unzip();
    if objects.is_some() {
        call.state.storage.cache.hold();
    }
    let encoding = if call.accepted.encoding == Encoding::Yaml { Encoding::Json } else { call.accepted.encoding };
    let watching = Watching {
        state: call.state.clone(),
        kind_cache: call.state.storage.cache.kind_cache(&call.kind),
        kind: call.kind.clone(),
        version: call.resource.version.clone(),
        namespace: call.namespace().to_owned(),
        selection,
        encoding,
        form: call.accepted.form,
        include: render::include(call)?,
        bookmarks: options.allow_watch_bookmarks,
        pieces,
        objects,
        at: from.unwrap_or_default(),
        events: call.state.metrics.events(&call.kind, &call.resource.version),
        described: false,
    };
    let end = Instant::now() + life(&options, call.state.watch_time);
    // A watch of one object by name, under `/watch/`, sees only that object.
    let name = (call.resource.in_url).then(|| call.resource.name.clone());
    let first = initial.then_some(options.send_initial_events.is_some());
    tokio::spawn(watching.run(first, name, end).in_current_span());
    let mut response = Response::new(Body::Stream(received));
    coming.map(|coming| response.extensions_mut().insert(coming));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(encoding.stream_type()));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    Ok(response)
}

/// Returns the duration of the watch. Without `timeoutSeconds` it is random between one and two times `least`, so that
/// not all watches expire at the same time.
fn life(options: &ListOptions, least: Duration) -> Duration {
    match options.timeout_seconds {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds.unsigned_abs()).min(LIFE_MAX),
        _ => {
            let mut random = [0_u8; 2];
            aws_lc_rs::rand::fill(&mut random).expect("the kernel gives random bytes");
            least + least * u32::from(u16::from_le_bytes(random)) / u32::from(u16::MAX)
        }
    }
}

impl Watching {
    /// Sends the initial objects, if requested, and then every change until the deadline.
    async fn run(mut self, initial: Option<bool>, name: Option<String>, end: Instant) {
        // Upstream cannot encode an event as a list, and closes such a watch immediately.
        if self.form != Form::MetadataList {
            let _ = self.stream(initial, name.as_deref(), end).await;
        }
    }

    async fn stream(&mut self, initial: Option<bool>, name: Option<&str>, end: Instant) -> Result<(), Disconnect> {
        let (kind_cache, edition) = (self.kind_cache.clone(), self.kind.edition);
        let mut moved = kind_cache.follow();
        if let Some(marked) = initial {
            self.send_all(name).await?;
            if marked && self.bookmarks {
                self.send_bookmark(true).await?;
            }
        }
        let mut bookmark_at = Instant::now() + BOOKMARK_EVERY;
        let mut ending = pin!(self.state.ending());
        loop {
            // Marked before anything is read: a change during the read wakes the loop again.
            moved.mark_unchanged();
            let now = self.state.storage.cache.reached();
            // The edition is checked first, so that changes before an edition change are sent. Afterwards the watch is
            // closed, since objects may look different in the new edition.
            let goes_on = kind_cache.is_of(edition);
            if !self.send_changes(name, now).await? || !goes_on {
                return Ok(());
            }
            if self.bookmarks && Instant::now() >= bookmark_at {
                self.send_bookmark(false).await?;
                bookmark_at = Instant::now() + BOOKMARK_EVERY;
            }
            let until = if self.bookmarks { end.min(bookmark_at) } else { end };
            tokio::select! {
                changed = timeout_at(until, moved.changed()) => match changed {
                    Ok(Err(_)) => return Ok(()),
                    Err(_) if Instant::now() >= end => return Ok(()),
                    // There are changes, or a bookmark is due once all earlier changes are sent.
                    Ok(Ok(())) | Err(_) => {}
                },
                () = self.pieces.closed() => return Err(Disconnect),
                () = kind_cache.passed_from(edition) => {}
                () = &mut ending => return Ok(()),
            }
        }
    }

    /// Sends all current objects as ADDED events.
    async fn send_all(&mut self, name: Option<&str>) -> Result<(), Disconnect> {
        // The revision is read first, so the kind cache is at least as new.
        let reached = self.state.storage.cache.reached();
        let (entries, revision) = self.kind_cache.snapshot(&self.namespace, |entry| self.may_see(entry, name));
        let items = match self.items(entries).await {
            Ok(items) => items,
            Err(status) => {
                self.send(self.event("ERROR", &status.to_value())).await?;
                return Err(Disconnect);
            }
        };
        for Item { entry, object } in &items {
            if self.objects.is_some() {
                self.send_event(SharedEvent::Applied(self.shared_object(entry, object.as_ref())), entry.size()).await?;
                continue;
            }
            let frame = self.frame(WatchEventType::Added, entry, entry.revision, object.as_ref());
            self.send(frame).await?;
        }
        self.at = self.at.max(reached).max(revision);
        Ok(())
    }

    /// Returns the selected entries, converted to the watched version if needed.
    async fn items(&self, entries: Vec<Arc<Entry>>) -> Result<Vec<Item>, Status> {
        let selecting = self.selecting();
        let mut items = selecting.select(entries).await?;
        selecting.convert(&mut items, |entry| selecting.differs(entry)).await?;
        Ok(items)
    }

    /// Sends the changes since the last call. Returns false if some are no longer kept: the client gets an error and
    /// must list again.
    async fn send_changes(&mut self, name: Option<&str>, now: Revision) -> Result<bool, Disconnect> {
        loop {
            let Ok(changes) = self.kind_cache.changes_after(self.at) else {
                let message = format!("too old resource version: {} ({now})", self.at);
                self.send(self.event("ERROR", &Status::expired(message).to_value())).await?;
                return Ok(false);
            };
            let Some(last) = changes.last().map(|change| change.revision) else { break };
            for change in &changes {
                let (what, entry, object) = match self.seen(change, name).await {
                    Ok(Some(seen)) => seen,
                    Ok(None) => continue,
                    Err(status) => {
                        self.send(self.event("ERROR", &status.to_value())).await?;
                        return Ok(false);
                    }
                };
                if self.objects.is_some() {
                    let event = self.shared_event(what, entry, change.revision, object.as_deref());
                    self.send_event(event, entry.size()).await?;
                    continue;
                }
                let key = self.key(what);
                let make = || self.frame(what, entry, change.revision, object.as_deref());
                let frame = match self.form == Form::Table && !self.described {
                    true => make(),
                    false => change.frame(&key, make),
                };
                self.send(frame).await?;
            }
            self.at = last;
        }
        self.at = self.at.max(now);
        Ok(true)
    }

    /// Returns the event type and object of a change for this watch, converted to the watched version if needed.
    async fn seen<'c>(&self, change: &'c Change, name: Option<&str>) -> Result<Option<VisibleChange<'c>>, Status> {
        let (mut before, mut after) = (None, None);
        if let Some(entry) = change.before.as_ref().filter(|entry| self.may_see(entry, name)) {
            before = self.side(change, entry).await?;
        }
        if let Some(entry) = change.after.as_ref().filter(|entry| self.may_see(entry, name)) {
            after = self.side(change, entry).await?;
        }
        let Some((what, entry, object)) = WatchEventType::of(before, after) else { return Ok(None) };
        let object = match object {
            Some(object) => Some(object),
            None => self.converted(change, entry).await?,
        };
        Ok(Some((what, entry, object)))
    }

    /// Returns one side of a change if it is selected, with its converted object if there is one.
    async fn side<'c>(&self, change: &Change, entry: &'c Arc<Entry>) -> Result<Option<Side<'c>>, Status> {
        let selecting = self.selecting();
        if !selecting.is_by_version() {
            return Ok(Some((entry, None)));
        }
        let object = self.converted(change, entry).await?;
        Ok(selecting.selects(entry, object.as_deref()).then_some((entry, object)))
    }

    /// Returns the object of a change in the watched version, if that differs from the stored one.
    async fn converted(&self, change: &Change, entry: &Entry) -> Result<Option<Arc<Value>>, Status> {
        if !self.selecting().differs(entry) {
            return Ok(None);
        }
        let api_version = self.kind.gvk(&self.version).api_version();
        let make = conversion::read(&self.state.storage, &self.kind, self.version(), entry.object());
        change.converted(entry, &api_version, make).await.map(Some)
    }

    fn may_see(&self, entry: &Entry, name: Option<&str>) -> bool {
        (self.namespace.is_empty() || entry.namespace() == self.namespace)
            && name.is_none_or(|name| entry.name() == name)
            && self.selecting().may_see(entry)
    }

    fn selecting(&self) -> Selecting<'_> {
        let (state, kind_cache, kind) = (&self.state, &self.kind_cache, &self.kind);
        Selecting { state, kind_cache, kind, version: self.version(), selection: &self.selection }
    }

    async fn send(&mut self, piece: Bytes) -> Result<(), Disconnect> {
        self.described = true;
        self.events.sent(piece.len());
        let sent = tokio::time::timeout(STALLED, self.pieces.send(piece)).await;
        sent.map_err(|_| Disconnect)?.map_err(|_| Disconnect)
    }

    /// Returns a change for a client in this process.
    fn shared_event(
        &self,
        what: WatchEventType,
        entry: &Entry,
        revision: Revision,
        converted: Option<&Value>,
    ) -> SharedEvent {
        match what {
            WatchEventType::Added | WatchEventType::Modified => {
                SharedEvent::Applied(self.shared_object(entry, converted))
            }
            WatchEventType::Deleted => {
                let key = Key { namespace: entry.namespace().into(), name: entry.name().into() };
                SharedEvent::Deleted { key, revision: revision.unsigned_abs() }
            }
        }
    }

    fn shared_object(&self, entry: &Entry, converted: Option<&Value>) -> SharedObject {
        if converted.is_none() && conversion::is_servable(&self.kind, self.version(), entry) {
            return entry.shared_object();
        }
        shared_objects::new_shared_object(self.object(entry, entry.revision, converted))
    }

    async fn send_event(&mut self, event: SharedEvent, bytes: usize) -> Result<(), Disconnect> {
        let Some(objects) = &self.objects else { return Ok(()) };
        self.events.sent(bytes);
        let sent = tokio::time::timeout(STALLED, objects.send(event)).await;
        sent.map_err(|_| Disconnect)?.map_err(|_| Disconnect)
    }

    async fn send_bookmark(&mut self, initial: bool) -> Result<(), Disconnect> {
        if self.objects.is_some() {
            let resource_version = self.at.to_string();
            return self.send_event(SharedEvent::Bookmark { resource_version, initial_events_end: initial }, 0).await;
        }
        let mut metadata = Object::new();
        metadata.insert("resourceVersion", self.at.to_string().as_str());
        if initial {
            let mut annotations = Object::new();
            annotations.insert("k8s.io/initial-events-end", "true");
            metadata.insert("annotations", Value::Object(annotations));
        }
        let gvk = self.kind.gvk(&self.version);
        let mut object = Object::new();
        object.insert("apiVersion", gvk.api_version());
        object.insert("kind", gvk.kind.clone());
        object.insert("metadata", Value::Object(metadata));
        let mut object = Value::Object(object);
        if let Shape::BuiltIn(schema) = &self.version().shape {
            // Upstream sends an empty object of the kind, with the zero values that Go prints.
            let _ = apimachinery::conform::conform(&mut object, *schema);
        }
        let object = match self.form {
            Form::Object => object,
            Form::Table => self.as_table(&object),
            Form::Metadata | Form::MetadataList => table::partial_metadata(&object),
        };
        let event = self.event("BOOKMARK", &object);
        self.send(event).await
    }

    fn version(&self) -> &Version {
        self.kind.version(&self.version).expect("only served versions are watched")
    }

    fn key(&self, what: WatchEventType) -> FrameKey {
        FrameKey {
            api_version: self.kind.gvk(&self.version).api_version(),
            encoding: self.encoding,
            form: self.form,
            include: self.include,
            what,
        }
    }

    /// Encodes a change in the form and encoding of the watch.
    fn frame(&self, what: WatchEventType, entry: &Entry, revision: Revision, converted: Option<&Value>) -> Bytes {
        let version = self.version();
        if self.encoding == Encoding::Json
            && self.form == Form::Object
            && converted.is_none()
            && conversion::is_servable(&self.kind, version, entry)
        {
            let mut out = event_start(what.name());
            out.reserve_exact(entry.size() + 2);
            entry.write(revision, &mut out);
            out.extend_from_slice(b"}\n");
            return Bytes::from(out);
        }
        let object = self.object(entry, revision, converted);
        let mut object = match self.form {
            Form::Object => return self.event(what.name(), &object),
            Form::Table => self.as_table(&object),
            Form::Metadata | Form::MetadataList => table::partial_metadata(&object),
        };
        render::hide_field_annotations(&self.kind, &mut object);
        self.event(what.name(), &object)
    }

    /// Returns an object in the watched version.
    fn object(&self, entry: &Entry, revision: Revision, converted: Option<&Value>) -> Value {
        let mut object = converted.cloned().unwrap_or_else(|| entry.object());
        if let Some(mut meta) = apimachinery::meta::MetaMut::of(&mut object) {
            meta.set_resource_version(revision.unsigned_abs());
        }
        from_stored(&mut object, &self.kind, self.version());
        object
    }

    fn as_table(&self, object: &Value) -> Value {
        let mut table = table::table(&self.version().columns, object, self.include, now());
        if let (Value::Object(fields), true) = (&mut table, self.described) {
            fields.insert("columnDefinitions", Value::Null);
        }
        table
    }

    /// Encodes an event in the encoding of the watch.
    fn event(&self, what: &str, object: &Value) -> Bytes {
        if self.encoding == Encoding::Protobuf
            && let Some(inner) = as_protobuf(object, None)
        {
            return apimachinery::protobuf::watch_frame(what, &inner).into();
        }
        let mut line = event_start(what);
        codec::JSON.write(object, &mut line);
        line.extend_from_slice(b"}\n");
        line.into()
    }
}

fn event_start(what: &str) -> Vec<u8> {
    format!("{{\"type\":\"{what}\",\"object\":").into_bytes()
}
