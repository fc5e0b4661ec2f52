//! Validation of requested user namespaces: a pod has its own user namespace with one range of IDs, or the node's.

use container_shim::protocol::{IdMap, IdMaps};
use node_api::cri::v1;

use crate::error::Error;

/// Returns the ID mappings of a sandbox with its own user namespace.
pub(crate) fn mappings(options: &v1::NamespaceOption) -> Result<Option<IdMaps>, Error> {
    let Some(users) = &options.userns_options else { return Ok(None) };
    let maps = IdMaps { uids: ranges("uids", &users.uids)?, gids: ranges("gids", &users.gids)? };
    let is_empty = maps.uids.is_empty() && maps.gids.is_empty();
    match (users.mode(), is_empty) {
        (v1::NamespaceMode::Node, true) => Ok(None),
        (v1::NamespaceMode::Node, false) => {
            Err(invalid("mode NODE takes no mappings: the pod has the user IDs of the node"))
        }
        (v1::NamespaceMode::Pod, _) if maps.uids.is_empty() || maps.gids.is_empty() => {
            Err(invalid("mode POD needs a mapping of user IDs and one of group IDs"))
        }
        (v1::NamespaceMode::Pod, _) => Ok(Some(maps)),
        (v1::NamespaceMode::Container | v1::NamespaceMode::Target, _) => {
            Err(invalid(&format!("mode {} is not supported: use POD or NODE", users.mode().as_str_name())))
        }
    }
}

/// Checks that a container requests the user namespace of its sandbox. A container that requests none gets that of its
/// sandbox.
pub(crate) fn check_container(container: &v1::NamespaceOption, sandbox: Option<&IdMaps>) -> Result<(), Error> {
    if container.userns_options.is_some() && mappings(container)?.as_ref() != sandbox {
        return Err(invalid("the container's user namespace is not that of its sandbox"));
    }
    Ok(())
}

fn ranges(field: &str, list: &[v1::IdMapping]) -> Result<Vec<IdMap>, Error> {
    match list {
        [] => Ok(Vec::new()),
        [one] if one.length == 0 => Err(invalid(&format!("{field}: a mapping needs a length"))),
        // The processes that set up a container are root in its namespace.
        [one] if one.container_id != 0 => {
            Err(invalid(&format!("{field}: the mapping has to begin with ID 0 of the container")))
        }
        [one] => Ok(vec![IdMap { inside: one.container_id, outside: one.host_id, length: one.length }]),
        _ => Err(invalid(&format!("{field}: only one mapping is supported, not {}", list.len()))),
    }
}

fn invalid(problem: &str) -> Error {
    Error::Invalid(format!("userns_options: {problem}"))
}

#[cfg(test)]
mod tests {
    use v1::NamespaceMode::{Container, Node, Pod, Target};

    use super::*;

    fn options(mode: v1::NamespaceMode, uids: &[(u32, u32)], gids: &[(u32, u32)]) -> v1::NamespaceOption {
        let map = |(container_id, length): &(u32, u32)| v1::IdMapping {
            host_id: 70_000,
            container_id: *container_id,
            length: *length,
        };
        let [uids, gids] = [uids, gids].map(|list| list.iter().map(map).collect());
        let users = v1::UserNamespace { mode: mode.into(), uids, gids };
        v1::NamespaceOption { userns_options: Some(users), ..Default::default() }
    }

    #[test]
    fn pod_has_its_own_user_namespace_or_the_nodes() {
        let check = |mode, uids: &[(u32, u32)], gids: &[(u32, u32)], expect: Result<bool, &str>| {
            let found =
                mappings(&options(mode, uids, gids)).map(|maps| maps.is_some()).map_err(|error| error.to_string());
            let expect = expect.map_err(|problem| format!("userns_options: {problem}"));
            assert_eq!(found, expect, "{mode:?} {uids:?} {gids:?}");
        };
        let one = &[(0, 65_536)][..];
        check(Pod, one, one, Ok(true));
        check(Node, &[], &[], Ok(false));
        check(Node, one, one, Err("mode NODE takes no mappings: the pod has the user IDs of the node"));
        check(Pod, one, &[], Err("mode POD needs a mapping of user IDs and one of group IDs"));
        check(Pod, &[], &[], Err("mode POD needs a mapping of user IDs and one of group IDs"));
        check(Pod, &[(0, 1), (1, 1)], one, Err("uids: only one mapping is supported, not 2"));
        check(Pod, one, &[(1, 1)], Err("gids: the mapping has to begin with ID 0 of the container"));
        check(Pod, &[(0, 0)], one, Err("uids: a mapping needs a length"));
        check(Container, one, one, Err("mode CONTAINER is not supported: use POD or NODE"));
        check(Target, one, one, Err("mode TARGET is not supported: use POD or NODE"));
        assert!(mappings(&v1::NamespaceOption::default()).unwrap().is_none());
    }

    #[test]
    fn container_has_the_user_namespace_of_its_sandbox() {
        let own = options(Pod, &[(0, 10)], &[(0, 10)]);
        let maps = mappings(&own).unwrap();
        assert!(check_container(&own, maps.as_ref()).is_ok());
        assert!(check_container(&v1::NamespaceOption::default(), maps.as_ref()).is_ok());
        assert!(check_container(&own, None).is_err());
        assert!(check_container(&options(Pod, &[(0, 11)], &[(0, 10)]), maps.as_ref()).is_err());
        assert!(check_container(&options(Node, &[], &[]), maps.as_ref()).is_err());
        assert!(check_container(&options(Target, &[], &[]), None).is_err());
    }
}
