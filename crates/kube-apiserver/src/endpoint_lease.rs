//! Endpoint reconciler of the Service `kubernetes`: every server holds a leased key in the store, and the endpoints are
//! the servers with a key.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use apimachinery::meta::Meta;
use apimachinery::status::Status;
use apimachinery::{GroupVersionKind, Value, value};
use bytes::Bytes;
use mvcc::{Delete, Operation, Put, Range, Revision, Span, Txn};
use tokio::time::Instant;

use crate::storage::Storage;
use crate::storage::unavailable;
use crate::transaction::ObjectKey;
use crate::{own_objects, storage_format};

/// A server that has not renewed its key for this time is removed from the endpoints.
const LIFE: Duration = Duration::from_secs(15);
/// Interval between renewals of the key.
const RENEWAL: Duration = Duration::from_secs(10);
/// Number of conflicts that are retried immediately; later ones are retried after a delay.
const ATTEMPTS_MAX: usize = 16;
/// Delay before a retry when the store is unreachable.
const RETRY: Duration = Duration::from_secs(1);

/// Renews this server's key while it runs, and keeps the endpoints up to date with all servers.
pub async fn run(storage: &Storage, own: SocketAddr) {
    loop {
        if let Err(status) = follow(storage, own).await {
            tracing::warn!(
                message = %status.message,
                "failed to update the endpoints of the kubernetes Service; retrying"
            );
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Writes this server's key once. The endpoints contain the server when this returns.
pub async fn start(storage: &Storage, own: SocketAddr) -> Result<(), Status> {
    renew(storage, own.ip()).await?;
    storage.catch_up().await?;
    let (present, _) = present(storage).await?;
    publish(storage, &present, own.port()).await
}

/// Removes this server from the endpoints.
pub async fn end(storage: &Storage, own: SocketAddr) -> Result<(), Status> {
    let delete = Delete { span: Span::key(key(storage, own.ip())), want_previous: false };
    storage.submit(Txn { success: vec![Operation::Delete(delete)], ..Txn::default() }).await?;
    storage.catch_up().await?;
    let (present, _) = present(storage).await?;
    publish(storage, &present, own.port()).await
}

async fn follow(storage: &Storage, own: SocketAddr) -> Result<(), Status> {
    let mut renewed = Instant::now();
    renew(storage, own.ip()).await?;
    loop {
        let (found, revision) = present(storage).await?;
        publish(storage, &found, own.port()).await?;
        let watch = storage.store.watch(span(storage), revision + 1).await;
        let mut watch = watch.map_err(|error| unavailable(&error.into()))?;
        // Renewals are changes too; only a different set of servers matters.
        while present(storage).await?.0 == found {
            tokio::select! {
                () = tokio::time::sleep_until(renewed + RENEWAL) => {
                    renewed = Instant::now();
                    renew(storage, own.ip()).await?;
                }
                changes = storage.store.next(&mut watch) => drop(changes.map_err(|error| unavailable(&error.into()))?),
            }
        }
    }
}

async fn renew(storage: &Storage, own: IpAddr) -> Result<(), Status> {
    let lease = storage.store.lease_of(LIFE).await.map_err(|error| unavailable(&error.into()))?;
    // The format that upstream's servers read and write at this key.
    let object = value!({
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {},
        "subsets": [{"addresses": [{"ip": (own.to_string())}]}],
    });
    let value = Some(storage_format::encode(&object));
    let put = Put { key: key(storage, own), value, lease: Some(lease), want_previous: false };
    storage.submit(Txn { success: vec![Operation::Put(put)], ..Txn::default() }).await.map(drop)
}

/// Returns the sorted addresses of all servers and the revision they were read at.
async fn present(storage: &Storage) -> Result<(Vec<IpAddr>, Revision), Status> {
    let range = Range { keys_only: true, ..Range::of(span(storage)) };
    let (found, revision) = storage.store.range(range).await.map_err(|error| unavailable(&error))?;
    let addresses =
        found.iter().filter_map(|found| std::str::from_utf8(&found.key).ok()?.rsplit('/').next()?.parse().ok());
    let mut addresses: Vec<IpAddr> = addresses.collect();
    addresses.sort_unstable();
    Ok((addresses, revision))
}

fn span(storage: &Storage) -> Span {
    Span::prefix(format!("{}/masterleases/", storage.layout.root).into_bytes())
}

fn key(storage: &Storage, address: IpAddr) -> Bytes {
    Bytes::from(format!("{}/masterleases/{address}", storage.layout.root))
}

/// Writes the servers to the Endpoints and the EndpointSlice.
async fn publish(storage: &Storage, servers: &[IpAddr], port: u16) -> Result<(), Status> {
    for object in endpoints(servers, port) {
        let mut attempts = 0;
        while !show(storage, object.clone()).await? {
            attempts += 1;
            if attempts == ATTEMPTS_MAX {
                return Err(Status::internal_error("others write the endpoints at the same time"));
            }
            storage.catch_up().await?;
        }
    }
    Ok(())
}

/// Creates or updates an object. Returns false on a conflict.
async fn show(storage: &Storage, object: Value) -> Result<bool, Status> {
    let gvk = GroupVersionKind::of_object(&object).map_err(Status::internal_error)?;
    let table = storage.table();
    let kind = table.kinds.iter().find(|kind| kind.group == gvk.group && kind.kind == gvk.kind);
    let kind = kind.ok_or_else(|| Status::internal_error(format!("{gvk} is not served")))?;
    let meta = Meta::of(&object);
    let Some(entry) = storage.cache.kind_cache(kind).get(&format!("{}/{}", meta.namespace(), meta.name())) else {
        return own_objects::create_missing(storage, object).await.map(|()| true);
    };
    let mut next = entry.object();
    let (Value::Object(fields), Value::Object(desired)) = (&mut next, object) else { return Ok(true) };
    for (key, value) in desired.iter().filter(|(key, _)| *key != "metadata") {
        fields.insert(key, value.clone());
    }
    if next == entry.object() {
        return Ok(true);
    }
    let meta = Meta::of(&next);
    let key = ObjectKey::new(storage, kind, meta.namespace(), meta.name());
    Ok(key.replace(&next, entry.revision).submit().await?.is_some())
}

/// Returns the Endpoints and EndpointSlice of the Service `kubernetes`. A slice has one address family: that of the
/// first server.
fn endpoints(servers: &[IpAddr], port: u16) -> [Value; 2] {
    let is_ipv4 = servers.first().is_none_or(IpAddr::is_ipv4);
    let servers: Vec<String> =
        servers.iter().filter(|server| server.is_ipv4() == is_ipv4).map(ToString::to_string).collect();
    let ports = value!([{"name": "https", "port": (i64::from(port)), "protocol": "TCP"}]);
    let addresses = Value::Array(servers.iter().map(|ip| value!({"ip": (ip.clone())})).collect());
    let ready = Value::Array(
        servers.iter().map(|ip| value!({"addresses": [(ip.clone())], "conditions": {"ready": true}})).collect(),
    );
    let subsets = if servers.is_empty() {
        Value::Array(Vec::new())
    } else {
        value!([{"addresses": addresses, "ports": (ports.clone())}])
    };
    let all = value!({
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
        },
        "subsets": subsets,
    });
    let slice = value!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"kubernetes.io/service-name": "kubernetes"},
        },
        "addressType": (if is_ipv4 { "IPv4" } else { "IPv6" }),
        "endpoints": ready,
        "ports": ports,
    });
    [all, slice]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubernetes_endpoints_contain_the_servers_of_one_address_family() {
        let servers = ["192.0.2.1", "192.0.2.2", "2001:db8::1"].map(|address| address.parse().unwrap());
        let [all, slice] = endpoints(&servers, 6443);
        assert_eq!(
            all.get("subsets"),
            Some(&value!([{
                "addresses": [{"ip": "192.0.2.1"}, {"ip": "192.0.2.2"}],
                "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}],
            }]))
        );
        assert_eq!(slice.get("addressType"), Some(&value!("IPv4")));
        assert_eq!(slice.get("endpoints").and_then(Value::as_array).map(<[Value]>::len), Some(2));
        let [all, _] = endpoints(&[], 6443);
        assert_eq!(all.get("subsets"), Some(&Value::Array(Vec::new())));
    }
}
