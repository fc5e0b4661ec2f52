//! Access from other hosts: names and addresses of the API server, and kubeconfigs for users.

use super::service::ALONE;
use super::*;

#[test]
fn kubeconfigs_for_users_reach_the_server_at_its_further_names_and_addresses() {
    let machine = Machine::new();
    let reach = "--cluster-name prod --tls-san api.example.com --advertise-address 198.51.100.2";
    machine.knarr(&format!("up -d {ALONE} {reach}"));
    let context = machine.succeed(&format!("{KNARR} kubectl config current-context"));
    assert_eq!(context, "prod", "admin.kubeconfig has the name of the cluster");
    let advertised = "kubectl get endpointslices kubernetes -o jsonpath={.endpoints[*].addresses[*]}";
    assert_eq!(machine.succeed(advertised), "198.51.100.2");

    let printed = machine.knarr("kubeconfig --server api.example.com");
    assert!(printed.contains("server: https://api.example.com:6443\n"), "{printed}");
    let error = machine
        .output_of(&format!("{KNARR} kubeconfig --server b.example.com --data-dir {}", machine.data().display()));
    assert!(error.contains("start the cluster with `--tls-san b.example.com`"), "{error}");

    let file = machine.dir.path().join("home/.kube/config");
    let merged = machine.knarr(&format!(
        "kubeconfig --merge --file {} --server 198.51.100.2 --user jane --group dev --ttl 1h",
        file.display()
    ));
    assert!(merged.contains("context \"jane@prod\" is in"), "{merged}");
    let whoami = format!("{KNARR} kubectl --kubeconfig {} auth whoami -o jsonpath=", file.display());
    assert_eq!(machine.succeed(&format!("{whoami}{{.status.userInfo.username}}")), "jane");
    assert_eq!(machine.succeed(&format!("{whoami}{{.status.userInfo.groups}}")), r#"["dev","system:authenticated"]"#);
    machine.knarr("kubeconfig --merge --file F".replace('F', file.to_str().unwrap()).as_str());
    let contexts =
        machine.succeed(&format!("{KNARR} kubectl --kubeconfig {} config get-contexts -o name", file.display()));
    assert_eq!(contexts, "jane@prod\nprod");
    machine.knarr("down --purge");
}
