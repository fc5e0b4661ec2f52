use apimachinery::value;

use super::*;

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn ports_are_local_and_remote() {
    let check = |spec: &str, expect: Result<(u16, u16), &str>| {
        let found = parse_ports(&texts(&[spec]));
        let found = found.as_ref().map(|ports| (ports[0].local, ports[0].remote)).map_err(String::as_str);
        assert_eq!(found, expect, "{spec}");
    };
    check("5000", Ok((5000, 5000)));
    check("8888:5000", Ok((8888, 5000)));
    check(":5000", Ok((0, 5000)));
    check("0:5000", Ok((0, 5000)));
    check("0", Err("remote port must be > 0"));
    check("1:2:3", Err("invalid port format '1:2:3'"));
    check("a", Err("error parsing local port 'a': strconv.ParseUint: parsing \"a\": invalid syntax"));
    check("1:", Err("error parsing remote port '': strconv.ParseUint: parsing \"\": invalid syntax"));
    check("+1", Err("error parsing local port '+1': strconv.ParseUint: parsing \"+1\": invalid syntax"));
    check(
        "1:99999",
        Err("error parsing remote port '99999': strconv.ParseUint: parsing \"99999\": value out of range"),
    );
}

#[test]
fn localhost_is_both_families_of_which_one_is_enough() {
    let check = |list: &[&str], expect: &[(&str, bool)]| {
        let found = parse_addresses(&texts(list)).unwrap();
        let found: Vec<_> = found.iter().map(|one| (one.text.as_str(), one.required)).collect();
        assert_eq!(found, expect, "{list:?}");
    };
    check(&["localhost"], &[("127.0.0.1", false), ("::1", false)]);
    check(&["10.0.0.1", "localhost"], &[("10.0.0.1", true), ("127.0.0.1", false), ("::1", false)]);
    check(&["127.0.0.1", "localhost"], &[("127.0.0.1", true), ("::1", false)]);
    check(&["::", "0.0.0.0"], &[("0.0.0.0", true), ("::", true)]);
    assert_eq!(parse_addresses(&texts(&["example.com"])).unwrap_err(), "example.com is not a valid IP");
}

fn pod() -> Value {
    value!({
        "metadata": {"name": "p"},
        "spec": {
            "containers": [{"ports": [
                {"name": "http", "containerPort": 8080, "protocol": "TCP"},
                {"name": "dns", "containerPort": 53, "protocol": "UDP"},
                {"name": "both", "containerPort": 54, "protocol": "UDP"},
                {"name": "both-tcp", "containerPort": 54, "protocol": "TCP"},
            ]}],
            "initContainers": [{"ports": [{"name": "side", "containerPort": 9000, "protocol": "TCP"}]}],
        },
    })
}

fn service(cluster_ip: &str) -> Value {
    value!({
        "metadata": {"name": "s"},
        "spec": {"clusterIP": cluster_ip, "ports": [
            {"name": "web", "port": 80, "targetPort": "http", "protocol": "TCP"},
            {"name": "admin", "port": 81, "targetPort": 8081, "protocol": "TCP"},
            {"name": "same", "port": 82, "protocol": "TCP"},
            {"name": "lost", "port": 83, "targetPort": "absent", "protocol": "TCP"},
            {"name": "dns", "port": 53, "protocol": "UDP"},
        ]},
    })
}

#[test]
fn service_ports_become_container_ports() {
    let check = |cluster_ip: &str, spec: &str, expect: Result<&str, &str>| {
        let found = translate_service_ports(&texts(&[spec]), &service(cluster_ip), &pod());
        let found = found.as_ref().map(|ports| ports[0].as_str()).map_err(String::as_str);
        assert_eq!(found, expect, "{spec}");
    };
    check("10.0.0.1", "80", Ok("80:8080"));
    check("10.0.0.1", ":80", Ok(":8080"));
    check("10.0.0.1", "web", Ok("80:8080"));
    check("10.0.0.1", "8443:web", Ok("8443:8080"));
    check("10.0.0.1", "8081:81", Ok("8081"));
    check("10.0.0.1", "82", Ok("82"));
    check("None", "80", Ok("80"));
    check("10.0.0.1", "90", Err("Service s does not have a service port 90"));
    check("10.0.0.1", "nothing", Err("Service 's' does not have a named port 'nothing'"));
    check("10.0.0.1", "83", Err("Pod 'p' does not have a named port 'absent'"));
}

#[test]
fn names_of_container_ports_become_numbers() {
    let check = |spec: &str, expect: Result<&str, &str>| {
        let found = resolve_pod_ports(&texts(&[spec]), &pod());
        assert_eq!(found.as_ref().map(|ports| ports[0].as_str()).map_err(String::as_str), expect, "{spec}");
    };
    check("8080", Ok("8080"));
    check("http", Ok("8080"));
    check("80:http", Ok("80:8080"));
    check(":side", Ok(":9000"));
    check("80:", Err("remote port cannot be empty"));
    check("x", Err("Pod 'p' does not have a named port 'x'"));
}

#[test]
fn ports_of_udp_alone_are_rejected() {
    let pods = |spec: &str| check_pod_protocols(&texts(&[spec]), &pod());
    assert_eq!(pods("1053:53"), Err("UDP protocol is not supported for 53".to_owned()));
    assert_eq!(pods("dns"), Err("UDP protocol is not supported for dns".to_owned()));
    assert_eq!(pods("54"), Ok(()));
    assert_eq!(pods("8080"), Ok(()));
    assert_eq!(
        check_service_protocols(&texts(&["53"]), &service("")),
        Err("UDP protocol is not supported for 53".to_owned())
    );
    assert_eq!(check_service_protocols(&texts(&["web"]), &service("")), Ok(()));
}
