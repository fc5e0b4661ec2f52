//! IPAM: pod address leases in a file. A lease is on disk before its address is used.
//!
//! The file is changed under a lock, so that several processes can share it, and replaced atomically. A released
//! address is the last to be allocated again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Permissions};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use netlink::cidr::Cidr;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::port_mapping::PortMapping;

/// An address could not be allocated.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    #[error("all addresses of {0} are allocated")]
    Exhausted(Cidr),
    #[error("failed to access the lease file {path}")]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Lease of one interface of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Addresses, primary first.
    pub ips: Vec<IpAddr>,
    /// Host ports of the pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortMapping>,
}

/// All leases of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Leases {
    /// By owner: sandbox ID and interface.
    #[serde(default)]
    pub owners: BTreeMap<String, Lease>,
    /// Addresses reserved for owners that will return, by owner.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    reserved: BTreeMap<String, Vec<IpAddr>>,
    /// Address allocated last, by block.
    #[serde(default)]
    last: BTreeMap<String, IpAddr>,
    /// Pod CIDRs of the node, as last set.
    #[serde(default)]
    pub pod_cidrs: Vec<String>,
}

/// The lease file, locked exclusively.
pub struct LockedLeases {
    path: PathBuf,
    _lock: File,
    /// Content of the file.
    pub leases: Leases,
}

impl Leases {
    /// Allocates one address per block: the address reserved for the owner, or a free one. Earlier addresses of the
    /// owner are released.
    pub fn take(&mut self, owner: &str, blocks: &[Cidr], ports: &[PortMapping]) -> Result<Lease, LeaseError> {
        self.owners.remove(owner);
        let own = self.reserved.remove(owner).unwrap_or_default();
        let others = self.owners.values().map(|lease| &lease.ips).chain(self.reserved.values());
        let taken: BTreeSet<IpAddr> = others.flatten().copied().collect();
        let mut ips = Vec::with_capacity(blocks.len());
        for block in blocks {
            let ip = match own.iter().find(|ip| block.contains(**ip) && !taken.contains(ip)) {
                Some(ip) => *ip,
                None => {
                    let ip = self.next(block, &taken).ok_or(LeaseError::Exhausted(*block))?;
                    self.last.insert(block.to_string(), ip);
                    ip
                }
            };
            ips.push(ip);
        }
        let lease = Lease { ips, ports: ports.to_vec() };
        self.owners.insert(owner.to_owned(), lease.clone());
        Ok(lease)
    }

    /// Releases the addresses of an owner and reserves them for it.
    pub fn reserve(&mut self, owner: &str) {
        if let Some(lease) = self.owners.remove(owner) {
            self.reserved.insert(owner.to_owned(), lease.ips);
        }
    }

    /// Releases the addresses of an owner and its reservations.
    pub fn release(&mut self, owner: &str) -> Option<Lease> {
        self.reserved.remove(owner);
        self.owners.remove(owner)
    }

    /// Returns the first free address after the one allocated last, wrapping around.
    fn next(&self, block: &Cidr, taken: &BTreeSet<IpAddr>) -> Option<IpAddr> {
        let (first, end) = (2, pods_end(block));
        let last = self.last.get(&block.to_string()).and_then(|ip| block.offset(*ip)).unwrap_or(first - 1);
        let after = (last + 1).max(first)..end;
        // One more candidate than there are taken addresses suffices, so a huge block is not scanned to its end.
        let candidates = after.chain(first..end).take(taken.len() + 1);
        candidates.filter_map(|offset| block.nth(offset)).find(|ip| !taken.contains(ip))
    }
}

/// Returns the node's address in the block, which is the gateway of pods.
pub fn gateway(block: &Cidr) -> Option<IpAddr> {
    block.nth(1)
}

/// Returns the name of an owner's link on the node: short, and a function of the owner.
pub fn host_name(owner: &str) -> String {
    format!("kn{}", short(owner))
}

/// Returns the name of the IFB link that shapes an owner's egress.
pub fn shaping_name(owner: &str) -> String {
    format!("ki{}", short(owner))
}

fn short(owner: &str) -> String {
    // FNV-1a, of which 48 bits suffice for the pods of a node.
    let hash = owner
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{:012x}", hash >> 16)
}

/// Returns the exclusive end of the offsets for pods: the last address of an IPv4 block is the broadcast address.
fn pods_end(block: &Cidr) -> u128 {
    let last = block.offset(block.last()).unwrap_or(0);
    if block.is_ipv4() { last } else { last.saturating_add(1) }
}

impl LockedLeases {
    /// Waits for the lock and reads the lease file of a directory. Only the owner can open the lock: another user who could
    /// read it could hold it, and no pod would get an address.
    pub fn open(directory: &Path) -> Result<Self, LeaseError> {
        let path = directory.join("addresses.json");
        let lock = directory.join("lock");
        let open = || -> io::Result<(File, Leases)> {
            sys::create_dirs(directory, 0o700)?;
            let lock = File::options().create(true).truncate(false).write(true).mode(0o600).open(lock)?;
            // Earlier releases created it for all users.
            lock.set_permissions(Permissions::from_mode(0o600))?;
            flock(&lock, FlockOperation::LockExclusive)?;
            let leases = match fs::read(&path) {
                Ok(bytes) => serde_json::from_slice(&bytes)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => Leases::default(),
                Err(error) => return Err(error),
            };
            Ok((lock, leases))
        };
        let (lock, leases) = open().map_err(|source| LeaseError::File { path: path.clone(), source })?;
        Ok(Self { path, _lock: lock, leases })
    }

    /// Writes the file atomically.
    pub fn save(&self) -> Result<(), LeaseError> {
        let save = || sys::replace_file(&self.path, &serde_json::to_vec(&self.leases)?, 0o600);
        save().map_err(|source| LeaseError::File { path: self.path.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    fn take(leases: &mut Leases, owner: &str, block: &str) -> String {
        match leases.take(owner, &[cidr(block)], &[]) {
            Ok(lease) => lease.ips[0].to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn released_address_is_the_last_to_be_reused() {
        let mut leases = Leases::default();
        assert_eq!(take(&mut leases, "a", "10.0.0.0/29"), "10.0.0.2");
        assert_eq!(take(&mut leases, "b", "10.0.0.0/29"), "10.0.0.3");
        leases.owners.remove("a");
        for (owner, expect) in [("c", "10.0.0.4"), ("d", "10.0.0.5"), ("e", "10.0.0.6"), ("f", "10.0.0.2")] {
            assert_eq!(take(&mut leases, owner, "10.0.0.0/29"), expect);
        }
        assert_eq!(take(&mut leases, "g", "10.0.0.0/29"), "all addresses of 10.0.0.0/29 are allocated");
        leases.owners.remove("d");
        assert_eq!(take(&mut leases, "g", "10.0.0.0/29"), "10.0.0.5");
    }

    #[test]
    fn returning_owner_gets_its_reserved_addresses() {
        let mut leases = Leases::default();
        for (owner, expect) in [("a", "10.0.0.2"), ("b", "10.0.0.3"), ("c", "10.0.0.4")] {
            assert_eq!(take(&mut leases, owner, "10.0.0.0/29"), expect);
        }
        ["a", "b", "c"].into_iter().for_each(|owner| leases.reserve(owner));
        assert_eq!(take(&mut leases, "d", "10.0.0.0/29"), "10.0.0.5", "a reserved address is not allocated");
        assert_eq!(take(&mut leases, "c", "10.0.0.0/29"), "10.0.0.4");
        assert_eq!(take(&mut leases, "a", "10.0.0.0/29"), "10.0.0.2");
        assert!(leases.release("b").is_none());
        assert_eq!(take(&mut leases, "b", "10.0.0.0/29"), "10.0.0.6", "the reservation was released");
        leases.reserve("a");
        assert_eq!(take(&mut leases, "a", "10.1.0.0/29"), "10.1.0.2", "of another block");
    }

    #[test]
    fn allocation_terminates_in_full_and_huge_blocks() {
        let mut leases = Leases::default();
        assert_eq!(take(&mut leases, "a", "10.0.0.0/32"), "all addresses of 10.0.0.0/32 are allocated");
        assert_eq!(take(&mut leases, "a", "10.0.0.0/31"), "all addresses of 10.0.0.0/31 are allocated");
        assert_eq!(take(&mut leases, "a", "fd00::/64"), "fd00::2");
        assert_eq!(take(&mut leases, "b", "::/0"), "::2");
    }

    #[test]
    fn other_users_cannot_hold_the_lock() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("network");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        drop(LockedLeases::open(&directory).unwrap());
        assert_eq!((mode(&directory), mode(&directory.join("lock"))), (0o700, 0o600));
        fs::set_permissions(directory.join("lock"), Permissions::from_mode(0o644)).unwrap();
        drop(LockedLeases::open(&directory).unwrap());
        assert_eq!(mode(&directory.join("lock")), 0o600);
    }

    #[test]
    fn leases_survive_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let mut locked = LockedLeases::open(directory.path()).unwrap();
        let blocks = [cidr("10.0.0.0/24"), cidr("fd00::/64")];
        let lease = locked.leases.take("a", &blocks, &[]).unwrap();
        assert_eq!(lease.ips.len(), 2);
        locked.save().unwrap();
        let leases = locked.leases.clone();
        drop(locked);
        assert_eq!(LockedLeases::open(directory.path()).unwrap().leases, leases);
    }

    proptest! {
        #[test]
        fn no_address_has_two_owners(steps in prop::collection::vec((any::<bool>(), 0u8..8), 1..60)) {
            let mut leases = Leases::default();
            for (add, owner) in steps {
                let owner = owner.to_string();
                if add {
                    let free = leases.owners.keys().filter(|have| **have != owner).count() < 5;
                    prop_assert_eq!(leases.take(&owner, &[cidr("10.0.0.0/29")], &[]).is_ok(), free);
                } else {
                    leases.owners.remove(&owner);
                }
                let all: Vec<_> = leases.owners.values().flat_map(|lease| &lease.ips).collect();
                let different: BTreeSet<_> = all.iter().collect();
                prop_assert_eq!(all.len(), different.len());
            }
        }
    }
}
