//! Who the first members of a cluster are: all of them compute the same ids from the same list.

use anyhow::{Context, Result, ensure};
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use consensus::Peer;

/// The members of a list of `name=url`; a name may come more than once.
pub(crate) fn members(list: &[String]) -> Result<Vec<Peer>> {
    let mut members: Vec<Peer> = Vec::new();
    for entry in list {
        let (name, url) =
            entry.split_once('=').with_context(|| format!("--initial-cluster: {entry:?} is not name=url"))?;
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
    ensure!(!members.is_empty(), "--initial-cluster names no member");
    members.iter_mut().for_each(|member| member.peer_urls.sort());
    Ok(members)
}

/// The id of a new cluster and its members with theirs, as etcd computes them: from the URLs of members and the token, and from the ids of all members.
pub(crate) fn found(members: Vec<Peer>, token: &str) -> (u64, Vec<Peer>) {
    let mut members: Vec<Peer> = members
        .into_iter()
        .map(|member| Peer { id: hash(&[member.peer_urls.concat().as_str(), token]), ..member })
        .collect();
    members.sort_by_key(|member| member.id);
    let ids: Vec<u8> = members.iter().flat_map(|member| member.id.to_be_bytes()).collect();
    (hash(&[&ids]), members)
}

/// Nothing is secured by this hash; it only has to be etcd's.
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
        members(&entries).expect("the list is right")
    }

    #[test]
    fn ids_are_those_that_etcd_computes() {
        let (cluster, members) = found(list(&["default=http://localhost:2380"]), "etcd-cluster");
        assert_eq!((cluster, members[0].id), (0xcdf8_1819_4e3a_8c32, 0x8e9e_05c5_2164_694d));
    }

    #[test]
    fn the_same_list_in_any_order_is_the_same_cluster() {
        let (a, b) =
            (found(list(&["a=http://h:1", "b=http://h:2"]), "t"), found(list(&["b=http://h:2", "a=http://h:1"]), "t"));
        assert_eq!(a, b);
        assert_ne!(a.0, found(list(&["a=http://h:1", "b=http://h:2"]), "other").0);
        assert_ne!(a.1[0].id, a.1[1].id);
    }

    #[test]
    fn a_member_may_have_several_urls() {
        let members = list(&["a=http://h:2", "a=http://h:1", "b=http://h:3"]);
        assert_eq!(members.len(), 2);
        assert_eq!(members[0].peer_urls, ["http://h:1", "http://h:2"]);
    }

    #[test]
    fn a_list_that_makes_no_sense_is_refused() {
        assert!(members(&[]).is_err());
        assert!(members(&["http://h:1".to_owned()]).is_err());
        assert!(members(&["a=h:1".to_owned()]).is_err());
    }
}
