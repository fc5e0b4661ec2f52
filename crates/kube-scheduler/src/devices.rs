//! Allocates and reserves ResourceClaims before binding: writes the plan and waits until the devices are ready.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::resources::RESOURCE_CLAIMS;
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::{Key, Value, value};
use client::{Client, DeleteOptions, Error, Patch, Target, WriteOptions};
use component_base::clock;
use controller::kinds;
use controller_runtime::Caches;
use scheduler::Pod;
use scheduler::devices::{Create, EXTENDED_ANNOTATION, Plan, Reserve};
use scheduler::framework::Release;

/// Finalizer that protects a claim while it is allocated.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// Maximum attempts to write a claim after conflicts.
const ATTEMPTS_MAX: usize = 5;

/// The ResourceClaims of one pod during binding.
pub(crate) struct Claims {
    client: Client,
    caches: Arc<Caches>,
    pod: Arc<Pod>,
    /// Written claims with their UIDs.
    written: Vec<(Key, String)>,
    /// Claim created for extended resources.
    made: Option<Key>,
    revision: u64,
}

impl Claims {
    pub(crate) const fn new(client: Client, caches: Arc<Caches>, pod: Arc<Pod>) -> Self {
        Self { client, caches, pod, written: Vec::new(), made: None, revision: 0 }
    }

    /// Executes a plan and returns its claims, or the reason of the failure.
    pub(crate) async fn reserve(&mut self, plan: Plan) -> Result<Vec<Key>, String> {
        let mut claims = Vec::with_capacity(plan.reserve.len());
        for reserve in &plan.reserve {
            if !reserve.reserved || reserve.allocation.is_some() {
                self.write(reserve).await?;
            }
            claims.push(reserve.key.clone());
        }
        if let Some(create) = &plan.create {
            claims.push(self.make(create).await?);
        }
        self.reached().await?;
        Ok(claims)
    }

    /// Whether the binding conditions of all devices are true; fails if they never will be.
    pub(crate) fn are_ready(&self, claims: &[Key]) -> Result<bool, String> {
        let Some(reader) = self.caches.reader(RESOURCE_CLAIMS) else { return Ok(true) };
        let objects = reader.snapshot().objects;
        let mut all = true;
        for claim in claims.iter().filter_map(|key| objects.get(key)) {
            all &= is_ready(claim)?;
        }
        Ok(all)
    }

    /// Waits until the devices are ready. After `timeout`, deallocates the claims and fails.
    pub(crate) async fn ready(&self, claims: &[Key], timeout: Duration) -> Result<(), String> {
        let Some(mut reader) = self.caches.reader(RESOURCE_CLAIMS).cloned() else { return Ok(()) };
        let deadline = tokio::time::Instant::now() + timeout;
        while !self.are_ready(claims)? {
            match tokio::time::timeout_at(deadline, reader.advanced()).await {
                Ok(advanced) => advanced.map_err(|error| error.to_string())?,
                Err(_) => {
                    for key in claims {
                        let release = Release::Deallocate(key.clone());
                        self::release(self.client.clone(), Arc::clone(&self.caches), release).await;
                    }
                    return Err("device binding timeout".to_owned());
                }
            }
        }
        Ok(())
    }

    /// Removes the pod from `reservedFor` of the claims, and deletes the claim created for it.
    pub(crate) async fn unreserve(&mut self) {
        for (key, uid) in &self.written {
            let user = value!({"$patch": "delete", "uid": (self.pod.uid.as_str())});
            let patch = value!({"metadata": {"uid": (uid.as_str())}, "status": {"reservedFor": [user]}});
            let target = Target::object(&kinds::RESOURCE_CLAIMS, key).subresource("status");
            match self.client.patch(&target, &Patch::Strategic(patch), &WriteOptions::default()).await {
                Ok(object) => self.revision = self.revision.max(revision(&object)),
                Err(error) => tracing::warn!(claim = %key, %error, "failed to remove the pod from reservedFor"),
            }
        }
        if let Some(key) = self.made.clone() {
            delete(self.client.clone(), Arc::clone(&self.caches), key).await;
        }
    }

    /// Waits until the cache shows the writes; returns the written claims.
    pub(crate) async fn seen(self) -> BTreeSet<Key> {
        if let Err(error) = self.reached().await {
            tracing::warn!(error, "the cache did not show the ResourceClaims as written");
        }
        self.written.into_iter().map(|(key, _)| key).chain(self.made).collect()
    }

    /// Writes allocation and reservation of a claim.
    async fn write(&mut self, reserve: &Reserve) -> Result<(), String> {
        let name = format!("{}/{}", reserve.key.namespace, reserve.key.name);
        let mut object =
            self.caches.get(RESOURCE_CLAIMS, &reserve.key).ok_or_else(|| format!("claim {name} is gone"))?;
        for attempt in 1.. {
            if Meta::of(&object).uid() != reserve.uid || Meta::of(&object).is_deleting() {
                return Err(format!("claim {name} got deleted in the meantime"));
            }
            if reserve.allocation.is_some() && object.at(&["status", "allocation"]).is_some_and(|it| !it.is_null()) {
                return Err(format!("claim {name} got allocated elsewhere in the meantime"));
            }
            match self.write_once(&mut object, reserve.allocation.as_ref()).await {
                Ok(()) => break,
                Err(error) if error.is_conflict() && attempt < ATTEMPTS_MAX => {
                    let fresh = self.client.get(&Target::object(&kinds::RESOURCE_CLAIMS, &reserve.key)).await;
                    object = fresh.map_err(|error| format!("get updated claim {name} after conflict: {error}"))?;
                }
                Err(error) if reserve.allocation.is_some() => {
                    return Err(format!("add allocation and reservation to claim {name}: {error}"));
                }
                Err(error) => return Err(format!("add reservation to claim {name}: {error}")),
            }
        }
        Ok(())
    }

    async fn write_once(&mut self, object: &mut Value, allocation: Option<&Value>) -> Result<(), Error> {
        let key = Key::of(object);
        let target = Target::object(&kinds::RESOURCE_CLAIMS, &key);
        if let Some(allocation) = allocation {
            if MetaMut::of(object).is_some_and(|mut meta| meta.add_finalizer(FINALIZER)) {
                *object = self.client.update(&target, object, &WriteOptions::default()).await?;
            }
            let mut allocation = allocation.clone();
            if let Some(fields) = allocation.as_object_mut() {
                fields.insert("allocationTimestamp", clock::now().to_seconds().to_string());
            }
            set_status(object, "allocation", allocation);
        }
        let mut users = object.list_at(&["status", "reservedFor"]).to_vec();
        let (name, uid) = (self.pod.name.as_str(), self.pod.uid.as_str());
        if !users.iter().any(|user| user.str_at(&["uid"]) == Some(uid)) {
            users.push(value!({"resource": "pods", "name": name, "uid": uid}));
        }
        set_status(object, "reservedFor", Value::Array(users));
        let written = self.client.update(&target.subresource("status"), object, &WriteOptions::default()).await?;
        self.revision = self.revision.max(revision(&written));
        self.written.push((key, Meta::of(&written).uid().to_owned()));
        Ok(())
    }

    /// Creates a claim for the pod's extended resources and records it in the pod's status.
    async fn make(&mut self, create: &Create) -> Result<Key, String> {
        let namespace = self.pod.class.namespace.clone();
        let pod = Arc::clone(&self.pod);
        let (name, uid) = (pod.name.as_str(), pod.uid.as_str());
        let owner = value!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": true});
        let mut object = value!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"namespace": (namespace.as_str()), "generateName": (format!("{name}-extended-resources-")),
                "ownerReferences": [owner]},
            "spec": {"devices": {"requests": (create.requests.clone())}},
        });
        if let Some(mut meta) = MetaMut::of(&mut object) {
            meta.set_annotation(EXTENDED_ANNOTATION, "true");
        }
        let target = Target::within(&kinds::RESOURCE_CLAIMS, namespace);
        let made = self.client.create(&target, &object, &WriteOptions::default()).await;
        let mut made = made.map_err(|error| format!("create claim for extended resources: {error}"))?;
        let key = Key::of(&made);
        self.made = Some(key.clone());
        let written = self.write_once(&mut made, Some(&create.allocation)).await;
        // If binding fails, the claim is deleted instead of being unreserved.
        self.written.retain(|(written, _)| *written != key);
        written.map_err(|error| format!("add allocation and reservation to claim {key}: {error}"))?;
        let claim = value!({"resourceClaimName": (key.name.as_str()), "requestMappings": (create.mappings.clone())});
        let patch = value!({"metadata": {"uid": uid}, "status": {"extendedResourceClaimStatus": claim}});
        let target = Target::named(&kinds::PODS, self.pod.class.namespace.clone(), name).subresource("status");
        let result = self.client.patch(&target, &Patch::Strategic(patch), &WriteOptions::default()).await;
        result.map_err(|error| {
            format!("update pod {}/{name} ExtendedResourceClaimStatus: {error}", self.pod.class.namespace)
        })?;
        Ok(key)
    }

    async fn reached(&self) -> Result<(), String> {
        match self.caches.reader(RESOURCE_CLAIMS) {
            Some(reader) => reader.reached(self.revision).await.map_err(|error| error.to_string()),
            None => Err("claims of devices are not watched".to_owned()),
        }
    }
}

/// Releases a claim with which no node is feasible.
pub(crate) async fn release(client: Client, caches: Arc<Caches>, release: Release) {
    match release {
        Release::Delete(key) => delete(client, caches, key).await,
        Release::Deallocate(key) => {
            let Some(mut object) = caches.get(RESOURCE_CLAIMS, &key) else { return };
            if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
                status.retain(|field, _| !matches!(field, "allocation" | "reservedFor" | "devices"));
            }
            let target = Target::object(&kinds::RESOURCE_CLAIMS, &key).subresource("status");
            if let Err(error) = client.update(&target, &object, &WriteOptions::default()).await {
                tracing::warn!(claim = %key, %error, "failed to deallocate the ResourceClaim");
            }
        }
    }
}

/// Removes the finalizer of a claim and deletes it. A claim that does not exist is not an error.
async fn delete(client: Client, caches: Arc<Caches>, key: Key) {
    match try_delete(client, caches.get(RESOURCE_CLAIMS, &key), &key).await {
        Err(error) if !error.is_not_found() => {
            tracing::warn!(claim = %key, %error, "failed to delete the ResourceClaim for extended resources");
        }
        _ => {}
    }
}

async fn try_delete(client: Client, cached: Option<Value>, key: &Key) -> Result<Value, Error> {
    let target = Target::object(&kinds::RESOURCE_CLAIMS, key);
    let mut object = match cached {
        Some(object) => object,
        None => client.get(&target).await?,
    };
    if MetaMut::of(&mut object).is_some_and(|mut meta| meta.remove_finalizer(FINALIZER)) {
        object = client.update(&target, &object, &WriteOptions::default()).await?;
    }
    client.delete(&target, &DeleteOptions::of(Meta::of(&object).uid())).await
}

/// Whether all devices of a claim are ready; fails if a device never will be.
fn is_ready(claim: &Value) -> Result<bool, String> {
    let list = |value: &Value, field: &str| value.get(field).and_then(Value::as_array).unwrap_or_default().to_vec();
    let status = claim.get("status").unwrap_or(&Value::Null);
    let results = status.at(&["allocation", "devices"]).map(|devices| list(devices, "results")).unwrap_or_default();
    for result in results.iter().filter(|result| !list(result, "bindingConditions").is_empty()) {
        let same = |device: &&Value| {
            ["driver", "pool", "device"].iter().all(|it| device.str_at(&[it]) == result.str_at(&[it]))
        };
        let Some(device) = list(status, "devices").iter().find(same).cloned() else { return Ok(false) };
        let conditions = list(&device, "conditions");
        let truth = |name: &Value| {
            let own = |it: &&Value| it.str_at(&["type"]) == name.as_str() && it.str_at(&["status"]) == Some("True");
            conditions.iter().find(own)
        };
        if let Some(failed) = list(result, "bindingFailureConditions").iter().find_map(truth) {
            let text = |field: &str| failed.text_at(&[field]);
            let (name, reason, message) = (Meta::of(claim).name(), text("reason"), text("message"));
            return Err(format!("claim {name} binding failed: reason={reason}, message={message:?}"));
        }
        if !list(result, "bindingConditions").iter().all(|name| truth(name).is_some()) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn set_status(object: &mut Value, field: &str, value: Value) {
    if let Some(fields) = object.as_object_mut()
        && let Some(status) = fields.get_or_insert_with("status", Value::object).as_object_mut()
    {
        status.insert(field, value);
    }
}

fn revision(object: &Value) -> u64 {
    Meta::of(object).resource_version().parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_is_ready_when_binding_conditions_of_all_devices_are_true() {
        let check = |conditions: Value, expect: Result<bool, &str>| {
            let result = value!({"driver": "d", "pool": "p", "device": "x",
                "bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"]});
            let plain = value!({"driver": "d", "pool": "p", "device": "y"});
            let device = value!({"driver": "d", "pool": "p", "device": "x", "conditions": conditions});
            let claim = value!({"metadata": {"name": "c"}, "status": {
                "allocation": {"devices": {"results": [plain, result]}}, "devices": [device]}});
            assert_eq!(is_ready(&claim), expect.map_err(str::to_owned));
        };
        check(value!([]), Ok(false));
        check(value!([{"type": "Attached", "status": "False"}]), Ok(false));
        check(value!([{"type": "Attached", "status": "True"}]), Ok(true));
        let broken = value!([{"type": "Broken", "status": "True", "reason": "R", "message": "m"}]);
        check(broken, Err("claim c binding failed: reason=R, message=\"m\""));
    }
}
