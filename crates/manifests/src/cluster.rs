//! Observes the cluster: the parents of all directories, the members of the set, and objects that exist already.

use std::collections::{BTreeMap, BTreeSet};

use apimachinery::meta::Meta;
use apimachinery::{Resource, Value};
use client::apply_set::{self, GroupKind};
use client::discovery::ServerResources;
use client::{Client, Error, ListOptions, Target};

use crate::plan::{ADOPTED, Cluster, Desired, FILE, Member, ObjectId, ObjectMetadata, Peer};
use crate::report::{self, Report, Scope};

/// Maximum objects per page of a list.
const PAGE: u32 = 500;

/// The parents, before anything else is read.
#[derive(Debug, Default)]
pub(crate) struct Parents {
    /// The parent of the own set.
    pub own: Option<Value>,
    pub peers: Vec<Peer>,
}

impl Parents {
    pub(crate) async fn read(client: &Client, name: &str) -> Result<Self, Error> {
        let mut parents = Self::default();
        for parent in report::parents(client).await? {
            if Meta::of(&parent).name() == name {
                parents.own = Some(parent);
            } else if let Some(id) = Meta::of(&parent).label(apply_set::ID) {
                parents.peers.push(Peer { id: id.to_owned(), claims: claims(&parent) });
            }
        }
        Ok(parents)
    }
}

fn claims(parent: &Value) -> BTreeSet<String> {
    Report::parse(parent).list_at(&["claims"]).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Reads the members of the set, and the metadata of the desired objects that are not members.
pub(crate) async fn observe(
    client: &Client,
    parents: Parents,
    served: &ServerResources,
    desired: &Desired,
    set: &str,
) -> Result<Cluster, Error> {
    let client = &client.metadata_only();
    let parent = parents.own.as_ref().map(Scope::of);
    let mut cluster = Cluster { parent, peers: parents.peers, ..Cluster::default() };
    for kind in cluster.parent.iter().flat_map(|scope| scope.kinds.clone()) {
        match resource_of(&kind, served) {
            Ok(Some(resource)) => match members(client, resource, set).await {
                Ok(members) => cluster.members.extend(members),
                Err(error) => drop(cluster.unlisted.insert(kind, error.to_string())),
            },
            // The kind and all of its objects were deleted.
            Ok(None) => {}
            Err(problem) => drop(cluster.unlisted.insert(kind, problem)),
        }
    }
    for (id, manifest) in &desired.objects {
        if cluster.members.contains_key(id) {
            continue;
        }
        match client.get(&Target::object(&manifest.resource, &id.key)).await {
            Ok(object) => drop(cluster.others.insert(id.clone(), metadata(&object))),
            Err(error) if error.is_not_found() => {}
            // The object cannot be read. The attempt to apply it reports why.
            Err(error) if error.status().is_some() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(cluster)
}

/// Returns the preferred resource of a kind.
fn resource_of<'s>(kind: &GroupKind, served: &'s ServerResources) -> Result<Option<&'s Resource>, String> {
    let is = |resource: &Resource| resource.kind == kind.kind && resource.group == kind.group;
    let found = served
        .served
        .iter()
        .find(|served| served.preferred && is(&served.resource) && served.verbs.iter().any(|verb| *verb == "list"));
    let stale = served.stale.iter().any(|stale| stale.split('/').next() == Some(&*kind.group));
    match found {
        None if stale => Err("its aggregated API server does not respond".to_owned()),
        found => Ok(found.map(|served| &served.resource)),
    }
}

async fn members(client: &Client, resource: &Resource, set: &str) -> Result<BTreeMap<ObjectId, Member>, Error> {
    let label_selector = format!("{}={set}", apply_set::PART_OF);
    let options = ListOptions { label_selector, limit: PAGE, ..ListOptions::default() };
    let list = client.list_all(&Target::all(resource), &options).await?;
    let member = |object: Value| {
        let (metadata, uid) = (metadata(&object), Meta::of(&object).uid().to_owned());
        (ObjectId::of(resource, &object), Member { resource: resource.clone(), uid, metadata })
    };
    Ok(list.items.into_iter().map(member).collect())
}

fn metadata(object: &Value) -> ObjectMetadata {
    let meta = Meta::of(object);
    ObjectMetadata {
        part_of: meta.label(apply_set::PART_OF).map(str::to_owned),
        file: meta.annotation(FILE).map(str::to_owned),
        adopted: meta.annotation(ADOPTED).is_some(),
        deleting: meta.is_deleting(),
    }
}
