//! CRI RuntimeService.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use node_api::cri::v1;
use node_api::cri::v1::runtime_service_server::RuntimeService;
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};
use tracing::Instrument;

use crate::blocking;
use crate::error::Error;
use crate::state::{Container, Runtime as Machine, Sandbox};
use crate::tickets::Ticket;
use crate::{metrics, sandboxes};

/// Maximum items per message of a streamed list.
const CHUNK: usize = 256;

pub(crate) struct Runtime(pub Arc<Machine>);

type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;
type RpcResult<T> = Result<Response<T>, Status>;

/// Splits a list into messages of bounded size; an empty list is one empty message.
pub(crate) fn chunks<T, M>(items: Vec<T>, message: impl Fn(Vec<T>) -> M) -> Vec<M> {
    let mut items = items.into_iter().peekable();
    let mut messages = Vec::new();
    loop {
        messages.push(message(items.by_ref().take(CHUNK).collect()));
        if items.peek().is_none() {
            return messages;
        }
    }
}

/// Returns messages as a finite stream.
pub(crate) fn stream<M: Send + 'static>(messages: Vec<M>) -> Response<ResponseStream<M>> {
    Response::new(Box::pin(tokio_stream::iter(messages.into_iter().map(Ok))))
}

fn ok<T>(message: T) -> RpcResult<T> {
    Ok(Response::new(message))
}

#[tonic::async_trait]
impl RuntimeService for Runtime {
    type StreamPodSandboxesStream = ResponseStream<v1::StreamPodSandboxesResponse>;
    type StreamContainersStream = ResponseStream<v1::StreamContainersResponse>;
    type StreamContainerStatsStream = ResponseStream<v1::StreamContainerStatsResponse>;
    type StreamPodSandboxStatsStream = ResponseStream<v1::StreamPodSandboxStatsResponse>;
    type StreamPodSandboxMetricsStream = ResponseStream<v1::StreamPodSandboxMetricsResponse>;
    type GetContainerEventsStream = ResponseStream<v1::ContainerEventResponse>;

    async fn version(&self, _: Request<v1::VersionRequest>) -> RpcResult<v1::VersionResponse> {
        ok(v1::VersionResponse {
            version: "0.1.0".to_owned(),
            runtime_name: "knarr".to_owned(),
            runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
            runtime_api_version: "v1".to_owned(),
        })
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<v1::RunPodSandboxRequest>,
    ) -> RpcResult<v1::RunPodSandboxResponse> {
        let request = request.into_inner();
        let config = request.config.ok_or_else(|| Error::Invalid("config: required".to_owned()))?;
        let machine = Arc::clone(&self.0);
        // The task continues if the client disconnects: every operation is completed or undone.
        let run =
            tokio::spawn(async move { machine.run_sandbox(config, request.runtime_handler).await }.in_current_span());
        let pod_sandbox_id = run.await.expect("making a sandbox does not panic")?;
        ok(v1::RunPodSandboxResponse { pod_sandbox_id })
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<v1::StopPodSandboxRequest>,
    ) -> RpcResult<v1::StopPodSandboxResponse> {
        let (machine, id) = (Arc::clone(&self.0), request.into_inner().pod_sandbox_id);
        let stop = tokio::spawn(async move { machine.stop_sandbox(&id).await }.in_current_span());
        stop.await.expect("stopping a sandbox does not panic")?;
        ok(v1::StopPodSandboxResponse {})
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<v1::RemovePodSandboxRequest>,
    ) -> RpcResult<v1::RemovePodSandboxResponse> {
        let (machine, id) = (Arc::clone(&self.0), request.into_inner().pod_sandbox_id);
        let remove = tokio::spawn(async move { machine.remove_sandbox(&id).await }.in_current_span());
        remove.await.expect("removing a sandbox does not panic")?;
        ok(v1::RemovePodSandboxResponse {})
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<v1::PodSandboxStatusRequest>,
    ) -> RpcResult<v1::PodSandboxStatusResponse> {
        let request = request.into_inner();
        let sandbox = self.0.sandbox(&request.pod_sandbox_id)?;
        let record = sandbox.record();
        let mut info = HashMap::new();
        if request.verbose {
            let text = serde_json::json!({"pid": record.pause, "cgroup": record.cgroup, "ips": record.ips}).to_string();
            info.insert("info".to_owned(), text);
        }
        let containers = self.0.containers_of(&record.id);
        ok(v1::PodSandboxStatusResponse {
            status: Some(sandbox.status()),
            info,
            containers_statuses: containers.iter().map(|container| container.status()).collect(),
            timestamp: crate::ids::now(),
        })
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<v1::ListPodSandboxRequest>,
    ) -> RpcResult<v1::ListPodSandboxResponse> {
        let items = self.sandboxes(request.into_inner().filter.as_ref());
        ok(v1::ListPodSandboxResponse { items })
    }

    async fn stream_pod_sandboxes(
        &self,
        request: Request<v1::StreamPodSandboxesRequest>,
    ) -> RpcResult<Self::StreamPodSandboxesStream> {
        let items = self.sandboxes(request.into_inner().filter.as_ref());
        Ok(stream(chunks(items, |pod_sandboxes| v1::StreamPodSandboxesResponse { pod_sandboxes })))
    }

    async fn create_container(
        &self,
        request: Request<v1::CreateContainerRequest>,
    ) -> RpcResult<v1::CreateContainerResponse> {
        let request = request.into_inner();
        let config = request.config.ok_or_else(|| Error::Invalid("config: required".to_owned()))?;
        let machine = Arc::clone(&self.0);
        let create = tokio::spawn(
            async move { machine.create_container(&request.pod_sandbox_id, config).await }.in_current_span(),
        );
        let container_id = create.await.expect("making a container does not panic")?;
        ok(v1::CreateContainerResponse { container_id })
    }

    async fn start_container(
        &self,
        request: Request<v1::StartContainerRequest>,
    ) -> RpcResult<v1::StartContainerResponse> {
        let (machine, id) = (Arc::clone(&self.0), request.into_inner().container_id);
        let start = tokio::spawn(async move { machine.start_container(&id).await }.in_current_span());
        start.await.expect("starting a container does not panic")?;
        ok(v1::StartContainerResponse {})
    }

    async fn stop_container(&self, request: Request<v1::StopContainerRequest>) -> RpcResult<v1::StopContainerResponse> {
        let request = request.into_inner();
        let timeout = Duration::from_secs(u64::try_from(request.timeout).unwrap_or(0));
        self.0.stop_container(&request.container_id, timeout).await?;
        ok(v1::StopContainerResponse {})
    }

    async fn remove_container(
        &self,
        request: Request<v1::RemoveContainerRequest>,
    ) -> RpcResult<v1::RemoveContainerResponse> {
        let (machine, id) = (Arc::clone(&self.0), request.into_inner().container_id);
        let remove = tokio::spawn(async move { machine.remove_container(&id).await }.in_current_span());
        remove.await.expect("removing a container does not panic")?;
        ok(v1::RemoveContainerResponse {})
    }

    async fn list_containers(
        &self,
        request: Request<v1::ListContainersRequest>,
    ) -> RpcResult<v1::ListContainersResponse> {
        let containers = self.containers(request.into_inner().filter.as_ref());
        ok(v1::ListContainersResponse { containers })
    }

    async fn stream_containers(
        &self,
        request: Request<v1::StreamContainersRequest>,
    ) -> RpcResult<Self::StreamContainersStream> {
        let containers = self.containers(request.into_inner().filter.as_ref());
        Ok(stream(chunks(containers, |containers| v1::StreamContainersResponse { containers })))
    }

    async fn container_status(
        &self,
        request: Request<v1::ContainerStatusRequest>,
    ) -> RpcResult<v1::ContainerStatusResponse> {
        let request = request.into_inner();
        let container = self.0.container(&request.container_id)?;
        let mut info = HashMap::new();
        if request.verbose {
            let record = container.record();
            let pid = match record.phase {
                crate::persisted::Phase::Running { pid, .. } => pid,
                _ => 0,
            };
            let spec = blocking::in_place(|| container.spec())?;
            let text = serde_json::json!({"sandboxID": record.sandbox, "pid": pid, "runtimeSpec": spec});
            info.insert("info".to_owned(), text.to_string());
        }
        ok(v1::ContainerStatusResponse { status: Some(container.status()), info })
    }

    async fn update_container_resources(
        &self,
        request: Request<v1::UpdateContainerResourcesRequest>,
    ) -> RpcResult<v1::UpdateContainerResourcesResponse> {
        let request = request.into_inner();
        if let Some(resources) = &request.linux {
            blocking::in_place(|| self.0.update_container(&request.container_id, resources))?;
        }
        ok(v1::UpdateContainerResourcesResponse {})
    }

    async fn reopen_container_log(
        &self,
        request: Request<v1::ReopenContainerLogRequest>,
    ) -> RpcResult<v1::ReopenContainerLogResponse> {
        let container = self.0.container(&request.into_inner().container_id)?;
        let record = container.record();
        if !matches!(record.phase, crate::persisted::Phase::Running { .. }) {
            return Err(Error::State(format!("container {} does not run", record.id)).into());
        }
        self.0.shim_of(&container)?.reopen_log(&record.id).await.map_err(Error::from)?;
        ok(v1::ReopenContainerLogResponse {})
    }

    async fn exec_sync(&self, request: Request<v1::ExecSyncRequest>) -> RpcResult<v1::ExecSyncResponse> {
        let request = request.into_inner();
        let timeout = u64::try_from(request.timeout).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs);
        let output = self.0.exec_sync(&request.container_id, &request.cmd, timeout).await?;
        ok(v1::ExecSyncResponse { stdout: output.stdout, stderr: output.stderr, exit_code: output.code })
    }

    async fn exec(&self, request: Request<v1::ExecRequest>) -> RpcResult<v1::ExecResponse> {
        let request = request.into_inner();
        self.running(&request.container_id)?;
        if request.tty && request.stderr {
            return Err(Error::Invalid("stderr: a terminal has no separate standard error".to_owned()).into());
        }
        let url = self.0.tickets.issue("exec", Ticket::Exec(request))?;
        ok(v1::ExecResponse { url })
    }

    async fn attach(&self, request: Request<v1::AttachRequest>) -> RpcResult<v1::AttachResponse> {
        let request = request.into_inner();
        self.running(&request.container_id)?;
        if request.tty && request.stderr {
            return Err(Error::Invalid("stderr: a terminal has no separate standard error".to_owned()).into());
        }
        let url = self.0.tickets.issue("attach", Ticket::Attach(request))?;
        ok(v1::AttachResponse { url })
    }

    async fn port_forward(&self, request: Request<v1::PortForwardRequest>) -> RpcResult<v1::PortForwardResponse> {
        let request = request.into_inner();
        let sandbox = self.0.sandbox(&request.pod_sandbox_id)?;
        if !sandbox.record().ready {
            return Err(Error::State(format!("sandbox {} is not ready", request.pod_sandbox_id)).into());
        }
        let url = self.0.tickets.issue("portforward", Ticket::PortForward(request))?;
        ok(v1::PortForwardResponse { url })
    }

    async fn container_stats(
        &self,
        request: Request<v1::ContainerStatsRequest>,
    ) -> RpcResult<v1::ContainerStatsResponse> {
        let container = self.0.container(&request.into_inner().container_id)?;
        ok(v1::ContainerStatsResponse { stats: blocking::in_place(|| container.stats()) })
    }

    async fn list_container_stats(
        &self,
        request: Request<v1::ListContainerStatsRequest>,
    ) -> RpcResult<v1::ListContainerStatsResponse> {
        let stats = self.container_stats_list(request.into_inner().filter).await;
        ok(v1::ListContainerStatsResponse { stats })
    }

    async fn stream_container_stats(
        &self,
        request: Request<v1::StreamContainerStatsRequest>,
    ) -> RpcResult<Self::StreamContainerStatsStream> {
        let stats = self.container_stats_list(request.into_inner().filter).await;
        Ok(stream(chunks(stats, |container_stats| v1::StreamContainerStatsResponse { container_stats })))
    }

    async fn pod_sandbox_stats(
        &self,
        request: Request<v1::PodSandboxStatsRequest>,
    ) -> RpcResult<v1::PodSandboxStatsResponse> {
        let sandbox = self.0.sandbox(&request.into_inner().pod_sandbox_id)?;
        let stats = blocking::in_place(|| self.0.sandbox_stats(&sandbox));
        ok(v1::PodSandboxStatsResponse { stats: Some(stats) })
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: Request<v1::ListPodSandboxStatsRequest>,
    ) -> RpcResult<v1::ListPodSandboxStatsResponse> {
        let stats = self.sandbox_stats_list(request.into_inner().filter).await;
        ok(v1::ListPodSandboxStatsResponse { stats })
    }

    async fn stream_pod_sandbox_stats(
        &self,
        request: Request<v1::StreamPodSandboxStatsRequest>,
    ) -> RpcResult<Self::StreamPodSandboxStatsStream> {
        let stats = self.sandbox_stats_list(request.into_inner().filter).await;
        Ok(stream(chunks(stats, |pod_sandbox_stats| v1::StreamPodSandboxStatsResponse { pod_sandbox_stats })))
    }

    async fn update_runtime_config(
        &self,
        request: Request<v1::UpdateRuntimeConfigRequest>,
    ) -> RpcResult<v1::UpdateRuntimeConfigResponse> {
        let network = request.into_inner().runtime_config.and_then(|config| config.network_config);
        if let Some(network) = network {
            self.0.config.network.set_pod_cidr(&network.pod_cidr);
        }
        ok(v1::UpdateRuntimeConfigResponse {})
    }

    async fn status(&self, request: Request<v1::StatusRequest>) -> RpcResult<v1::StatusResponse> {
        let condition = |kind: &str, error: Option<String>| v1::RuntimeCondition {
            r#type: kind.to_owned(),
            status: error.is_none(),
            reason: error.as_ref().map_or("", |_| "NetworkPluginNotReady").to_owned(),
            message: error.unwrap_or_default(),
        };
        let network = self.0.config.network.ready().await.err().map(|error| error.to_string());
        let conditions = vec![condition("RuntimeReady", None), condition("NetworkReady", network)];
        let mut info = HashMap::new();
        if request.into_inner().verbose {
            let text = serde_json::json!({"root": self.0.config.root, "sandboxes": self.0.all_sandboxes().len()});
            info.insert("config".to_owned(), text.to_string());
        }
        let features = |external: bool| v1::RuntimeHandlerFeatures {
            recursive_read_only_mounts: true,
            user_namespaces: !external,
        };
        let handler = |name: &String| v1::RuntimeHandler { name: name.clone(), features: Some(features(true)) };
        let mut handlers = vec![v1::RuntimeHandler { name: String::new(), features: Some(features(false)) }];
        handlers.extend(self.0.config.handlers.keys().map(handler));
        ok(v1::StatusResponse {
            status: Some(v1::RuntimeStatus { conditions }),
            info,
            runtime_handlers: handlers,
            features: Some(v1::RuntimeFeatures {
                supplemental_groups_policy: true,
                user_namespaces_host_network: false,
            }),
        })
    }

    async fn checkpoint_container(
        &self,
        _: Request<v1::CheckpointContainerRequest>,
    ) -> RpcResult<v1::CheckpointContainerResponse> {
        // DEVIATION: containers cannot be checkpointed.
        Err(Error::Unsupported("checkpointing a container is not supported by this runtime").into())
    }

    async fn get_container_events(
        &self,
        _: Request<v1::GetEventsRequest>,
    ) -> RpcResult<Self::GetContainerEventsStream> {
        let events = BroadcastStream::new(self.0.subscribe());
        // A listener that is too slow loses the stream and must list again.
        let events = events.map(|event| event.map_err(|_| Status::data_loss("events were lost: list again")));
        Ok(Response::new(Box::pin(events)))
    }

    async fn list_metric_descriptors(
        &self,
        _: Request<v1::ListMetricDescriptorsRequest>,
    ) -> RpcResult<v1::ListMetricDescriptorsResponse> {
        ok(v1::ListMetricDescriptorsResponse { descriptors: metrics::descriptors() })
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _: Request<v1::ListPodSandboxMetricsRequest>,
    ) -> RpcResult<v1::ListPodSandboxMetricsResponse> {
        ok(v1::ListPodSandboxMetricsResponse { pod_metrics: self.metrics().await })
    }

    async fn stream_pod_sandbox_metrics(
        &self,
        _: Request<v1::StreamPodSandboxMetricsRequest>,
    ) -> RpcResult<Self::StreamPodSandboxMetricsStream> {
        let metrics = self.metrics().await;
        Ok(stream(chunks(metrics, |pod_sandbox_metrics| v1::StreamPodSandboxMetricsResponse { pod_sandbox_metrics })))
    }

    async fn runtime_config(&self, _: Request<v1::RuntimeConfigRequest>) -> RpcResult<v1::RuntimeConfigResponse> {
        let linux = v1::LinuxRuntimeConfiguration { cgroup_driver: v1::CgroupDriver::Cgroupfs.into() };
        ok(v1::RuntimeConfigResponse { linux: Some(linux) })
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: Request<v1::UpdatePodSandboxResourcesRequest>,
    ) -> RpcResult<v1::UpdatePodSandboxResourcesResponse> {
        let request = request.into_inner();
        let sandbox = self.0.sandbox(&request.pod_sandbox_id)?;
        sandbox.change(|record| {
            let linux = record.config.linux.get_or_insert_default();
            linux.overhead = request.overhead.or(linux.overhead.take());
            linux.resources = request.resources.or(linux.resources.take());
        });
        ok(v1::UpdatePodSandboxResourcesResponse {})
    }
}

impl Runtime {
    fn running(&self, id: &str) -> Result<Arc<Container>, Error> {
        let container = self.0.container(id)?;
        match container.record().phase {
            crate::persisted::Phase::Running { .. } => Ok(container),
            _ => Err(Error::State(format!("container {id} is not running"))),
        }
    }

    fn sandboxes(&self, filter: Option<&v1::PodSandboxFilter>) -> Vec<v1::PodSandbox> {
        let fits = |sandbox: &Arc<Sandbox>| {
            let Some(filter) = filter else { return true };
            let record = sandbox.record();
            let state_filter = filter.state.as_ref().map(v1::PodSandboxStateValue::state);
            record.id.starts_with(&filter.id)
                && state_filter.is_none_or(|state| state == sandboxes::state(&record))
                && has_labels(&record.config.labels, &filter.label_selector)
        };
        self.0.all_sandboxes().iter().filter(|sandbox| fits(sandbox)).map(|sandbox| sandbox.summary()).collect()
    }

    fn containers(&self, filter: Option<&v1::ContainerFilter>) -> Vec<v1::Container> {
        let fits = |container: &v1::Container| {
            let Some(filter) = filter else { return true };
            let state_filter = filter.state.as_ref().map(v1::ContainerStateValue::state);
            container.id.starts_with(&filter.id)
                && container.pod_sandbox_id.starts_with(&filter.pod_sandbox_id)
                && state_filter.is_none_or(|state| state == container.state())
                && has_labels(&container.labels, &filter.label_selector)
        };
        self.0.all_containers().iter().map(|container| container.summary()).filter(fits).collect()
    }

    async fn container_stats_list(&self, filter: Option<v1::ContainerStatsFilter>) -> Vec<v1::ContainerStats> {
        let machine = Arc::clone(&self.0);
        let work = move || {
            let fits = |container: &Arc<Container>| {
                let Some(filter) = &filter else { return true };
                let record = container.record();
                record.id.starts_with(&filter.id)
                    && record.sandbox.starts_with(&filter.pod_sandbox_id)
                    && has_labels(&record.config.labels, &filter.label_selector)
            };
            machine.all_containers().iter().filter(|one| fits(one)).filter_map(|one| one.stats()).collect()
        };
        tokio::task::spawn_blocking(work).await.expect("measuring does not panic")
    }

    async fn sandbox_stats_list(&self, filter: Option<v1::PodSandboxStatsFilter>) -> Vec<v1::PodSandboxStats> {
        let machine = Arc::clone(&self.0);
        let work = move || {
            let fits = |sandbox: &Arc<Sandbox>| {
                let record = sandbox.record();
                let matches_filter = filter.as_ref().is_none_or(|filter| {
                    record.id.starts_with(&filter.id) && has_labels(&record.config.labels, &filter.label_selector)
                });
                record.ready && matches_filter
            };
            machine.all_sandboxes().iter().filter(|one| fits(one)).map(|one| machine.sandbox_stats(one)).collect()
        };
        tokio::task::spawn_blocking(work).await.expect("measuring does not panic")
    }

    async fn metrics(&self) -> Vec<v1::PodSandboxMetrics> {
        let machine = Arc::clone(&self.0);
        let work = move || machine.all_sandboxes().iter().map(|one| machine.sandbox_metrics(one)).collect();
        tokio::task::spawn_blocking(work).await.expect("measuring does not panic")
    }
}

fn has_labels(labels: &HashMap<String, String>, selector: &HashMap<String, String>) -> bool {
    selector.iter().all(|(name, value)| labels.get(name) == Some(value))
}
