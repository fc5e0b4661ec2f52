//! Users and roles as clients see them: what etcdctl 3.4 does not show, and what etcd 3.4 does not do yet.

use anyhow::{Context, Result, ensure};
use store::etcd::proto::authpb::{Permission, UserAddOptions, permission::Type};
use store::etcd::proto::etcdserverpb::{self as pb, auth_client::AuthClient};
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use crate::common::Single;

async fn start() -> Result<(Single, AuthClient<Channel>)> {
    let single = Single::start(store::etcd::Config::default()).await?;
    let client = AuthClient::connect(single.endpoint.clone()).await?;
    Ok((single, client))
}

fn user(name: &str, no_password: bool) -> pb::AuthUserAddRequest {
    let options = Some(UserAddOptions { no_password });
    pb::AuthUserAddRequest { name: name.into(), password: "secret".into(), options, ..Default::default() }
}

fn grant(name: &str, key: &'static str, range_end: &'static str) -> pb::AuthRoleGrantPermissionRequest {
    let perm = Permission { perm_type: Type::Read.into(), key: key.into(), range_end: range_end.into() };
    pb::AuthRoleGrantPermissionRequest { name: name.into(), perm: Some(perm) }
}

fn says<T: std::fmt::Debug>(answer: Result<Response<T>, Status>, code: Code, text: &str) -> Result<()> {
    let status = answer.err().with_context(|| format!("an answer instead of {text:?}"))?;
    ensure!((status.code(), status.message()) == (code, text), "{status:?} instead of {text:?}");
    Ok(())
}

async fn revision(client: &mut AuthClient<Channel>) -> Result<u64> {
    let status = client.auth_status(pb::AuthStatusRequest {}).await?.into_inner();
    ensure!(!status.enabled);
    Ok(status.auth_revision)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_change_of_users_and_roles_is_a_new_revision_and_nothing_else_is() -> Result<()> {
    let (single, mut client) = start().await?;
    ensure!(revision(&mut client).await? == 1);
    client.user_add(user("a", false)).await?;
    ensure!(client.user_add(user("a", false)).await.is_err());
    ensure!(revision(&mut client).await? == 2);
    client.role_add(pb::AuthRoleAddRequest { name: "r".into() }).await?;
    let granted = pb::AuthUserGrantRoleRequest { user: "a".into(), role: "r".into() };
    client.user_grant_role(granted.clone()).await?;
    client.user_grant_role(granted).await?;
    client.auth_disable(pb::AuthDisableRequest {}).await?;
    ensure!(revision(&mut client).await? == 4);
    client.role_delete(pb::AuthRoleDeleteRequest { role: "r".into() }).await?;
    ensure!(revision(&mut client).await? == 5);
    let changed = pb::AuthUserChangePasswordRequest { name: "a".into(), password: "x".into(), ..Default::default() };
    let header = client.user_change_password(changed).await?.into_inner().header.context("a header")?;
    ensure!(header.revision == 1, "keys are left alone");
    ensure!(revision(&mut client).await? == 6);
    single.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_makes_no_sense_is_refused_with_etcds_codes() -> Result<()> {
    let (single, mut client) = start().await?;
    says(client.user_add(user("", true)).await, Code::InvalidArgument, "etcdserver: user name is empty")?;
    says(
        client.role_add(pb::AuthRoleAddRequest::default()).await,
        Code::InvalidArgument,
        "etcdserver: role name is empty",
    )?;
    client.role_add(pb::AuthRoleAddRequest { name: "r".into() }).await?;
    let nothing = pb::AuthRoleGrantPermissionRequest { name: "r".into(), perm: None };
    let missing = "etcdserver: permission not given";
    says(client.role_grant_permission(nothing).await, Code::InvalidArgument, missing)?;
    let unknown = Permission { perm_type: 3, key: "a".into(), ..Default::default() };
    let unknown = pb::AuthRoleGrantPermissionRequest { name: "r".into(), perm: Some(unknown) };
    says(client.role_grant_permission(unknown).await, Code::InvalidArgument, missing)?;
    for (key, range_end) in [("b", "a"), ("b", "b"), ("", ""), ("", "\0")] {
        let refused = client.role_grant_permission(grant("r", key, range_end)).await;
        says(refused, Code::InvalidArgument, "etcdserver: invalid auth management")?;
    }
    says(
        client.role_grant_permission(grant("s", "a", "")).await,
        Code::FailedPrecondition,
        "etcdserver: role name not found",
    )?;
    let large = "x".repeat(store::etcd::Config::default().request_bytes_max);
    says(client.user_add(user(&large, true)).await, Code::InvalidArgument, "etcdserver: request is too large")?;
    single.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_root_may_do_everything_and_authentication_is_still_not_enabled() -> Result<()> {
    let (single, mut client) = start().await?;
    let absent = "etcdserver: root user does not exist";
    says(client.auth_enable(pb::AuthEnableRequest {}).await, Code::FailedPrecondition, absent)?;
    client.user_add(user("root", false)).await?;
    let bare = "etcdserver: root user does not have root role";
    says(client.auth_enable(pb::AuthEnableRequest {}).await, Code::FailedPrecondition, bare)?;
    client.user_grant_role(pb::AuthUserGrantRoleRequest { user: "root".into(), role: "root".into() }).await?;
    let refused = client.auth_enable(pb::AuthEnableRequest {}).await.err().context("it cannot be enabled")?;
    ensure!(refused.code() == Code::Unimplemented && refused.message().contains("certificates"), "{refused:?}");
    let asked = pb::AuthenticateRequest { name: "root".into(), password: "secret".into() };
    let off = "etcdserver: authentication is not enabled";
    says(client.authenticate(asked).await, Code::FailedPrecondition, off)?;

    client.role_add(pb::AuthRoleAddRequest { name: "root".into() }).await?;
    let role = client.role_get(pb::AuthRoleGetRequest { role: "root".into() }).await?.into_inner();
    let everything = Permission { perm_type: Type::Readwrite.into(), key: "".into(), range_end: "\0".into() };
    ensure!(role.perm == [everything], "{role:?}");
    single.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_password_is_kept_anywhere() -> Result<()> {
    use store::backend::Backend;
    let (single, mut client) = start().await?;
    client.user_add(user("with", false)).await?;
    client.user_add(user("without", true)).await?;
    let mut checkpoint = Vec::new();
    let state = single.backend.view(mvcc::State::clone);
    state.write_to(&mut checkpoint)?;
    let holds = |text: &str| checkpoint.windows(text.len()).any(|part| part == text.as_bytes());
    ensure!(holds("with") && holds("pbkdf2-sha256:") && !holds("secret"));
    let password = |name: &str| state.directory().user(name).map(|user| user.password.is_some());
    ensure!((password("with"), password("without")) == (Ok(true), Ok(false)));
    single.stop().await;
    Ok(())
}
