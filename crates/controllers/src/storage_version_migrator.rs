//! Storage version migrator: rewrites all objects of a kind in the current storage version and encryption key.
//!
//! Every object gets an empty patch. The API server writes the object if its stored form differs. The completion of the
//! writes is kept in memory only. After a restart they are repeated, which changes nothing.

use std::convert::Infallible;

use api::resources::{CUSTOM_RESOURCE_DEFINITIONS, STORAGE_VERSION_MIGRATIONS};
use apimachinery::time::{Duration, Time};
use apimachinery::{GroupResource, Key, Resource, Value, value};
use controller::{Action, Cache, Controller, Patch, Plan, Preconditions, ServerQuery, ServerResponse, Write, kinds};

use crate::{condition, scale_target};

/// Delay until the migration is reconciled after the writes, because no watch event triggers it.
const SOON: Duration = Duration::from_seconds(1);
/// Retry delay if the objects cannot be listed.
const LATER: Duration = Duration::from_seconds(60);

pub struct StorageVersionMigrator;

/// An unfinished StorageVersionMigration.
pub struct Observation<'a> {
    migration: &'a Value,
    /// The resource and the list of its objects; `None` if the resource does not exist.
    objects: Option<(Resource, ServerResponse)>,
    /// Whether all objects were written.
    written: bool,
}

impl Controller for StorageVersionMigrator {
    type Observed<'a> = Observation<'a>;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "storage-version-migrator-controller";
    const READS: &'static [GroupResource] = &[STORAGE_VERSION_MIGRATIONS, CUSTOM_RESOURCE_DEFINITIONS];
    const WRITES: &'static [Write] = &[(STORAGE_VERSION_MIGRATIONS, "status"), controller::ANYTHING];

    fn affected_keys(_: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        keys.extend((kind == STORAGE_VERSION_MIGRATIONS).then(|| Key::of(object)));
    }

    fn queries(cache: &Cache, key: &Key, _: Time) -> Vec<ServerQuery> {
        let migration = cache
            .get(STORAGE_VERSION_MIGRATIONS, key)
            .filter(|migration| is(migration, "Running") && !is_over(migration));
        migration.and_then(|migration| resource(cache, migration)).map(|resource| all(&resource)).into_iter().collect()
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<Observation<'a>> {
        let migration = cache.get(STORAGE_VERSION_MIGRATIONS, key).filter(|migration| !is_over(migration))?;
        let objects = resource(cache, migration).map(|resource| {
            let response = cache.response(&all(&resource)).cloned();
            (resource, response.unwrap_or_else(|| Err("they were not requested".to_owned())))
        });
        Some(Observation { migration, objects, written: cache.memory().is_some() })
    }

    fn plan(observed: &Observation<'_>, now: Time) -> Plan {
        let migration = observed.migration;
        let Some((resource, objects)) = &observed.objects else {
            let message = "resource does not exist in the cluster";
            return Plan::of(update_condition(migration, "Failed", "StorageVersionMigrationFailed", message, now));
        };
        if !is(migration, "Running") {
            return Plan::of(update_condition(migration, "Running", "StorageVersionMigrationInProgress", "", now));
        }
        if observed.written {
            return Plan::of(update_condition(migration, "Succeeded", "StorageVersionMigrationSucceeded", "", now));
        }
        match objects {
            Err(reason) => Plan { wake_at: Some(now.plus(LATER)), ..Plan::waiting(reason.clone()) },
            Ok(objects) => Plan {
                actions: objects.list_at(&["items"]).iter().map(|object| write(resource, object)).collect(),
                wake_at: Some(now.plus(SOON)),
                remember: Some(true.into()),
                ..Plan::default()
            },
        }
    }
}

fn is(migration: &Value, kind: &str) -> bool {
    condition::find(migration, kind).is_some_and(|condition| condition.text_at(&["status"]) == "True")
}

fn is_over(migration: &Value) -> bool {
    is(migration, "Succeeded") || is(migration, "Failed")
}

/// Returns the resource to be migrated.
fn resource(cache: &Cache, migration: &Value) -> Option<Resource> {
    let spec_field = |field| migration.text_at(&["spec", "resource", field]);
    scale_target::by_plural(cache, spec_field("group"), spec_field("resource"))
}

fn all(resource: &Resource) -> ServerQuery {
    ServerQuery::all(resource, "")
}

fn write(resource: &Resource, object: &Value) -> Action {
    Action::Patch {
        resource: resource.clone(),
        key: Key::of(object),
        subresource: "",
        only_if: Preconditions::same(object),
        patch: Patch::Merge(value!({})),
    }
}

fn update_condition(migration: &Value, kind: &str, reason: &str, message: &str, now: Time) -> Action {
    let mut conditions = migration.list_at(&["status", "conditions"]).to_vec();
    // A finished migration is no longer Running.
    for other in conditions.iter_mut().filter_map(Value::as_object_mut) {
        if other.get("type").and_then(Value::as_str) == Some("Running") && kind != "Running" {
            other.insert("status", "False");
            other.insert("lastTransitionTime", now.to_string());
        }
    }
    conditions.push(value!({"type": kind, "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": (now.to_string())}));
    let update =
        Action::UpdateStatus { resource: kinds::STORAGE_VERSION_MIGRATIONS.clone(), object: migration.clone() };
    update.with(&["status", "conditions"], conditions.into())
}

#[cfg(test)]
mod tests {
    use api::resources::{CONFIG_MAPS, SECRETS};
    use controller::testing::{FakeCluster, check_properties, run_until_stable};
    use proptest::prelude::*;

    use super::*;

    fn migration(cluster: &mut FakeCluster, group: &str, plural: &str) -> Key {
        let spec = value!({"resource": {"group": group, "resource": plural}});
        cluster.add(&kinds::STORAGE_VERSION_MIGRATIONS, value!({"metadata": {"name": "m"}, "spec": spec}))
    }

    fn new_cluster() -> FakeCluster {
        FakeCluster::new(Time::from_unix(1_700_000_000, 0))
    }

    #[test]
    fn all_objects_are_written_before_success_is_reported() {
        let mut cluster = new_cluster();
        let key = migration(&mut cluster, "", "secrets");
        for name in ["x", "y"] {
            cluster.add(&kinds::SECRETS, value!({"metadata": {"namespace": "a", "name": name}}));
        }
        run_until_stable::<StorageVersionMigrator>(&mut cluster, |_| false);
        let status = "update storageversionmigrations.storagemigration.k8s.io/status m";
        assert_eq!(cluster.log, [status, "patch secrets a/x {}", "patch secrets a/y {}", status]);
        let stored = cluster.get(&kinds::STORAGE_VERSION_MIGRATIONS, &key).unwrap();
        assert!(is(stored, "Succeeded") && !is(stored, "Running"));
    }

    #[test]
    fn unknown_resource_fails_and_a_custom_resource_is_found() {
        let mut cluster = new_cluster();
        let key = migration(&mut cluster, "example.org", "octopodes");
        let found = resource(
            &cluster.cache::<StorageVersionMigrator>(),
            cluster.get(&kinds::STORAGE_VERSION_MIGRATIONS, &key).unwrap(),
        );
        assert_eq!(found, None);
        let mut custom = cluster.clone();
        run_until_stable::<StorageVersionMigrator>(&mut cluster, |_| false);
        assert!(is(cluster.get(&kinds::STORAGE_VERSION_MIGRATIONS, &key).unwrap(), "Failed"));
        let spec = value!({"group": "example.org", "scope": "Namespaced", "names": {"kind": "Octopus", "plural": "octopodes"},
            "versions": [{"name": "v0", "served": false}, {"name": "v1", "served": true}]});
        custom.add(
            &kinds::CUSTOM_RESOURCE_DEFINITIONS,
            value!({"metadata": {"name": "octopodes.example.org"}, "spec": spec}),
        );
        let migration = custom.get(&kinds::STORAGE_VERSION_MIGRATIONS, &key).unwrap();
        let found = resource(&custom.cache::<StorageVersionMigrator>(), migration).unwrap();
        assert_eq!(found, Resource::namespaced("example.org", "v1", "octopodes", "Octopus"));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        #[test]
        fn properties_hold_in_generated_clusters(secrets in 0..6usize, maps in 0..4usize, which in 0..3usize, finalized: bool) {
            let mut cluster = new_cluster();
            let key = migration(&mut cluster, "", ["secrets", "configmaps", "octopodes"][which]);
            for number in 0..secrets {
                cluster.add(&kinds::SECRETS, value!({"metadata": {"namespace": "a", "name": (format!("s{number}"))}}));
            }
            for number in 0..maps {
                let namespace = ["a", "b"][number % 2];
                let finalizers = if finalized { value!(["example.org/x"]) } else { value!([]) };
                let metadata = value!({"namespace": namespace, "name": (format!("m{number}")), "finalizers": finalizers});
                let map = cluster.add(&kinds::CONFIG_MAPS, value!({"metadata": metadata}));
                // An object that is being deleted is written too.
                cluster.delete(&kinds::CONFIG_MAPS, &map, None, None);
            }
            check_properties::<StorageVersionMigrator>(&cluster, |_| false);
            let versions = |cluster: &FakeCluster, kind: GroupResource| -> Vec<u64> { cluster.of(kind).iter().map(|it| it.revision).collect() };
            let before = [versions(&cluster, SECRETS), versions(&cluster, CONFIG_MAPS)];
            run_until_stable::<StorageVersionMigrator>(&mut cluster, |_| false);
            let written = [versions(&cluster, SECRETS), versions(&cluster, CONFIG_MAPS)];
            for (at, (before, after)) in before.iter().zip(&written).enumerate() {
                prop_assert_eq!(before.len(), after.len());
                prop_assert!(before.iter().zip(after).all(|(before, after)| (before < after) == (at == which)));
            }
            let stored = cluster.get(&kinds::STORAGE_VERSION_MIGRATIONS, &key).unwrap();
            let end = if which == 2 { "Failed" } else { "Succeeded" };
            prop_assert!(is(stored, end));
        }
    }
}
