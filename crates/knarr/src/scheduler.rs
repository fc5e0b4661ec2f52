//! `knarr kube-scheduler`: the scheduler as a separate process, with upstream's flags and configuration file.

mod flags;

use std::path::Path;
use std::sync::Arc;

use ::kube_scheduler::events::Recorder;
use ::kube_scheduler::{Extenders, Metrics, Runner};
use ::scheduler::config::Configuration;
use anyhow::{Context, Result};
use clap::{ArgMatches, Args, FromArgMatches};
use client::Client;
use component_base::election::{Election, LeadershipEnd};
use component_base::health::Endpoint;
use controller_runtime::Caches;
use tokio::task::JoinSet;

use crate::component::{self, ApiEndpoint, InProcessServer};
use crate::health::{self, Health};
use flags::Flags;
use tracing::Instrument;

/// Concurrent requests per unit of `parallelism`. The default of 16 allows 256.
const REQUESTS_PER_WORKER: usize = 16;

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    flags::without_meaning(Flags::augment_args(command))
}

/// Runs the scheduler in a process that already has a log and a Tokio runtime.
pub(crate) async fn start(matches: &ArgMatches, in_process: Option<&InProcessServer>) -> Result<()> {
    let flags = Flags::from_arg_matches(matches)?;
    let configuration = flags.configuration(matches)?;
    serve(&flags, configuration, in_process).await
}

/// Runs the scheduler until SIGTERM or SIGINT, or until the leader lease is lost.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let flags = Flags::from_arg_matches(matches)?;
    crate::log::to_stderr(flags.level());
    flags::warn_ignored_flags(matches);
    let configuration = flags.configuration(matches)?;
    component::run_stateless("kube-scheduler", serve(&flags, configuration, None))
}

async fn serve(flags: &Flags, configuration: Configuration, in_process: Option<&InProcessServer>) -> Result<()> {
    let kubeconfig = Path::new(&configuration.client.kubeconfig);
    let kubeconfig = (!kubeconfig.as_os_str().is_empty()).then_some(kubeconfig);
    let reach = ApiEndpoint::new(kubeconfig, flags.master.as_deref(), in_process)?;
    let settings = client::Settings {
        user_agent: "kube-scheduler".to_owned(),
        qps: configuration.client.qps as f32,
        burst: configuration.client.burst,
        ..client::Settings::default()
    };
    // Events and the lease have separate rate limits, so that neither waits for the other or for pods.
    let connect = || reach.client(settings.clone());
    let (client, events, leases) = (connect()?, connect()?, connect()?);
    // A watch is one request that lasts minutes, and must not wait behind bindings.
    let watches = reach.client(client::Settings { qps: 0.0, ..settings.clone() })?;
    let metrics = Arc::new(Metrics::default());
    let metrics_source = Arc::clone(&metrics);
    let health = Health::new(&client, flags.health(), move || metrics_source.text())?;
    let mut serving = JoinSet::new();
    if flags.secure_port != 0 {
        serving.spawn(
            health.clone().serve(health::listen(flags.bind_address, flags.secure_port).await?).in_current_span(),
        );
    }
    // A process that is not the leader watches already, so that it can schedule as soon as it is elected.
    let caches = Caches::start(&watches, &client::cache::Settings::default(), Runner::reads())?;
    let synced = Arc::clone(&caches);
    health.add("informer-sync", &[Endpoint::Readyz], move || health::synced(&synced));
    let election = configuration.election.clone();
    let work = || async {
        health.elected();
        schedule_pods(configuration, client, events, caches, metrics).await
    };
    if !election.enabled {
        tokio::select! {
            result = work() => return result,
            signal = crate::etcd::signal() => return signal,
        }
    }
    let election = Election::new(leases, flags::election(&election));
    let status = election.status();
    health.add("leaderElection", &[Endpoint::Healthz, Endpoint::Readyz], move || status.check());
    let mut failure = Ok(());
    let result = election.lead(|| async { failure = work().await }, crate::etcd::signal()).await;
    failure?;
    match result {
        LeadershipEnd::Released => Ok(()),
        LeadershipEnd::Lost => Err(component::LeadershipLost.into()),
    }
}

/// Schedules and binds pods. Returns only on an error.
async fn schedule_pods(
    configuration: Configuration,
    client: Client,
    events: Client,
    caches: Arc<Caches>,
    metrics: Arc<Metrics>,
) -> Result<()> {
    let (recorder, sending) = Recorder::new(events, &component::host());
    let mut tasks = JoinSet::new();
    tasks.spawn(sending.in_current_span());
    let workers = usize::try_from(configuration.parallelism).unwrap_or(1);
    let config = kube_scheduler::Config {
        profiles: configuration.profiles,
        extenders: Extenders::new(&configuration.extenders)?,
        queue: configuration.queue,
        requests_max: workers.saturating_mul(REQUESTS_PER_WORKER),
    };
    let shell = Runner::new(client, caches, recorder, config, metrics).context("a required kind is not watched")?;
    tracing::info!("the scheduler stopped");
    shell.run().await?;
    Ok(())
}
