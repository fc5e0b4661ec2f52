//! DNS configuration, host aliases, host names and host network of a pod.

use std::net::IpAddr;

use apimachinery::field::Error;
use apimachinery::{At, Errors, Value, names};

use super::Owner;
use super::report::{invalid_int, text};
use crate::field_rules::looks;

/// The C library reads at most this number of name servers.
const NAMESERVERS_MAX: usize = 3;
/// Maximum number of DNS search domains.
const SEARCHES_MAX: usize = 32;
/// Maximum total length of the search domains, including the spaces between them.
const SEARCHES_LENGTH_MAX: usize = 2048;
/// Maximum length of a Linux host name.
const HOSTNAME_MAX: usize = 64;

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
        let detail =
            format!("must not have more than {SEARCHES_LENGTH_MAX} characters (including spaces) in the search list");
        errors.push(searches.invalid(detail));
    }
    for search in searches.items().filter(|search| search.str() != ".") {
        let domain = search.str().strip_suffix('.').unwrap_or(search.str());
        let wrong = names::dns1123_subdomain_with_underscore(domain).into_iter();
        errors.extend(wrong.map(|detail| Error::invalid(search.path(), domain, detail)));
    }
    for option in config.get("options").items() {
        if option.get("name").is_empty() {
            errors.push(option.required("must not be empty"));
        }
    }
}

pub(crate) fn host_aliases(aliases: &At<'_>, errors: &mut Errors) {
    for alias in aliases.items() {
        address(&alias.get("ip"), errors);
        for hostname in alias.get("hostnames").items() {
            looks(&hostname, names::dns1123_subdomain, errors);
        }
    }
}

/// Validates an IP address in a field that accepts legacy notations.
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

/// Requires equal host and container ports in the host network. Templates are not checked.
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

/// Rejects host namespaces and devices for a pod with `hostUsers: false`.
pub(crate) fn host_users(spec: &At<'_>, errors: &mut Errors) {
    const DETAIL: &str = "when `hostUsers` is false";
    if spec.value().get("hostUsers").and_then(Value::as_bool) != Some(false) {
        return;
    }
    for (field, blamed) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.get(field).bool() {
            errors.push(Error::forbidden(&spec.path().field(blamed), DETAIL));
        }
    }
    super::visit(spec, |container| {
        let devices = container.get("volumeDevices");
        if !devices.is_empty() {
            errors.push(devices.forbidden(DETAIL));
        }
    });
}
