//! `create service`.

use apimachinery::{Value, go, names, value};

use super::{Error, Name, atoi_fault, put, typed};

/// The type of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceType {
    ClusterIp,
    NodePort,
    LoadBalancer,
    ExternalName,
}

/// Options of `create service`.
#[derive(Clone, Copy, Debug)]
pub struct Service<'a> {
    pub name: Name<'a>,
    pub kind: ServiceType,
    /// `port` or `port:targetPort`.
    pub tcp: &'a [String],
    /// Empty to let the server choose.
    pub cluster_ip: &'a str,
    /// Zero to let the server choose.
    pub node_port: i64,
    pub external_name: &'a str,
}

/// Returns a service.
pub fn service(options: Service<'_>) -> Result<Value, Error> {
    validate(options)?;
    let ports = options.tcp.iter().map(|tcp| port(tcp, options.node_port)).collect::<Result<Vec<_>, _>>()?;
    let app = value!({"app": (options.name.name)});
    let mut service = options.name.object("v1", "Service");
    put(&mut service, &["metadata", "labels"], app.clone());
    let mut spec = value!({"type": (options.kind.as_str()), "selector": app});
    if !ports.is_empty() {
        put(&mut spec, &["ports"], ports);
    }
    put(&mut spec, &["externalName"], options.external_name);
    put(&mut spec, &["clusterIP"], options.cluster_ip);
    put(&mut service, &["spec"], spec);
    Ok(typed(service))
}

impl ServiceType {
    /// Returns the name in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClusterIp => "ClusterIP",
            Self::NodePort => "NodePort",
            Self::LoadBalancer => "LoadBalancer",
            Self::ExternalName => "ExternalName",
        }
    }
}

fn validate(options: Service<'_>) -> Result<(), Error> {
    let headless = options.cluster_ip == "None";
    if headless && options.kind != ServiceType::ClusterIp {
        return Err(Error::new("ClusterIP=None can only be used with ClusterIP service type"));
    }
    if !headless && options.tcp.is_empty() && options.kind != ServiceType::ExternalName {
        return Err(Error::new("at least one tcp port specifier must be provided"));
    }
    if options.kind == ServiceType::ExternalName && !names::dns1123_subdomain(options.external_name).is_empty() {
        return Err(Error::new(format!("invalid service external name {}", options.external_name)));
    }
    Ok(())
}

fn port(tcp: &str, node_port: i64) -> Result<Value, Error> {
    let mut parts = tcp.split(':');
    let port = port_number(parts.next().unwrap_or_default())?;
    let target = parts.next().map_or(Ok(Value::from(port)), target_port)?;
    Ok(value!({
        "name": (tcp.replace(':', "-")), "port": port, "targetPort": target, "protocol": "TCP", "nodePort": node_port
    }))
}

fn port_number(text: &str) -> Result<i64, Error> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let fault = if plain { atoi_fault(text) } else { "invalid syntax" };
    text.parse::<u16>()
        .ok()
        .filter(|_| plain)
        .map(i64::from)
        .ok_or_else(|| Error::new(format!("strconv.ParseUint: parsing {}: {fault}", go::quote(text))))
}

fn target_port(text: &str) -> Result<Value, Error> {
    let (target, faults) = match text.parse::<i64>() {
        Ok(number) => (Value::from(number), names::port_number(number)),
        Err(_) => (Value::from(text), names::port_name(text)),
    };
    if faults.is_empty() { Ok(target) } else { Err(Error::new(faults.join(","))) }
}
