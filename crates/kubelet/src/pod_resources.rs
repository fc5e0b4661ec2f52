//! PodResources API: the devices, CPUs and memory allocated to pods, for monitoring agents on this node.

use std::io;
use std::path::Path;
use std::sync::Arc;

use node_api::pod_resources as v1;
use node_api::pod_resources::pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::context::Context;
use crate::pod::Pod;
use crate::pods::PodTable;
use crate::topology::Nodes;

/// Opens the socket. Returns the future that serves it.
pub(crate) fn open(
    root: &Path,
    context: Arc<Context>,
    known: PodTable,
) -> io::Result<impl Future<Output = ()> + Send + use<>> {
    let dir = root.join("pod-resources");
    sys::create_dirs(&dir, 0o750)?;
    let socket = dir.join("kubelet.sock");
    // A killed predecessor leaves its socket behind.
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket)?;
    Ok(async move {
        let span = tracing::Span::current();
        let service = PodResourcesListerServer::new(Service { context, known });
        let server = Server::builder().trace_fn(move |_| span.clone()).add_service(service);
        let served = server.serve_with_incoming(UnixListenerStream::new(listener)).await;
        if let Err(error) = served {
            tracing::error!(%error, "the PodResources server failed");
        }
        std::future::pending::<()>().await;
    })
}

struct Service {
    context: Arc<Context>,
    known: PodTable,
}

#[tonic::async_trait]
impl PodResourcesLister for Service {
    async fn list(
        &self,
        _request: Request<v1::ListPodResourcesRequest>,
    ) -> Result<Response<v1::ListPodResourcesResponse>, Status> {
        let pods = self.known.all();
        let active = pods.iter().filter(|pod| !Pod(pod).is_terminal());
        let pod_resources = active.map(|pod| self.of(Pod(pod))).collect();
        Ok(Response::new(v1::ListPodResourcesResponse { pod_resources }))
    }

    async fn get_allocatable_resources(
        &self,
        _request: Request<v1::AllocatableResourcesRequest>,
    ) -> Result<Response<v1::AllocatableResourcesResponse>, Status> {
        let devices = self
            .context
            .devices
            .healthy()
            .into_iter()
            .map(|(resource_name, device_ids)| v1::ContainerDevices { resource_name, device_ids, topology: None });
        Ok(Response::new(v1::AllocatableResourcesResponse {
            devices: devices.collect(),
            cpu_ids: self.context.cpus.assignable().into_iter().map(i64::from).collect(),
            memory: self
                .context
                .memory
                .allocatable()
                .into_iter()
                .map(|(node, memory_type, size)| memory(memory_type, size, Nodes::of([node])))
                .collect(),
        }))
    }

    async fn get(
        &self,
        request: Request<v1::GetPodResourcesRequest>,
    ) -> Result<Response<v1::GetPodResourcesResponse>, Status> {
        let request = request.into_inner();
        let found = self.known.find(&request.pod_namespace, &request.pod_name);
        let pod = found.ok_or_else(|| {
            Status::not_found(format!("pod {} in namespace {} not found", request.pod_name, request.pod_namespace))
        })?;
        Ok(Response::new(v1::GetPodResourcesResponse { pod_resources: Some(self.of(Pod(&pod))) }))
    }
}

impl Service {
    fn of(&self, pod: Pod<'_>) -> v1::PodResources {
        let given = self.context.devices.given();
        let containers = pod.init_containers().chain(pod.app_containers()).map(|container| {
            let own = given.iter().filter(|given| given.uid == pod.uid() && given.container == container.name());
            let devices = own.map(|given| v1::ContainerDevices {
                resource_name: given.resource.clone(),
                device_ids: given.ids.iter().cloned().collect(),
                topology: None,
            });
            let blocks = self.context.memory.blocks(pod.uid(), container.name());
            v1::ContainerResources {
                name: container.name().to_owned(),
                devices: devices.collect(),
                cpu_ids: self.context.cpus.own(pod.uid(), container.name()).into_iter().map(i64::from).collect(),
                memory: blocks.into_iter().map(|block| memory(block.kind, block.bytes, block.nodes)).collect(),
                ..Default::default()
            }
        });
        v1::PodResources {
            name: pod.name().to_owned(),
            namespace: pod.namespace().to_owned(),
            containers: containers.collect(),
        }
    }
}

fn memory(memory_type: String, size: u64, nodes: Nodes) -> v1::ContainerMemory {
    let nodes = nodes.iter().map(|node| v1::NumaNode { id: i64::from(node) }).collect();
    v1::ContainerMemory { memory_type, size, topology: Some(v1::TopologyInfo { nodes }) }
}
