//! Executes scheduler steps as API requests.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;

use apimachinery::collection::Entry;
use apimachinery::meta::Meta;
use apimachinery::{Key, Str, Value, value};
use client::cache::Reader;
use client::{Client, DeleteOptions, Error, Patch, Target, WriteOptions};
use component_base::clock;
use controller::kinds;
use controller_runtime::Caches;
use scheduler::Pod;
use scheduler::engine::{Preemption, Wait};
use scheduler::plugins::default_preemption::Victim;
use scheduler::profile::Patience;
use scheduler::status::{self, Condition, Nomination};
use scheduler::storage::Plan;
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::devices::{self, Claims};
use crate::events::{Occurrence, Recorder, SCHEDULED, reference};
use crate::extenders::Extenders;
use crate::volumes;

/// Dependencies of the requests.
pub(crate) struct Executor {
    pub client: Client,
    pub caches: Arc<Caches>,
    pub pods: Reader<Value>,
    pub events: Recorder,
    pub extenders: Extenders,
    /// Timeouts by profile name.
    pub timeouts: BTreeMap<Str, Patience>,
}

/// A boxed `Send` future: the compiler can prove `Send` for each request, but not for their combination.
type Sending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Result of a step.
pub(crate) enum StepResult {
    /// The pod was bound. The caches show the written ResourceClaims.
    Bound(Arc<Pod>, BTreeSet<Key>),
    /// Binding failed with this message. The caches show the written ResourceClaims.
    BindFailed(Arc<Pod>, String, BTreeSet<Key>),
    /// The condition was written and victims, if any, were evicted.
    Reported,
    /// The victims could not be evicted.
    PreemptionFailed(Arc<Pod>),
}

impl Executor {
    /// Binds volumes and devices, then the pod. If that may take minutes, `nominatedNodeName` is set first, for the
    /// cluster autoscaler, and cleared on failure.
    pub(crate) async fn bind(
        &self,
        pod: Arc<Pod>,
        node: Str,
        plan: Plan,
        devices: scheduler::devices::Plan,
    ) -> StepResult {
        let quick = plan == Plan::default() && devices == scheduler::devices::Plan::default();
        let announced = if quick {
            None
        } else {
            let announcement: Sending<'_, Option<Value>> = Box::pin(self.announce(&pod, &node));
            announcement.await
        };
        let done = self.pre_bind(pod, node, plan, devices).await;
        if let (StepResult::BindFailed(..), Some(object)) = (&done, announced)
            && let Err(error) = patch_status(&self.client, &object, None, &Nomination::Set(Str::default())).await
        {
            tracing::warn!(pod = %Key::of(&object), %error, "failed to clear the pod's nominatedNodeName");
        }
        done
    }

    async fn announce(&self, pod: &Pod, node: &Str) -> Option<Value> {
        let key = Key::new(pod.class.namespace.clone(), pod.name.clone());
        let entry = self.entry(&key).filter(|entry| Meta::of(&entry.value).uid() == pod.uid)?;
        let result = write(&self.client, &entry.value, None, &Nomination::Set(node.clone())).await;
        result.inspect_err(|error| tracing::debug!(pod = %key, %error, "failed to set nominatedNodeName")).ok()
    }

    async fn pre_bind(&self, pod: Arc<Pod>, node: Str, plan: Plan, devices: scheduler::devices::Plan) -> StepResult {
        if plan != Plan::default() {
            let given: Sending<'_, Result<(), String>> =
                Box::pin(volumes::bind(&self.client, &self.caches, &plan, &node, self.timeouts_for(&pod).volumes));
            if let Err(message) = given.await {
                return StepResult::BindFailed(pod, message, BTreeSet::new());
            }
        }
        if devices == scheduler::devices::Plan::default() {
            return match self.bind_to(&pod, &node).await {
                Ok(()) => StepResult::Bound(pod, BTreeSet::new()),
                Err(message) => StepResult::BindFailed(pod, message, BTreeSet::new()),
            };
        }
        let mut claims = Claims::new(self.client.clone(), Arc::clone(&self.caches), Arc::clone(&pod));
        let reserved: Sending<'_, Result<(), String>> = Box::pin(self.reserve(&mut claims, devices, &pod, &node));
        let bound = match reserved.await {
            Ok(()) => self.bind_to(&pod, &node).await,
            Err(message) => Err(format!("running PreBind plugin \"DynamicResources\": {message}")),
        };
        if bound.is_err() {
            let unreserved: Sending<'_, ()> = Box::pin(claims.unreserve());
            unreserved.await;
        }
        // The caches must show the writes before the devices count as free or as the pod's.
        let written = claims.seen().await;
        match bound {
            Ok(()) => StepResult::Bound(pod, written),
            Err(message) => StepResult::BindFailed(pod, message, written),
        }
    }

    async fn reserve(
        &self,
        claims: &mut Claims,
        plan: scheduler::devices::Plan,
        pod: &Pod,
        node: &str,
    ) -> Result<(), String> {
        let keys = claims.reserve(plan).await?;
        if claims.are_ready(&keys)? {
            return Ok(());
        }
        let note = format!("waiting for binding conditions for device on node {node}");
        self.record_event(pod, "Normal", "BindingConditionsPending", "Scheduling", note);
        claims.ready(&keys, self.timeouts_for(pod).devices).await
    }

    fn timeouts_for(&self, pod: &Pod) -> Patience {
        self.timeouts.get(&pod.scheduler_name).copied().unwrap_or_default()
    }

    async fn bind_to(&self, pod: &Pod, node: &str) -> Result<(), String> {
        let by_extender: Sending<'_, Option<Result<(), String>>> = Box::pin(self.extenders.bind(pod, node));
        if let Some(bound) = by_extender.await {
            bound?;
            self.record_scheduled(pod, node);
            return Ok(());
        }
        let target = Target::named(&kinds::PODS, pod.class.namespace.clone(), pod.name.clone()).subresource("binding");
        let binding = status::binding(pod, node);
        match self.client.create(&target, &binding, &WriteOptions::default()).await {
            Ok(_) => {
                self.record_scheduled(pod, node);
                Ok(())
            }
            Err(error) => Err(format!("running Bind plugin \"DefaultBinder\": {error}")),
        }
    }

    fn record_scheduled(&self, pod: &Pod, node: &str) {
        let note = format!("Successfully assigned {}/{} to {node}", pod.class.namespace, pod.name);
        self.record_event(pod, "Normal", SCHEDULED, "Binding", note);
    }

    /// Reports an unschedulable pod and evicts its victims.
    pub(crate) async fn wait(&self, wait: Wait) -> StepResult {
        let Wait { pod, reason, message, nomination, preemption, release } = wait;
        if let Some(release) = release {
            devices::release(self.client.clone(), Arc::clone(&self.caches), release).await;
        }
        self.record_event(&pod, "Warning", "FailedScheduling", "Scheduling", status::note(&message));
        let condition = Condition::waits(reason, &message);
        let key = Key::new(pod.class.namespace.clone(), pod.name.clone());
        let status_write = self.write_status(&key, &pod.uid, Some(&condition), &nomination);
        let Some(preemption) = preemption else {
            status_write.await;
            return StepResult::Reported;
        };
        let (_, preempted) = tokio::join!(status_write, self.preempt(&pod, &preemption));
        match preempted {
            Ok(()) => StepResult::Reported,
            Err(error) => {
                tracing::error!(pod = %key, %error, "failed to evict pods for preemption");
                StepResult::PreemptionFailed(pod)
            }
        }
    }

    /// Reports that a terminating pod is skipped.
    pub(crate) fn skip(&self, pod: &Pod) {
        let note = format!("skip schedule deleting pod: {}/{}", pod.class.namespace, pod.name);
        self.record_event(pod, "Warning", "FailedScheduling", "Scheduling", note);
    }

    /// Clears the nominations of outbid pods, then evicts the victims concurrently.
    async fn preempt(&self, pod: &Pod, preemption: &Preemption) -> Result<(), Error> {
        for other in preemption.outbid.iter().filter_map(|key| self.entry(key)) {
            let cleared = patch_status(&self.client, &other.value, None, &Nomination::Set(Str::default())).await;
            if let Err(error) = cleared {
                tracing::warn!(pod = %other.key, %error, "failed to clear the pod's nominatedNodeName");
            }
        }
        let condition = Condition::preempted(&pod.scheduler_name);
        let mut going = JoinSet::new();
        for victim in &preemption.victims {
            let Some(entry) = self.victim(victim) else { continue };
            let note = format!("Preempted by pod {} on node {}", pod.uid, preemption.node);
            let occurrence = Occurrence {
                regarding: reference(&entry.value),
                related: Some(self.reference(pod)),
                kind: "Normal",
                reason: "Preempted",
                action: "Preempting",
                note,
                controller: pod.scheduler_name.clone(),
            };
            let (client, events, condition) = (self.client.clone(), self.events.clone(), condition.clone());
            let task = async move {
                evict(&client, &entry.value, &condition).await?;
                events.record(occurrence);
                Ok(())
            };
            going.spawn(task.in_current_span());
        }
        let mut outcome = Ok(());
        while let Some(one) = going.join_next().await {
            outcome = outcome.and(one.unwrap_or(Ok(())));
        }
        outcome
    }

    /// Returns the current object of a victim; `None` if it is deleted or terminating.
    fn victim(&self, victim: &Victim) -> Option<Arc<Entry<Value>>> {
        let entry = self.entry(&Key::new(victim.namespace.clone(), victim.name.clone()))?;
        (!Meta::of(&entry.value).is_deleting()).then_some(entry)
    }

    async fn write_status(&self, key: &Key, uid: &str, condition: Option<&Condition>, nomination: &Nomination) {
        let Some(entry) = self.entry(key).filter(|entry| Meta::of(&entry.value).uid() == uid) else { return };
        if let Err(error) = patch_status(&self.client, &entry.value, condition, nomination).await {
            tracing::warn!(pod = %key, %error, "failed to update the pod's status");
        }
    }

    fn record_event(&self, pod: &Pod, kind: &'static str, reason: &'static str, action: &'static str, note: String) {
        let (regarding, controller) = (self.reference(pod), pod.scheduler_name.clone());
        self.events.record(Occurrence { regarding, related: None, kind, reason, action, note, controller });
    }

    fn reference(&self, pod: &Pod) -> Value {
        let entry = self.entry(&Key::new(pod.class.namespace.clone(), pod.name.clone()));
        match entry.filter(|entry| Meta::of(&entry.value).uid() == pod.uid) {
            Some(entry) => reference(&entry.value),
            None => value!({
                "apiVersion": "v1", "kind": "Pod", "namespace": (pod.class.namespace.as_str()),
                "name": (pod.name.as_str()), "uid": (pod.uid.as_str()),
            }),
        }
    }

    fn entry(&self, key: &Key) -> Option<Arc<Entry<Value>>> {
        self.pods.get(key)
    }
}

/// Sets the DisruptionTarget condition, then deletes the pod. Succeeds if the pod does not exist.
async fn evict(client: &Client, object: &Value, condition: &Condition) -> Result<(), Error> {
    patch_status(client, object, Some(condition), &Nomination::Keep).await?;
    let options = DeleteOptions::of(Meta::of(object).uid());
    let deleted = client.delete(&Target::object(&kinds::PODS, &Key::of(object)), &options).await;
    deleted.map(drop).or_else(ignore_deleted)
}

async fn patch_status(
    client: &Client,
    object: &Value,
    condition: Option<&Condition>,
    nomination: &Nomination,
) -> Result<(), Error> {
    write(client, object, condition, nomination).await.map(drop).or_else(ignore_deleted)
}

/// Updates the status of a pod and returns the updated pod.
async fn write(
    client: &Client,
    object: &Value,
    condition: Option<&Condition>,
    nomination: &Nomination,
) -> Result<Value, Error> {
    let Some(patch) = status::patch(object, condition, nomination, clock::now()) else { return Ok(object.clone()) };
    let target = Target::object(&kinds::PODS, &Key::of(object)).subresource("status");
    client.patch(&target, &Patch::Strategic(patch), &WriteOptions::default()).await
}

/// Ignores errors that mean that the pod was deleted or re-created.
fn ignore_deleted(error: Error) -> Result<(), Error> {
    if error.is_not_found() || error.is_conflict() { Ok(()) } else { Err(error) }
}
