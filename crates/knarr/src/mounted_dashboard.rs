//! The dashboard as a component of `knarr up`: a handler in the listener of the API server.

use std::path::PathBuf;

use ::dashboard::{Config, Dashboard, Exposure, Settings};
use anyhow::Result;
use clap::{ArgMatches, Args, FromArgMatches};
use http::Request;
use hyper::body::Incoming;
use kube_apiserver::mount::{Handler, Mount, MountedResponse};

use crate::component::{ProcessContext, client_config};

#[derive(Args, Debug, Clone)]
struct Flags {
    /// Path to a kubeconfig file with the address and the CA of the API server. Its credentials are not used.
    #[arg(long, value_name = "PATH")]
    kubeconfig: PathBuf,
}

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    Flags::augment_args(command)
}

/// Mounts the dashboard in the API server of this process.
pub(crate) async fn start(matches: &ArgMatches, shared: &ProcessContext) -> Result<()> {
    let flags = Flags::from_arg_matches(matches)?;
    match &shared.in_process {
        Some(in_process) => {
            let config = Config {
                server: client_config(Some(&flags.kubeconfig), None)?,
                exposure: Exposure::Https,
                node_records: shared.node_records.clone(),
                settings: Settings::default(),
            };
            in_process.mount(Mount::new(MountedDashboard(Dashboard::new(config))))?;
        }
        None => tracing::info!("the API server runs in another process; serve the dashboard with `knarr dashboard`"),
    }
    crate::etcd::signal().await
}

struct MountedDashboard(Dashboard);

impl Handler for MountedDashboard {
    fn is_served(&self, path: &str) -> bool {
        Dashboard::is_served(path)
    }

    fn serve(&self, request: Request<Incoming>) -> MountedResponse<'_> {
        Box::pin(self.0.serve(request))
    }
}
