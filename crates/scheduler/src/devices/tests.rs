use apimachinery::value;

use super::*;

fn slice(pool: &str, generation: i64, count: i64, node: &str) -> Value {
    let pool = value!({"name": pool, "generation": generation, "resourceSliceCount": count});
    value!({"spec": {"driver": "d", "pool": pool, "nodeName": node, "devices": [{"name": (format!("{node}-{generation}"))}]}})
}

fn names<'a>(pools: impl Iterator<Item = &'a Pool>) -> Vec<(String, bool)> {
    pools.map(|pool| (pool.name.to_string(), pool.incomplete)).collect()
}

#[test]
fn pool_uses_its_newest_generation_and_is_local_to_a_single_node() {
    let mut devices = Devices::default();
    devices.set_slice(&"a".into(), Some(&slice("p", 1, 1, "n1")));
    assert_eq!(names(devices.pools_of("n1")), [("p".to_owned(), false)]);
    devices.set_slice(&"b".into(), Some(&slice("p", 2, 2, "n1")));
    assert_eq!(names(devices.pools_of("n1")), [("p".to_owned(), true)]);
    devices.set_slice(&"c".into(), Some(&slice("p", 2, 2, "n2")));
    assert_eq!(names(devices.pools_of("n1")), []);
    assert_eq!(names(devices.shared_pools()), [("p".to_owned(), false)]);
    for name in ["b", "c"] {
        devices.set_slice(&name.into(), None);
    }
    assert_eq!(names(devices.pools_of("n1")), [("p".to_owned(), false)]);
    devices.set_slice(&"a".into(), None);
    assert_eq!(names(devices.pools_of("n1").chain(devices.shared_pools())), []);
}

#[test]
fn newest_device_class_backs_an_extended_resource() {
    let mut devices = Devices::default();
    let class = |created: &str| value!({"metadata": {"creationTimestamp": created}, "spec": {"extendedResourceName": "a.io/gpu"}});
    devices.set_class(&"old".into(), Some(&class("2026-01-01T00:00:00Z")));
    devices.set_class(&"new".into(), Some(&class("2026-01-02T00:00:00Z")));
    assert_eq!(devices.class_of("a.io/gpu").map(Str::as_str), Some("new"));
    assert_eq!(devices.class_of("deviceclass.resource.kubernetes.io/old").map(Str::as_str), Some("old"));
    devices.set_class(&"new".into(), None);
    assert_eq!(devices.class_of("a.io/gpu").map(Str::as_str), Some("old"));
}

#[test]
fn device_shares_add_up_and_are_released() {
    let mut taken = BTreeMap::new();
    let one = |amount: &str| Take {
        device: DeviceId::default(),
        share: Some(vec![("memory".into(), amount.parse().unwrap())]),
    };
    take(&mut taken, &one("1Gi"));
    take(&mut taken, &one("2Gi"));
    assert_eq!(taken[&DeviceId::default()].capacity["memory"], "3Gi".parse().unwrap());
    release(&mut taken, &one("1Gi"));
    release(&mut taken, &one("2Gi"));
    assert!(taken.is_empty());
}
