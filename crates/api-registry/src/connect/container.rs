//! Container selection for log, exec and attach.

use apimachinery::Value;
use apimachinery::meta::Meta;
use apimachinery::status::Status;

/// Returns the named container, or the only one.
pub fn choose<'a>(pod: &'a Value, named: &'a str) -> Result<&'a str, Status> {
    let name = Meta::of(pod).name();
    let containers = names(pod, "containers");
    if !named.is_empty() {
        let all = ["containers", "initContainers", "ephemeralContainers"];
        if all.iter().any(|list| names(pod, list).contains(&named)) {
            return Ok(named);
        }
        return Err(Status::bad_request(format!("container {named} is not valid for pod {name}")));
    }
    let mut message = format!("a container name must be specified for pod {name}");
    match containers.as_slice() {
        [only] => return Ok(only),
        [] => return Err(Status::bad_request(message)),
        many => message.push_str(&format!(", choose one of: [{}]", many.join(" "))),
    }
    for (list, kind) in [("initContainers", "init"), ("ephemeralContainers", "ephemeral")] {
        let others = names(pod, list);
        if !others.is_empty() {
            message.push_str(&format!(" or one of the {kind} containers: [{}]", others.join(" ")));
        }
    }
    Err(Status::bad_request(message))
}

fn names<'a>(pod: &'a Value, list: &str) -> Vec<&'a str> {
    let containers = pod.list_at(&["spec", list]);
    containers.iter().filter_map(|container| container.str_at(&["name"])).collect()
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn named_or_only_container_is_selected() {
        let check = |spec: Value, named: &str, expect: &str| {
            let pod = value!({"metadata": {"name": "p"}, "spec": spec});
            let found = choose(&pod, named).map_or_else(|status| status.message, str::to_owned);
            assert_eq!(found, expect);
        };
        let one = || value!({"containers": [{"name": "a"}], "initContainers": [{"name": "i"}]});
        let two = || value!({"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]});
        check(one(), "", "a");
        check(one(), "i", "i");
        check(one(), "x", "container x is not valid for pod p");
        check(
            two(),
            "",
            "a container name must be specified for pod p, choose one of: [a b] or one of the init containers: [i]",
        );
        check(two(), "b", "b");
        check(value!({}), "", "a container name must be specified for pod p");
    }
}
