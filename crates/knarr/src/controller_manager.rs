//! `knarr kube-controller-manager`: all controllers in one process, with upstream's flags.

mod configs;
mod flags;
mod identity;
mod signing_cas;

use std::pin::Pin;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use apimachinery::GroupResource;
use clap::{ArgMatches, Args, FromArgMatches};
use component_base::election::{Election, LeadershipEnd};
use component_base::events::Recorder;
use component_base::health::Endpoint;
use controller::object_graph::GlobalController;
use controller::{Controller, Setup};
use controller_runtime::{Caches, Driver, Member};
use controllers::registry::{self, Row, Setups, Visitor};
use tokio::task::JoinSet;

use crate::component::{self, ApiEndpoint, InProcessServer};
use crate::health::{self, Health};
use flags::Flags;
use identity::Clients;
use tracing::Instrument;

/// The field manager of the controllers and the process's user agent.
const MANAGER: &str = "kube-controller-manager";

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    flags::without_meaning(Flags::augment_args(command))
}

/// Runs the controllers in a process that already has a log and a Tokio runtime.
pub(crate) async fn start(matches: &ArgMatches, in_process: Option<&InProcessServer>) -> Result<()> {
    manage(&Flags::from_arg_matches(matches)?, matches, in_process).await
}

/// Runs the controllers until SIGTERM or SIGINT, or until the leader lease is lost.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let flags = Flags::from_arg_matches(matches)?;
    crate::log::to_stderr(flags.level());
    flags::warn_ignored_flags(matches);
    component::run_stateless("kube-controller-manager", manage(&flags, matches, None))
}

async fn manage(flags: &Flags, matches: &ArgMatches, in_process: Option<&InProcessServer>) -> Result<()> {
    let reach = ApiEndpoint::new(flags.kubeconfig.as_deref(), flags.master.as_deref(), in_process)?;
    let clients = Clients::new(&reach, flags)?;
    let chosen = chosen(flags, matches, &configs::of(flags, &reach.config)?)?;
    let reads = chosen.iter().flat_map(|one| one.reads.iter().copied());
    let caches = Caches::start(&clients.root, &client::cache::Settings::default(), reads)?;
    let health = Health::new(&clients.root, flags.health(), String::new)?;
    let mut serving = JoinSet::new();
    if flags.secure_port != 0 {
        serving.spawn(
            health.clone().serve(health::listen(flags.bind_address, flags.secure_port).await?).in_current_span(),
        );
    }
    let synced = Arc::clone(&caches);
    health.add("informer-sync", &[Endpoint::Readyz], move || health::synced(&synced));
    let work = || async {
        health.elected();
        work(&clients, &caches, &chosen, &health).await
    };
    if !flags.leader_elect {
        tokio::select! {
            result = work() => return result,
            signal = crate::etcd::signal() => return signal,
        }
    }
    let election = Election::new(clients.root.clone(), flags.election()?);
    let status = election.status();
    health.add("leaderElection", &Endpoint::ALL, move || status.check());
    let mut failure = Ok(());
    let result = election.lead(|| async { failure = work().await }, crate::etcd::signal()).await;
    failure?;
    match result {
        LeadershipEnd::Released => Ok(()),
        LeadershipEnd::Lost => Err(component::LeadershipLost.into()),
    }
}

/// Runs the selected controllers, each with its own identity. Returns only if one fails to start or all have exited.
async fn work(clients: &Clients, caches: &Arc<Caches>, chosen: &[SelectedController], health: &Health) -> Result<()> {
    let mut tasks = JoinSet::new();
    for one in chosen {
        let client = clients.of(one.account, one.name)?;
        let (events, sending) = Recorder::new(client.clone(), one.component);
        tasks.spawn(sending.in_current_span());
        let driver = Driver { client, caches: Arc::clone(caches), events, manager: MANAGER.to_owned() };
        let running = tasks.spawn((one.start)(Arc::new(driver)).in_current_span());
        health.add(one.name, &Endpoint::ALL, move || match running.is_finished() {
            false => Ok(()),
            true => Err("the controller exited".to_owned()),
        });
        tracing::info!(controller = one.name, "started");
    }
    while tasks.join_next().await.is_some() {}
    bail!("all controllers exited")
}

/// A controller selected by `--controllers`.
struct SelectedController {
    name: &'static str,
    account: &'static str,
    component: &'static str,
    reads: &'static [GroupResource],
    start: Box<dyn Fn(Arc<Driver>) -> Running + Send + Sync>,
}

fn chosen(flags: &Flags, matches: &ArgMatches, setups: &Setups) -> Result<Vec<SelectedController>> {
    struct All(Vec<(&'static Row, Member)>);
    impl Visitor for All {
        fn visit<C: Controller>(&mut self, row: &'static Row, setup: Setup<C>) {
            self.0.push((row, Member::of(setup)));
        }

        fn visit_sweeper<S: GlobalController>(&mut self, row: &'static Row) {
            self.0.push((row, Member::global::<S>()));
        }
    }
    let choice = registry::Choice::of(&flags.controllers).context("--controllers")?;
    let mut all = All(Vec::new());
    registry::each(setups, &mut all);
    let mut chosen = Vec::new();
    for (row, member) in all.0.into_iter().filter(|(row, _)| choice.includes(row.name)) {
        let workers = flags::workers(matches, row);
        chosen.push(SelectedController {
            name: row.name,
            account: row.account,
            component: member.component,
            reads: member.reads,
            start: Box::new(move |driver| Box::pin(member.run(driver, workers))),
        });
    }
    for (name, reason) in registry::ABSENT.iter().filter(|(name, _)| choice.names(name)) {
        tracing::warn!(controller = name, reason, "this controller is not implemented and does not run");
    }
    Ok(chosen)
}

/// Returns the client settings of the controller `name`.
fn settings(flags: &Flags, name: &str) -> client::Settings {
    let user_agent = if name.is_empty() { MANAGER.to_owned() } else { format!("{MANAGER}/{name}") };
    client::Settings { user_agent, qps: flags.kube_api_qps, burst: flags.kube_api_burst, ..client::Settings::default() }
}
