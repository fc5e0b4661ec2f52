//! Types and services of etcd's v3 API, generated from `proto/`.

#![expect(clippy::allow_attributes, clippy::too_many_lines, unused_qualifications, reason = "generated code")]

pub mod mvccpb {
    tonic::include_proto!("mvccpb");
}

pub mod authpb {
    tonic::include_proto!("authpb");
}

pub mod etcdserverpb {
    tonic::include_proto!("etcdserverpb");
}

pub mod v3lockpb {
    tonic::include_proto!("v3lockpb");
}

pub mod v3electionpb {
    tonic::include_proto!("v3electionpb");
}
