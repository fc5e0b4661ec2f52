//! Start on the data directory of an earlier build, whose pods were running.
//!
//! `upgrade/data-dir.tar.zst` is the data directory of the build of 17 November 2026. It was copied after the process
//! was killed while pods were running. It contains the store's log, the checkpoints of the kubelet and the records of
//! the runtime. It contains no keys, certificates or kubeconfigs, which a start creates, and no image data.
//! `upgrade/objects.txt` lists objects of that cluster with their UIDs.

use std::collections::BTreeSet;

use super::Machine;

const DATA_DIR: &[u8] = include_bytes!("upgrade/data-dir.tar.zst");
const OBJECTS: &str = include_str!("upgrade/objects.txt");
/// Pods of the earlier build and the IDs of their containers.
const PODS: &[(&str, &str)] = &[
    ("alone", "knarr://acf95c8d9a2cdad78c01be5efc49187a9892a219a27bed359cac1df29da257c9"),
    ("web-65d55dd4f6-gtnzt", "knarr://34cda8db901f47ffdffd759257f7520372c22c439810799071a8807dd69c500f"),
];

#[test]
fn data_directory_of_an_earlier_build_is_read_and_its_pods_run_again() {
    let machine = Machine::new();
    tar::Archive::new(zstd::Decoder::new(DATA_DIR).unwrap()).unpack(machine.data()).unwrap();
    assert!(!machine.data().join("pki").exists(), "the fixture contains no keys");
    machine.up();
    // The containers do not run any more, as after a restart of the host. The kubelet starts them again.
    for (name, before) in PODS {
        let status = format!(
            "kubectl get pod {name} -o jsonpath={{.status.containerStatuses[0].containerID}},\
             {{.status.containerStatuses[0].ready}},{{.status.containerStatuses[0].restartCount}},{{.status.phase}}"
        );
        let after = machine.eventually(&status, |status| {
            status.ends_with(",true,1,Running") && status.starts_with("knarr://") && !status.starts_with(before)
        });
        println!("{name}: {after}");
    }
    let (before, after) = (BTreeSet::from_iter(OBJECTS.lines().map(str::to_owned)), objects(&machine));
    let lost: Vec<&String> = before.difference(&after).collect();
    assert!(lost.is_empty(), "objects of the earlier build are lost or replaced: {lost:#?}");
    let large = machine.succeed("kubectl get configmap settings -o jsonpath={.data.large}");
    assert_eq!(large, "0123456789abcdef".repeat(8192), "a large value is unchanged");
    assert_eq!(machine.succeed("kubectl get ship knarr -o jsonpath={.spec.masts}"), "1");
    // The cluster works: the Service leads to the pod, and the Deployment creates another one.
    let address = machine.succeed("kubectl get service web -o jsonpath={.spec.clusterIP}");
    machine.eventually(&format!("curl -s --max-time 5 http://{address}/"), |page| page.contains("web-"));
    machine.succeed("kubectl scale deployment web --replicas=2");
    machine.eventually("kubectl get deployment web -o jsonpath={.status.readyReplicas}", |ready| ready == "2");
}

/// Returns kind, name and UID of the objects that [`OBJECTS`] lists.
fn objects(machine: &Machine) -> BTreeSet<String> {
    const RESOURCES: &str = "namespaces,nodes,pods,services,deployments.apps,replicasets.apps,configmaps,serviceaccounts,\
        clusterroles,clusterrolebindings,customresourcedefinitions,ships.example.com,endpointslices";
    let listed = machine.succeed(&format!("kubectl get {RESOURCES} -A -o json"));
    let list: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let describe = |object: &serde_json::Value| {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        format!("{} {}/{} {}", object["kind"].as_str().unwrap(), text("namespace"), text("name"), text("uid"))
    };
    list["items"].as_array().unwrap().iter().map(describe).collect()
}
