//! Ports and addresses of port-forward, as written on the command line.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use apimachinery::Value;

/// A local port and the port in the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardedPort {
    /// Zero for any free port.
    pub local: u16,
    pub remote: u16,
}

/// Parses `5000`, `8888:5000`, `0:5000` and `:5000`.
pub fn parse_ports(specs: &[String]) -> Result<Vec<ForwardedPort>, String> {
    specs.iter().map(|spec| parse_port(spec)).collect()
}

fn parse_port(spec: &str) -> Result<ForwardedPort, String> {
    let parts: Vec<&str> = spec.split(':').collect();
    let (local, remote) = match parts.as_slice() {
        [both] => (*both, *both),
        ["", remote] => ("0", *remote),
        [local, remote] => (*local, *remote),
        _ => return Err(format!("invalid port format '{spec}'")),
    };
    let parse =
        |what: &str, text: &str| parse_uint16(text).map_err(|why| format!("error parsing {what} port '{text}': {why}"));
    let port = ForwardedPort { local: parse("local", local)?, remote: parse("remote", remote)? };
    if port.remote == 0 {
        return Err("remote port must be > 0".to_owned());
    }
    Ok(port)
}

/// Parses a number of 16 bits with the messages of Go's `strconv.ParseUint`.
fn parse_uint16(text: &str) -> Result<u16, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(number) if digits => Ok(number),
        _ if digits => Err(format!("strconv.ParseUint: parsing {text:?}: value out of range")),
        _ => Err(format!("strconv.ParseUint: parsing {text:?}: invalid syntax")),
    }
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    pub address: IpAddr,
    /// As written, for messages.
    pub text: String,
    /// Whether listening must succeed. Of the addresses of `localhost`, one is enough.
    pub required: bool,
}

/// Parses the values of `--address`, in the order in which they are bound.
pub fn parse_addresses(texts: &[String]) -> Result<Vec<ListenAddress>, String> {
    let mut found: Vec<ListenAddress> = Vec::new();
    for text in texts {
        if text == "localhost" {
            for address in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
                if !found.iter().any(|have| have.address == address) {
                    found.push(ListenAddress { address, text: address.to_string(), required: false });
                }
            }
            continue;
        }
        let address: IpAddr = text.parse().map_err(|_| format!("{text} is not a valid IP"))?;
        found.retain(|have| have.text != *text);
        found.push(ListenAddress { address, text: text.clone(), required: true });
    }
    found.sort_by(|a, b| a.text.cmp(&b.text));
    Ok(found)
}

/// Replaces the names and service ports of a Service's port list by the ports of the pod.
pub fn translate_service_ports(specs: &[String], service: &Value, pod: &Value) -> Result<Vec<String>, String> {
    specs
        .iter()
        .map(|spec| {
            let (local, remote) = split(spec);
            let (local, number) = match remote.parse::<i64>() {
                Ok(number) => (local.to_owned(), number),
                Err(_) => {
                    let number = service_port_number(service, remote)?;
                    (if local == remote { number.to_string() } else { local.to_owned() }, number)
                }
            };
            let target = container_port_of_service(service, pod, number)?.to_string();
            Ok(if local == target { target } else { format!("{local}:{target}") })
        })
        .collect()
}

/// Replaces the names of container ports by their numbers.
pub fn resolve_pod_ports(specs: &[String], pod: &Value) -> Result<Vec<String>, String> {
    specs
        .iter()
        .map(|spec| {
            let (local, remote) = split(spec);
            if remote.is_empty() {
                return Err("remote port cannot be empty".to_owned());
            }
            let number = match remote.parse::<i64>() {
                Ok(_) => remote.to_owned(),
                Err(_) => container_port_number(pod, remote)?.to_string(),
            };
            Ok(if local == remote { number } else { format!("{local}:{number}") })
        })
        .collect()
}

/// Rejects ports of a Service that are UDP only.
pub fn check_service_protocols(specs: &[String], service: &Value) -> Result<(), String> {
    let ports: Vec<_> = array(service, &["spec", "ports"]).map(|port| (port, "port")).collect();
    check_protocols(specs, &ports, |name| service_port_number(service, name))
}

/// Rejects ports of a pod that are UDP only.
pub fn check_pod_protocols(specs: &[String], pod: &Value) -> Result<(), String> {
    let ports: Vec<_> = container_ports(pod).map(|port| (port, "containerPort")).collect();
    check_protocols(specs, &ports, |name| container_port_number(pod, name))
}

fn check_protocols(
    specs: &[String],
    ports: &[(&Value, &str)],
    number_of: impl Fn(&str) -> Result<i64, String>,
) -> Result<(), String> {
    let has = |number: i64, protocol: &str| {
        ports.iter().any(|(port, field)| {
            port.get(field).and_then(Value::as_int) == Some(number) && port.str_at(&["protocol"]) == Some(protocol)
        })
    };
    for spec in specs {
        let (_, remote) = split(spec);
        let number = remote.parse().or_else(|_| number_of(remote))?;
        if has(number, "UDP") && !has(number, "TCP") {
            return Err(format!("UDP protocol is not supported for {remote}"));
        }
    }
    Ok(())
}

/// Splits `LOCAL:REMOTE`; one port is both.
fn split(spec: &str) -> (&str, &str) {
    let parts: Vec<&str> = spec.split(':').collect();
    if let [local, remote] = parts.as_slice() { (local, remote) } else { (parts[0], parts[0]) }
}

fn array<'v>(object: &'v Value, path: &[&str]) -> std::slice::Iter<'v, Value> {
    object.at(path).and_then(Value::as_array).unwrap_or_default().iter()
}

fn container_ports(pod: &Value) -> impl Iterator<Item = &Value> {
    array(pod, &["spec", "containers"]).flat_map(|container| array(container, &["ports"]))
}

fn service_port_number(service: &Value, name: &str) -> Result<i64, String> {
    array(service, &["spec", "ports"])
        .find(|port| port.str_at(&["name"]) == Some(name))
        .and_then(|port| port.get("port")?.as_int())
        .ok_or_else(|| {
            let service = service.str_at(&["metadata", "name"]).unwrap_or_default();
            format!("Service '{service}' does not have a named port '{name}'")
        })
}

fn container_port_number(pod: &Value, name: &str) -> Result<i64, String> {
    let of_init_containers = array(pod, &["spec", "initContainers"]).flat_map(|container| array(container, &["ports"]));
    container_ports(pod)
        .chain(of_init_containers)
        .find(|port| port.str_at(&["name"]) == Some(name))
        .and_then(|port| port.get("containerPort")?.as_int())
        .ok_or_else(|| {
            let pod = pod.str_at(&["metadata", "name"]).unwrap_or_default();
            format!("Pod '{pod}' does not have a named port '{name}'")
        })
}

fn container_port_of_service(service: &Value, pod: &Value, number: i64) -> Result<i64, String> {
    let port = array(service, &["spec", "ports"]).find(|port| port.get("port").and_then(Value::as_int) == Some(number));
    let Some(port) = port else {
        let name = service.str_at(&["metadata", "name"]).unwrap_or_default();
        return Err(format!("Service {name} does not have a service port {number}"));
    };
    // A headless service forwards to the pod's own port.
    if service.str_at(&["spec", "clusterIP"]) == Some("None") {
        return Ok(number);
    }
    match port.get("targetPort") {
        Some(Value::String(name)) => container_port_number(pod, name),
        Some(target) => Ok(target.as_int().filter(|target| *target != 0).unwrap_or(number)),
        None => Ok(number),
    }
}

#[cfg(test)]
mod tests;
