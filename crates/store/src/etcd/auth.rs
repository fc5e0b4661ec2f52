//! The Auth service: users, roles, and sessions of authenticated users.

use mvcc::{
    Access, Caller, Command, Directory, DirectoryChange, DirectoryError, PasswordHash, Permission, Reply, Span, User,
};
use tonic::{Request, Response, Status};

use super::caller::{Credentials, Tokens};
use super::proto::{authpb, etcdserverpb as pb};
use super::{Server, password, status};
use crate::backend::Backend;
use crate::sessions;

#[tonic::async_trait]
impl<B: Backend> pb::auth_server::Auth for Server<B> {
    async fn auth_enable(
        &self,
        request: Request<pb::AuthEnableRequest>,
    ) -> Result<Response<pb::AuthEnableResponse>, Status> {
        let header = self.direct(&Credentials::of(&request), DirectoryChange::Enable).await?;
        Ok(Response::new(pb::AuthEnableResponse { header }))
    }

    async fn auth_disable(
        &self,
        request: Request<pb::AuthDisableRequest>,
    ) -> Result<Response<pb::AuthDisableResponse>, Status> {
        let header = self.direct(&Credentials::of(&request), DirectoryChange::Disable).await?;
        Ok(Response::new(pb::AuthDisableResponse { header }))
    }

    async fn auth_status(
        &self,
        request: Request<pb::AuthStatusRequest>,
    ) -> Result<Response<pb::AuthStatusResponse>, Status> {
        let status = |directory: &Directory| (directory.is_enabled(), directory.revision());
        let (enabled, auth_revision) = self.read_directory(&Credentials::of(&request), Self::is_admin, status).await?;
        Ok(Response::new(pb::AuthStatusResponse { header: self.header_now(), enabled, auth_revision }))
    }

    async fn authenticate(
        &self,
        request: Request<pb::AuthenticateRequest>,
    ) -> Result<Response<pb::AuthenticateResponse>, Status> {
        let pb::AuthenticateRequest { name, password } = self.sized(request)?;
        self.backend.read_index().await.map_err(status::of_backend)?;
        loop {
            let verified_at = self.verify_password(&name, password.clone()).await?;
            let token = self.new_token()?;
            let open = Command::Authenticate { user: name.clone(), token: token.clone() };
            let (revision, reply) = self.apply(None, open).await?;
            let Reply::Authenticated { index, revision: directory_revision } = reply else {
                return Err(Status::internal("a session without its reply"));
            };
            // Otherwise the password may have changed after it was verified.
            if verified_at == directory_revision {
                let token = self.full_token(&token, index, &name, directory_revision)?;
                return Ok(Response::new(pb::AuthenticateResponse { header: self.header(revision), token }));
            }
        }
    }

    async fn user_add(
        &self,
        request: Request<pb::AuthUserAddRequest>,
    ) -> Result<Response<pb::AuthUserAddResponse>, Status> {
        let credentials = Credentials::of(&request);
        let pb::AuthUserAddRequest { name, password, options, .. } = self.sized(request)?;
        let has_password = !options.is_some_and(|options| options.no_password);
        let password = if has_password { Some(self.hashed(&credentials, password).await?) } else { None };
        let header = self.direct(&credentials, DirectoryChange::AddUser { name, password }).await?;
        Ok(Response::new(pb::AuthUserAddResponse { header }))
    }

    async fn user_get(
        &self,
        request: Request<pb::AuthUserGetRequest>,
    ) -> Result<Response<pb::AuthUserGetResponse>, Status> {
        let credentials = Credentials::of(&request);
        let name = request.into_inner().name;
        let roles = |user: &User| user.roles.iter().cloned().collect();
        let is_permitted = |directory: &Directory, caller: Option<&Caller>| match caller {
            Some(Caller::User { name: own, .. }) if *own == name => Ok(()),
            caller => directory.check_admin(caller),
        };
        let roles =
            self.read_directory(&credentials, is_permitted, |directory| directory.user(&name).map(roles)).await?;
        let roles = roles.map_err(status::of_directory)?;
        Ok(Response::new(pb::AuthUserGetResponse { header: self.header_now(), roles }))
    }

    async fn user_list(
        &self,
        request: Request<pb::AuthUserListRequest>,
    ) -> Result<Response<pb::AuthUserListResponse>, Status> {
        let names = |directory: &Directory| directory.users().map(str::to_owned).collect();
        let users = self.read_directory(&Credentials::of(&request), Self::is_admin, names).await?;
        Ok(Response::new(pb::AuthUserListResponse { header: self.header_now(), users }))
    }

    async fn user_delete(
        &self,
        request: Request<pb::AuthUserDeleteRequest>,
    ) -> Result<Response<pb::AuthUserDeleteResponse>, Status> {
        let credentials = Credentials::of(&request);
        let name = self.sized(request)?.name;
        let header = self.direct(&credentials, DirectoryChange::DeleteUser { name }).await?;
        Ok(Response::new(pb::AuthUserDeleteResponse { header }))
    }

    async fn user_change_password(
        &self,
        request: Request<pb::AuthUserChangePasswordRequest>,
    ) -> Result<Response<pb::AuthUserChangePasswordResponse>, Status> {
        let credentials = Credentials::of(&request);
        let pb::AuthUserChangePasswordRequest { name, password, .. } = self.sized(request)?;
        let password = self.hashed(&credentials, password).await?;
        let header = self.direct(&credentials, DirectoryChange::SetPassword { name, password }).await?;
        Ok(Response::new(pb::AuthUserChangePasswordResponse { header }))
    }

    async fn user_grant_role(
        &self,
        request: Request<pb::AuthUserGrantRoleRequest>,
    ) -> Result<Response<pb::AuthUserGrantRoleResponse>, Status> {
        let credentials = Credentials::of(&request);
        let pb::AuthUserGrantRoleRequest { user, role } = self.sized(request)?;
        let header = self.direct(&credentials, DirectoryChange::GrantRole { user, role }).await?;
        Ok(Response::new(pb::AuthUserGrantRoleResponse { header }))
    }

    async fn user_revoke_role(
        &self,
        request: Request<pb::AuthUserRevokeRoleRequest>,
    ) -> Result<Response<pb::AuthUserRevokeRoleResponse>, Status> {
        let credentials = Credentials::of(&request);
        let pb::AuthUserRevokeRoleRequest { name, role } = self.sized(request)?;
        let header = self.direct(&credentials, DirectoryChange::RevokeRole { user: name, role }).await?;
        Ok(Response::new(pb::AuthUserRevokeRoleResponse { header }))
    }

    async fn role_add(
        &self,
        request: Request<pb::AuthRoleAddRequest>,
    ) -> Result<Response<pb::AuthRoleAddResponse>, Status> {
        let credentials = Credentials::of(&request);
        let name = self.sized(request)?.name;
        let header = self.direct(&credentials, DirectoryChange::AddRole { name }).await?;
        Ok(Response::new(pb::AuthRoleAddResponse { header }))
    }

    async fn role_get(
        &self,
        request: Request<pb::AuthRoleGetRequest>,
    ) -> Result<Response<pb::AuthRoleGetResponse>, Status> {
        let credentials = Credentials::of(&request);
        let role = request.into_inner().role;
        let is_permitted = |directory: &Directory, caller: Option<&Caller>| match caller {
            Some(Caller::User { name, .. }) if directory.user(name).is_ok_and(|user| user.roles.contains(&role)) => {
                Ok(())
            }
            caller => directory.check_admin(caller),
        };
        let granted = self.read_directory(&credentials, is_permitted, |directory| directory.permissions(&role)).await?;
        let granted = granted.map_err(status::of_directory)?;
        let perm = granted.into_iter().map(permission_to_wire).collect();
        Ok(Response::new(pb::AuthRoleGetResponse { header: self.header_now(), perm }))
    }

    async fn role_list(
        &self,
        request: Request<pb::AuthRoleListRequest>,
    ) -> Result<Response<pb::AuthRoleListResponse>, Status> {
        let names = |directory: &Directory| directory.roles().map(str::to_owned).collect();
        let roles = self.read_directory(&Credentials::of(&request), Self::is_admin, names).await?;
        Ok(Response::new(pb::AuthRoleListResponse { header: self.header_now(), roles }))
    }

    async fn role_delete(
        &self,
        request: Request<pb::AuthRoleDeleteRequest>,
    ) -> Result<Response<pb::AuthRoleDeleteResponse>, Status> {
        let credentials = Credentials::of(&request);
        let name = self.sized(request)?.role;
        let header = self.direct(&credentials, DirectoryChange::DeleteRole { name }).await?;
        Ok(Response::new(pb::AuthRoleDeleteResponse { header }))
    }

    async fn role_grant_permission(
        &self,
        request: Request<pb::AuthRoleGrantPermissionRequest>,
    ) -> Result<Response<pb::AuthRoleGrantPermissionResponse>, Status> {
        let credentials = Credentials::of(&request);
        let pb::AuthRoleGrantPermissionRequest { name, perm } = self.sized(request)?;
        let permission =
            perm.and_then(permission_from_wire).ok_or_else(|| status::invalid("etcdserver: permission not given"))?;
        let header = self.direct(&credentials, DirectoryChange::GrantPermission { role: name, permission }).await?;
        Ok(Response::new(pb::AuthRoleGrantPermissionResponse { header }))
    }

    async fn role_revoke_permission(
        &self,
        request: Request<pb::AuthRoleRevokePermissionRequest>,
    ) -> Result<Response<pb::AuthRoleRevokePermissionResponse>, Status> {
        let credentials = Credentials::of(&request);
        let pb::AuthRoleRevokePermissionRequest { role, key, range_end } = self.sized(request)?;
        let change = DirectoryChange::RevokePermission { role, span: Span::from_wire(key, range_end) };
        let header = self.direct(&credentials, change).await?;
        Ok(Response::new(pb::AuthRoleRevokePermissionResponse { header }))
    }
}

impl<B: Backend> Server<B> {
    /// Returns the message, unless it is too large to be replicated.
    fn sized<M: prost::Message>(&self, request: Request<M>) -> Result<M, Status> {
        let request = request.into_inner();
        self.check_size(&request)?;
        Ok(request)
    }

    /// Changes users or roles. Returns the response header.
    async fn direct(
        &self,
        credentials: &Credentials,
        change: DirectoryChange,
    ) -> Result<Option<pb::ResponseHeader>, Status> {
        let caller = self.caller(credentials).await?;
        let (revision, _) = self.apply(caller, Command::Directory(change)).await?;
        Ok(self.header(revision))
    }

    /// Reads users and roles by a linearizable read, if the caller is permitted.
    async fn read_directory<R>(
        &self,
        credentials: &Credentials,
        is_permitted: impl FnOnce(&Directory, Option<&Caller>) -> Result<(), DirectoryError>,
        read: impl FnOnce(&Directory) -> R,
    ) -> Result<R, Status> {
        self.backend.read_index().await.map_err(status::of_backend)?;
        let caller = self.caller(credentials).await?;
        let seen = self.directory(|directory| is_permitted(directory, caller.as_ref()).map(|()| read(directory)));
        seen.map_err(status::of_directory)
    }

    fn is_admin(directory: &Directory, caller: Option<&Caller>) -> Result<(), DirectoryError> {
        directory.check_admin(caller)
    }

    /// Hashes a password for an administrator. Other callers are rejected before the expensive hash.
    async fn hashed(&self, credentials: &Credentials, password: String) -> Result<PasswordHash, Status> {
        self.require_admin(credentials).await?;
        password::hashed(password, self.config.auth.hash_iterations).await
    }

    /// Verifies a password. Returns the directory revision at which it was valid.
    async fn verify_password(&self, name: &str, password: String) -> Result<u64, Status> {
        let user = self.directory(|directory| {
            directory.is_enabled().then(|| (directory.revision(), directory.user(name).ok().cloned()))
        });
        let (revision, user) = user.ok_or_else(|| status::of_directory(DirectoryError::NotEnabled))?;
        if user.as_ref().is_some_and(|user| user.password.is_none()) {
            return Err(Status::unknown("auth: authentication failed, password was given for no password user"));
        }
        let hash = user.and_then(|user| user.password);
        if password::verify(password, hash, self.config.auth.hash_iterations).await? {
            return Ok(revision);
        }
        tracing::warn!(user = name, "authentication failed: invalid user name or password");
        Err(status::of_directory(DirectoryError::AuthFailed))
    }

    /// Returns the random part of a token; empty if tokens are signed.
    fn new_token(&self) -> Result<String, Status> {
        const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
        const LETTERS_OF_TOKEN: usize = 22;
        if matches!(self.config.auth.tokens, Tokens::Signed(_)) {
            return Ok(String::new());
        }
        let mut bytes = [0; LETTERS_OF_TOKEN];
        aws_lc_rs::rand::fill(&mut bytes).map_err(|_| Status::internal("no random number for a token"))?;
        Ok(bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 64)])).collect())
    }

    fn full_token(&self, random: &str, index: u64, user: &str, revision: u64) -> Result<String, Status> {
        match &self.config.auth.tokens {
            Tokens::Simple { .. } => Ok(sessions::full_token(random, index)),
            Tokens::Signed(signer) => signer
                .sign(user, revision)
                .ok_or_else(|| Status::unknown("auth: token signing attempted with verify-only key")),
        }
    }
}

fn permission_from_wire(permission: authpb::Permission) -> Option<Permission> {
    let access = u8::try_from(permission.perm_type).ok().and_then(Access::from_number)?;
    Some(Permission { access, span: Span::from_wire(permission.key, permission.range_end) })
}

fn permission_to_wire(permission: Permission) -> authpb::Permission {
    authpb::Permission {
        perm_type: permission.access.number().into(),
        range_end: permission.span.wire_end(),
        key: permission.span.start,
    }
}
