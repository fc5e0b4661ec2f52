//! Who the first members of a cluster are: all of them compute the same ids from the same list.

use anyhow::{Context, Result, ensure};
use aws_lc_rs::digest::{SHA256, digest};
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

/// The id of a new cluster and its members with theirs. Members are told apart by their URLs, clusters by their members and token.
pub(crate) fn found(members: Vec<Peer>, token: &str) -> (u64, Vec<Peer>) {
    let mut members: Vec<Peer> =
        members.into_iter().map(|member| Peer { id: hash(&[&member.peer_urls.join(","), token]), ..member }).collect();
    members.sort_by_key(|member| member.id);
    let ids: Vec<String> = members.iter().map(|member| format!("{:x}", member.id)).collect();
    (hash(&[&ids.join(",")]), members)
}

fn hash(parts: &[&str]) -> u64 {
    let digest = digest(&SHA256, parts.join("\n").as_bytes());
    let first = digest.as_ref().first_chunk().expect("a digest has 32 bytes");
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
