//! Names and addresses of a pod.

use std::net::IpAddr;

use machinery::field::Error;
use machinery::{At, Errors, Value, names};

use super::Owner;
use super::report::{invalid_int, text};
use crate::field_rules::looks;

/// The C library reads no more name servers.
const NAMESERVERS_MAX: usize = 3;
/// Domains that are searched are at most so many.
const SEARCHES_MAX: usize = 32;
/// Domains that are searched have at most so many characters, spaces between them included.
const SEARCHES_LENGTH_MAX: usize = 2048;
/// Linux takes host names up to this length.
const HOSTNAME_MAX: usize = 64;

/// What is wrong with how a pod resolves names.
pub(crate) fn dns_config(spec: &At<'_>, errors: &mut Errors) {
    let config = spec.get("dnsConfig");
    let (servers, searches) = (config.get("nameservers"), config.get("searches"));
    if spec.get("dnsPolicy").str() == "None" {
        if config.is_absent() {
            errors.push(config.required("must provide `dnsConfig` when `dnsPolicy` is None"));
            return;
        }
        if servers.is_empty() {
            errors.push(servers.required("must provide at least one DNS nameserver when `dnsPolicy` is None"));
            return;
        }
    }
    if servers.len() > NAMESERVERS_MAX {
        errors.push(servers.invalid(format!("must not have more than {NAMESERVERS_MAX} nameservers")));
    }
    for server in servers.items() {
        address(&server, errors);
    }
    if searches.len() > SEARCHES_MAX {
        errors.push(searches.invalid(format!("must not have more than {SEARCHES_MAX} search paths")));
    }
    let joined = searches.list().iter().map(|search| search.as_str().map_or(0, str::len) + 1).sum::<usize>();
    if joined.saturating_sub(1) > SEARCHES_LENGTH_MAX {
        let why =
            format!("must not have more than {SEARCHES_LENGTH_MAX} characters (including spaces) in the search list");
        errors.push(searches.invalid(why));
    }
    for search in searches.items().filter(|search| search.str() != ".") {
        let domain = search.str().strip_suffix('.').unwrap_or(search.str());
        let wrong = names::dns1123_subdomain_with_underscore(domain).into_iter();
        errors.extend(wrong.map(|why| Error::invalid(search.path(), domain, why)));
    }
    for option in config.get("options").items() {
        if option.get("name").is_empty() {
            errors.push(option.required("must not be empty"));
        }
    }
}

/// What is wrong with the entries for `/etc/hosts`.
pub(crate) fn host_aliases(aliases: &At<'_>, errors: &mut Errors) {
    for alias in aliases.items() {
        address(&alias.get("ip"), errors);
        for hostname in alias.get("hostnames").items() {
            looks(&hostname, names::dns1123_subdomain, errors);
        }
    }
}

/// What is wrong with an address in a field that once took sloppy ones.
pub(crate) fn address(address: &At<'_>, errors: &mut Errors) {
    let wrong = names::ip(address.str());
    if !wrong.is_empty() {
        text(address, wrong, errors);
        return;
    }
    match address.str().parse::<IpAddr>() {
        Err(_) => errors.push(address.invalid("must not have leading 0s")),
        Ok(IpAddr::V6(ip)) if ip.to_ipv4_mapped().is_some() => {
            errors.push(address.invalid("must not be an IPv4-mapped IPv6 address"));
        }
        Ok(_) => {}
    }
}

/// In the network of the node a port of the pod is that port of the node. A template leaves it to the pods.
pub(crate) fn host_ports(spec: &At<'_>, owner: Owner<'_>, errors: &mut Errors) {
    if !spec.get("hostNetwork").bool() {
        return;
    }
    for container in spec.get("containers").items() {
        for port in container.get("ports").items() {
            let (host, own) = (port.get("hostPort"), port.get("containerPort"));
            let may_be_unset = matches!(owner, Owner::Template) && host.int() == 0;
            if !may_be_unset && host.int() != own.int() {
                errors.push(invalid_int(&host, "must match `containerPort` when `hostNetwork` is true"));
            }
        }
    }
}

/// What is wrong with a host name that is chosen freely.
pub(crate) fn hostname_override(spec: &At<'_>, errors: &mut Errors) {
    let name = spec.get("hostnameOverride");
    if name.is_absent() {
        return;
    }
    for field in ["setHostnameAsFQDN", "hostNetwork"] {
        if spec.value().get(field).and_then(Value::as_bool).unwrap_or_default() {
            errors.push(name.forbidden(format!("may not be specified when {field} is true")));
        }
    }
    if name.len() > HOSTNAME_MAX {
        errors.push(Error::too_long(name.path(), HOSTNAME_MAX));
    }
    looks(&name, names::dns1123_subdomain, errors);
}

/// What may not be shared with the node by a pod with users of its own.
pub(crate) fn host_users(spec: &At<'_>, errors: &mut Errors) {
    const WHY: &str = "when `hostUsers` is false";
    if spec.value().get("hostUsers").and_then(Value::as_bool) != Some(false) {
        return;
    }
    for (field, blamed) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.get(field).bool() {
            errors.push(Error::forbidden(&spec.path().field(blamed), WHY));
        }
    }
    super::visit(spec, |container| {
        let devices = container.get("volumeDevices");
        if !devices.is_empty() {
            errors.push(devices.forbidden(WHY));
        }
    });
}
