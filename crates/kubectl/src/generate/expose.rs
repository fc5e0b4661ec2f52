//! `expose`: a service for the pods of an object.

use apimachinery::{Object, Value, value};

use super::{Error, Name, atoi, int_or_string, labels, put, typed};

/// The service to create.
#[derive(Clone, Debug, Default)]
pub struct Exposure<'a> {
    pub name: &'a str,
    /// `a=b,c=d`
    pub selector: String,
    /// `a=b,c=d`; may be empty.
    pub labels: String,
    pub ports: Vec<String>,
    /// The protocols of each port of the exposed object.
    pub protocols: Vec<(String, Vec<String>)>,
    /// Overrides `protocols`; `TCP` if both are empty.
    pub protocol: &'a str,
    /// The port of the containers; the port itself if empty.
    pub target_port: &'a str,
    pub external_ip: &'a str,
    pub load_balancer_ip: &'a str,
    pub service_type: &'a str,
    pub session_affinity: &'a str,
    pub cluster_ip: &'a str,
}

/// Fails if objects of the kind have no pods to expose. `kind` is written as in messages: `ReplicaSet.apps`.
pub fn validate_kind(kind: &str) -> Result<(), Error> {
    const EXPOSABLE: [&str; 7] = [
        "ReplicationController",
        "Service",
        "Pod",
        "Deployment.apps",
        "ReplicaSet.apps",
        "Deployment.extensions",
        "ReplicaSet.extensions",
    ];
    if EXPOSABLE.contains(&kind) { Ok(()) } else { Err(Error::new(format!("cannot expose a {kind}"))) }
}

/// Returns the labels that select the pods of an object, as text.
pub fn selector_of(object: &Value) -> Result<String, Error> {
    let prefix = "couldn't retrieve selectors via --selector flag or introspection";
    let fail = |fault: &str| Err(Error::new(format!("{prefix}: {fault}")));
    let kind = object.str_at(&["kind"]).unwrap_or_default();
    let map = |path: &[&str]| object.at(path).and_then(Value::as_object).filter(|labels| !labels.is_empty());
    match kind {
        "ReplicationController" => Ok(join(map(&["spec", "selector"]))),
        "Pod" => match map(&["metadata", "labels"]) {
            None => fail("the pod has no labels and cannot be exposed"),
            labels => Ok(join(labels)),
        },
        "Service" => match map(&["spec", "selector"]) {
            None => fail("the service has no pod selector set"),
            labels => Ok(join(labels)),
        },
        _ => {
            let Some(labels) = map(&["spec", "selector", "matchLabels"]) else {
                let kind = kind.to_lowercase();
                return fail(&format!("invalid {kind}: no selectors, therefore cannot be exposed"));
            };
            match object.at(&["spec", "selector", "matchExpressions"]).and_then(Value::as_array).unwrap_or_default() {
                [] => Ok(join(Some(labels))),
                expressions => {
                    let expressions = expressions_text(expressions);
                    fail(&format!("couldn't convert expressions - \"{expressions}\" to map-based selector format"))
                }
            }
        }
    }
}

/// Returns the labels of an object as text.
pub fn labels_of(object: &Value) -> String {
    join(object.at(&["metadata", "labels"]).and_then(Value::as_object))
}

/// Returns the ports of a service, or of the containers of an object, each once.
pub fn ports_of(object: &Value) -> Vec<String> {
    let mut ports = Vec::new();
    each_port(object, |port, _| {
        if !ports.contains(&port) {
            ports.push(port);
        }
    });
    ports
}

/// Returns the protocols of each port.
pub fn protocols_of(object: &Value) -> Vec<(String, Vec<String>)> {
    let mut protocols: Vec<(String, Vec<String>)> = Vec::new();
    each_port(object, |port, protocol| match protocols.iter_mut().find(|(have, _)| *have == port) {
        Some((_, list)) => list.push(protocol),
        None => protocols.push((port, vec![protocol])),
    });
    protocols
}

/// Returns the service.
pub fn service(exposure: &Exposure<'_>) -> Result<Value, Error> {
    if exposure.selector.is_empty() {
        return Err(Error::new("selector must be specified"));
    }
    let selector = labels::parse(&exposure.selector)?;
    let labels = if exposure.labels.is_empty() { Object::new() } else { labels::parse(&exposure.labels)? };
    if exposure.name.is_empty() {
        return Err(Error::new("name must be specified"));
    }
    let mut spec = value!({"selector": selector});
    let ports = service_ports(exposure)?;
    if !ports.is_empty() {
        put(&mut spec, &["ports"], ports);
    }
    if !exposure.external_ip.is_empty() {
        put(&mut spec, &["externalIPs"], vec![Value::from(exposure.external_ip)]);
    }
    put(&mut spec, &["type"], exposure.service_type);
    if exposure.service_type == "LoadBalancer" {
        put(&mut spec, &["loadBalancerIP"], exposure.load_balancer_ip);
    }
    match exposure.session_affinity {
        "" | "None" | "ClientIP" => put(&mut spec, &["sessionAffinity"], exposure.session_affinity),
        other => return Err(Error::new(format!("unknown session affinity: {other}"))),
    }
    put(&mut spec, &["clusterIP"], exposure.cluster_ip);
    let mut service = Name { name: exposure.name, namespace: None }.object("v1", "Service");
    put(&mut service, &["metadata", "labels"], labels);
    put(&mut service, &["spec"], spec);
    Ok(typed(service))
}

fn service_ports(exposure: &Exposure<'_>) -> Result<Vec<Value>, Error> {
    let mut ports = Vec::new();
    let given: Vec<&str> =
        exposure.ports.iter().flat_map(|port| port.split(',')).filter(|port| !port.is_empty()).collect();
    for (at, port) in given.iter().enumerate() {
        let number = atoi(port)?;
        let target = match exposure.target_port {
            "" => Value::from(number),
            target => int_or_string(target),
        };
        let name = if given.len() > 1 { format!("port-{}", at + 1) } else { String::new() };
        let derived = exposure.protocols.iter().find(|(have, _)| have == port).map(|(_, protocols)| &protocols[..]);
        let (protocols, named): (Vec<&str>, bool) = match (exposure.protocol, derived) {
            ("", None) => (vec!["TCP"], false),
            ("", Some([one])) => (vec![one], false),
            ("", Some(several)) => (several.iter().map(String::as_str).collect(), true),
            (protocol, _) => (vec![protocol], false),
        };
        for protocol in protocols {
            let name = if named { format!("port-{}-{}", at + 1, protocol.to_lowercase()) } else { name.clone() };
            ports.push(value!({"name": name, "port": number, "protocol": protocol, "targetPort": (target.clone())}));
        }
    }
    Ok(ports)
}

/// Calls `each` with the ports and protocols of a service, or of the containers of an object.
fn each_port(object: &Value, mut each: impl FnMut(String, String)) {
    let list = |object: &Value, path: &[&str]| object.at(path).and_then(Value::as_array).unwrap_or_default().to_vec();
    let mut ports = |ports: Vec<Value>, field: &str| {
        for port in ports {
            let protocol = port.str_at(&["protocol"]).filter(|protocol| !protocol.is_empty()).unwrap_or("TCP");
            each(port.get(field).and_then(Value::as_int).unwrap_or_default().to_string(), protocol.to_owned());
        }
    };
    match object.str_at(&["kind"]).unwrap_or_default() {
        "Service" => ports(list(object, &["spec", "ports"]), "port"),
        kind => {
            let path: &[&str] =
                if kind == "Pod" { &["spec", "containers"] } else { &["spec", "template", "spec", "containers"] };
            for container in list(object, path) {
                ports(list(&container, &["ports"]), "containerPort");
            }
        }
    }
}

fn join(labels: Option<&Object>) -> String {
    let labels = labels.into_iter().flat_map(Object::iter);
    labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect::<Vec<_>>().join(",")
}

/// Formats match expressions like Go's `%+v`.
fn expressions_text(expressions: &[Value]) -> String {
    let one = |expression: &Value| {
        let text = |field| expression.str_at(&[field]).unwrap_or_default();
        let values = expression.get("values").and_then(Value::as_array).unwrap_or_default();
        let values: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
        format!("{{Key:{} Operator:{} Values:[{}]}}", text("key"), text("operator"), values.join(" "))
    };
    format!("[{}]", expressions.iter().map(one).collect::<Vec<_>>().join(" "))
}
