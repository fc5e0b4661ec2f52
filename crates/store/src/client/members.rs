//! Membership API of a remote cluster.

use std::sync::Arc;

use tonic::transport::Channel;
use tonic::{Code, Status};

use super::choice::{Choice, Effect};
use super::remote::{RemoteConfig, RemoteError, channels};
use crate::backend::BackendError;
pub use crate::backend::Member;
use crate::etcd::proto::etcdserverpb as pb;

/// A membership request failed.
#[derive(Debug, thiserror::Error)]
#[error("the store returned an error: {message}")]
pub struct MembersError {
    pub code: Code,
    pub message: String,
}

impl MembersError {
    /// Whether the store rejects membership changes until its members have been connected for some seconds.
    pub fn is_unhealthy_cluster(&self) -> bool {
        self.code == Code::Unavailable && self.message == BackendError::Unhealthy.to_string()
    }
}

/// Membership client of a remote cluster.
#[derive(Clone, Debug)]
pub struct Members {
    members: Arc<Choice>,
}

impl Members {
    /// Connects lazily.
    pub fn new(config: &RemoteConfig) -> Result<Self, RemoteError> {
        Ok(Self { members: Arc::new(Choice::new(channels(config)?)) })
    }

    /// Returns the members by a linearizable read.
    pub async fn list(&self) -> Result<Vec<Member>, MembersError> {
        self.listed(pb::MemberListRequest { linearizable: true }).await
    }

    /// Returns the members known to the contacted member, even if it has no quorum.
    pub async fn known(&self) -> Result<Vec<Member>, MembersError> {
        self.listed(pb::MemberListRequest { linearizable: false }).await
    }

    async fn listed(&self, request: pb::MemberListRequest) -> Result<Vec<Member>, MembersError> {
        let response = self.call(Effect::None, async |channel| cluster(channel).member_list(request).await).await?;
        Ok(response.members.into_iter().map(member).collect())
    }

    /// Adds a learner, which need not run yet. Returns the existing member if one already has this URL.
    pub async fn add_learner(&self, peer_url: &str) -> Result<Member, MembersError> {
        let known = self.list().await?.into_iter().find(|member| member.peer_urls.iter().any(|url| url == peer_url));
        if let Some(known) = known {
            return Ok(known);
        }
        let request = pb::MemberAddRequest { peer_ur_ls: vec![peer_url.to_owned()], is_learner: true };
        let response =
            self.call(Effect::Write, async |channel| cluster(channel).member_add(request.clone()).await).await?;
        response.member.map(member).ok_or_else(|| members_error(Status::internal("it names no member")))
    }

    /// Makes a learner a voter; fails if it has not caught up.
    pub async fn promote(&self, id: u64) -> Result<(), MembersError> {
        let send = async |channel| cluster(channel).member_promote(pb::MemberPromoteRequest { id }).await;
        self.call(Effect::Write, send).await.map(drop)
    }

    /// Sets the peer URLs of a member.
    pub async fn update(&self, id: u64, peer_urls: &[String]) -> Result<(), MembersError> {
        let request = pb::MemberUpdateRequest { id, peer_ur_ls: peer_urls.to_vec() };
        self.call(Effect::Write, async |channel| cluster(channel).member_update(request.clone()).await).await.map(drop)
    }

    pub async fn remove(&self, id: u64) -> Result<(), MembersError> {
        let send = async |channel| cluster(channel).member_remove(pb::MemberRemoveRequest { id }).await;
        self.call(Effect::Write, send).await.map(drop)
    }

    /// Returns the IDs of members with a NOSPACE alarm, because of their disk or their quota.
    pub async fn alarmed(&self) -> Result<Vec<u64>, MembersError> {
        let request = pb::AlarmRequest {
            action: pb::alarm_request::AlarmAction::Get.into(),
            member_id: 0,
            alarm: pb::AlarmType::Nospace.into(),
        };
        let response = self.call(Effect::None, async |channel| maintenance(channel).alarm(request).await).await?;
        Ok(response.alarms.into_iter().map(|alarm| alarm.member_id).collect())
    }

    /// Returns the leader's ID, or 0.
    pub async fn leader(&self) -> Result<u64, MembersError> {
        let send = async |channel| maintenance(channel).status(pb::StatusRequest {}).await;
        Ok(self.call(Effect::None, send).await?.leader)
    }

    async fn call<T>(
        &self,
        effect: Effect,
        send: impl AsyncFn(Channel) -> Result<tonic::Response<T>, Status>,
    ) -> Result<T, MembersError> {
        let response = self.members.call(effect, |channel| send(channel)).await;
        response.map(|(_, response)| response.into_inner()).map_err(members_error)
    }
}

fn cluster(channel: Channel) -> pb::cluster_client::ClusterClient<Channel> {
    pb::cluster_client::ClusterClient::new(channel)
}

fn maintenance(channel: Channel) -> pb::maintenance_client::MaintenanceClient<Channel> {
    pb::maintenance_client::MaintenanceClient::new(channel)
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

#[expect(clippy::needless_pass_by_value, reason = "the signature that `map_err` needs")]
fn members_error(status: Status) -> MembersError {
    MembersError { code: status.code(), message: status.message().to_owned() }
}
