//! DRA manager: drivers prepare the allocated ResourceClaims of a pod, and containers get the devices by CDI name.
//!
//! A file in the pod's directory records the prepared claims, so that a restarted kubelet passes them to containers and
//! unprepares them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use apimachinery::meta::Meta;
use apimachinery::{Value, json, value};
use client::{Client, Target};
use controller::kinds;
use node_api::dra as v1;
use node_api::dra::dra_plugin_client::DraPluginClient;
use tonic::transport::Channel;

use super::{Drivers, Kind};
use crate::blocking;
use crate::checkpoint;
use crate::pod::{Container, Pod};

/// File name of the record of prepared claims.
const FILE: &str = "claims.json";
/// Timeout of a driver call.
const TIMEOUT: Duration = Duration::from_secs(45);

/// The claims of a pod could not be prepared or unprepared.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    #[error("resource claim {0}: {1}")]
    Claim(String, String),
    #[error("resource claim {name}: {problem}")]
    Api { name: String, problem: String },
    #[error("DRA driver {0} is not registered")]
    Absent(String),
    #[error("DRA driver {driver}: {problem}")]
    Driver {
        driver: String,
        /// The driver's error message.
        problem: String,
    },
    #[error("failed to save the prepared claims")]
    Io(#[from] std::io::Error),
}

/// Prepares and unprepares the ResourceClaims of pods.
pub struct Claims {
    client: Client,
    drivers: Drivers,
    pods: PathBuf,
}

/// A prepared device.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Device {
    /// The requests of the claim that the device serves.
    requests: Vec<String>,
    /// CDI device names.
    names: Vec<String>,
}

/// The devices that one driver prepared for one claim.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PreparedClaim {
    /// The name of the claim within the pod.
    name: String,
    driver: String,
    claim: v1::Claim,
    devices: Vec<Device>,
}

impl Claims {
    /// Creates a manager for pods whose directories are below `root`.
    pub fn new(client: Client, drivers: Drivers, root: &Path) -> Self {
        Self { client, drivers, pods: root.join("pods") }
    }

    /// Prepares all claims of a pod. Idempotent.
    pub async fn prepare(&self, pod: Pod<'_>) -> Result<(), ClaimError> {
        let references = pod.list("resourceClaims");
        let dir = self.pods.join(pod.uid());
        if references.is_empty() || dir.join(FILE).exists() {
            return Ok(());
        }
        let mut found: Vec<(String, Value)> = Vec::new();
        for reference in references {
            let Some((name, claim)) = claim_of(pod, reference)? else { continue };
            let result =
                self.client.get(&Target::named(&kinds::RESOURCE_CLAIMS, pod.namespace(), claim.as_str())).await;
            let object = result.map_err(|error| ClaimError::Api { name: claim, problem: error.to_string() })?;
            is_usable(pod, &object)?;
            found.push((name, object));
        }
        let mut prepared = Vec::new();
        for (driver, claims) in by_driver(&found) {
            prepared.extend(self.prepare_by(&driver, &claims).await?);
        }
        blocking::in_place(|| write(&dir, &prepared))?;
        Ok(())
    }

    /// Returns the CDI device names of a container.
    pub fn devices(&self, pod: Pod<'_>, container: Container<'_>) -> Vec<String> {
        names(&read(&self.pods.join(pod.uid())), container)
    }

    /// Unprepares the claims of a pod that no other pod uses.
    pub async fn unprepare(&self, uid: &str) -> Result<(), ClaimError> {
        let dir = self.pods.join(uid);
        for one in blocking::in_place(|| self.of_pod_alone(&dir)) {
            let mut driver = self.driver(&one.driver)?;
            let request = v1::NodeUnprepareResourcesRequest { claims: vec![one.claim.clone()] };
            let response = await_response(&one.driver, driver.node_unprepare_resources(request)).await?;
            let problem =
                response.claims.get(&one.claim.uid).map(|response| response.error.clone()).unwrap_or_default();
            if !problem.is_empty() {
                return Err(ClaimError::Driver { driver: one.driver, problem });
            }
        }
        match blocking::in_place(|| fs::remove_file(dir.join(FILE))) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Returns the prepared claims that no other pod uses.
    fn of_pod_alone(&self, dir: &Path) -> Vec<PreparedClaim> {
        let others = fs::read_dir(&self.pods).into_iter().flatten().flatten().map(|entry| entry.path());
        let used: BTreeSet<String> =
            others.filter(|other| other != dir).flat_map(|other| read(&other)).map(|one| one.claim.uid).collect();
        read(dir).into_iter().filter(|one| !used.contains(&one.claim.uid)).collect()
    }

    async fn prepare_by(&self, driver: &str, claims: &[(String, v1::Claim)]) -> Result<Vec<PreparedClaim>, ClaimError> {
        let mut client = self.driver(driver)?;
        let request = v1::NodePrepareResourcesRequest { claims: claims.iter().map(|(_, one)| one.clone()).collect() };
        let response = await_response(driver, client.node_prepare_resources(request)).await?;
        let failed = |problem: String| ClaimError::Driver { driver: driver.to_owned(), problem };
        let one = |(name, claim): &(String, v1::Claim)| {
            let found = response.claims.get(&claim.uid);
            let found = found.ok_or_else(|| failed(format!("returned no result for claim {}", claim.name)))?;
            if !found.error.is_empty() {
                return Err(failed(found.error.clone()));
            }
            let device = |device: &v1::Device| Device {
                requests: device.request_names.clone(),
                names: device.cdi_device_ids.clone(),
            };
            let devices = found.devices.iter().map(device).collect();
            Ok(PreparedClaim { name: name.clone(), driver: driver.to_owned(), claim: claim.clone(), devices })
        };
        claims.iter().map(one).collect()
    }

    fn driver(&self, name: &str) -> Result<DraPluginClient<Channel>, ClaimError> {
        let channel = self.drivers.find(Kind::Dra, name).ok_or_else(|| ClaimError::Absent(name.to_owned()))?;
        Ok(DraPluginClient::new(channel))
    }
}

/// Returns the name of a claim within the pod and the name of its ResourceClaim; `None` if no claim was needed.
fn claim_of(pod: Pod<'_>, reference: &Value) -> Result<Option<(String, String)>, ClaimError> {
    let name = reference.str_at(&["name"]).unwrap_or_default().to_owned();
    if let Some(claim) = reference.str_at(&["resourceClaimName"]) {
        return Ok(Some((name, claim.to_owned())));
    }
    let statuses = pod.0["status"]["resourceClaimStatuses"].as_array().unwrap_or_default();
    match statuses.iter().find(|status| status.str_at(&["name"]) == Some(name.as_str())) {
        Some(status) => Ok(status.str_at(&["resourceClaimName"]).map(|claim| (name, claim.to_owned()))),
        None => Err(ClaimError::Claim(name, "it was not made yet".to_owned())),
    }
}

fn is_usable(pod: Pod<'_>, claim: &Value) -> Result<(), ClaimError> {
    let reserved = claim["status"]["reservedFor"].as_array().unwrap_or_default();
    let name = || Meta::of(claim).name().to_owned();
    if claim["status"].get("allocation").is_none_or(Value::is_null) {
        return Err(ClaimError::Claim(name(), "it is not allocated".to_owned()));
    }
    if !reserved.iter().any(|one| one.str_at(&["uid"]) == Some(pod.uid())) {
        let problem = format!("pod {} is not allowed to use it", pod.described());
        return Err(ClaimError::Claim(name(), problem));
    }
    Ok(())
}

/// Groups claims by the drivers of their allocated devices.
fn by_driver(claims: &[(String, Value)]) -> BTreeMap<String, Vec<(String, v1::Claim)>> {
    let mut drivers: BTreeMap<String, Vec<(String, v1::Claim)>> = BTreeMap::new();
    for (name, object) in claims {
        let results = object["status"]["allocation"]["devices"]["results"].as_array().unwrap_or_default();
        let of: BTreeSet<&str> = results.iter().filter_map(|result| result.str_at(&["driver"])).collect();
        let meta = Meta::of(object);
        let claim = v1::Claim {
            namespace: meta.namespace().to_owned(),
            uid: meta.uid().to_owned(),
            name: meta.name().to_owned(),
        };
        for driver in of {
            drivers.entry(driver.to_owned()).or_default().push((name.clone(), claim.clone()));
        }
    }
    drivers
}

/// Returns the CDI device names of the claims, or single requests of claims, that a container refers to.
fn names(prepared: &[PreparedClaim], container: Container<'_>) -> Vec<String> {
    let mut names = Vec::new();
    for entry in container.spec["resources"]["claims"].as_array().unwrap_or_default() {
        let (claim, request) = (entry.str_at(&["name"]), entry.str_at(&["request"]).unwrap_or_default());
        for one in prepared.iter().filter(|one| Some(one.name.as_str()) == claim) {
            let meant = |device: &&Device| {
                // A request with alternatives is reported as `request/alternative`.
                let is = |given: &String| given == request || given.split('/').next() == Some(request);
                request.is_empty() || device.requests.is_empty() || device.requests.iter().any(is)
            };
            names.extend(one.devices.iter().filter(meant).flat_map(|device| device.names.iter().cloned()));
        }
    }
    names
}

fn read(dir: &Path) -> Vec<PreparedClaim> {
    let parsed = fs::read(dir.join(FILE)).ok().and_then(|text| json::parse(&text).ok()).unwrap_or_default();
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().unwrap_or_default().iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let one = |value: &Value| {
        let text = |field: &str| value.str_at(&[field]).unwrap_or_default().to_owned();
        let devices = value["devices"].as_array().unwrap_or_default();
        PreparedClaim {
            name: text("name"),
            driver: text("driver"),
            claim: v1::Claim { namespace: text("namespace"), uid: text("uid"), name: text("claim") },
            devices: devices
                .iter()
                .map(|device| Device { requests: texts(&device["requests"]), names: texts(&device["names"]) })
                .collect(),
        }
    };
    parsed.as_array().unwrap_or_default().iter().map(one).collect()
}

fn write(dir: &Path, prepared: &[PreparedClaim]) -> std::io::Result<()> {
    let texts = |texts: &[String]| -> Vec<Value> { texts.iter().map(|text| Value::from(text.as_str())).collect() };
    let one = |one: &PreparedClaim| {
        let devices: Vec<Value> = one
            .devices
            .iter()
            .map(|device| value!({"requests": (texts(&device.requests)), "names": (texts(&device.names))}))
            .collect();
        value!({"name": (one.name.as_str()), "driver": (one.driver.as_str()), "claim": (one.claim.name.as_str()),
            "namespace": (one.claim.namespace.as_str()), "uid": (one.claim.uid.as_str()), "devices": devices})
    };
    let list: Vec<Value> = prepared.iter().map(one).collect();
    checkpoint::write(dir, FILE, &Value::Array(list))
}

async fn await_response<T>(
    driver: &str,
    future: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, ClaimError> {
    let failed = |problem: String| ClaimError::Driver { driver: driver.to_owned(), problem };
    match tokio::time::timeout(TIMEOUT, future).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(failed(status.message().to_owned())),
        Err(_) => Err(failed(format!("no response in {} seconds", TIMEOUT.as_secs()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared() -> Vec<PreparedClaim> {
        let device = |request: &str, name: &str| Device { requests: vec![request.into()], names: vec![name.into()] };
        let claim = v1::Claim { namespace: "n".into(), uid: "u".into(), name: "claim-1".into() };
        let devices = vec![device("one", "d=1"), device("two/large", "d=2")];
        vec![PreparedClaim { name: "gpu".into(), driver: "d".into(), claim, devices }]
    }

    #[test]
    fn container_gets_the_devices_of_its_claims_and_requests() {
        let check = |claims: Value, expect: &[&str]| {
            let pod = value!({"spec": {"containers": [{"name": "c", "resources": {"claims": (claims.clone())}}]}});
            let container = Pod(&pod).app_containers().next().unwrap();
            assert_eq!(names(&prepared(), container), expect, "{claims:?}");
        };
        check(value!([{"name": "gpu"}]), &["d=1", "d=2"]);
        check(value!([{"name": "gpu", "request": "one"}]), &["d=1"]);
        check(value!([{"name": "gpu", "request": "two"}]), &["d=2"]);
        check(value!([{"name": "other"}]), &[]);
    }

    #[test]
    fn prepared_claims_survive_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &prepared()).unwrap();
        assert_eq!(read(dir.path()), prepared());
        assert_eq!(read(&dir.path().join("none")), []);
    }

    #[test]
    fn claim_is_usable_only_by_pods_it_is_reserved_for() {
        let pod = value!({"metadata": {"name": "p", "namespace": "n", "uid": "mine"}});
        let check = |status: Value, expect: &str| {
            let claim = value!({"metadata": {"name": "c"}, "status": (status)});
            let found = is_usable(Pod(&pod), &claim).map_or_else(|error| error.to_string(), |()| String::new());
            assert_eq!(found, expect);
        };
        let allocation = value!({"devices": {"results": []}});
        check(value!({}), "resource claim c: it is not allocated");
        check(value!({"allocation": (allocation.clone())}), "resource claim c: pod p_n(mine) is not allowed to use it");
        check(value!({"allocation": allocation, "reservedFor": [{"uid": "mine"}]}), "");
    }
}
