//! Tests of ResourceClaims: the scheduler's writes, and pods that wait for claims.

use apimachinery::{Key, Value, value};
use client::{Patch, Target, WriteOptions};
use controller::{Objects, kinds};

use crate::cluster::{Cluster, node_of};

async fn new_cluster(devices: Value) -> Cluster {
    let cluster = Cluster::start().await;
    for node in ["n1", "n2"] {
        cluster.node(node, "a", "4").await;
    }
    let expression = "device.driver == 'gpu.example.com' && device.attributes['gpu.example.com'].model == 'a100'";
    let class = value!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": expression}}], "extendedResourceName": "example.com/gpu"}});
    cluster.create(&kinds::DEVICE_CLASSES, class).await;
    let slice = value!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"},
        "spec": {"driver": "gpu.example.com", "nodeName": "n2", "devices": devices,
            "pool": {"name": "n2", "generation": 1, "resourceSliceCount": 1}}});
    cluster.create(&kinds::RESOURCE_SLICES, slice).await;
    cluster
}

fn gpu(name: &str) -> Value {
    value!({"name": name, "attributes": {"model": {"string": "a100"}}})
}

async fn claim(cluster: &Cluster, name: &str) {
    let request =
        value!({"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}});
    let claim = value!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"}, "spec": {"devices": {"requests": [request]}}});
    cluster.create(&kinds::RESOURCE_CLAIMS, claim).await;
}

fn user(claim: &str) -> Value {
    value!({"resourceClaims": [{"name": "gpu", "resourceClaimName": claim}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_is_allocated_before_its_pod_is_bound_and_others_wait() {
    let mut cluster = new_cluster(value!([(gpu("g0"))])).await;
    let _scheduler = cluster.schedule("");
    cluster.pod("first", "1", user("one")).await;
    claim(&cluster, "one").await;
    cluster.until("the first is placed", |pods| node_of(pods, "first") == "n2").await;
    let claims = cluster.until_of(&kinds::RESOURCE_CLAIMS, "one is allocated", |all| allocated(all, "one")).await;
    let one = claims.get(&Key::new("default", "one")).unwrap();
    assert_eq!(one["metadata"]["finalizers"][0].as_str(), Some("resource.kubernetes.io/delete-protection"));
    assert_eq!(one["status"]["reservedFor"][0].str_at(&["name"]), Some("first"));
    let result = &one["status"]["allocation"]["devices"]["results"][0];
    assert_eq!((result.str_at(&["device"]), result.str_at(&["request"])), (Some("g0"), Some("gpu")));
    claim(&cluster, "two").await;
    cluster.pod("second", "1", user("two")).await;
    let pods = cluster.until("the second waits", |pods| message(pods, "second").is_some()).await;
    let expect = "0/2 nodes are available: 2 cannot allocate all claims. still not schedulable, preemption: 0/2 nodes \
                  are available: 2 Preemption is not helpful for scheduling.";
    assert_eq!(message(&pods, "second"), Some(expect));
    // As the ResourceClaim controller does once the first pod is deleted.
    let target = Target::named(&kinds::RESOURCE_CLAIMS, "default", "one").subresource("status");
    let deallocation = Patch::Merge(value!({"status": {"reservedFor": null, "allocation": null}}));
    cluster.admin().patch(&target, &deallocation, &WriteOptions::default()).await.unwrap();
    cluster.until("the second is placed", |pods| node_of(pods, "second") == "n2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_is_created_for_device_backed_extended_resources() {
    let mut cluster = new_cluster(value!([(gpu("g0")), (gpu("g1"))])).await;
    let _scheduler = cluster.schedule("");
    let amounts = value!({"example.com/gpu": "2", "cpu": "1"});
    let container =
        value!({"name": "c", "image": "i", "resources": {"requests": (amounts.clone()), "limits": amounts}});
    let pod = value!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [container]}});
    cluster.create(&kinds::PODS, pod).await;
    let pods = cluster.until("placed", |pods| node_of(pods, "p") == "n2").await;
    let status = pods.get(&Key::new("default", "p")).unwrap()["status"]["extendedResourceClaimStatus"].clone();
    let name = status.str_at(&["resourceClaimName"]).unwrap().to_owned();
    assert!(name.starts_with("p-extended-resources-"), "{name}");
    let mapping = &status["requestMappings"][0];
    assert_eq!(mapping.str_at(&["requestName"]), Some("container-0-request-1"));
    let claims = cluster.until_of(&kinds::RESOURCE_CLAIMS, "it is allocated", |all| allocated(all, &name)).await;
    let claim = claims.get(&Key::new("default", name.as_str())).unwrap();
    assert_eq!(claim["status"]["allocation"]["devices"]["results"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_is_deallocated_if_its_device_is_not_ready_in_time() {
    let mut device = gpu("g0");
    let fields = device.as_object_mut().unwrap();
    fields.insert("bindingConditions", value!(["example.com/attached"]));
    fields.insert("bindingFailureConditions", value!(["example.com/broken"]));
    let cluster = new_cluster(value!([device])).await;
    let _scheduler =
        cluster.schedule("profiles: [{pluginConfig: [{name: DynamicResources, args: {bindingTimeout: 1s}}]}]\n");
    claim(&cluster, "one").await;
    cluster.pod("first", "1", user("one")).await;
    let pods = cluster.until("the failure is reported", |pods| message(pods, "first").is_some()).await;
    let expect = "running PreBind plugin \"DynamicResources\": device binding timeout";
    assert_eq!(message(&pods, "first"), Some(expect));
}

fn allocated(claims: &Objects, name: &str) -> bool {
    let claim = claims.get(&Key::new("default", name));
    claim.is_some_and(|claim| claim.at(&["status", "allocation"]).is_some_and(|it| !it.is_null()))
}

fn message<'a>(pods: &'a Objects, name: &str) -> Option<&'a str> {
    crate::condition(pods, name).and_then(|it| it.str_at(&["message"]))
}
