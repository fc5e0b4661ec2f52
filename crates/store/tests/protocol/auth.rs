//! Authentication, users and roles as clients see them, beyond the output of etcdctl 3.4 and the features of etcd 3.4.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use store::etcd::Tokens;
use store::etcd::proto::authpb::{Permission, UserAddOptions, permission::Type};
use store::etcd::proto::etcdserverpb::auth_client::AuthClient;
use store::etcd::proto::etcdserverpb::cluster_client::ClusterClient;
use store::etcd::proto::etcdserverpb::kv_client::KvClient;
use store::etcd::proto::etcdserverpb::lease_client::LeaseClient;
use store::etcd::proto::etcdserverpb::maintenance_client::MaintenanceClient;
use store::etcd::proto::etcdserverpb::{self as pb};
use store::member::Start;
use tokio_stream::StreamExt;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

use crate::common::{Seat, Single};

const HEARTBEAT: Duration = Duration::from_millis(100);

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

fn check_error<T>(result: Result<Response<T>, Status>, code: Code, text: &str) -> Result<()> {
    let status = result.err().with_context(|| format!("an answer instead of {text:?}"))?;
    ensure!((status.code(), status.message()) == (code, text), "{status:?} instead of {text:?}");
    Ok(())
}

async fn revision(client: &mut AuthClient<Channel>) -> Result<u64> {
    let status = client.auth_status(pb::AuthStatusRequest {}).await?.into_inner();
    ensure!(!status.enabled);
    Ok(status.auth_revision)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_changes_of_users_and_roles_increment_the_auth_revision() -> Result<()> {
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
async fn invalid_requests_are_rejected_with_etcds_codes() -> Result<()> {
    let (single, mut client) = start().await?;
    check_error(client.user_add(user("", true)).await, Code::InvalidArgument, "etcdserver: user name is empty")?;
    check_error(
        client.role_add(pb::AuthRoleAddRequest::default()).await,
        Code::InvalidArgument,
        "etcdserver: role name is empty",
    )?;
    client.role_add(pb::AuthRoleAddRequest { name: "r".into() }).await?;
    let nothing = pb::AuthRoleGrantPermissionRequest { name: "r".into(), perm: None };
    let missing = "etcdserver: permission not given";
    check_error(client.role_grant_permission(nothing).await, Code::InvalidArgument, missing)?;
    let unknown = Permission { perm_type: 3, key: "a".into(), ..Default::default() };
    let unknown = pb::AuthRoleGrantPermissionRequest { name: "r".into(), perm: Some(unknown) };
    check_error(client.role_grant_permission(unknown).await, Code::InvalidArgument, missing)?;
    for (key, range_end) in [("b", "a"), ("b", "b"), ("", ""), ("", "\0")] {
        let result = client.role_grant_permission(grant("r", key, range_end)).await;
        check_error(result, Code::InvalidArgument, "etcdserver: invalid auth management")?;
    }
    check_error(
        client.role_grant_permission(grant("s", "a", "")).await,
        Code::FailedPrecondition,
        "etcdserver: role name not found",
    )?;
    let large = "x".repeat(store::etcd::Config::default().request_bytes_max);
    check_error(client.user_add(user(&large, true)).await, Code::InvalidArgument, "etcdserver: request is too large")?;
    single.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn authentication_needs_the_root_user_with_the_root_role() -> Result<()> {
    let (single, mut client) = start().await?;
    let absent = "etcdserver: root user does not exist";
    check_error(client.auth_enable(pb::AuthEnableRequest {}).await, Code::FailedPrecondition, absent)?;
    client.user_add(user("root", false)).await?;
    let bare = "etcdserver: root user does not have root role";
    check_error(client.auth_enable(pb::AuthEnableRequest {}).await, Code::FailedPrecondition, bare)?;
    client.user_grant_role(pb::AuthUserGrantRoleRequest { user: "root".into(), role: "root".into() }).await?;
    let request = pb::AuthenticateRequest { name: "root".into(), password: "secret".into() };
    let off = "etcdserver: authentication is not enabled";
    check_error(client.authenticate(request.clone()).await, Code::FailedPrecondition, off)?;
    client.role_add(pb::AuthRoleAddRequest { name: "root".into() }).await?;
    let role = client.role_get(pb::AuthRoleGetRequest { role: "root".into() }).await?.into_inner();
    let everything = Permission { perm_type: Type::Readwrite.into(), key: "".into(), range_end: "\0".into() };
    ensure!(role.perm == [everything], "{role:?}");

    client.auth_enable(pb::AuthEnableRequest {}).await?;
    check_error(
        client.auth_status(pb::AuthStatusRequest {}).await,
        Code::InvalidArgument,
        "etcdserver: user name is empty",
    )?;
    let token = client.authenticate(request).await?.into_inner().token;
    let status = client.auth_status(with(&token, pb::AuthStatusRequest {})).await?.into_inner();
    ensure!(status.enabled && status.auth_revision == 4, "{status:?}");
    single.stop().await;
    Ok(())
}

fn with<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("token", token.parse().expect("a token is a header value"));
    request
}

/// Adds `root` and `app` (read-write permission on the prefix `a/`), enables authentication and returns their tokens.
async fn enable(client: &mut AuthClient<Channel>) -> Result<(String, String)> {
    for (name, role) in [("root", "root"), ("app", "app")] {
        client.user_add(user(name, false)).await?;
        client.role_add(pb::AuthRoleAddRequest { name: role.into() }).await?;
        client.user_grant_role(pb::AuthUserGrantRoleRequest { user: name.into(), role: role.into() }).await?;
    }
    let perm = Permission { perm_type: Type::Readwrite.into(), key: "a/".into(), range_end: "a0".into() };
    client.role_grant_permission(pb::AuthRoleGrantPermissionRequest { name: "app".into(), perm: Some(perm) }).await?;
    client.auth_enable(pb::AuthEnableRequest {}).await?;
    Ok((authenticate(client, "root").await?, authenticate(client, "app").await?))
}

async fn authenticate(client: &mut AuthClient<Channel>, name: &str) -> Result<String> {
    let request = pb::AuthenticateRequest { name: name.into(), password: "secret".into() };
    Ok(client.authenticate(request).await?.into_inner().token)
}

/// Returns a config with cheap password hashes, because their cost is not tested here.
fn cheap() -> store::etcd::Config {
    let few = std::num::NonZeroU32::new(1000).expect("the constant is not zero");
    let auth = store::etcd::AuthConfig { hash_iterations: few, ..Default::default() };
    store::etcd::Config { auth, ..Default::default() }
}

const EMPTY: (Code, &str) = (Code::InvalidArgument, "etcdserver: user name is empty");
const DENIED: (Code, &str) = (Code::PermissionDenied, "etcdserver: permission denied");
const INVALID: (Code, &str) = (Code::Unauthenticated, "etcdserver: invalid auth token");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_service_authenticates_while_auth_is_enabled() -> Result<()> {
    let single = Single::start(cheap()).await?;
    let channel = Channel::from_shared(single.endpoint.clone())?.connect().await?;
    let mut auth = AuthClient::new(channel.clone());
    let (root, app) = enable(&mut auth).await?;
    let mut kv = KvClient::new(channel.clone());
    let mut lease = LeaseClient::new(channel.clone());
    let mut cluster = ClusterClient::new(channel.clone());
    let mut maintenance = MaintenanceClient::new(channel.clone());
    // Checks the response without a token, with a forged token, as a user and as root.
    macro_rules! check {
        ($client:ident.$method:ident, $request:expr, $as_user:expr) => {
            check_error($client.$method($request).await, EMPTY.0, EMPTY.1).context(stringify!($method))?;
            check_error($client.$method(with("forged.1", $request)).await, INVALID.0, INVALID.1)?;
            let as_user: Option<(Code, &str)> = $as_user;
            match as_user {
                Some((code, text)) => check_error($client.$method(with(&app, $request)).await, code, text)?,
                None => drop($client.$method(with(&app, $request)).await.context(stringify!($method))?),
            }
            $client.$method(with(&root, $request)).await.context(stringify!($method))?;
        };
    }
    let put = |key: &'static str| pb::PutRequest { key: key.into(), value: "v".into(), ..Default::default() };
    let range = |key: &'static str| pb::RangeRequest { key: key.into(), ..Default::default() };
    check!(kv.put, put("a/1"), None);
    check!(kv.put, put("b"), Some(DENIED));
    check!(kv.range, range("a/1"), None);
    check!(kv.range, range("b"), Some(DENIED));
    check!(kv.range, pb::RangeRequest { serializable: true, ..range("b") }, Some(DENIED));
    let delete = |key: &'static str| pb::DeleteRangeRequest { key: key.into(), ..Default::default() };
    check!(kv.delete_range, delete("b"), Some(DENIED));
    let operation = |key| pb::RequestOp { request: Some(pb::request_op::Request::RequestRange(range(key))) };
    let txn = |key| pb::TxnRequest { success: vec![operation(key)], ..Default::default() };
    check!(kv.txn, txn("a/1"), None);
    check!(kv.txn, txn("b"), Some(DENIED));
    check!(lease.lease_leases, pb::LeaseLeasesRequest {}, None);
    check!(lease.lease_time_to_live, pb::LeaseTimeToLiveRequest { id: 7, keys: true }, None);
    check!(cluster.member_list, pb::MemberListRequest { linearizable: false }, None);
    check!(maintenance.status, pb::StatusRequest {}, None);
    check!(maintenance.alarm, pb::AlarmRequest::default(), None);
    let disarm = || pb::AlarmRequest { action: 2, alarm: 1, ..Default::default() };
    check!(maintenance.alarm, disarm(), Some(DENIED));
    check!(maintenance.hash_kv, pb::HashKvRequest::default(), Some(DENIED));
    check!(maintenance.hash, pb::HashRequest {}, Some(DENIED));
    check!(maintenance.defragment, pb::DefragmentRequest {}, Some(DENIED));
    check!(maintenance.snapshot, pb::SnapshotRequest {}, Some(DENIED));
    check!(auth.user_list, pb::AuthUserListRequest {}, Some(DENIED));
    check!(auth.role_list, pb::AuthRoleListRequest {}, Some(DENIED));
    check!(auth.user_get, pb::AuthUserGetRequest { name: "root".into() }, Some(DENIED));
    check!(auth.user_get, pb::AuthUserGetRequest { name: "app".into() }, None);
    check!(auth.role_get, pb::AuthRoleGetRequest { role: "app".into() }, None);
    check!(auth.auth_status, pb::AuthStatusRequest {}, Some(DENIED));
    check!(kv.compact, pb::CompactionRequest { revision: 2, physical: false }, Some(DENIED));
    let member = pb::MemberAddRequest { peer_ur_ls: vec!["http://127.0.0.1:1".into()], is_learner: true };
    check_error(cluster.member_add(with(&app, member)).await, DENIED.0, DENIED.1)?;
    single.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_or_lock_of_unreadable_keys_is_rejected() -> Result<()> {
    let single = Single::start(cheap()).await?;
    let channel = Channel::from_shared(single.endpoint.clone())?.connect().await?;
    let (root, app) = enable(&mut AuthClient::new(channel.clone())).await?;
    let create = |key: &'static str| pb::WatchRequest {
        request_union: Some(pb::watch_request::RequestUnion::CreateRequest(pb::WatchCreateRequest {
            key: key.into(),
            ..Default::default()
        })),
    };
    let mut watch = pb::watch_client::WatchClient::new(channel.clone());
    let nobody = Request::new(tokio_stream::iter([create("a/1")]).chain(tokio_stream::pending()));
    let response = watch.watch(nobody).await?.into_inner().message().await?.context("an answer")?;
    let reason = "rpc error: code = InvalidArgument desc = etcdserver: user name is empty";
    ensure!((response.canceled, response.watch_id, &*response.cancel_reason) == (true, -1, reason), "{response:?}");
    let requests = tokio_stream::iter([create("b"), create("a/1")]).chain(tokio_stream::pending());
    let mut responses = watch.watch(with(&app, requests)).await?.into_inner();
    let response = responses.message().await?.context("an answer")?;
    let reason = "rpc error: code = PermissionDenied desc = etcdserver: permission denied";
    ensure!((response.canceled, response.watch_id, &*response.cancel_reason) == (true, -1, reason), "{response:?}");
    let response = responses.message().await?.context("an answer")?;
    ensure!(response.created && !response.canceled, "{response:?}");

    let mut lease = LeaseClient::new(channel.clone());
    let grant = pb::LeaseGrantRequest { ttl: 60, id: 0 };
    check_error(lease.lease_grant(grant).await, EMPTY.0, EMPTY.1)?;
    let id = lease.lease_grant(with(&app, grant)).await?.into_inner().id;
    let mut locks = store::etcd::proto::v3lockpb::lock_client::LockClient::new(channel.clone());
    let lock = |name: &'static str| store::etcd::proto::v3lockpb::LockRequest { name: name.into(), lease: id };
    check_error(locks.lock(lock("a/lock")).await, EMPTY.0, EMPTY.1)?;
    check_error(locks.lock(with(&app, lock("b"))).await, DENIED.0, DENIED.1)?;
    locks.lock(with(&app, lock("a/lock"))).await?;

    // The lease now has a key that only root may write.
    let attached = pb::PutRequest { key: "b".into(), value: "v".into(), lease: id, ..Default::default() };
    KvClient::new(channel.clone()).put(with(&root, attached)).await?;
    let renew = |token: &str| {
        with(token, tokio_stream::iter([pb::LeaseKeepAliveRequest { id }]).chain(tokio_stream::pending()))
    };
    let result = lease.lease_keep_alive(renew(&app)).await?.into_inner().message().await;
    ensure!(result.as_ref().is_err_and(|status| status.message() == DENIED.1), "{result:?}");
    let renewed = lease.lease_keep_alive(renew(&root)).await?.into_inner().message().await?.context("an answer")?;
    ensure!(renewed.ttl == 60, "{renewed:?}");
    let keys = pb::LeaseTimeToLiveRequest { id, keys: true };
    check_error(lease.lease_time_to_live(with(&app, keys)).await, DENIED.0, DENIED.1)?;
    check_error(lease.lease_revoke(with(&app, pb::LeaseRevokeRequest { id })).await, DENIED.0, DENIED.1)?;
    lease.lease_revoke(with(&root, pb::LeaseRevokeRequest { id })).await?;
    single.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_is_valid_on_every_member_until_password_change_or_expiry() -> Result<()> {
    let seats = [Seat::new(1, HEARTBEAT).await?, Seat::new(2, HEARTBEAT).await?, Seat::new(3, HEARTBEAT).await?];
    let peers: Vec<_> = seats.iter().map(|seat| seat.peer.clone()).collect();
    let mut members = Vec::new();
    for seat in seats {
        members.push(seat.start(Start::New(peers.clone())).await?);
    }
    let mut auth = AuthClient::new(members[0].channel.clone());
    let (root, app) = enable(&mut auth).await?;
    let put = || pb::PutRequest { key: "a/1".into(), value: "v".into(), ..Default::default() };
    for member in &members {
        KvClient::new(member.channel.clone()).put(with(&app, put())).await?;
    }
    let changed =
        pb::AuthUserChangePasswordRequest { name: "app".into(), password: "new".into(), ..Default::default() };
    auth.user_change_password(with(&root, changed)).await?;
    for member in &members {
        let mut kv = KvClient::new(member.channel.clone());
        // Any member may lag; a linearizable read catches up.
        kv.range(with(&root, pb::RangeRequest { key: "a/1".into(), ..Default::default() })).await?;
        check_error(kv.put(with(&app, put())).await, INVALID.0, INVALID.1)?;
    }
    check_error(
        auth.authenticate(pb::AuthenticateRequest { name: "app".into(), password: "secret".into() }).await,
        Code::InvalidArgument,
        "etcdserver: authentication failed, invalid user ID or password",
    )?;
    for member in &members {
        member.node.stop().await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_token_expires() -> Result<()> {
    // Every idle time exceeds a TTL of zero.
    let auth = store::etcd::AuthConfig { tokens: Tokens::Simple { ttl: Duration::ZERO }, ..cheap().auth };
    let single = Single::start(store::etcd::Config { auth, ..Default::default() }).await?;
    let mut client = AuthClient::connect(single.endpoint.clone()).await?;
    let (root, _) = enable(&mut client).await?;
    check_error(client.user_list(with(&root, pb::AuthUserListRequest {})).await, INVALID.0, INVALID.1)?;
    single.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_password_is_stored_in_plain_text() -> Result<()> {
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
