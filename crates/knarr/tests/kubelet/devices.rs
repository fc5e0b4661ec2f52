//! Exclusive resources of pods: devices of device plugins, and CPUs.

use std::path::Path;

use apimachinery::{Value, value};
use node_api::devices as v1beta1;
use node_api::devices::device_plugin_server::{DevicePlugin, DevicePluginServer};
use node_api::devices::registration_client::RegistrationClient;
use node_api::pod_resources::pod_resources_lister_client::PodResourcesListerClient;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_stream::wrappers::{UnixListenerStream, WatchStream};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};

use crate::cluster::*;

const RESOURCE: &str = "example.com/null";

/// A device plugin whose devices are all `/dev/null`.
struct Plugin(watch::Receiver<Vec<v1beta1::Device>>);

#[tonic::async_trait]
impl DevicePlugin for Plugin {
    type ListAndWatchStream =
        std::pin::Pin<Box<dyn Stream<Item = Result<v1beta1::ListAndWatchResponse, Status>> + Send>>;

    async fn get_device_plugin_options(
        &self,
        _request: Request<v1beta1::Empty>,
    ) -> Result<Response<v1beta1::DevicePluginOptions>, Status> {
        Ok(Response::new(v1beta1::DevicePluginOptions::default()))
    }

    async fn list_and_watch(
        &self,
        _request: Request<v1beta1::Empty>,
    ) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let responses = WatchStream::new(self.0.clone()).map(|devices| Ok(v1beta1::ListAndWatchResponse { devices }));
        Ok(Response::new(Box::pin(responses)))
    }

    async fn get_preferred_allocation(
        &self,
        _request: Request<v1beta1::PreferredAllocationRequest>,
    ) -> Result<Response<v1beta1::PreferredAllocationResponse>, Status> {
        Err(Status::unimplemented("it has no preferences"))
    }

    async fn allocate(
        &self,
        request: Request<v1beta1::AllocateRequest>,
    ) -> Result<Response<v1beta1::AllocateResponse>, Status> {
        let to_response = |container: v1beta1::ContainerAllocateRequest| v1beta1::ContainerAllocateResponse {
            envs: [("GIVEN".to_owned(), container.devices_ids.join("+"))].into(),
            devices: vec![v1beta1::DeviceSpec {
                container_path: "/dev/mine".into(),
                host_path: "/dev/null".into(),
                permissions: "rw".into(),
            }],
            mounts: vec![v1beta1::Mount {
                container_path: "/etc/of-the-plugin".into(),
                host_path: "/etc/hostname".into(),
                read_only: true,
            }],
            ..Default::default()
        };
        let container_responses = request.into_inner().container_requests.into_iter().map(to_response).collect();
        Ok(Response::new(v1beta1::AllocateResponse { container_responses }))
    }

    async fn pre_start_container(
        &self,
        _request: Request<v1beta1::PreStartContainerRequest>,
    ) -> Result<Response<v1beta1::PreStartContainerResponse>, Status> {
        Ok(Response::new(v1beta1::PreStartContainerResponse {}))
    }
}

fn device(id: &str, health: &str) -> v1beta1::Device {
    v1beta1::Device { id: id.into(), health: health.into(), topology: None }
}

async fn register(dir: &Path) -> watch::Sender<Vec<v1beta1::Device>> {
    let (devices, offered) = watch::channel(vec![device("a", "Healthy"), device("b", "Healthy")]);
    let listener = UnixListener::bind(dir.join("test.sock")).unwrap();
    let server = tonic::transport::Server::builder().add_service(DevicePluginServer::new(Plugin(offered)));
    tokio::spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
    let channel = node_api::cri::connect(dir.join("kubelet.sock").to_str().unwrap()).await.unwrap();
    let request = |resource_name: &str| v1beta1::RegisterRequest {
        version: "v1beta1".into(),
        endpoint: "test.sock".into(),
        resource_name: resource_name.into(),
        options: None,
    };
    let mut kubelet = RegistrationClient::new(channel);
    let error = kubelet.register(request("kubernetes.io/mine")).await.unwrap_err();
    assert!(error.message().contains("invalid name"), "{error}");
    kubelet.register(request(RESOURCE)).await.unwrap();
    devices
}

#[tokio::test(flavor = "multi_thread")]
async fn device_plugin_devices_are_allocated_to_containers() {
    let mut cluster = cluster().await;
    let offers = register(&cluster.path("kubelet/device-plugins")).await;
    let has = |count: &'static str| {
        move |node: &Value| node["status"]["allocatable"].get(RESOURCE) == Some(&Value::from(count))
    };
    cluster.wait(&NODES, NODE, "with two devices", has("2")).await;
    let wants = |name: &str, script: &str| {
        let mut pod = pod(name, script);
        let limits = Value::Object([(RESOURCE, Value::from("1"))].into_iter().collect());
        set_container(&mut pod, "resources", value!({"limits": limits}));
        pod
    };
    let mut prints =
        wants("prints", "echo $GIVEN; echo x >/dev/mine && echo written; test -s /etc/of-the-plugin && echo there");
    set(&mut prints, "restartPolicy", "Never");
    assert_eq!(cluster.output(&prints).await, "a\nwritten\nthere\n");
    cluster.delete_wholly("prints").await;
    cluster.run(&wants("first", "sleep 1000"), "ready", is_ready).await;
    cluster.run(&wants("second", "sleep 1000"), "ready", is_ready).await;
    let late = cluster.run(&wants("late", "true"), "refused", |pod| phase(pod) == "Failed").await;
    assert_eq!(late["status"]["reason"], "UnexpectedAdmissionError".into());
    let socket = cluster.path("kubelet/pod-resources/kubelet.sock");
    let mut lister = PodResourcesListerClient::new(node_api::cri::connect(socket.to_str().unwrap()).await.unwrap());
    let listed = lister.list(node_api::pod_resources::ListPodResourcesRequest {}).await.unwrap().into_inner();
    let mut given: Vec<String> = listed
        .pod_resources
        .iter()
        .flat_map(|pod| pod.containers.iter().flat_map(|container| &container.devices))
        .flat_map(|devices| devices.device_ids.clone())
        .collect();
    given.sort();
    assert_eq!(given, ["a", "b"]);

    offers.send(vec![device("a", "Healthy"), device("b", "Unhealthy")]).unwrap();
    cluster.wait(&NODES, NODE, "with one device", has("1")).await;
    cluster.restart();
    std::fs::remove_file(cluster.path("kubelet/device-plugins/test.sock")).unwrap();
    let _offers = register(&cluster.path("kubelet/device-plugins")).await;
    cluster.wait(&NODES, NODE, "with two devices again", has("2")).await;
    let late = cluster.run(&wants("later", "true"), "refused", |pod| phase(pod) == "Failed").await;
    assert!(late.str_at(&["status", "message"]).unwrap().contains("Available: 0"), "pods keep their devices");
    cluster.delete_wholly("first").await;
    let mut last = wants("last", "echo $GIVEN");
    set(&mut last, "restartPolicy", "Never");
    assert_eq!(cluster.output(&last).await, "a\n");
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn static_cpu_manager_gives_guaranteed_pods_exclusive_cpus() {
    test_requirements::cpus(2);
    let cluster = cluster_with(&["--cpu-manager-policy=static", "--reserved-cpus=0"]).await;
    let show = "trap 'exit 0' TERM; while :; do grep Cpus_allowed_list /proc/self/status; sleep 0.2; done";
    cluster.run(&pod("shares", show), "ready", is_ready).await;
    let mut owns = pod("owns", "grep Cpus_allowed_list /proc/self/status; sleep 1000");
    let amounts = value!({"cpu": "1", "memory": "64Mi"});
    set_container(&mut owns, "resources", value!({"requests": (amounts.clone()), "limits": amounts}));
    cluster.run(&owns, "ready", is_ready).await;
    cluster.logged("owns", "c", 0, "Cpus_allowed_list:").await;
    let printed = cluster.printed(&cluster.get(&PODS, "owns").await, "c", 0);
    let own: u32 = printed.split_whitespace().nth(1).unwrap().parse().expect("one CPU");
    assert_ne!(own, 0);
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let mut others = kubelet::cpus::parse_list(&online).unwrap();
    others.remove(&own);
    let expect = format!("Cpus_allowed_list:\t{}\n", kubelet::cpus::listed(&others));
    cluster.logged("shares", "c", 0, &expect).await;
    cluster.delete("owns").await;
    cluster.finish().await;
}
