//! Device plugin registration socket, and the ListAndWatch streams of registered plugins.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use node_api::devices as v1beta1;
use node_api::devices::device_plugin_client::DevicePluginClient;
use node_api::devices::registration_server::{Registration, RegistrationServer};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use tracing::Instrument;

use super::{Device, Devices, Plugin};
use crate::topology::Nodes;

/// Supported device plugin API version.
const VERSION: &str = "v1beta1";
/// File name of the registration socket, which plugins expect.
const SOCKET: &str = "kubelet.sock";

/// Opens the registration socket. Returns the future that serves it.
pub fn open(devices: Devices) -> io::Result<impl Future<Output = ()> + Send> {
    let dir = &devices.0.dir;
    sys::create_dirs(dir, 0o750)?;
    let socket = dir.join(SOCKET);
    // Plugins register again when they notice that the socket was re-created.
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket)?;
    Ok(async move {
        let span = tracing::Span::current();
        let service = RegistrationServer::new(Service(devices));
        let server = Server::builder().trace_fn(move |_| span.clone()).add_service(service);
        let served = server.serve_with_incoming(UnixListenerStream::new(listener)).await;
        if let Err(error) = served {
            tracing::error!(%error, "the device plugin registration server failed");
        }
        std::future::pending::<()>().await;
    })
}

fn read(device: &v1beta1::Device) -> Device {
    let nodes = device.topology.as_ref().map(|topology| &topology.nodes).filter(|nodes| !nodes.is_empty());
    let nodes = nodes.map(|nodes| Nodes::of(nodes.iter().filter_map(|node| u32::try_from(node.id).ok())));
    Device { healthy: device.health == "Healthy", nodes }
}

struct Service(Devices);

#[tonic::async_trait]
impl Registration for Service {
    async fn register(&self, request: Request<v1beta1::RegisterRequest>) -> Result<Response<v1beta1::Empty>, Status> {
        let request = request.into_inner();
        if request.version != VERSION {
            return Err(Status::invalid_argument(format!(
                "requested API version {:?} is not supported by kubelet. Supported version is {VERSION:?}",
                request.version
            )));
        }
        let bad_name =
            || Status::invalid_argument(format!("invalid name of device plugin {:?}", request.resource_name));
        let (domain, name) = request.resource_name.split_once('/').ok_or_else(bad_name)?;
        if name.is_empty() || domain == "kubernetes.io" || domain.ends_with(".kubernetes.io") {
            return Err(bad_name());
        }
        // The endpoint must be a socket in the plugin directory.
        if request.endpoint.contains('/') || request.endpoint.is_empty() {
            return Err(Status::invalid_argument(format!("invalid endpoint {:?}", request.endpoint)));
        }
        let socket = self.0.0.dir.join(&request.endpoint);
        let (devices, resource) = (self.0.clone(), request.resource_name);
        let task = async move {
            if let Err(status) = devices.follow(&resource, &socket, request.options).await {
                tracing::warn!(resource, status = status.message(), "a device plugin disconnected");
            }
        };
        tokio::spawn(task.in_current_span());
        Ok(Response::new(v1beta1::Empty {}))
    }
}

impl Devices {
    /// Follows a plugin's ListAndWatch stream until it ends or another registration replaces it.
    async fn follow(
        &self,
        resource: &str,
        socket: &Path,
        options: Option<v1beta1::DevicePluginOptions>,
    ) -> Result<(), Status> {
        let endpoint = socket.display().to_string();
        let channel =
            node_api::cri::connect(&endpoint).await.map_err(|error| Status::unavailable(error.to_string()))?;
        let mut client = DevicePluginClient::new(channel);
        let options = match options {
            Some(options) => options,
            None => client.get_device_plugin_options(v1beta1::Empty {}).await?.into_inner(),
        };
        let mut stream = client.list_and_watch(v1beta1::Empty {}).await?.into_inner();
        let this = Arc::new(());
        self.plugins(|plugins| {
            plugins.insert(resource.to_owned(), Plugin { client, options, this: Arc::clone(&this) })
        });
        tracing::info!(resource, "a device plugin registered");
        let result = loop {
            match stream.message().await {
                Ok(Some(list)) if self.is_current(resource, &this) => {
                    let devices = list.devices.iter().map(|device| (device.id.clone(), read(device))).collect();
                    self.ledger().set(resource, devices);
                    self.publish();
                }
                // Another plugin has registered for the resource.
                Ok(Some(_)) => return Ok(()),
                Ok(None) => break Ok(()),
                Err(status) => break Err(status),
            }
        };
        if self.is_current(resource, &this) {
            self.plugins(|plugins| plugins.remove(resource));
            self.ledger().lost(resource);
            self.publish();
        }
        result
    }

    fn is_current(&self, resource: &str, this: &Arc<()>) -> bool {
        self.plugins(|plugins| plugins.get(resource).is_some_and(|plugin| Arc::ptr_eq(&plugin.this, this)))
    }

    fn plugins<R>(&self, change: impl FnOnce(&mut BTreeMap<String, Plugin>) -> R) -> R {
        change(&mut self.0.plugins.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
