//! Assigns addresses to Gateways.
//!
//! All Gateways share the addresses of the proxy unless the controller has further addresses. Then a Gateway that would
//! conflict with an older one gets a separate address. Without a free address Gateways share one, and their routes
//! merge.

use std::collections::BTreeSet;
use std::net::IpAddr;

use apimachinery::Value;

use super::super::Settings;
use super::super::objects::list;
use super::listeners::{GatewayState, ListenerState, Protocol};
use super::objects::RequestedAddress;
use crate::routing::{HostPattern, ListenAddress};

/// Listeners by address that older Gateways have.
#[derive(Default)]
pub(super) struct OccupiedListeners(BTreeSet<(ListenAddress, bool, HostPattern)>);

/// Sets the addresses of a Gateway. Call it for the oldest Gateway first.
pub(super) fn assign(settings: &Settings, gateway: &mut GatewayState<'_>, occupied: &mut OccupiedListeners) {
    let requested = &gateway.entry.value.addresses;
    let unsupported = requested.iter().find_map(|address| match address {
        RequestedAddress::Other { kind } => Some(kind),
        RequestedAddress::Unspecified | RequestedAddress::Ip(_) => None,
    });
    if let Some(kind) = unsupported {
        let message = format!("addresses of type {kind} are not supported: only those of type IPAddress are");
        gateway.rejection.get_or_insert(("UnsupportedAddress", message));
        return;
    }
    let fixed: Vec<IpAddr> = requested
        .iter()
        .filter_map(|address| match address {
            RequestedAddress::Ip(ip) => Some(*ip),
            RequestedAddress::Unspecified | RequestedAddress::Other { .. } => None,
        })
        .collect();
    if let Some(ip) = fixed.iter().find(|ip| listen_address(settings, **ip).is_none()) {
        gateway.address_problem = Some(("AddressNotUsable", format!("{ip} is not an address of this controller")));
    }
    gateway.addresses = match fixed.is_empty() {
        false => fixed.iter().filter_map(|ip| listen_address(settings, *ip)).collect(),
        true => vec![choose(settings, gateway, occupied)],
    };
    gateway.addresses.dedup();
    for ip in &gateway.addresses {
        let key = |(listener, protocol): (&ListenerState<'_>, Protocol)| {
            let address = ListenAddress { port: listener.spec.port, ip: *ip };
            (address, protocol == Protocol::Https, listener.spec.hostname.clone())
        };
        occupied.0.extend(gateway.intended().map(key));
    }
}

/// Returns the addresses of a Gateway for its status.
pub(super) fn published(settings: &Settings, gateway: &GatewayState<'_>) -> Vec<IpAddr> {
    let listen_ips = |ip: &Option<IpAddr>| ip.map_or_else(|| settings.addresses.clone(), |ip| vec![ip]);
    let requested: Vec<IpAddr> = gateway
        .entry
        .value
        .addresses
        .iter()
        .filter_map(|address| match address {
            RequestedAddress::Ip(ip) => Some(*ip).filter(|ip| listen_address(settings, *ip).is_some()),
            RequestedAddress::Unspecified | RequestedAddress::Other { .. } => None,
        })
        .collect();
    if requested.is_empty() { gateway.addresses.iter().flat_map(listen_ips).collect() } else { requested }
}

/// Returns the listening address for a requested IP address, where the inner `None` means the addresses of the
/// proxy; `None` if it does not belong to this controller.
fn listen_address(settings: &Settings, ip: IpAddr) -> Option<Option<IpAddr>> {
    match () {
        () if settings.addresses.contains(&ip) => Some(None),
        () if settings.gateway_addresses.contains(&ip) => Some(Some(ip)),
        () => None,
    }
}

/// Returns the current address if no older Gateway has the same listeners there, otherwise the first such address.
fn choose(settings: &Settings, gateway: &GatewayState<'_>, occupied: &OccupiedListeners) -> Option<IpAddr> {
    let observed = list(gateway.entry.value.status.get("addresses"));
    let current = observed.iter().filter_map(|address| address.get("value").and_then(Value::as_str)?.parse().ok());
    let current = current.filter_map(|ip| listen_address(settings, ip));
    let all = std::iter::once(None).chain(settings.gateway_addresses.iter().copied().map(Some));
    current.chain(all).find(|ip| is_free(*ip, gateway, occupied)).flatten()
}

fn is_free(ip: Option<IpAddr>, gateway: &GatewayState<'_>, occupied: &OccupiedListeners) -> bool {
    gateway.intended().all(|(listener, protocol)| {
        let port = ListenAddress { port: listener.spec.port, ip };
        let mut here = occupied.0.iter().filter(|(address, _, _)| *address == port);
        here.all(|(_, is_tls, hostname)| {
            *is_tls == (protocol == Protocol::Https) && *hostname != listener.spec.hostname
        })
    })
}
