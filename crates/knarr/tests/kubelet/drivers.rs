//! CSI and DRA drivers: small test drivers over the real protocols.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use apimachinery::{Resource, Value, value};
use client::{Patch, Target, WriteOptions};
use node_api::csi as csi_v1;
use node_api::csi::node_server::{Node, NodeServer};
use node_api::dra as dra_v1;
use node_api::dra::dra_plugin_server::{DraPlugin, DraPluginServer};
use node_api::registration as registration_v1;
use node_api::registration::registration_server::{Registration, RegistrationServer};
use rustix::mount::{MountFlags, UnmountFlags};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

use crate::cluster::*;

static VOLUMES: Resource = Resource::cluster("", "v1", "persistentvolumes", "PersistentVolume");
static VOLUME_CLAIMS: Resource = Resource::namespaced("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim");
static DRIVERS: Resource = Resource::cluster("storage.k8s.io", "v1", "csidrivers", "CSIDriver");
static CSI_NODES: Resource = Resource::cluster("storage.k8s.io", "v1", "csinodes", "CSINode");
static ATTACHMENTS: Resource = Resource::cluster("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment");
static CLAIMS: Resource = Resource::namespaced("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim");

/// A driver that identifies itself and records its calls.
#[derive(Clone, Default)]
struct Driver {
    info: registration_v1::PluginInfo,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Driver {
    fn new(kind: &str, name: &str, version: &str) -> Self {
        let info = registration_v1::PluginInfo {
            r#type: kind.into(),
            name: name.into(),
            endpoint: String::new(),
            supported_versions: vec![version.into()],
        };
        Self { info, ..Self::default() }
    }

    /// Serves both protocols on a socket in the kubelet's plugin directory.
    fn serve(&self, socket: PathBuf) {
        let listener = UnixListener::bind(socket).unwrap();
        let server = tonic::transport::Server::builder()
            .add_service(RegistrationServer::new(self.clone()))
            .add_service(NodeServer::new(self.clone()))
            .add_service(DraPluginServer::new(self.clone()));
        tokio::spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
    }

    fn called(&self, what: impl Into<String>) {
        self.calls.lock().unwrap().push(what.into());
    }

    fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }
}

#[tonic::async_trait]
impl Registration for Driver {
    async fn get_info(
        &self,
        _request: Request<registration_v1::InfoRequest>,
    ) -> Result<Response<registration_v1::PluginInfo>, Status> {
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<registration_v1::RegistrationStatus>,
    ) -> Result<Response<registration_v1::RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        self.called(format!("registered {} {}", status.plugin_registered, status.error));
        Ok(Response::new(registration_v1::RegistrationStatusResponse {}))
    }
}

fn failed(error: impl std::fmt::Display) -> Status {
    Status::internal(error.to_string())
}

/// Unmounts a path. Returns whether it was mounted: a driver may get the same call twice.
fn undone(path: &str) -> Result<bool, Status> {
    match rustix::mount::unmount(path, UnmountFlags::empty()) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::INVAL) => Ok(false),
        Err(error) => Err(failed(error)),
    }
}

/// Each volume is a tmpfs, mounted at the staging path and bind-mounted at the publish path.
#[tonic::async_trait]
impl Node for Driver {
    async fn node_stage_volume(
        &self,
        request: Request<csi_v1::NodeStageVolumeRequest>,
    ) -> Result<Response<csi_v1::NodeStageVolumeResponse>, Status> {
        let request = request.into_inner();
        let attached = request.publish_context.get("device").cloned().unwrap_or_default();
        self.called(format!("stage {} {attached}", request.volume_id));
        let staging_path = request.staging_target_path.as_str();
        rustix::mount::mount("tmpfs", staging_path, "tmpfs", MountFlags::empty(), None).map_err(failed)?;
        fs::write(Path::new(staging_path).join("content"), request.volume_context["content"].as_bytes())
            .map_err(failed)?;
        Ok(Response::new(csi_v1::NodeStageVolumeResponse {}))
    }

    async fn node_unstage_volume(
        &self,
        request: Request<csi_v1::NodeUnstageVolumeRequest>,
    ) -> Result<Response<csi_v1::NodeUnstageVolumeResponse>, Status> {
        let request = request.into_inner();
        if undone(&request.staging_target_path)? {
            self.called(format!("unstage {}", request.volume_id));
        }
        Ok(Response::new(csi_v1::NodeUnstageVolumeResponse {}))
    }

    async fn node_publish_volume(
        &self,
        request: Request<csi_v1::NodePublishVolumeRequest>,
    ) -> Result<Response<csi_v1::NodePublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let pod = request.volume_context.get("csi.storage.k8s.io/pod.name").cloned().unwrap_or_default();
        self.called(format!("publish {} for {pod}", request.volume_id));
        fs::create_dir_all(&request.target_path).map_err(failed)?;
        rustix::mount::mount_bind(request.staging_target_path.as_str(), request.target_path.as_str())
            .map_err(failed)?;
        Ok(Response::new(csi_v1::NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<csi_v1::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<csi_v1::NodeUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        if undone(&request.target_path)? {
            self.called(format!("unpublish {}", request.volume_id));
            fs::remove_dir(&request.target_path).map_err(failed)?;
        }
        Ok(Response::new(csi_v1::NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_capabilities(
        &self,
        _request: Request<csi_v1::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<csi_v1::NodeGetCapabilitiesResponse>, Status> {
        use csi_v1::node_service_capability::{Rpc, Type, rpc};
        let rpc = Rpc { r#type: rpc::Type::StageUnstageVolume.into() };
        let capabilities = vec![csi_v1::NodeServiceCapability { r#type: Some(Type::Rpc(rpc)) }];
        Ok(Response::new(csi_v1::NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(
        &self,
        _request: Request<csi_v1::NodeGetInfoRequest>,
    ) -> Result<Response<csi_v1::NodeGetInfoResponse>, Status> {
        let segments = HashMap::from([("topology.example.com/rack".to_owned(), "r1".to_owned())]);
        Ok(Response::new(csi_v1::NodeGetInfoResponse {
            node_id: "the-node".into(),
            max_volumes_per_node: 3,
            accessible_topology: Some(csi_v1::Topology { segments }),
        }))
    }
}

#[tonic::async_trait]
impl DraPlugin for Driver {
    async fn node_prepare_resources(
        &self,
        request: Request<dra_v1::NodePrepareResourcesRequest>,
    ) -> Result<Response<dra_v1::NodePrepareResourcesResponse>, Status> {
        let prepare = |claim: dra_v1::Claim| {
            self.called(format!("prepare {}", claim.name));
            let device = dra_v1::Device {
                request_names: vec!["one".into()],
                pool_name: NODE.into(),
                device_name: "d1".into(),
                cdi_device_ids: vec![format!("{}/d=d1", self.info.name)],
            };
            (claim.uid, dra_v1::NodePrepareResourceResponse { devices: vec![device], error: String::new() })
        };
        let claims = request.into_inner().claims.into_iter().map(prepare).collect();
        Ok(Response::new(dra_v1::NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<dra_v1::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<dra_v1::NodeUnprepareResourcesResponse>, Status> {
        let undo = |claim: dra_v1::Claim| {
            self.called(format!("unprepare {}", claim.name));
            (claim.uid, dra_v1::NodeUnprepareResourceResponse::default())
        };
        let claims = request.into_inner().claims.into_iter().map(undo).collect();
        Ok(Response::new(dra_v1::NodeUnprepareResourcesResponse { claims }))
    }
}

/// Creates a bound claim and volume, as controllers would.
async fn bound_claim(cluster: &Cluster) {
    let volume = value!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": {
        "capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
        "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": "claim"},
        "csi": {"driver": "csi.example.com", "volumeHandle": "volume-1", "volumeAttributes": {"content": "of the driver\n"}}}});
    let claim = value!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "claim", "namespace": "default"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Mi"}}, "storageClassName": "", "volumeName": "pv"}});
    let driver = value!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver",
        "metadata": {"name": "csi.example.com"}, "spec": {"attachRequired": true, "podInfoOnMount": true}});
    cluster.create(&DRIVERS, &driver).await;
    cluster.create(&VOLUMES, &volume).await;
    cluster.create(&VOLUME_CLAIMS, &claim).await;
    for (resource, namespace, name) in [(&VOLUMES, "", "pv"), (&VOLUME_CLAIMS, "default", "claim")] {
        let target = Target::named(resource, namespace, name).subresource("status");
        let patch = Patch::Merge(value!({"status": {"phase": "Bound"}}));
        cluster.client.patch(&target, &patch, &WriteOptions::default()).await.unwrap();
    }
}

/// Creates the VolumeAttachment, as the external attacher would.
async fn attach(cluster: &Cluster) {
    // The kubelet expects this name: the SHA-256 of volume handle, driver and node, "volume-1csi.example.comnode-1".
    let name = "csi-7d526e9c027aeb83523be593538a3eeb1914cc6cebb3432dd909ed7475b9f475";
    let object = value!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": name},
        "spec": {"attacher": "csi.example.com", "nodeName": NODE, "source": {"persistentVolumeName": "pv"}}});
    cluster.create(&ATTACHMENTS, &object).await;
    let target = Target::named(&ATTACHMENTS, "", name).subresource("status");
    let patch = Patch::Merge(value!({"status": {"attached": true, "attachmentMetadata": {"device": "/dev/it"}}}));
    cluster.client.patch(&target, &patch, &WriteOptions::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn csi_volume_is_attached_staged_published_and_removed() {
    let mut cluster = cluster().await;
    let driver = Driver::new("CSIPlugin", "csi.example.com", "1.0.0");
    driver.serve(cluster.path("kubelet/plugins_registry/csi.sock"));
    let listed = |object: &Value| !object["spec"]["drivers"].as_array().unwrap_or_default().is_empty();
    let node = cluster.wait_in(&CSI_NODES, "", NODE, "with a driver", listed).await;
    let expect = value!([{"name": "csi.example.com", "nodeID": "the-node", "topologyKeys": ["topology.example.com/rack"],
        "allocatable": {"count": 3}}]);
    assert_eq!(node["spec"]["drivers"], expect);
    bound_claim(&cluster).await;
    let mounting = |name: &str, script: &str| {
        let mut pod = pod(name, script);
        set(&mut pod, "volumes", value!([{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}]));
        set_container(&mut pod, "volumeMounts", value!([{"name": "v", "mountPath": "/v"}]));
        pod
    };
    cluster.create(&PODS, &mounting("first", "sleep 1000")).await;
    attach(&cluster).await;
    cluster.wait(&PODS, "first", "ready", is_ready).await;
    let in_use = |node: &Value| node["status"].get("volumesInUse").cloned();
    let expected = Some(value!(["kubernetes.io/csi/csi.example.com^volume-1"]));
    cluster.wait(&NODES, NODE, "using the volume", |node| in_use(node) == expected).await;
    let mut second = mounting("second", "cat /v/content; echo more >/v/file");
    set(&mut second, "restartPolicy", "Never");
    assert_eq!(cluster.output(&second).await, "of the driver\n");
    cluster.delete_wholly("second").await;
    cluster.restart();
    cluster.delete("first").await;
    // The call is retried until the driver has registered again.
    let deadline = std::time::Instant::now() + TIMEOUT;
    while !driver.calls().contains(&"unstage volume-1".to_owned()) {
        assert!(std::time::Instant::now() < deadline, "{:?}", driver.calls());
        tokio::task::yield_now().await;
    }
    cluster.wait(&NODES, NODE, "without the volume", |node| in_use(node).is_none()).await;
    let calls = driver.calls();
    let of_volume: Vec<&str> =
        calls.iter().map(String::as_str).filter(|call| !call.starts_with("registered")).collect();
    let stages = of_volume.iter().filter(|call| **call == "stage volume-1 /dev/it").count();
    assert!(stages == 1 && calls[0].starts_with("registered true"), "{calls:?}");
    assert!(of_volume.contains(&"publish volume-1 for first") && of_volume.contains(&"publish volume-1 for second"));
    let count = |call: &str| of_volume.iter().filter(|known| **known == call).count();
    assert_eq!((count("unpublish volume-1"), count("unstage volume-1")), (2, 1), "{calls:?}");
    assert_eq!(of_volume.last(), Some(&"unstage volume-1"), "{calls:?}");
    fs::remove_file(cluster.path("kubelet/plugins_registry/csi.sock")).unwrap();
    cluster.wait_in(&CSI_NODES, "", NODE, "without the driver", |object| !listed(object)).await;
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_claim_is_prepared_and_its_device_is_in_the_container() {
    let cluster = cluster_with_built_in().await;
    let name = format!("dra-{}.example.com", std::process::id());
    let driver = Driver::new("DRAPlugin", &name, "v1.DRAPlugin");
    driver.serve(cluster.path("kubelet/plugins_registry/dra.sock"));
    let described = PathBuf::from(format!("/var/run/cdi/{name}.json"));
    fs::create_dir_all("/var/run/cdi").unwrap();
    let text = format!(
        r#"{{"cdiVersion": "0.6.0", "kind": "{name}/d", "devices": [{{"name": "d1", "containerEdits": {{
            "env": ["CLAIMED=d1"], "deviceNodes": [{{"path": "/dev/claimed", "hostPath": "/dev/null"}}]}}}}]}}"#
    );
    fs::write(&described, text).unwrap();
    let claim = value!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "claim", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "one", "exactly": {"deviceClassName": "any"}}]}}});
    cluster.create(&CLAIMS, &claim).await;
    let mut user = pod("user", "echo $CLAIMED; echo x >/dev/claimed && echo written");
    set(&mut user, "restartPolicy", "Never");
    set(&mut user, "resourceClaims", value!([{"name": "mine", "resourceClaimName": "claim"}]));
    set_container(&mut user, "resources", value!({"claims": [{"name": "mine"}]}));
    let made = cluster.create(&PODS, &user).await;
    let uid = made.str_at(&["metadata", "uid"]).unwrap();
    cluster.event("FailedPrepareDynamicResources: Failed to prepare dynamic resources: resource claim claim").await;
    let result = value!({"request": "one", "driver": (name.as_str()), "pool": NODE, "device": "d1"});
    let patch = value!({"status": {"allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "user", "uid": uid}]}});
    let target = Target::named(&CLAIMS, "default", "claim").subresource("status");
    cluster.client.patch(&target, &Patch::Merge(patch), &WriteOptions::default()).await.unwrap();
    let finished = cluster.wait(&PODS, "user", "over", |pod| phase(pod) == "Succeeded").await;
    assert_eq!(cluster.printed(&finished, "c", 0), "d1\nwritten\n");
    cluster.delete_wholly("user").await;
    fs::remove_file(described).unwrap();
    assert_eq!(driver.calls()[1..], ["prepare claim", "unprepare claim"]);
    cluster.finish().await;
}
