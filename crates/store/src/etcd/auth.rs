//! The Auth service: users and roles are kept as etcd keeps them while authentication is off, which it always is.

use mvcc::{Access, Command, Directory, DirectoryChange, Permission, Span, User};
use tonic::{Request, Response, Status};

use super::proto::{authpb, etcdserverpb as pb};
use super::{Server, password, status};
use crate::backend::Backend;

#[tonic::async_trait]
impl<B: Backend> pb::auth_server::Auth for Server<B> {
    // DEVIATION: authentication cannot be enabled. Users and roles are kept, and clients told apart by their certificates.
    async fn auth_enable(&self, _: Request<pb::AuthEnableRequest>) -> Result<Response<pb::AuthEnableResponse>, Status> {
        self.look(Directory::check_root).await?.map_err(status::of_directory)?;
        Err(Status::unimplemented(
            "etcdserver: authentication cannot be enabled in this store; restrict clients by their certificates",
        ))
    }

    async fn auth_disable(
        &self,
        _: Request<pb::AuthDisableRequest>,
    ) -> Result<Response<pb::AuthDisableResponse>, Status> {
        Ok(Response::new(pb::AuthDisableResponse { header: self.header_now() }))
    }

    async fn auth_status(&self, _: Request<pb::AuthStatusRequest>) -> Result<Response<pb::AuthStatusResponse>, Status> {
        let auth_revision = self.look(Directory::revision).await?;
        Ok(Response::new(pb::AuthStatusResponse { header: self.header_now(), enabled: false, auth_revision }))
    }

    async fn authenticate(
        &self,
        _: Request<pb::AuthenticateRequest>,
    ) -> Result<Response<pb::AuthenticateResponse>, Status> {
        Err(Status::failed_precondition("etcdserver: authentication is not enabled"))
    }

    async fn user_add(
        &self,
        request: Request<pb::AuthUserAddRequest>,
    ) -> Result<Response<pb::AuthUserAddResponse>, Status> {
        let pb::AuthUserAddRequest { name, password, options, .. } = self.sized(request)?;
        let has_password = !options.is_some_and(|options| options.no_password);
        let password = if has_password { Some(password::hashed(password).await?) } else { None };
        let header = self.direct(DirectoryChange::AddUser { name, password }).await?;
        Ok(Response::new(pb::AuthUserAddResponse { header }))
    }

    async fn user_get(
        &self,
        request: Request<pb::AuthUserGetRequest>,
    ) -> Result<Response<pb::AuthUserGetResponse>, Status> {
        let name = request.into_inner().name;
        let roles = |user: &User| user.roles.iter().cloned().collect();
        let roles = self.look(|directory| directory.user(&name).map(roles)).await?.map_err(status::of_directory)?;
        Ok(Response::new(pb::AuthUserGetResponse { header: self.header_now(), roles }))
    }

    async fn user_list(
        &self,
        _: Request<pb::AuthUserListRequest>,
    ) -> Result<Response<pb::AuthUserListResponse>, Status> {
        let users = self.look(|directory| directory.users().map(str::to_owned).collect()).await?;
        Ok(Response::new(pb::AuthUserListResponse { header: self.header_now(), users }))
    }

    async fn user_delete(
        &self,
        request: Request<pb::AuthUserDeleteRequest>,
    ) -> Result<Response<pb::AuthUserDeleteResponse>, Status> {
        let name = self.sized(request)?.name;
        let header = self.direct(DirectoryChange::DeleteUser { name }).await?;
        Ok(Response::new(pb::AuthUserDeleteResponse { header }))
    }

    async fn user_change_password(
        &self,
        request: Request<pb::AuthUserChangePasswordRequest>,
    ) -> Result<Response<pb::AuthUserChangePasswordResponse>, Status> {
        let pb::AuthUserChangePasswordRequest { name, password, .. } = self.sized(request)?;
        let password = password::hashed(password).await?;
        let header = self.direct(DirectoryChange::SetPassword { name, password }).await?;
        Ok(Response::new(pb::AuthUserChangePasswordResponse { header }))
    }

    async fn user_grant_role(
        &self,
        request: Request<pb::AuthUserGrantRoleRequest>,
    ) -> Result<Response<pb::AuthUserGrantRoleResponse>, Status> {
        let pb::AuthUserGrantRoleRequest { user, role } = self.sized(request)?;
        let header = self.direct(DirectoryChange::GrantRole { user, role }).await?;
        Ok(Response::new(pb::AuthUserGrantRoleResponse { header }))
    }

    async fn user_revoke_role(
        &self,
        request: Request<pb::AuthUserRevokeRoleRequest>,
    ) -> Result<Response<pb::AuthUserRevokeRoleResponse>, Status> {
        let pb::AuthUserRevokeRoleRequest { name, role } = self.sized(request)?;
        let header = self.direct(DirectoryChange::RevokeRole { user: name, role }).await?;
        Ok(Response::new(pb::AuthUserRevokeRoleResponse { header }))
    }

    async fn role_add(
        &self,
        request: Request<pb::AuthRoleAddRequest>,
    ) -> Result<Response<pb::AuthRoleAddResponse>, Status> {
        let name = self.sized(request)?.name;
        let header = self.direct(DirectoryChange::AddRole { name }).await?;
        Ok(Response::new(pb::AuthRoleAddResponse { header }))
    }

    async fn role_get(
        &self,
        request: Request<pb::AuthRoleGetRequest>,
    ) -> Result<Response<pb::AuthRoleGetResponse>, Status> {
        let role = request.into_inner().role;
        let granted = self.look(|directory| directory.permissions(&role)).await?.map_err(status::of_directory)?;
        let perm = granted.into_iter().map(told).collect();
        Ok(Response::new(pb::AuthRoleGetResponse { header: self.header_now(), perm }))
    }

    async fn role_list(
        &self,
        _: Request<pb::AuthRoleListRequest>,
    ) -> Result<Response<pb::AuthRoleListResponse>, Status> {
        let roles = self.look(|directory| directory.roles().map(str::to_owned).collect()).await?;
        Ok(Response::new(pb::AuthRoleListResponse { header: self.header_now(), roles }))
    }

    async fn role_delete(
        &self,
        request: Request<pb::AuthRoleDeleteRequest>,
    ) -> Result<Response<pb::AuthRoleDeleteResponse>, Status> {
        let name = self.sized(request)?.role;
        let header = self.direct(DirectoryChange::DeleteRole { name }).await?;
        Ok(Response::new(pb::AuthRoleDeleteResponse { header }))
    }

    async fn role_grant_permission(
        &self,
        request: Request<pb::AuthRoleGrantPermissionRequest>,
    ) -> Result<Response<pb::AuthRoleGrantPermissionResponse>, Status> {
        let pb::AuthRoleGrantPermissionRequest { name, perm } = self.sized(request)?;
        let permission = perm.and_then(asked).ok_or_else(|| status::invalid("etcdserver: permission not given"))?;
        let header = self.direct(DirectoryChange::GrantPermission { role: name, permission }).await?;
        Ok(Response::new(pb::AuthRoleGrantPermissionResponse { header }))
    }

    async fn role_revoke_permission(
        &self,
        request: Request<pb::AuthRoleRevokePermissionRequest>,
    ) -> Result<Response<pb::AuthRoleRevokePermissionResponse>, Status> {
        let pb::AuthRoleRevokePermissionRequest { role, key, range_end } = self.sized(request)?;
        let header =
            self.direct(DirectoryChange::RevokePermission { role, span: Span::from_wire(key, range_end) }).await?;
        Ok(Response::new(pb::AuthRoleRevokePermissionResponse { header }))
    }
}

impl<B: Backend> Server<B> {
    /// What is asked for, if it is not too large to be replicated.
    fn sized<M: prost::Message>(&self, request: Request<M>) -> Result<M, Status> {
        let request = request.into_inner();
        self.check_size(&request)?;
        Ok(request)
    }

    /// Changes users or roles; the header of the answer.
    async fn direct(&self, change: DirectoryChange) -> Result<Option<pb::ResponseHeader>, Status> {
        let (revision, _) = self.apply(Command::Directory(change)).await?;
        Ok(self.header(revision))
    }

    /// Looks at users and roles as they are when asked.
    async fn look<R>(&self, look: impl FnOnce(&Directory) -> R) -> Result<R, Status> {
        self.backend.read_index().await.map_err(status::of_backend)?;
        Ok(self.backend.view(|state| look(state.directory())))
    }
}

fn asked(permission: authpb::Permission) -> Option<Permission> {
    let access = u8::try_from(permission.perm_type).ok().and_then(Access::from_number)?;
    Some(Permission { access, span: Span::from_wire(permission.key, permission.range_end) })
}

fn told(permission: Permission) -> authpb::Permission {
    authpb::Permission {
        perm_type: permission.access.number().into(),
        range_end: permission.span.wire_end(),
        key: permission.span.start,
    }
}
