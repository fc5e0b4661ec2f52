use apimachinery::{Str, value};
use client::discovery::ServedResource;

use super::*;

const OWN: &str = "applyset-own-v1";
const PEER: &str = "applyset-peer-v1";

fn served() -> ServerResources {
    let resource = |resource: Resource, verbs: &[&'static str]| ServedResource {
        resource,
        verbs: verbs.iter().map(|verb| Str::from(*verb)).collect(),
        preferred: true,
    };
    let all = [
        Resource::namespaced("", "v1", "configmaps", "ConfigMap"),
        Resource::cluster("", "v1", "namespaces", "Namespace"),
        Resource::namespaced("", "v1", "services", "Service"),
        Resource::namespaced("apps", "v1", "deployments", "Deployment"),
        Resource::cluster("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition"),
    ];
    ServerResources {
        served: all.into_iter().map(|one| resource(one, &["list", "patch"])).collect(),
        stale: vec!["stale.example.com/v1".to_owned()],
    }
}

/// Parses `KIND NAMESPACE/NAME` or `KIND NAME`.
fn id(text: &str) -> ObjectId {
    let (kind, key) = text.split_once(' ').unwrap();
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    ObjectId { kind: kind.parse().unwrap(), key: Key::new(namespace, name) }
}

fn document(api_version: &str, kind: &str, key: &str, line: usize) -> Document {
    let key = id(&format!("{kind} {key}")).key;
    let mut object = value!({"apiVersion": api_version, "kind": kind, "metadata": {"name": (key.name.as_str())}});
    if !key.namespace.is_empty() {
        MetaMut::of(&mut object).unwrap().set("namespace", key.namespace);
    }
    Document { object, line }
}

fn parsed(documents: impl IntoIterator<Item = Document>) -> FileState {
    FileState::Parsed { version: FileVersion([1; 5]), documents: documents.into_iter().collect() }
}

fn config_maps(names: &[&str]) -> FileState {
    parsed(names.iter().enumerate().map(|(line, name)| document("v1", "ConfigMap", name, line + 1)))
}

fn broken() -> FileState {
    FileState::Refused { line: 3, problem: "broken".to_owned() }
}

fn files(files: impl IntoIterator<Item = (&'static str, FileState)>) -> Directory {
    let files = files.into_iter().map(|(name, state)| (name.to_owned(), state)).collect();
    Directory { files, ..Directory::default() }
}

/// A member that was applied from a file.
fn member(object: &str, file: Option<&str>) -> (ObjectId, Member) {
    let object = id(object);
    let served = served();
    let resource = served.served.iter().find(|it| GroupKind::of(&it.resource) == object.kind).unwrap();
    let metadata =
        ObjectMetadata { part_of: Some(OWN.to_owned()), file: file.map(str::to_owned), ..ObjectMetadata::default() };
    (object, Member { resource: resource.resource.clone(), uid: "u".to_owned(), metadata })
}

fn with_members(members: impl IntoIterator<Item = (ObjectId, Member)>) -> Cluster {
    Cluster { members: members.into_iter().collect(), parent: Some(Scope::default()), ..Cluster::default() }
}

fn plan_of(directory: Directory, cluster: &Cluster) -> Plan {
    plan(resolve(directory, &served()), cluster, &BTreeMap::new(), OWN)
}

/// Returns the actions and problems as lines.
fn lines(plan: &Plan) -> Vec<String> {
    let apply = plan.apply.iter().map(|apply| {
        let adopted = apply.manifest.object.at(&["metadata", "annotations", ADOPTED]).is_some();
        format!("apply {}{}", apply.id, if adopted { " adopted" } else { "" })
    });
    let prune = plan.prune.iter().map(|prune| match &prune.how {
        Removal::Delete => format!("delete {}", prune.id),
        Removal::Release => format!("release {}", prune.id),
        Removal::HandOver(set) => format!("hand over {} to {set}", prune.id),
    });
    let claims = plan.claims.iter().map(|claim| format!("claim {claim}"));
    apply.chain(prune).chain(claims).chain(plan.problems.iter().map(|problem| format!("! {problem}"))).collect()
}

#[test]
fn types_and_namespaces_are_applied_first_and_deleted_last() {
    let all = [
        ("apps/v1", "Deployment", "shop/web"),
        ("v1", "Service", "shop/web"),
        ("v1", "ConfigMap", "shop/web"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "crons.example.com"),
        ("v1", "Namespace", "shop"),
    ];
    let documents = all.iter().enumerate().map(|(line, (version, kind, key))| document(version, kind, key, line));
    let plan = plan_of(files([("a.yaml", parsed(documents))]), &Cluster::default());
    let order = [
        "CustomResourceDefinition.apiextensions.k8s.io crons.example.com",
        "Namespace shop",
        "ConfigMap shop/web",
        "Service shop/web",
        "Deployment.apps shop/web",
    ];
    assert_eq!(lines(&plan), order.map(|id| format!("apply {id}")));
    let labels = &plan.apply[0].manifest.object["metadata"];
    assert_eq!(labels["labels"], value!({"applyset.kubernetes.io/part-of": OWN}));
    assert_eq!(labels["annotations"], value!({"knarr.io/manifest-file": "a.yaml"}));
    let members = with_members(order.map(|object| member(object, Some("a.yaml"))));
    let pruned = lines(&plan_of(files([]), &members));
    let reversed = [order[4], order[3], order[2], order[0], order[1]];
    assert_eq!(pruned, reversed.map(|id| format!("delete {id}")));
}

#[test]
fn objects_are_deleted_only_if_their_file_was_read_without_them() {
    let check = |name: &str, directory: Directory, file: Option<&str>, expect: &[&str]| {
        let cluster = with_members([member("ConfigMap default/a", file)]);
        assert_eq!(lines(&plan_of(directory, &cluster)), expect, "{name}");
    };
    let gone = ["delete ConfigMap default/a"];
    check("the file is gone", files([]), Some("a.yaml"), &gone);
    check("the document is gone", files([("a.yaml", config_maps(&[]))]), Some("a.yaml"), &gone);
    let apply = ["apply ConfigMap default/a"];
    check("the object moved", files([("b.yaml", config_maps(&["a"]))]), Some("a.yaml"), &apply);
    let refused = ["! a.yaml:3: broken; the objects that the file had are kept"];
    check("the file is broken", files([("a.yaml", broken())]), Some("a.yaml"), &refused);
    let other = ["delete ConfigMap default/a", "! b.yaml:3: broken; the objects that the file had are kept"];
    check("another file is broken", files([("b.yaml", broken())]), Some("a.yaml"), &other);
    let sub = ["! sub/:3: broken; the objects that the file had are kept"];
    check("its directory is not read", files([("sub/", broken())]), Some("sub/x/a.yaml"), &sub);
    let written =
        ["! b.yaml: a process is writing the file, which is read when it is closed; until then nothing is deleted"];
    check("a file is being written", files([("b.yaml", FileState::BeingWritten)]), Some("a.yaml"), &written);
    check("it was not applied from a file", files([]), None, &[]);
    let missing = Directory { root: Root::Missing, ..Directory::default() };
    let kept =
        ["! the directory is missing, and its objects are kept; move it back with all of its files, because an empty \
         directory deletes them"];
    check("the directory is gone", missing, Some("a.yaml"), &kept);
    let refused = Directory { root: Root::Refused("no".to_owned()), ..Directory::default() };
    check("the directory is refused", refused, Some("a.yaml"), &["! the directory is not read: no"]);
}

#[test]
fn missing_directory_is_created_if_nothing_was_applied_from_it() {
    let missing = || Directory { root: Root::Missing, ..Directory::default() };
    assert!(plan_of(missing(), &Cluster::default()).create_directory);
    let unlisted = BTreeMap::from([("Cron.example.com".parse().unwrap(), "no answer".to_owned())]);
    assert!(!plan_of(missing(), &Cluster { unlisted, ..Cluster::default() }).create_directory);
}

#[test]
fn members_are_applied_again_only_after_their_file_changed() {
    let check = |version: i128, file: &str, expect: usize| {
        let cluster = with_members([member("ConfigMap default/a", Some(file))]);
        let applied = BTreeMap::from([(id("ConfigMap default/a"), FileVersion([version; 5]))]);
        let plan = plan(resolve(files([("a.yaml", config_maps(&["a"]))]), &served()), &cluster, &applied, OWN);
        assert_eq!((plan.apply.len(), plan.unchanged), (expect, 1 - expect), "{version} {file}");
    };
    check(1, "a.yaml", 0);
    check(2, "a.yaml", 1);
    check(1, "b.yaml", 1);
    let deleted = BTreeMap::from([(id("ConfigMap default/a"), FileVersion([1; 5]))]);
    let desired = resolve(files([("a.yaml", config_maps(&["a"]))]), &served());
    assert_eq!(plan(desired, &Cluster::default(), &deleted, OWN).apply.len(), 1, "another client deleted it");
}

#[test]
fn object_in_two_places_is_left_alone_and_both_are_named() {
    let directory = files([("a.yaml", config_maps(&["x", "same"])), ("b.yaml", config_maps(&["default/same"]))]);
    let cluster = with_members([member("ConfigMap default/same", Some("a.yaml"))]);
    let expect = [
        "apply ConfigMap default/x",
        "! b.yaml:1: ConfigMap default/same: the object is also in a.yaml:2; it is neither applied nor deleted until only one \
         of them is left",
    ];
    assert_eq!(lines(&plan_of(directory, &cluster)), expect);
}

#[test]
fn objects_of_unknown_kinds_wait_and_the_advice_depends_on_the_kind() {
    for (api_version, kind, expect) in [
        ("example.com/v1", "Cron", "the server has no Cron of example.com/v1; the object is applied when"),
        ("apps/v1beta1", "Deployment", "the server has no Deployment of apps/v1beta1; use apps/v1"),
        ("helm.cattle.io/v1", "HelmChart", "store the output of `helm template`"),
        ("kustomize.config.k8s.io/v1beta1", "Kustomization", "store the output of `kubectl kustomize`"),
        ("stale.example.com/v1", "Any", "the aggregated API server of stale.example.com/v1 does not respond"),
    ] {
        let unknown = parsed([document(api_version, kind, "a", 7)]);
        let plan = plan_of(files([("a.yaml", unknown), ("b.yaml", config_maps(&["b"]))]), &Cluster::default());
        assert_eq!((plan.apply.len(), plan.problems.len()), (1, 1), "{kind}");
        let problem = &plan.problems[0];
        assert!(problem.retry && problem.message.contains(expect), "{problem}");
        assert!(problem.to_string().starts_with(&format!("a.yaml:7: {kind}.")), "{problem}");
    }
}

#[test]
fn existing_objects_are_adopted_and_released_but_never_deleted() {
    let existing = BTreeMap::from([(id("ConfigMap default/a"), ObjectMetadata::default())]);
    let cluster = Cluster { others: existing, ..Cluster::default() };
    let directory = || files([("a.yaml", config_maps(&["a"]))]);
    assert_eq!(lines(&plan_of(directory(), &cluster)), ["apply ConfigMap default/a adopted"]);
    let (object, mut adopted) = member("ConfigMap default/a", Some("a.yaml"));
    adopted.metadata.adopted = true;
    let cluster = with_members([(object, adopted)]);
    assert_eq!(lines(&plan_of(directory(), &cluster)), ["apply ConfigMap default/a adopted"]);
    assert_eq!(lines(&plan_of(files([]), &cluster)), ["release ConfigMap default/a"]);
}

#[test]
fn object_that_is_being_deleted_is_applied_when_it_is_gone() {
    let deleting = ObjectMetadata { deleting: true, ..ObjectMetadata::default() };
    let cluster = Cluster { others: [(id("ConfigMap default/a"), deleting.clone())].into(), ..Cluster::default() };
    let plan = plan_of(files([("a.yaml", config_maps(&["a"]))]), &cluster);
    assert!(plan.apply.is_empty() && plan.problems[0].retry, "{plan:?}");
    let (object, mut member) = member("ConfigMap default/a", Some("a.yaml"));
    member.metadata.deleting = true;
    assert_eq!(lines(&plan_of(files([]), &with_members([(object, member)]))), [""; 0], "it is deleted once");
}

#[test]
fn directories_of_several_servers_share_objects_without_deleting_them() {
    let peer =
        |claims: &[&str]| Peer { id: PEER.to_owned(), claims: claims.iter().map(|it| (*it).to_owned()).collect() };
    let of_peer = |file: Option<&str>| {
        let metadata = ObjectMetadata {
            part_of: Some(PEER.to_owned()),
            file: file.map(str::to_owned),
            ..ObjectMetadata::default()
        };
        BTreeMap::from([(id("ConfigMap default/a"), metadata)])
    };
    let check = |others, peers, expect: &str| {
        let cluster = Cluster { others, peers, ..Cluster::default() };
        let found = lines(&plan_of(files([("a.yaml", config_maps(&["a"]))]), &cluster));
        assert!(found.len() == 1 && found[0].contains(expect), "{found:?}");
    };
    check(of_peer(Some("a.yaml")), vec![peer(&[])], "claim ConfigMap default/a");
    check(of_peer(Some("a.yaml")), Vec::new(), "apply ConfigMap default/a");
    check(of_peer(None), Vec::new(), "belongs to the ApplySet of another tool");
    let mut cluster =
        with_members([member("ConfigMap default/a", Some("a.yaml")), member("ConfigMap default/b", Some("a.yaml"))]);
    cluster.peers.push(peer(&["ConfigMap default/a"]));
    let expect = [format!("hand over ConfigMap default/a to {PEER}"), "delete ConfigMap default/b".to_owned()];
    assert_eq!(lines(&plan_of(files([]), &cluster)), expect);
}

#[test]
fn scope_has_the_kinds_and_namespaces_of_all_members_before_and_after() {
    let mut cluster = with_members([member("Service shop/old", Some("a.yaml"))]);
    cluster.unlisted.insert("Cron.example.com".parse().unwrap(), "no answer".to_owned());
    let plan = plan_of(files([("a.yaml", config_maps(&["kube-system/a", "b"]))]), &cluster);
    assert_eq!(apply_set::join(&plan.scope.kinds), "ConfigMap,Cron.example.com,Service");
    assert_eq!(apply_set::join(&plan.scope.namespaces), "default,shop");
    assert!(plan.problems[0].to_string().contains("Cron.example.com: failed to list the applied objects"));
    assert!(plan.scope.contains(&Scope::default()) && !Scope::default().contains(&plan.scope));
}
