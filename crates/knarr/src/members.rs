//! `knarr members`: members of the replicated store.

use std::path::{Path, PathBuf};

use ::store::client::{Member, Members, RemoteConfig};
use anyhow::{Context, Result};
use clap::{ArgMatches, Args, FromArgMatches, Subcommand};

use crate::output::outln;
use crate::up::Options;
use crate::up::plan::{Layout, Store};

/// List and remove members of the replicated store.
#[derive(Args, Debug)]
struct MembersArgs {
    /// Data directory of the cluster.
    #[arg(long, default_value = "/var/lib/knarr", global = true)]
    data_dir: PathBuf,
    #[command(subcommand)]
    what: Option<MembersCommand>,
}

#[derive(Subcommand, Debug)]
enum MembersCommand {
    /// List members.
    Ls,
    /// Remove a member that does not come back. Its server must not run.
    Rm {
        /// Name of the member.
        name: String,
    },
}

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    MembersArgs::augment_args(command)
}

pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let MembersArgs { data_dir, what } = MembersArgs::from_arg_matches(matches)?;
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    executor.block_on(async {
        let members = of(&data_dir)?.with_context(|| {
            let dir = data_dir.display();
            format!("the cluster in {dir} has no replicated store: only `knarr server` has one, not `knarr up`")
        })?;
        let known = rows(&members).await?;
        let Some(MembersCommand::Rm { name }) = what else {
            outln!("{:<18} {:<24} {:<10} {:<10} PEERS", "ID", "NAME", "ROLE", "ALARM");
            for Row { member, role, alarm } in known {
                let peers = member.peer_urls.join(",");
                outln!("{:<18x} {:<24} {role:<10} {alarm:<10} {peers}", member.id, member.name);
            }
            return Ok(());
        };
        let row = known.iter().find(|row| row.member.name == name);
        let row = row.with_context(|| format!("no member {name}"))?;
        members.remove(row.member.id).await.with_context(|| format!("failed to remove member {name}"))?;
        outln!("member {name} removed");
        Ok(())
    })
}

/// A member, its role and its alarm, for output.
pub(crate) struct Row {
    pub member: Member,
    pub role: &'static str,
    pub alarm: &'static str,
}

/// Returns a client of the local store member, or `None` if the store is not replicated here. Must be called in a Tokio
/// runtime.
pub(crate) fn of(data_dir: &Path) -> Result<Option<Members>> {
    Ok(config(data_dir)?.as_ref().map(Members::new).transpose()?)
}

/// Returns the connection to the local store member, or `None` if this host has none.
pub(crate) fn config(data_dir: &Path) -> Result<Option<RemoteConfig>> {
    if !data_dir.join("etcd").is_dir() {
        return Ok(None);
    }
    let store = Store::Member { initial: Vec::new(), via: None };
    let options = Options { data_dir: data_dir.to_owned(), store, ..Options::default() };
    let layout = Layout::of(&options, vec![std::net::Ipv4Addr::LOCALHOST.into()])?;
    Ok(Some(layout.store_at("127.0.0.1")))
}

pub(crate) async fn rows(members: &Members) -> Result<Vec<Row>> {
    let known = members.list().await.context("the store member of this host does not respond")?;
    let (leader, alarmed) = (members.leader().await?, members.alarmed().await?);
    let row = |member: Member| Row {
        role: match (member.id == leader, member.learner) {
            (true, _) => "leader",
            (false, true) => "learner",
            (false, false) => "follower",
        },
        alarm: if alarmed.contains(&member.id) { "no space" } else { "none" },
        member,
    };
    Ok(known.into_iter().map(row).collect())
}
