//! `knarr members`: members of the replicated store.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::store::client::{Member, Members, RemoteConfig};
use anyhow::{Context, Result};
use apimachinery::time::Time;
use apimachinery::{Resource, Value, value};
use clap::{ArgMatches, Args, FromArgMatches, Subcommand};
use client::{Client, Target};

use crate::admin_client;
use crate::output::outln;
use crate::up::Options;
use crate::up::plan::{Layout, Store};

/// Time limit of each request to a member.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);

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
    /// Remove a member whose server does not return. The server must be stopped.
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
        let Some(MembersCommand::Rm { name }) = what else {
            let client = admin_client::admin(&admin_client::config(&data_dir)?)?;
            outln!("{:<18} {:<24} {:<10} {:<44} {:<10} PEERS", "ID", "NAME", "ROLE", "REACH", "ALARM");
            for Row { member, role, alarm, reach } in rows(&members, &data_dir, &client).await? {
                let (peers, reach) = (member.peer_urls.join(","), reach.to_string());
                outln!("{:<18x} {:<24} {role:<10} {reach:<44} {alarm:<10} {peers}", member.id, member.name);
            }
            return Ok(());
        };
        let known = listed(&members).await?;
        let member = known.iter().find(|member| member.name == name);
        let member = member.with_context(|| format!("no member {name}"))?;
        members.remove(member.id).await.with_context(|| format!("failed to remove member {name}"))?;
        outln!("member {name} removed");
        Ok(())
    })
}

/// A member and its state, for output.
pub(crate) struct Row {
    pub member: Member,
    pub role: &'static str,
    pub alarm: &'static str,
    pub reach: Reachability,
}

/// Whether a member responds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reachability {
    Reachable,
    /// The member was added, and its server has not joined yet.
    NotStarted,
    /// With the last heartbeat of its node, if that is known.
    Unreachable(Option<Time>),
}

impl fmt::Display for Reachability {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reachable => write!(formatter, "reachable"),
            Self::NotStarted => write!(formatter, "not started"),
            Self::Unreachable(None) => write!(formatter, "unreachable"),
            Self::Unreachable(Some(since)) => write!(formatter, "unreachable since {since}"),
        }
    }
}

impl Row {
    /// Returns the member as in `knarr status -o json`.
    pub(crate) fn to_value(&self) -> Value {
        let Self { member, role, alarm, reach } = self;
        let urls = member.peer_urls.iter().map(|url| Value::from(url.as_str())).collect::<Vec<_>>();
        value!({
            "id": (format!("{:x}", member.id)), "name": (member.name.as_str()), "role": (*role), "alarm": (*alarm),
            "reach": (reach.to_string()), "peerURLs": urls,
        })
    }
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

async fn listed(members: &Members) -> Result<Vec<Member>> {
    members.list().await.context("the store member of this host does not respond")
}

/// Returns the members with their states. Each member is queried, because the leader also lists members that are down.
pub(crate) async fn rows(members: &Members, data_dir: &Path, client: &Client) -> Result<Vec<Row>> {
    let known = listed(members).await?;
    let (leader, alarmed) = (members.leader().await?, members.alarmed().await?);
    let mut rows = Vec::new();
    let config = config(data_dir)?.context("this host has no member of the store")?;
    for member in known {
        let is_reachable = responds(&member, &config).await;
        rows.push(Row {
            role: match (member.id == leader, member.learner) {
                (true, _) => "leader",
                (false, true) => "learner",
                (false, false) => "follower",
            },
            alarm: if alarmed.contains(&member.id) { "no space" } else { "none" },
            reach: match (is_reachable, member.client_urls.is_empty()) {
                (true, _) => Reachability::Reachable,
                (false, true) => Reachability::NotStarted,
                (false, false) => Reachability::Unreachable(last_heartbeat(client, &member.name).await),
            },
            member,
        });
    }
    Ok(rows)
}

/// Whether a member itself responds.
async fn responds(member: &Member, config: &RemoteConfig) -> bool {
    let config = RemoteConfig { servers: member.client_urls.clone(), ..config.clone() };
    let Ok(members) = Members::new(&config) else { return false };
    let response = tokio::time::timeout(RESPONSE_TIMEOUT, members.known()).await;
    !config.servers.is_empty() && response.is_ok_and(|response| response.is_ok())
}

/// Returns when the node of a member last renewed its Lease. Nodes have the names of their members.
async fn last_heartbeat(client: &Client, name: &str) -> Option<Time> {
    let leases = Resource::namespaced("coordination.k8s.io", "v1", "leases", "Lease");
    let target = Target::named(&leases, "kube-node-lease", name);
    let lease = tokio::time::timeout(RESPONSE_TIMEOUT, client.get(&target)).await.ok()?.ok()?;
    Time::parse_micro(lease.str_at(&["spec", "renewTime"])?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreachable_member_has_the_time_of_its_last_heartbeat() {
        let since = Time::from_unix(1, 0);
        assert_eq!(Reachability::Unreachable(Some(since)).to_string(), "unreachable since 1970-01-01T00:00:01Z");
        assert_eq!(Reachability::Unreachable(None).to_string(), "unreachable");
        let member = Member {
            id: 10,
            name: "n".to_owned(),
            peer_urls: vec!["https://a:2380".to_owned()],
            client_urls: Vec::new(),
            learner: false,
        };
        let row = Row { member, role: "follower", alarm: "none", reach: Reachability::NotStarted };
        let value = row.to_value();
        assert_eq!(value.str_at(&["reach"]), Some("not started"));
        assert_eq!(value.str_at(&["id"]), Some("a"));
    }
}
