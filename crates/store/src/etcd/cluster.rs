//! The Cluster service: membership.

use tonic::{Request, Response, Status};

use super::caller::Credentials;
use super::proto::etcdserverpb as pb;
use super::{Server, status};
use crate::backend::{Backend, BackendError, Member, MemberChange};

#[tonic::async_trait]
impl<B: Backend> pb::cluster_server::Cluster for Server<B> {
    async fn member_add(
        &self,
        request: Request<pb::MemberAddRequest>,
    ) -> Result<Response<pb::MemberAddResponse>, Status> {
        self.require_admin(&Credentials::of(&request)).await?;
        let request = request.into_inner();
        let peer_urls = checked(request.peer_ur_ls)?;
        let added = self.change(MemberChange::Add { peer_urls, learner: request.is_learner }).await?;
        let response =
            pb::MemberAddResponse { header: self.cluster_header(), member: added.map(member), members: self.list() };
        Ok(Response::new(response))
    }

    async fn member_remove(
        &self,
        request: Request<pb::MemberRemoveRequest>,
    ) -> Result<Response<pb::MemberRemoveResponse>, Status> {
        self.require_admin(&Credentials::of(&request)).await?;
        self.change(MemberChange::Remove(request.into_inner().id)).await?;
        Ok(Response::new(pb::MemberRemoveResponse { header: self.cluster_header(), members: self.list() }))
    }

    async fn member_update(
        &self,
        request: Request<pb::MemberUpdateRequest>,
    ) -> Result<Response<pb::MemberUpdateResponse>, Status> {
        self.require_admin(&Credentials::of(&request)).await?;
        let request = request.into_inner();
        let peer_urls = checked(request.peer_ur_ls)?;
        self.change(MemberChange::Update(request.id, peer_urls)).await?;
        Ok(Response::new(pb::MemberUpdateResponse { header: self.cluster_header(), members: self.list() }))
    }

    async fn member_list(
        &self,
        request: Request<pb::MemberListRequest>,
    ) -> Result<Response<pb::MemberListResponse>, Status> {
        let credentials = Credentials::of(&request);
        if request.into_inner().linearizable {
            self.backend.read_index().await.map_err(status::of_backend)?;
        }
        self.require_user(&credentials).await?;
        Ok(Response::new(pb::MemberListResponse { header: self.cluster_header(), members: self.list() }))
    }

    async fn member_promote(
        &self,
        request: Request<pb::MemberPromoteRequest>,
    ) -> Result<Response<pb::MemberPromoteResponse>, Status> {
        self.require_admin(&Credentials::of(&request)).await?;
        self.change(MemberChange::Promote(request.into_inner().id)).await?;
        Ok(Response::new(pb::MemberPromoteResponse { header: self.cluster_header(), members: self.list() }))
    }
}

impl<B: Backend> Server<B> {
    async fn change(&self, change: MemberChange) -> Result<Option<Member>, Status> {
        self.backend.change_members(change).await.map_err(status::of_backend)
    }

    fn list(&self) -> Vec<pb::Member> {
        self.backend.members().into_iter().map(member).collect()
    }

    /// Returns a header without a revision, because members are not part of the key space.
    fn cluster_header(&self) -> Option<pb::ResponseHeader> {
        self.header(0)
    }
}

fn member(member: Member) -> pb::Member {
    pb::Member {
        id: member.id,
        name: member.name,
        peer_ur_ls: member.peer_urls,
        client_ur_ls: member.client_urls,
        is_learner: member.learner,
    }
}

/// Returns the URLs if each has a scheme, a host and a port, and nothing else.
fn checked(mut urls: Vec<String>) -> Result<Vec<String>, Status> {
    let valid = |url: &String| {
        let parsed = url.parse::<http::Uri>().ok()?;
        let scheme = parsed.scheme_str()?;
        let bare = matches!(parsed.path(), "" | "/") && parsed.query().is_none();
        (matches!(scheme, "http" | "https") && parsed.port().is_some() && bare).then_some(())
    };
    if urls.is_empty() || urls.iter().any(|url| valid(url).is_none()) {
        return Err(status::of_backend(BackendError::BadUrls));
    }
    urls.sort();
    Ok(urls)
}
