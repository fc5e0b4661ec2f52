//! Pod manager: starts, notifies and stops one worker per pod of the node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use apimachinery::meta::Meta;
use apimachinery::{Key, Value};
use client::cache::{ChangeQueue, ChangedKeys, Reader};
use component_base::spans;
use node_api::cri::v1;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::admission::{self, Rejection};
use crate::blocking;
use crate::context::Context;
use crate::node::NodeConditions;
use crate::plan::Cause;
use crate::pod::Pod;
use crate::pod_worker::{self, DesiredPod, Wakers};
use crate::resize::{self, Allocation, Pending};
use crate::runtime_status::labels;
use crate::static_pods::{self, StaticPods};

/// Capacity of the eviction channel.
const EVICTIONS_MAX: usize = 64;

/// Delay before a failed cleanup is retried.
const CLEAN_RETRY: std::time::Duration = std::time::Duration::from_secs(10);

/// A request to terminate a pod.
#[derive(Clone, Debug)]
pub struct Eviction {
    pub uid: String,
    pub cause: Cause,
    pub grace_seconds: i64,
    /// Receives the UID when no container of the pod runs any more.
    pub exit_sender: Option<mpsc::Sender<String>>,
}

/// The pods of this node, shared with the server and other tasks.
#[derive(Clone, Default)]
pub struct PodTable(Arc<Mutex<BTreeMap<String, Arc<Value>>>>);

impl PodTable {
    pub fn all(&self) -> Vec<Arc<Value>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub fn find(&self, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.all().into_iter().find(|pod| Pod(pod).namespace() == namespace && Pod(pod).name() == name)
    }

    fn set(&self, pods: BTreeMap<String, Arc<Value>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = pods;
    }
}

/// The inputs of the pod manager.
pub(crate) struct Feeds {
    /// The API server's pods of this node.
    pub pods: Reader<Arc<Value>>,
    /// Receives the UIDs of pods whose objects changed.
    pub objects: ChangeQueue,
    pub statics: StaticPods,
    pub evictions: mpsc::Receiver<Eviction>,
    pub node_conditions: watch::Receiver<NodeConditions>,
    /// Cache of the Node object.
    pub node: Reader<Value>,
}

struct Handle {
    desired: watch::Sender<DesiredPod>,
    wakers: Arc<Wakers>,
}

struct Pods {
    context: Arc<Context>,
    feeds: Feeds,
    handles: BTreeMap<String, Handle>,
    workers: JoinSet<String>,
    mirrors: JoinSet<Key>,
    mirroring: BTreeSet<Key>,
    cleaners: JoinSet<()>,
    known: PodTable,
}

/// Creates the eviction channel.
pub(crate) fn evictions() -> (mpsc::Sender<Eviction>, mpsc::Receiver<Eviction>) {
    mpsc::channel(EVICTIONS_MAX)
}

/// Manages all pods until the future is dropped; the pods keep running afterwards.
pub(crate) async fn run(context: Arc<Context>, feeds: Feeds, known: PodTable) {
    let mut pods = Pods {
        context,
        feeds,
        handles: BTreeMap::new(),
        workers: JoinSet::new(),
        mirrors: JoinSet::new(),
        mirroring: BTreeSet::new(),
        cleaners: JoinSet::new(),
        known,
    };
    let changed = ChangeQueue::new(1000);
    pods.feeds.pods.subscribe(&changed, |change, keys| keys.push(change.key.clone()));
    let reader = pods.feeds.pods.clone();
    let mut events = None;
    let mut first = true;
    loop {
        let synced = pods.feeds.pods.progress().synced;
        blocking::in_place(|| pods.arrange(synced));
        if synced && std::mem::take(&mut first) {
            pods.remove_strangers().await;
        }
        if events.is_none() {
            events = pods.listen().await;
            // Events may have been missed while the stream was disconnected.
            pods.handles.values().for_each(|handle| handle.wakers.runtime.notify_one());
        }
        let event = async {
            match &mut events {
                Some(events) => tonic::Streaming::message(events).await,
                // DEVIATION: a runtime without an event stream is polled every two seconds; upstream polls every
                // second.
                None => {
                    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
                    Ok(None)
                }
            }
        };
        tokio::select! {
            _ = changed.take() => {}
            _ = reader.synced(), if !synced => {}
            objects = pods.feeds.objects.take() => pods.objects_changed(&objects),
            () = pods.feeds.statics.changed() => {}
            Some(eviction) = pods.feeds.evictions.recv() => pods.evict(eviction),
            Some(result) = pods.workers.join_next(), if !pods.workers.is_empty() => pods.worker_finished(result),
            Some(Ok(key)) = pods.mirrors.join_next(), if !pods.mirrors.is_empty() => {
                pods.mirroring.remove(&key);
            }
            event = event => match event {
                Ok(Some(event)) => pods.on_container_event(&event),
                Ok(None) | Err(_) => events = None,
            },
        }
    }
}

impl Pods {
    /// Ensures that each pod has a worker with the current desired state.
    fn arrange(&mut self, synced: bool) {
        let snapshot = self.feeds.pods.snapshot();
        let mut mirrors: BTreeMap<Key, Arc<Value>> = BTreeMap::new();
        let mut desired_pods: BTreeMap<String, Arc<Value>> = BTreeMap::new();
        for entry in snapshot.objects.iter() {
            let pod = Pod(&entry.value);
            if pod.is_mirror() {
                mirrors.insert(entry.key.clone(), Arc::clone(&entry.value));
            } else {
                desired_pods.insert(pod.uid().to_owned(), Arc::clone(&entry.value));
            }
        }
        for pod in self.feeds.statics.pods() {
            desired_pods.insert(Pod(&pod).uid().to_owned(), pod);
        }
        if synced {
            self.mirror(&mirrors);
            // Resources are released before other pods are admitted, which may need them.
            let is_here = |uid: &str| match self.handles.get(uid) {
                Some(handle) => !*handle.wakers.quiet.borrow(),
                None => desired_pods.contains_key(uid),
            };
            self.context.release_deleted(is_here);
        }
        let mut order: Vec<(&String, &Arc<Value>)> = desired_pods.iter().collect();
        // Older pods are admitted first.
        order.sort_by_key(|(uid, pod)| (Pod(pod).meta().creation_timestamp(), (*uid).clone()));
        for (uid, pod) in order {
            let mirror =
                Some(Pod(pod).key()).filter(|_| Pod(pod).is_static()).and_then(|key| mirrors.get(&key).cloned());
            self.want(uid, pod, mirror, &desired_pods);
        }
        // Before the initial sync, a missing pod is not known to be deleted.
        for handle in
            self.handles.iter().filter(|(uid, _)| synced && !desired_pods.contains_key(*uid)).map(|(_, handle)| handle)
        {
            handle.desired.send_if_modified(|desired| !std::mem::replace(&mut desired.deleted, true));
        }
        if synced && self.context.config.cgroups_per_qos {
            let requested_milli = crate::resources::burstable_milli(desired_pods.values().map(|pod| Pod(pod)));
            if let Err(error) = self.context.groups.weigh(requested_milli) {
                tracing::warn!(%error, "failed to set the CPU shares of the QoS classes");
            }
        }
        self.known.set(desired_pods);
    }

    /// Reconciles mirror pods with static pods; one change per mirror pod at a time.
    fn mirror(&mut self, mirrors: &BTreeMap<Key, Arc<Value>>) {
        for (key, mirroring) in static_pods::mirror(&self.feeds.statics.pods(), mirrors) {
            if self.mirroring.insert(key.clone()) {
                let work = static_pods::reflect(self.context.client.clone(), mirroring);
                let task = async move {
                    work.await;
                    key
                };
                self.mirrors.spawn(task.in_current_span());
            }
        }
    }

    fn want(
        &mut self,
        uid: &str,
        pod: &Arc<Value>,
        mirror: Option<Arc<Value>>,
        desired_pods: &BTreeMap<String, Arc<Value>>,
    ) {
        let same = |a: &Value, b: &Value| Meta::of(a).resource_version() == Meta::of(b).resource_version();
        if let Some(handle) = self.handles.get(uid) {
            let known = handle.desired.borrow().clone();
            let mirrored = match (&known.mirror, &mirror) {
                (Some(a), Some(b)) => same(a, b),
                (None, None) => true,
                _ => false,
            };
            let unchanged = same(&known.pod, pod) && mirrored;
            if unchanged && known.resize.is_none() {
                return;
            }
            let (pod, resize) =
                self.in_force(pod, &Allocation::of(Pod(&known.pod)), known.resize.as_ref(), desired_pods);
            if !unchanged || resize != known.resize {
                handle.desired.send_modify(|desired| {
                    (desired.pod, desired.mirror, desired.resize) = (pod, mirror, resize);
                });
            }
            return;
        }
        let given = resize::read(&self.context.volumes.pod_dir(uid));
        let (pod, resize) = match &given {
            Some(given) => self.in_force(pod, given, None, desired_pods),
            None => (Arc::clone(pod), None),
        };
        let mut end = self.check_admission(&pod);
        let allocation = Allocation::of(Pod(&pod));
        if given.is_none() && end.is_none() && !allocation.is_empty() && Pod(&pod).is_active() {
            let written = resize::write(&self.context.volumes.pod_dir(uid), &allocation);
            end = written.err().map(|error| self.reject(&pod, error.into()));
        }
        let span = spans::pod(Pod(&pod).namespace(), Pod(&pod).name(), uid);
        let (desired, wants) = watch::channel(DesiredPod { pod, mirror, deleted: false, end, resize });
        let wakers = Arc::new(Wakers::default());
        let work = pod_worker::run(Arc::clone(&self.context), wants, Arc::clone(&wakers));
        let name = uid.to_owned();
        let task = async move {
            // A panic affects one pod only: its worker starts again from the runtime's state.
            if let Err(error) = tokio::spawn(work.in_current_span()).await {
                tracing::error!(%error, "a pod worker failed");
                tokio::time::sleep(std::time::Duration::from_secs(10)).await;
            }
            name
        };
        self.workers.spawn(task.instrument(span));
        self.handles.insert(uid.to_owned(), Handle { desired, wakers });
    }

    /// Returns the effective pod: with its desired resources if they fit, otherwise with its allocated resources and
    /// the pending resize.
    // DEVIATION: deferred resizes are retried in the order of pod creation; upstream retries those of pods with higher
    // priority first.
    fn in_force(
        &self,
        pod: &Arc<Value>,
        given: &Allocation,
        known: Option<&Pending>,
        desired_pods: &BTreeMap<String, Arc<Value>>,
    ) -> (Arc<Value>, Option<Pending>) {
        let should = Allocation::of(Pod(pod));
        if should == *given || Pod(pod).is_static() {
            return (Arc::clone(pod), None);
        }
        let as_given = Arc::new(given.in_force(pod));
        if !Pod(pod).is_active() {
            return (as_given, None);
        }
        let mut others = self.active_pods(Pod(pod).uid());
        // At kubelet start some pods have no worker yet.
        let unheard =
            desired_pods.iter().filter(|(uid, other)| !self.handles.contains_key(*uid) && Pod(other).is_active());
        others.extend(unheard.filter(|(uid, _)| *uid != Pod(pod).uid()).map(|(_, other)| Arc::clone(other)));
        let others: Vec<Pod<'_>> = others.iter().map(|pod| Pod(pod)).collect();
        let exclusive_cpus = self.context.config.exclusive_cpus;
        let result = resize::evaluate(Pod(pod), &others, &self.context.allocatable, exclusive_cpus).and_then(|()| {
            let written = resize::write(&self.context.volumes.pod_dir(Pod(pod).uid()), &should);
            written.map_err(|error| Pending { reason: "Deferred", message: error.to_string() })
        });
        match result {
            Ok(()) => (Arc::clone(pod), None),
            Err(pending) => {
                if known.is_none_or(|known| known.reason != pending.reason) {
                    let reason = format!("Resize{}", pending.reason);
                    self.context.event_sink(Pod(pod)).pod(controller::EventType::Warning, &reason, &pending.message);
                }
                (as_given, Some(pending))
            }
        }
    }

    /// Returns the pods that use resources of the node, without the pod `but`.
    fn active_pods(&self, but: &str) -> Vec<Arc<Value>> {
        self.handles
            .iter()
            .filter(|(uid, _)| *uid != but)
            .map(|(_, handle)| handle.desired.borrow().clone())
            .filter(|desired| !desired.deleted && desired.end.is_none() && !Pod(&desired.pod).is_terminal())
            .map(|desired| desired.pod)
            .collect()
    }

    /// Runs admission for a new pod. Returns the cause and grace period if the pod is rejected.
    fn check_admission(&self, pod: &Value) -> Option<(Cause, i64)> {
        if Pod(pod).is_static() || !Pod(pod).is_active() {
            return None;
        }
        let node = self.feeds.node.snapshot();
        let node = node.objects.iter().next().map(|entry| &entry.value);
        let outcome = admission::check_conditions(Pod(pod), &self.feeds.node_conditions.borrow())
            .and_then(|()| admission::os(Pod(pod)))
            .and_then(|()| admission::node(Pod(pod), node))
            .and_then(|()| admission::groups(Pod(pod), node))
            .and_then(|()| admission::sysctls(Pod(pod), &self.context.config.allowed_unsafe_sysctls))
            .and_then(|()| admission::app_armor(Pod(pod), has_app_armor()))
            // Preemption comes last, since it is useful only if no other check rejects the pod.
            .and_then(|()| {
                let others = self.preempt(pod);
                let others: Vec<Pod<'_>> = others.iter().map(|pod| Pod(pod)).collect();
                admission::admit(Pod(pod), &others, &self.context.allocatable)
            })
            .and_then(|()| self.context.allocate(Pod(pod)));
        outcome.err().map(|rejection| self.reject(pod, rejection))
    }

    /// Evicts the pods that must make room for a critical pod, and returns the others.
    fn preempt(&self, pod: &Value) -> Vec<Arc<Value>> {
        let mut active_pods = self.active_pods(Pod(pod).uid());
        let others: Vec<Pod<'_>> = active_pods.iter().map(|pod| Pod(pod)).collect();
        let victims = admission::preempted(Pod(pod), &others, &self.context.allocatable);
        let mut preempted_uids = BTreeSet::new();
        for victim in victims {
            let message = "Preempted in order to admit critical pod".to_owned();
            self.context.event_sink(victim).pod(controller::EventType::Warning, "Preempting", &message);
            let cause = Cause::Failed { reason: "Preempting".to_owned(), message };
            let (uid, grace_seconds) = (victim.uid().to_owned(), victim.grace_seconds());
            preempted_uids.insert(uid.clone());
            self.evict(Eviction { uid, cause, grace_seconds, exit_sender: None });
        }
        active_pods.retain(|other| !preempted_uids.contains(Pod(other).uid()));
        active_pods
    }

    /// Reports the rejection of a pod and terminates it without a grace period.
    fn reject(&self, pod: &Value, rejection: Rejection) -> (Cause, i64) {
        let events = self.context.event_sink(Pod(pod));
        events.pod(controller::EventType::Warning, &rejection.reason, &rejection.message);
        (Cause::Failed { reason: rejection.reason, message: rejection.message }, 0)
    }

    fn worker_finished(&mut self, result: Result<String, tokio::task::JoinError>) {
        if let Ok(uid) = result {
            self.handles.remove(&uid);
        }
    }

    fn evict(&self, eviction: Eviction) {
        let Some(handle) = self.handles.get(&eviction.uid) else { return };
        handle.desired.send_modify(|desired| desired.end = Some((eviction.cause, eviction.grace_seconds)));
        if let Some(exit_sender) = eviction.exit_sender {
            let mut quiet = handle.wakers.quiet.subscribe();
            let task = async move {
                // A stopped worker has no running containers. The requester may also have stopped.
                let _ = quiet.wait_for(|quiet| *quiet).await;
                let _ = exit_sender.send(eviction.uid).await;
            };
            tokio::spawn(task.in_current_span());
        }
    }

    fn objects_changed(&self, changed: &ChangedKeys) {
        match changed {
            ChangedKeys::Keys(uids) => {
                for handle in uids.iter().filter_map(|uid| self.handles.get(uid.name.as_str())) {
                    handle.wakers.objects.notify_one();
                }
            }
            ChangedKeys::All => self.handles.values().for_each(|handle| handle.wakers.objects.notify_one()),
        }
    }

    fn on_container_event(&self, event: &v1::ContainerEventResponse) {
        let labels = event.pod_sandbox_status.as_ref().map(|status| &status.labels);
        let uid = labels.and_then(|labels| labels.get(labels::POD_UID));
        if let Some(handle) = uid.and_then(|uid| self.handles.get(uid)) {
            handle.wakers.runtime.notify_one();
        }
    }

    async fn listen(&self) -> Option<tonic::Streaming<v1::ContainerEventResponse>> {
        let mut runtime = self.context.runtime.runtime.clone();
        match runtime.get_container_events(v1::GetEventsRequest {}).await {
            Ok(response) => Some(response.into_inner()),
            Err(status) => {
                tracing::debug!(status = status.message(), "the runtime has no event stream");
                None
            }
        }
    }

    /// Removes sandboxes and volumes of pods that were deleted while no kubelet ran.
    async fn remove_strangers(&mut self) {
        let mut runtime = self.context.runtime.runtime.clone();
        let listed = match runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await {
            Ok(response) => response.into_inner().items,
            Err(status) => {
                tracing::warn!(status = status.message(), "failed to list sandboxes");
                return;
            }
        };
        let mut strangers = BTreeSet::new();
        for sandbox in listed {
            let Some(uid) = sandbox.labels.get(labels::POD_UID).filter(|uid| !self.handles.contains_key(*uid)) else {
                continue;
            };
            tracing::info!(uid, sandbox = sandbox.id, "removing the sandbox of a deleted pod");
            strangers.insert(uid.clone());
            if let Err(status) = self.context.runtime.remove_sandbox(&sandbox.id).await {
                tracing::warn!(uid, status = status.message(), "failed to remove a sandbox");
            }
        }
        let here = blocking::in_place(|| self.context.volumes.pods());
        strangers.extend(here.into_iter().filter(|uid| !self.handles.contains_key(uid)));
        // Other kubelets may use the same log directory, so only logs of pods that ran here are removed.
        blocking::in_place(|| self.context.logs.remove_strangers(&strangers));
        for uid in strangers {
            self.cleaners.spawn(clean_after(Arc::clone(&self.context), uid).in_current_span());
        }
    }
}

/// Undoes everything that was done for a deleted pod. Retries, since its drivers may not be registered yet.
async fn clean_after(context: Arc<Context>, uid: String) {
    if context.config.cgroups_per_qos
        && let Err(error) = blocking::in_place(|| context.groups.remove_all(&uid))
    {
        tracing::warn!(uid, %error, "failed to remove the cgroup of a deleted pod");
    }
    loop {
        // The record of prepared claims is removed with the volumes, so claims are unprepared first.
        let undone = match context.claims.unprepare(&uid).await {
            Ok(()) => context.volumes.remove(&uid).await.map_err(|error| error.describe()),
            Err(error) => Err(error.to_string()),
        };
        let Err(problem) = undone else { return };
        tracing::warn!(uid, problem, "failed to release the claims and volumes of a deleted pod");
        tokio::time::sleep(CLEAN_RETRY).await;
    }
}

fn has_app_armor() -> bool {
    std::fs::read_to_string("/sys/module/apparmor/parameters/enabled").is_ok_and(|text| text.starts_with('Y'))
}
