//! Table columns of Services.

use apimachinery::table::Column;
use apimachinery::time::Time;
use apimachinery::{Value, labels};

use super::{text, texts};
use crate::field_rules::{column, wide_column};
use crate::kind::{age_column, name_column};
use crate::networking::balancer_cell;

pub(super) fn columns() -> Vec<Column> {
    vec![
        name_column(),
        column("Type", "string", "Type of the Service.", |service, _| text(service, "type").into()),
        column("Cluster-IP", "string", "Internal IP address.", |service, _| {
            texts(service, "clusterIPs").first().copied().unwrap_or("<none>").into()
        }),
        column("External-IP", "string", "External IP address.", external),
        column("Port(s)", "string", "Ports of the Service.", ports),
        age_column(),
        wide_column("Selector", "string", "Label selector of the pods.", |service, _| {
            labels::format_labels(service.at(&["spec", "selector"])).into()
        }),
    ]
}

fn external(service: &Value, _now: Time) -> Value {
    let mut addresses = texts(service, "externalIPs").join(",");
    let served = balancer_cell(service);
    let served = served.as_str().unwrap_or_default();
    match text(service, "type") {
        "ClusterIP" | "NodePort" if addresses.is_empty() => "<none>".into(),
        "ClusterIP" | "NodePort" => addresses.into(),
        "LoadBalancer" => {
            if !served.is_empty() {
                let comma = if addresses.is_empty() { "" } else { "," };
                addresses = format!("{served}{comma}{addresses}");
            }
            if addresses.is_empty() { "<pending>".into() } else { addresses.into() }
        }
        "ExternalName" => text(service, "externalName").into(),
        _ => "<unknown>".into(),
    }
}

fn ports(service: &Value, _now: Time) -> Value {
    let ports = service.list_at(&["spec", "ports"]);
    let one = |port: &Value| {
        let number = |field: &str| port.get(field).and_then(Value::as_int).unwrap_or_default();
        let protocol = port.text_at(&["protocol"]);
        match (number("port"), number("nodePort")) {
            (port, 0) => format!("{port}/{protocol}"),
            (port, node) => format!("{port}:{node}/{protocol}"),
        }
    };
    let ports: Vec<_> = ports.iter().map(one).collect();
    if ports.is_empty() { "<none>".into() } else { ports.join(",").into() }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn external_ip_column_contains_load_balancer_ingress() {
        let now = Time::from_unix(0, 0);
        let mut service = value!({"spec": {"type": "LoadBalancer", "externalIPs": ["1.2.3.4"],
            "ports": [{"port": 80, "nodePort": 30000, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}});
        assert_eq!(external(&service, now), value!("1.2.3.4"));
        assert_eq!(ports(&service, now), value!("80:30000/TCP,53/UDP"));
        let status = value!({"loadBalancer": {"ingress": [{"ip": "5.6.7.8"}]}});
        service.as_object_mut().unwrap().insert("status", status);
        assert_eq!(external(&service, now), value!("5.6.7.8,1.2.3.4"));
    }
}
