//! `knarr members`: who keeps the cluster's state.

use std::path::PathBuf;

use ::store::client::Members;
use anyhow::{Context, Result, ensure};
use clap::{ArgMatches, Args, FromArgMatches, Subcommand};

use crate::up::Options;
use crate::up::plan::{Layout, Store};

/// Members of the store of this machine's cluster.
#[derive(Args, Debug)]
struct Asked {
    /// The cluster's folder.
    #[arg(long, default_value = "/var/lib/knarr", global = true)]
    data_dir: PathBuf,
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand, Debug)]
enum What {
    /// List them.
    Ls,
    /// Remove one that does not come back. Its server must not run.
    Rm {
        /// Its name.
        name: String,
    },
}

pub fn arguments(command: clap::Command) -> clap::Command {
    Asked::augment_args(command)
}

/// Lists or removes.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let Asked { data_dir, what } = Asked::from_arg_matches(matches)?;
    ensure!(
        data_dir.join("etcd").is_dir(),
        "the cluster in {} has no replicated store: `knarr up` keeps its state alone, `knarr server` does not",
        data_dir.display()
    );
    let store = Store::Member { initial: Vec::new(), via: None };
    let layout = Layout::of(&Options { data_dir, store, ..Options::default() }, std::net::Ipv4Addr::LOCALHOST.into())?;
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    executor.block_on(async {
        let members = Members::new(&layout.store_at("127.0.0.1"))?;
        let known = members.list().await.context("the store of this machine does not answer")?;
        let Some(What::Rm { name }) = what else {
            let leader = members.leader().await?;
            let alarmed = members.alarmed().await?;
            println!("{:<18} {:<24} {:<10} {:<10} PEERS", "ID", "NAME", "ROLE", "ALARM");
            for member in known {
                let role = match (member.id == leader, member.learner) {
                    (true, _) => "leader",
                    (false, true) => "learner",
                    (false, false) => "follower",
                };
                let alarm = if alarmed.contains(&member.id) { "no space" } else { "none" };
                let peers = member.peer_urls.join(",");
                println!("{:<18x} {:<24} {role:<10} {alarm:<10} {peers}", member.id, member.name);
            }
            return Ok(());
        };
        let member = known.iter().find(|member| member.name == name);
        let member = member.with_context(|| format!("there is no member {name}"))?;
        members.remove(member.id).await.with_context(|| format!("member {name} stays"))?;
        println!("member {name} is removed");
        Ok(())
    })
}
