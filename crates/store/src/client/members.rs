//! Who the members of a remote cluster are, and the change of it.

use tonic::transport::Channel;
use tonic::{Code, Status};

use super::remote::{RemoteConfig, RemoteError, endpoints};
pub use crate::backend::Member;
use crate::etcd::proto::etcdserverpb as pb;

/// Why there is no answer about members.
#[derive(Debug, thiserror::Error)]
#[error("the store says: {message}")]
pub struct MembersError {
    /// The kind of refusal.
    pub code: Code,
    /// Its words.
    pub message: String,
}

/// The members of a remote cluster.
#[derive(Clone, Debug)]
pub struct Members {
    cluster: pb::cluster_client::ClusterClient<Channel>,
    maintenance: pb::maintenance_client::MaintenanceClient<Channel>,
}

impl Members {
    /// Those of a cluster; connections are made when they are needed.
    pub fn new(config: &RemoteConfig) -> Result<Self, RemoteError> {
        let channel = Channel::balance_list(endpoints(config)?.into_iter());
        Ok(Self {
            cluster: pb::cluster_client::ClusterClient::new(channel.clone()),
            maintenance: pb::maintenance_client::MaintenanceClient::new(channel),
        })
    }

    /// All of them.
    pub async fn list(&self) -> Result<Vec<Member>, MembersError> {
        let request = pb::MemberListRequest { linearizable: true };
        let answer = self.cluster.clone().member_list(request).await.map_err(refused)?;
        Ok(answer.into_inner().members.into_iter().map(member).collect())
    }

    /// Adds a member that follows at first; it need not run yet. One with this URL that is there already is given.
    pub async fn add_learner(&self, peer_url: &str) -> Result<Member, MembersError> {
        let known = self.list().await?.into_iter().find(|member| member.peer_urls.iter().any(|url| url == peer_url));
        if let Some(known) = known {
            return Ok(known);
        }
        let request = pb::MemberAddRequest { peer_ur_ls: vec![peer_url.to_owned()], is_learner: true };
        let answer = self.cluster.clone().member_add(request).await.map_err(refused)?.into_inner();
        answer.member.map(member).ok_or_else(|| refused(Status::internal("it names no member")))
    }

    /// Gives a member a vote, which it must have caught up for.
    pub async fn promote(&self, id: u64) -> Result<(), MembersError> {
        self.cluster.clone().member_promote(pb::MemberPromoteRequest { id }).await.map(drop).map_err(refused)
    }

    /// Removes a member.
    pub async fn remove(&self, id: u64) -> Result<(), MembersError> {
        self.cluster.clone().member_remove(pb::MemberRemoveRequest { id }).await.map(drop).map_err(refused)
    }

    /// The numbers of those that say that they have no space, on their disk or by their quota.
    pub async fn alarmed(&self) -> Result<Vec<u64>, MembersError> {
        let request = pb::AlarmRequest {
            action: pb::alarm_request::AlarmAction::Get.into(),
            member_id: 0,
            alarm: pb::AlarmType::Nospace.into(),
        };
        let answer = self.maintenance.clone().alarm(request).await.map_err(refused)?.into_inner();
        Ok(answer.alarms.into_iter().map(|alarm| alarm.member_id).collect())
    }

    /// The number of the one that leads; 0 if none does.
    pub async fn leader(&self) -> Result<u64, MembersError> {
        let answer = self.maintenance.clone().status(pb::StatusRequest {}).await.map_err(refused)?;
        Ok(answer.get_ref().leader)
    }
}

fn member(member: pb::Member) -> Member {
    Member {
        id: member.id,
        name: member.name,
        peer_urls: member.peer_ur_ls,
        client_urls: member.client_ur_ls,
        learner: member.is_learner,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn refused(status: Status) -> MembersError {
    MembersError { code: status.code(), message: status.message().to_owned() }
}
