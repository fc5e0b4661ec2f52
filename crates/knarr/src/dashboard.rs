//! `knarr dashboard`: the dashboard of any cluster on the loopback address.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use ::dashboard::{Config, Dashboard, Exposure, Settings};
use anyhow::{Context, Result};
use clap::{ArgMatches, Args, FromArgMatches};
use client::config::Kubeconfig;
use tempfile::NamedTempFile;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;

use crate::output::outln;
use crate::up::nodes;
use crate::{admin_client, component};

/// Serve the dashboard of a cluster.
#[derive(Args, Debug, Clone)]
struct Flags {
    /// Path to a kubeconfig file [default: $KUBECONFIG, otherwise that of the cluster in the data directory].
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current context].
    #[arg(long)]
    context: Option<String>,
    /// Port on the loopback address; 0 selects a free port.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Data directory of the cluster on this host; its trace files are part of event chains.
    #[arg(long, default_value = "/var/lib/knarr")]
    data_dir: PathBuf,
    /// Open the dashboard in the desktop's browser.
    #[arg(long)]
    open: bool,
}

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    Flags::augment_args(command)
}

/// Serves on loopback until SIGTERM or SIGINT.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let flags = Flags::from_arg_matches(matches)?;
    crate::log::to_stderr(tracing::Level::WARN);
    component::run_stateless("dashboard", serve(flags))
}

async fn serve(flags: Flags) -> Result<()> {
    let config = client_config(&flags)?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, flags.port));
    let listener = TcpListener::bind(address).await.with_context(|| format!("failed to listen on {address}"))?;
    let port = listener.local_addr()?.port();
    // Records of this host belong to the cluster of its data directory, whose kubeconfig is the default.
    let is_own = flags.kubeconfig.is_none() && from_environment().is_none();
    let dashboard = Arc::new(Dashboard::new(Config {
        server: config.clone(),
        exposure: Exposure::Loopback { port },
        node_records: is_own.then(|| nodes::records_source(&flags.data_dir)),
        settings: Settings::default(),
    }));
    let link = || format!("http://127.0.0.1:{port}/dashboard/#/sign-in/{}", dashboard.issue_code(config.clone()));
    let first = link();
    outln!("Dashboard of {}:\n{first}", config.server);
    outln!("The link signs in once, with the credentials of the kubeconfig. Press Enter for another link.");
    // The page is deleted when the dashboard stops.
    let _page = if flags.open { open(&first) } else { None };
    let print_links = async {
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        while let Ok(Some(_)) = lines.next_line().await {
            outln!("{}", link());
        }
        // Standard input is closed, as in the background.
        std::future::pending::<()>().await;
    };
    let ending = async {
        tokio::select! {
            signal = crate::etcd::signal() => drop(signal),
            () = print_links => {}
        }
    };
    ::dashboard::serve(listener, Arc::clone(&dashboard), ending).await;
    Ok(())
}

/// Returns the configuration of the selected kubeconfig.
fn client_config(flags: &Flags) -> Result<client::Config> {
    let files = flags.kubeconfig.clone().map(|file| vec![file]).or_else(from_environment);
    let Some(files) = files else { return admin_client::config(&flags.data_dir) };
    let known = Kubeconfig::load(&files)?;
    Ok(known.config(flags.context.as_deref())?)
}

/// Returns the kubeconfigs of the environment variable.
fn from_environment() -> Option<Vec<PathBuf>> {
    let list = std::env::var_os("KUBECONFIG").filter(|list| !list.is_empty())?;
    Some(std::env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect())
}

/// Opens a page that leads to the link in the desktop's browser. Returns the page, which is deleted when it is dropped.
fn open(link: &str) -> Option<NamedTempFile> {
    use std::process::{Command, Stdio};
    let mut command = Command::new("xdg-open");
    let opened = page(link).and_then(|page| {
        command.arg(page.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok((page, command.spawn()?))
    });
    match opened {
        Ok((page, mut launcher)) => {
            // xdg-open exits after it has passed the page to the browser.
            std::thread::spawn(move || launcher.wait());
            Some(page)
        }
        Err(error) => {
            tracing::warn!("failed to start xdg-open ({error}); open the link yourself");
            None
        }
    }
}

/// Writes a page that leads to the link, which only its owner can read. Other users of this host can read the arguments
/// of a process: with the link in them, they could sign in with it first.
fn page(link: &str) -> std::io::Result<NamedTempFile> {
    let mut page = tempfile::Builder::new().prefix("knarr-dashboard-").suffix(".html").tempfile()?;
    writeln!(page, "<!doctype html>\n<meta http-equiv=\"refresh\" content=\"0; url={link}\">")?;
    page.flush()?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn sign_in_link_is_in_a_page_that_only_its_owner_can_read() {
        let link = "http://127.0.0.1:7000/dashboard/#/sign-in/CODE";
        let page = page(link).unwrap();
        assert!(std::fs::read_to_string(page.path()).unwrap().contains(&format!("url={link}\"")));
        assert_eq!(page.as_file().metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!page.path().to_string_lossy().contains("CODE"));
    }
}
