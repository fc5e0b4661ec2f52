//! Who has which address: a file that is true before an address is used and after a restart.
//!
//! The file is changed under a lock, so that several processes may share it, and replaced as a whole, so that it is never half
//! written. An address that was just given back is the last to be given out again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::cidr::Cidr;
use crate::network::PortMapping;

/// Why there is no address.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// Every address is taken.
    #[error("all addresses of {0} are taken")]
    Exhausted(Cidr),
    /// The file could not be read or written.
    #[error("cannot use {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// What one interface of one sandbox has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Its addresses, the main one first.
    pub ips: Vec<IpAddr>,
    /// Ports of the machine that lead to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortMapping>,
}

/// Everything that was given out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Leases {
    /// By owner: the sandbox and its interface.
    #[serde(default)]
    pub owners: BTreeMap<String, Lease>,
    /// Addresses of owners that come back, by owner: nobody else gets them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    reserved: BTreeMap<String, Vec<IpAddr>>,
    /// The address given out last, for each block.
    #[serde(default)]
    last: BTreeMap<String, IpAddr>,
    /// The blocks that addresses come from, as they were told last.
    #[serde(default)]
    pub pod_cidrs: Vec<String>,
}

/// The file, while nobody else may use it.
pub struct Locked {
    path: PathBuf,
    _lock: File,
    /// What the file says.
    pub leases: Leases,
}

impl Leases {
    /// Gives an owner one address of each block: the one that is reserved for it, or a free one. Those that it has are given up.
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

    /// Takes the addresses of an owner back and reserves them for it.
    pub fn reserve(&mut self, owner: &str) {
        if let Some(lease) = self.owners.remove(owner) {
            self.reserved.insert(owner.to_owned(), lease.ips);
        }
    }

    /// Takes the addresses of an owner back for good.
    pub fn release(&mut self, owner: &str) -> Option<Lease> {
        self.reserved.remove(owner);
        self.owners.remove(owner)
    }

    /// The first free address after the one given out last, and from the start again.
    fn next(&self, block: &Cidr, taken: &BTreeSet<IpAddr>) -> Option<IpAddr> {
        let (first, end) = (2, pods_end(block));
        let last = self.last.get(&block.to_string()).and_then(|ip| block.offset(*ip)).unwrap_or(first - 1);
        let after = (last + 1).max(first)..end;
        // One more candidate than there are taken ones is enough, so that a huge block is not walked to its end.
        let candidates = after.chain(first..end).take(taken.len() + 1);
        candidates.filter_map(|offset| block.nth(offset)).find(|ip| !taken.contains(ip))
    }
}

/// The address by which pods reach the machine.
pub fn gateway(block: &Cidr) -> Option<IpAddr> {
    block.nth(1)
}

/// The name of an owner's link on the node: short, and the same for the same owner.
pub fn host_name(owner: &str) -> String {
    format!("kn{}", short(owner))
}

/// The name of the link that shapes what an owner sends.
pub fn shaping_name(owner: &str) -> String {
    format!("ki{}", short(owner))
}

fn short(owner: &str) -> String {
    // FNV-1a; 48 bits of it are enough for the pods of a node.
    let hash = owner
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{:012x}", hash >> 16)
}

/// Where a block's addresses for pods end: the last of an IPv4 block is for everyone on it.
fn pods_end(block: &Cidr) -> u128 {
    let last = block.offset(block.last()).unwrap_or(0);
    if block.is_ipv4() { last } else { last.saturating_add(1) }
}

impl Locked {
    /// Waits for the file of a directory to be ours.
    pub fn open(directory: &Path) -> Result<Self, LeaseError> {
        let path = directory.join("addresses.json");
        let lock = directory.join("lock");
        let open = || -> io::Result<(File, Leases)> {
            fs::create_dir_all(directory)?;
            let lock = File::options().create(true).truncate(false).write(true).open(lock)?;
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

    /// Makes the file say what we say.
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
    fn an_address_that_was_given_back_is_the_last_to_be_given_out_again() {
        let mut leases = Leases::default();
        assert_eq!(take(&mut leases, "a", "10.0.0.0/29"), "10.0.0.2");
        assert_eq!(take(&mut leases, "b", "10.0.0.0/29"), "10.0.0.3");
        leases.owners.remove("a");
        for (owner, expect) in [("c", "10.0.0.4"), ("d", "10.0.0.5"), ("e", "10.0.0.6"), ("f", "10.0.0.2")] {
            assert_eq!(take(&mut leases, owner, "10.0.0.0/29"), expect);
        }
        assert_eq!(take(&mut leases, "g", "10.0.0.0/29"), "all addresses of 10.0.0.0/29 are taken");
        leases.owners.remove("d");
        assert_eq!(take(&mut leases, "g", "10.0.0.0/29"), "10.0.0.5");
    }

    #[test]
    fn an_owner_that_comes_back_gets_the_addresses_that_are_reserved_for_it() {
        let mut leases = Leases::default();
        for (owner, expect) in [("a", "10.0.0.2"), ("b", "10.0.0.3"), ("c", "10.0.0.4")] {
            assert_eq!(take(&mut leases, owner, "10.0.0.0/29"), expect);
        }
        ["a", "b", "c"].into_iter().for_each(|owner| leases.reserve(owner));
        assert_eq!(take(&mut leases, "d", "10.0.0.0/29"), "10.0.0.5", "not one that is reserved");
        assert_eq!(take(&mut leases, "c", "10.0.0.0/29"), "10.0.0.4");
        assert_eq!(take(&mut leases, "a", "10.0.0.0/29"), "10.0.0.2");
        assert!(leases.release("b").is_none());
        assert_eq!(take(&mut leases, "b", "10.0.0.0/29"), "10.0.0.6", "it was given up");
        leases.reserve("a");
        assert_eq!(take(&mut leases, "a", "10.1.0.0/29"), "10.1.0.2", "of another block");
    }

    #[test]
    fn blocks_without_room_and_huge_ones_end() {
        let mut leases = Leases::default();
        assert_eq!(take(&mut leases, "a", "10.0.0.0/32"), "all addresses of 10.0.0.0/32 are taken");
        assert_eq!(take(&mut leases, "a", "10.0.0.0/31"), "all addresses of 10.0.0.0/31 are taken");
        assert_eq!(take(&mut leases, "a", "fd00::/64"), "fd00::2");
        assert_eq!(take(&mut leases, "b", "::/0"), "::2");
    }

    #[test]
    fn what_was_saved_is_there_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let mut locked = Locked::open(directory.path()).unwrap();
        let blocks = [cidr("10.0.0.0/24"), cidr("fd00::/64")];
        let lease = locked.leases.take("a", &blocks, &[]).unwrap();
        assert_eq!(lease.ips.len(), 2);
        locked.save().unwrap();
        let said = locked.leases.clone();
        drop(locked);
        assert_eq!(Locked::open(directory.path()).unwrap().leases, said);
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
