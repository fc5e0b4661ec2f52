//! The Maintenance service: status, alarms, hashes, snapshots, leadership.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::pin::Pin;

use aws_lc_rs::digest;
use bytes::Bytes;
use mvcc::{Alarm, AlarmChange, Command, Reply, State};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::caller::Credentials;
use super::proto::etcdserverpb as pb;
use super::proto::etcdserverpb::alarm_request::AlarmAction;
use super::{CLUSTER_VERSION, Server, VERSION, status};
use crate::backend::Backend;

/// Size of a snapshot message in bytes.
const CHUNK_BYTES: usize = 64 * 1024;
/// Alignment of etcd's database files.
const PAGE_BYTES: u64 = 512;

#[tonic::async_trait]
impl<B: Backend> pb::maintenance_server::Maintenance for Server<B> {
    type SnapshotStream = Pin<Box<dyn Stream<Item = Result<pb::SnapshotResponse, Status>> + Send>>;

    async fn alarm(&self, request: Request<pb::AlarmRequest>) -> Result<Response<pb::AlarmResponse>, Status> {
        let credentials = Credentials::of(&request);
        let request = request.into_inner();
        match request.action() {
            AlarmAction::Get => self.require_user(&credentials).await?,
            AlarmAction::Activate | AlarmAction::Deactivate => self.require_admin(&credentials).await?,
        }
        let requested =
            u8::try_from(request.alarm).ok().and_then(Alarm::from_number).filter(|alarm| alarm.kind() == *alarm);
        let change = match request.action() {
            AlarmAction::Get => None,
            AlarmAction::Activate => Some(AlarmChange::Raise),
            AlarmAction::Deactivate => Some(AlarmChange::Lower),
        };
        let alarms = match (change, requested) {
            (Some(change), Some(alarm)) => {
                let (_, reply) = self.apply(None, Command::Alarm { change, alarm, member: request.member_id }).await?;
                if let Reply::Alarms(changed) = reply { changed } else { Vec::new() }
            }
            (Some(_), None) => Vec::new(),
            (None, requested) => self.backend.view(|state| {
                let all = state.alarms().iter().copied();
                all.filter(|(_, alarm)| requested.is_none_or(|requested| requested == alarm.kind())).collect()
            }),
        };
        let alarms =
            known(alarms).map(|(member_id, alarm)| pb::AlarmMember { member_id, alarm: alarm.number().into() });
        Ok(Response::new(pb::AlarmResponse { header: self.header_now(), alarms: alarms.collect() }))
    }

    async fn status(&self, request: Request<pb::StatusRequest>) -> Result<Response<pb::StatusResponse>, Status> {
        self.require_user(&Credentials::of(&request)).await?;
        let member = self.backend.status();
        let (revision, in_use, alarms) = self.backend.view(|state| {
            let alarms: Vec<_> = state.alarms().iter().copied().collect();
            (state.revision(), state.size_bytes(), alarms)
        });
        let mut errors: Vec<String> = known(alarms).map(alarm_text).collect();
        if member.leader == 0 {
            errors.insert(0, "etcdserver: no leader".to_owned());
        }
        let response = pb::StatusResponse {
            header: self.header(revision),
            version: VERSION.to_owned(),
            db_size: signed(member.disk_bytes.max(in_use)),
            leader: member.leader,
            raft_index: member.commit_index,
            raft_term: member.term,
            raft_applied_index: member.applied_index,
            errors,
            db_size_in_use: signed(in_use),
            is_learner: member.learner,
            storage_version: CLUSTER_VERSION.to_owned(),
            db_size_quota: self.config.quota_bytes.map_or(0, signed),
            downgrade_info: Some(pb::DowngradeInfo::default()),
        };
        Ok(Response::new(response))
    }

    /// Does nothing: checkpoints are always rewritten completely, so there is no fragmentation.
    async fn defragment(
        &self,
        request: Request<pb::DefragmentRequest>,
    ) -> Result<Response<pb::DefragmentResponse>, Status> {
        self.require_admin(&Credentials::of(&request)).await?;
        tracing::info!("ignoring a defragment request: checkpoints are always rewritten completely");
        Ok(Response::new(pb::DefragmentResponse { header: None }))
    }

    async fn hash(&self, request: Request<pb::HashRequest>) -> Result<Response<pb::HashResponse>, Status> {
        self.require_admin(&Credentials::of(&request)).await?;
        let state = self.backend.view(State::clone);
        let hash = blocking(move || state.hash_kv(0)).await?.map_err(status::of_mvcc)?;
        Ok(Response::new(pb::HashResponse { header: self.header_now(), hash }))
    }

    async fn hash_kv(&self, request: Request<pb::HashKvRequest>) -> Result<Response<pb::HashKvResponse>, Status> {
        self.require_admin(&Credentials::of(&request)).await?;
        let at = request.into_inner().revision;
        let state = self.backend.view(State::clone);
        let (revision, compact_revision) = (state.revision(), state.compact_revision());
        let hash = blocking(move || state.hash_kv(at)).await?.map_err(status::of_mvcc)?;
        let hash_revision = if at == 0 { revision } else { at };
        Ok(Response::new(pb::HashKvResponse { header: self.header(revision), hash, compact_revision, hash_revision }))
    }

    async fn snapshot(&self, request: Request<pb::SnapshotRequest>) -> Result<Response<Self::SnapshotStream>, Status> {
        self.require_admin(&Credentials::of(&request)).await?;
        let (parts, receiver) = mpsc::channel(2);
        let state = self.backend.view(State::clone);
        let header = self.header(state.revision());
        tokio::task::spawn_blocking(move || {
            if let Err(error) = send_snapshot(&state, header, &parts) {
                tracing::warn!(%error, "failed to send the complete snapshot");
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn move_leader(
        &self,
        request: Request<pb::MoveLeaderRequest>,
    ) -> Result<Response<pb::MoveLeaderResponse>, Status> {
        self.require_admin(&Credentials::of(&request)).await?;
        self.backend.move_leader(request.into_inner().target_id).await.map_err(status::of_backend)?;
        Ok(Response::new(pb::MoveLeaderResponse { header: None }))
    }

    async fn downgrade(
        &self,
        request: Request<pb::DowngradeRequest>,
    ) -> Result<Response<pb::DowngradeResponse>, Status> {
        self.require_admin(&Credentials::of(&request)).await?;
        Err(Status::unimplemented("etcdserver: this store has no earlier format to go back to"))
    }
}

/// Returns each alarm once, by its etcd type.
fn known(alarms: Vec<(u64, Alarm)>) -> impl Iterator<Item = (u64, Alarm)> {
    alarms.into_iter().map(|(member, alarm)| (member, alarm.kind())).collect::<BTreeSet<_>>().into_iter()
}

fn alarm_text((member, alarm): (u64, Alarm)) -> String {
    let name = match alarm.kind() {
        Alarm::Corrupt => "CORRUPT",
        _ => "NOSPACE",
    };
    format!("memberID:{member} alarm:{name} ")
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

async fn blocking<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> Result<R, Status> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Status::internal(error.to_string()))
}

type Parts = mpsc::Sender<Result<pb::SnapshotResponse, Status>>;

/// Writes the state and then its SHA-256 digest, as etcd does. The state is serialized twice, first to compute its
/// length, because buffering would double the memory.
fn send_snapshot(state: &State, header: Option<pb::ResponseHeader>, parts: &Parts) -> io::Result<()> {
    let mut length = Length(0);
    state.write_to(&mut length)?;
    // etcdctl accepts a file as complete if its length is a multiple of this plus a digest.
    let padding = length.0.next_multiple_of(PAGE_BYTES) - length.0;
    let digest_len = digest::SHA256.output_len() as u64;
    let mut sender = Sender {
        parts,
        header,
        buffer: Vec::with_capacity(CHUNK_BYTES),
        remaining: length.0 + padding + digest_len,
        digest: digest::Context::new(&digest::SHA256),
    };
    state.write_to(&mut sender)?;
    io::copy(&mut io::repeat(0).take(padding), &mut sender)?;
    let digest = sender.digest.clone().finish();
    sender.buffer.extend_from_slice(digest.as_ref());
    sender.send()
}

struct Length(u64);

impl Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Sender<'a> {
    parts: &'a Parts,
    header: Option<pb::ResponseHeader>,
    buffer: Vec<u8>,
    remaining: u64,
    digest: digest::Context,
}

impl Sender<'_> {
    fn send(&mut self) -> io::Result<()> {
        let blob = Bytes::from(std::mem::replace(&mut self.buffer, Vec::with_capacity(CHUNK_BYTES)));
        self.remaining -= blob.len() as u64;
        let part = pb::SnapshotResponse {
            header: self.header,
            remaining_bytes: self.remaining,
            blob,
            version: CLUSTER_VERSION.to_owned(),
        };
        self.parts.blocking_send(Ok(part)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Write for Sender<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let take = bytes.len().min(CHUNK_BYTES - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..take]);
        self.digest.update(&bytes[..take]);
        if self.buffer.len() == CHUNK_BYTES {
            self.send()?;
        }
        Ok(take)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
