//! Member and cluster IDs: every initial member computes the same IDs from the same list.

use anyhow::{Context, Result, ensure};
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use consensus::Peer;

/// Parses a list of `name=url`. A name with several URLs occurs several times.
pub(crate) fn members(list: &[String]) -> Result<Vec<Peer>> {
    let mut members: Vec<Peer> = Vec::new();
    for entry in list {
        let (name, url) = entry
            .split_once('=')
            .with_context(|| format!("--initial-cluster: {entry:?} is not of the form name=url"))?;
        ::store::peer::Address::parse(url).context("--initial-cluster")?;
        match members.iter_mut().find(|member| member.name == name) {
            Some(member) => member.peer_urls.push(url.to_owned()),
            None => members.push(Peer {
                id: 0,
                name: name.to_owned(),
                peer_urls: vec![url.to_owned()],
                client_urls: Vec::new(),
                learner: false,
            }),
        }
    }
    ensure!(!members.is_empty(), "--initial-cluster has no members");
    members.iter_mut().for_each(|member| member.peer_urls.sort());
    Ok(members)
}

/// Returns the cluster ID and the members with their IDs, computed as in etcd. A member ID is derived from peer URLs
/// and token, the cluster ID from all member IDs.
pub(crate) fn found(members: Vec<Peer>, token: &str) -> (u64, Vec<Peer>) {
    let mut members: Vec<Peer> = members
        .into_iter()
        .map(|member| Peer { id: hash(&[member.peer_urls.concat().as_str(), token]), ..member })
        .collect();
    members.sort_by_key(|member| member.id);
    let ids: Vec<u8> = members.iter().flat_map(|member| member.id.to_be_bytes()).collect();
    (hash(&[&ids]), members)
}

/// Returns etcd's ID hash (truncated SHA-1). It has no security purpose.
fn hash<T: AsRef<[u8]>>(parts: &[T]) -> u64 {
    let bytes: Vec<u8> = parts.iter().flat_map(|part| part.as_ref().iter().copied()).collect();
    let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, &bytes);
    let first = digest.as_ref().first_chunk().expect("a digest has 20 bytes");
    u64::from_be_bytes(*first).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[&str]) -> Vec<Peer> {
        let entries: Vec<String> = entries.iter().map(|entry| (*entry).to_owned()).collect();
        members(&entries).expect("the list is valid")
    }

    #[test]
    fn ids_equal_those_of_etcd() {
        let (cluster, members) = found(list(&["default=http://localhost:2380"]), "etcd-cluster");
        assert_eq!((cluster, members[0].id), (0xcdf8_1819_4e3a_8c32, 0x8e9e_05c5_2164_694d));
    }

    #[test]
    fn cluster_id_does_not_depend_on_member_order() {
        let (a, b) =
            (found(list(&["a=http://h:1", "b=http://h:2"]), "t"), found(list(&["b=http://h:2", "a=http://h:1"]), "t"));
        assert_eq!(a, b);
        assert_ne!(a.0, found(list(&["a=http://h:1", "b=http://h:2"]), "other").0);
        assert_ne!(a.1[0].id, a.1[1].id);
    }

    #[test]
    fn member_may_have_several_urls() {
        let members = list(&["a=http://h:2", "a=http://h:1", "b=http://h:3"]);
        assert_eq!(members.len(), 2);
        assert_eq!(members[0].peer_urls, ["http://h:1", "http://h:2"]);
    }

    #[test]
    fn invalid_member_list_is_rejected() {
        assert!(members(&[]).is_err());
        assert!(members(&["http://h:1".to_owned()]).is_err());
        assert!(members(&["a=h:1".to_owned()]).is_err());
    }
}
