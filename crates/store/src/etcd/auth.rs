//! The Auth service of a store that knows clients by their certificates and keeps no users.

use tonic::{Request, Response, Status};

use super::Server;
use super::proto::etcdserverpb as pb;
use crate::backend::Backend;

#[tonic::async_trait]
impl<B: Backend> pb::auth_server::Auth for Server<B> {
    async fn auth_enable(&self, _: Request<pb::AuthEnableRequest>) -> Result<Response<pb::AuthEnableResponse>, Status> {
        Err(Status::failed_precondition("etcdserver: root user does not exist"))
    }

    async fn auth_disable(
        &self,
        _: Request<pb::AuthDisableRequest>,
    ) -> Result<Response<pb::AuthDisableResponse>, Status> {
        Ok(Response::new(pb::AuthDisableResponse { header: self.header_now() }))
    }

    async fn auth_status(&self, _: Request<pb::AuthStatusRequest>) -> Result<Response<pb::AuthStatusResponse>, Status> {
        Ok(Response::new(pb::AuthStatusResponse { header: self.header_now(), enabled: false, auth_revision: 1 }))
    }

    async fn authenticate(
        &self,
        _: Request<pb::AuthenticateRequest>,
    ) -> Result<Response<pb::AuthenticateResponse>, Status> {
        Err(Status::failed_precondition("etcdserver: authentication is not enabled"))
    }

    async fn user_add(&self, _: Request<pb::AuthUserAddRequest>) -> Result<Response<pb::AuthUserAddResponse>, Status> {
        Err(not_kept())
    }

    async fn user_get(&self, _: Request<pb::AuthUserGetRequest>) -> Result<Response<pb::AuthUserGetResponse>, Status> {
        Err(no_user())
    }

    async fn user_list(
        &self,
        _: Request<pb::AuthUserListRequest>,
    ) -> Result<Response<pb::AuthUserListResponse>, Status> {
        Ok(Response::new(pb::AuthUserListResponse { header: self.header_now(), users: Vec::new() }))
    }

    async fn user_delete(
        &self,
        _: Request<pb::AuthUserDeleteRequest>,
    ) -> Result<Response<pb::AuthUserDeleteResponse>, Status> {
        Err(no_user())
    }

    async fn user_change_password(
        &self,
        _: Request<pb::AuthUserChangePasswordRequest>,
    ) -> Result<Response<pb::AuthUserChangePasswordResponse>, Status> {
        Err(no_user())
    }

    async fn user_grant_role(
        &self,
        _: Request<pb::AuthUserGrantRoleRequest>,
    ) -> Result<Response<pb::AuthUserGrantRoleResponse>, Status> {
        Err(no_user())
    }

    async fn user_revoke_role(
        &self,
        _: Request<pb::AuthUserRevokeRoleRequest>,
    ) -> Result<Response<pb::AuthUserRevokeRoleResponse>, Status> {
        Err(no_user())
    }

    async fn role_add(&self, _: Request<pb::AuthRoleAddRequest>) -> Result<Response<pb::AuthRoleAddResponse>, Status> {
        Err(not_kept())
    }

    async fn role_get(&self, _: Request<pb::AuthRoleGetRequest>) -> Result<Response<pb::AuthRoleGetResponse>, Status> {
        Err(no_role())
    }

    async fn role_list(
        &self,
        _: Request<pb::AuthRoleListRequest>,
    ) -> Result<Response<pb::AuthRoleListResponse>, Status> {
        Ok(Response::new(pb::AuthRoleListResponse { header: self.header_now(), roles: Vec::new() }))
    }

    async fn role_delete(
        &self,
        _: Request<pb::AuthRoleDeleteRequest>,
    ) -> Result<Response<pb::AuthRoleDeleteResponse>, Status> {
        Err(no_role())
    }

    async fn role_grant_permission(
        &self,
        _: Request<pb::AuthRoleGrantPermissionRequest>,
    ) -> Result<Response<pb::AuthRoleGrantPermissionResponse>, Status> {
        Err(no_role())
    }

    async fn role_revoke_permission(
        &self,
        _: Request<pb::AuthRoleRevokePermissionRequest>,
    ) -> Result<Response<pb::AuthRoleRevokePermissionResponse>, Status> {
        Err(no_role())
    }
}

// DEVIATION: users and roles are not kept, so they can be listed (there are none) but not added.
fn not_kept() -> Status {
    Status::unimplemented("etcdserver: this store keeps no users and roles; restrict clients by their certificates")
}

fn no_user() -> Status {
    Status::failed_precondition("etcdserver: user name not found")
}

fn no_role() -> Status {
    Status::failed_precondition("etcdserver: role name not found")
}
