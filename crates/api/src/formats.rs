//! Text formats shared by several kinds: IP addresses, CIDRs, ports and domain-prefixed paths.

use std::net::IpAddr;

use apimachinery::field::Error;
use apimachinery::names::{self, parse_cidr, parse_ip};
use apimachinery::{At, Errors, Path, Value, go};

/// Validates an address in a legacy field; addresses in `known` are always accepted.
pub fn legacy_ip(at: &At<'_>, known: &[&str], errors: &mut Errors) {
    if !known.contains(&at.str()) {
        errors.extend(wrong_ip(at.str()).into_iter().map(|wrong| Error::invalid(at.path(), at.str(), wrong)));
    }
}

/// Returns the violations of an address that need not be in canonical form.
pub fn wrong_ip(text: &str) -> Vec<String> {
    let Some(ip) = parse_ip(text) else { return names::ip(text) };
    match text.parse::<IpAddr>() {
        Err(_) => vec!["must not have leading 0s".to_owned()],
        Ok(IpAddr::V6(_)) if ip.is_ipv4() => vec!["must not be an IPv4-mapped IPv6 address".to_owned()],
        Ok(_) => Vec::new(),
    }
}

/// Returns the violations of an address that must be in canonical form.
pub fn wrong_canonical_ip(text: &str) -> Vec<String> {
    let wrong = wrong_ip(text);
    match parse_ip(text) {
        Some(ip) if wrong.is_empty() && ip.to_string() != text => {
            vec![format!("must be in canonical form ({})", go::quote(&ip.to_string()))]
        }
        _ => wrong,
    }
}

/// Validates a CIDR in a legacy field; CIDRs in `known` are always accepted.
pub fn legacy_cidr(text: &str, path: &Path<'_>, known: &[&str], errors: &mut Errors) {
    if !known.contains(&text) {
        errors.extend(wrong_cidr(text).into_iter().map(|wrong| Error::invalid(path, text, wrong)));
    }
}

/// Returns the violations of a CIDR that need not be in canonical form.
pub fn wrong_cidr(text: &str) -> Vec<String> {
    let Some((ip, bits)) = parse_cidr(text) else { return names::cidr(text) };
    let (address, length) = text.split_once('/').unwrap_or((text, ""));
    let plain = address.parse::<IpAddr>();
    let wrong = match plain {
        Err(_) => "must not have leading 0s in IP or prefix length",
        Ok(_) if length.len() > 1 && length.starts_with('0') => "must not have leading 0s in IP or prefix length",
        Ok(IpAddr::V6(_)) if ip.is_ipv4() => "must not have an IPv4-mapped IPv6 address",
        Ok(ip) if network(ip, bits) != ip => "must not have bits set beyond the prefix length",
        Ok(_) => return Vec::new(),
    };
    vec![wrong.to_owned()]
}

/// Returns the violations of a CIDR that must be in canonical form.
pub fn wrong_canonical_cidr(text: &str) -> Vec<String> {
    let wrong = wrong_cidr(text);
    match parse_cidr(text) {
        Some((ip, bits)) if wrong.is_empty() => {
            let canonical = format!("{}/{bits}", network(ip, bits));
            let same = canonical == text;
            if same { wrong } else { vec![format!("must be in canonical form ({})", go::quote(&canonical))] }
        }
        _ => wrong,
    }
}

/// Returns the network address of a CIDR.
pub fn network(ip: IpAddr, bits: u8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(bits.into())).unwrap_or(0);
            IpAddr::V4((u32::from(ip) & mask).into())
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(bits.into())).unwrap_or(0);
            IpAddr::V6((u128::from(ip) & mask).into())
        }
    }
}

/// Whether a CIDR contains an address.
pub fn contains((first, bits): (IpAddr, u8), ip: IpAddr) -> bool {
    first.is_ipv4() == ip.is_ipv4() && network(first, bits) == network(ip, bits)
}

/// Rejects addresses that an endpoint cannot have, such as loopback and link-local ones.
pub fn endpoint_ip(at: &At<'_>, errors: &mut Errors) {
    let text = at.str();
    let invalid = |detail: &str| Error::invalid(at.path(), text, detail);
    let Some(ip) = parse_ip(text) else {
        errors.push(invalid("must be a valid IP address"));
        return;
    };
    let (link_local, link_local_multicast) = match ip {
        IpAddr::V4(ip) => (ip.is_link_local(), matches!(ip.octets(), [224, 0, 0, _])),
        IpAddr::V6(ip) => (ip.segments()[0] & 0xffc0 == 0xfe80, ip.segments()[0] & 0xff0f == 0xff02),
    };
    if ip.is_unspecified() {
        errors.push(invalid(&format!("may not be unspecified ({text})")));
    }
    if ip.is_loopback() {
        errors.push(invalid("may not be in the loopback range (127.0.0.0/8, ::1/128)"));
    }
    if link_local {
        errors.push(invalid("may not be in the link-local range (169.254.0.0/16, fe80::/10)"));
    }
    if link_local_multicast {
        errors.push(invalid("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"));
    }
}

/// Validates a path with a domain prefix: `example.com/thing`.
pub fn domain_prefixed_path(at: &At<'_>, errors: &mut Errors) {
    let text = at.str();
    if text.is_empty() {
        errors.push(at.required(""));
        return;
    }
    match text.split_once('/').filter(|(host, path)| !host.is_empty() && !path.is_empty()) {
        None => errors.push(at.invalid("must be a domain-prefixed path (such as \"acme.io/foo\")")),
        Some((host, path)) => {
            let wrong = names::dns1123_subdomain(host).into_iter().map(|wrong| Error::invalid(at.path(), host, wrong));
            errors.extend(wrong);
            errors.extend(names::http_path(path).into_iter().map(|wrong| Error::invalid(at.path(), path, wrong)));
        }
    }
}

/// Validates a port number or port name. An absent one is the number 0.
pub fn port_or_name(at: &At<'_>, errors: &mut Errors) {
    let (wrong, bad_value) = match at.value() {
        Value::String(name) => (names::port_name(name), Value::from(name.as_str())),
        value => (names::port_number(value.as_int().unwrap_or_default()), Value::Int(at.int())),
    };
    errors.extend(wrong.into_iter().map(|wrong| Error::invalid(at.path(), bad_value.clone(), wrong)));
}

/// Returns the warning about a non-canonical address.
pub fn ip_warnings(path: &Path<'_>, text: &str) -> Option<String> {
    let ip = parse_ip(text)?;
    let quoted = (go::quote(text), go::quote(&ip.to_string()));
    if !wrong_ip(text).is_empty() {
        let (text, better) = quoted;
        let future = "will be considered invalid in a future Kubernetes release";
        return Some(format!("{path}: non-standard IP address {text} {future}: use {better}"));
    }
    (ip.is_ipv6() && ip.to_string() != text)
        .then(|| format!("{path}: IPv6 address {} should be in RFC 5952 canonical format ({})", quoted.0, quoted.1))
}

/// Returns the warnings about a non-canonical CIDR.
pub fn cidr_warnings(path: &Path<'_>, text: &str) -> Vec<String> {
    let Some((ip, bits)) = parse_cidr(text) else { return Vec::new() };
    let prefix = go::quote(&format!("{}/{bits}", network(ip, bits)));
    let quoted = go::quote(text);
    let mut warnings = Vec::new();
    if network(ip, bits) != ip {
        let single = go::quote(&format!("{ip}/{}", if ip.is_ipv4() { 32 } else { 128 }));
        let question = format!("(should be {prefix} or {single}?)");
        warnings.push(format!("{path}: CIDR value {quoted} is ambiguous in this context {question}"));
    }
    if wrong_cidr(text).iter().any(|wrong| !wrong.contains("bits set")) {
        let future = "will be considered invalid in a future Kubernetes release";
        warnings.push(format!("{path}: non-standard CIDR value {quoted} {future}: use {prefix}"));
    }
    if warnings.is_empty() && ip.is_ipv6() && prefix != quoted {
        warnings.push(format!("{path}: IPv6 CIDR value {quoted} should be in RFC 5952 canonical format ({prefix})"));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn ambiguous_addresses_are_rejected() {
        let check = |text: &str, legacy: Option<&str>, strict: Option<&str>| {
            assert_eq!(wrong_ip(text).first().map(String::as_str), legacy, "{text}");
            assert_eq!(wrong_canonical_ip(text).first().map(String::as_str), strict, "{text}");
        };
        check("10.0.0.1", None, None);
        check("2001:db8::1", None, None);
        check("2001:DB8::1", None, Some("must be in canonical form (\"2001:db8::1\")"));
        check("10.0.0.01", Some("must not have leading 0s"), Some("must not have leading 0s"));
        let mapped = Some("must not be an IPv4-mapped IPv6 address");
        check("::ffff:10.0.0.1", mapped, mapped);
    }

    #[test]
    fn cidr_host_bits_must_be_zero() {
        let check = |text: &str, expect: Option<&str>| {
            assert_eq!(wrong_cidr(text).first().map(String::as_str), expect, "{text}");
        };
        check("10.0.0.0/8", None);
        check("0.0.0.0/0", None);
        check("2001:db8::/64", None);
        check("10.0.0.1/8", Some("must not have bits set beyond the prefix length"));
        check("10.0.0.0/08", Some("must not have leading 0s in IP or prefix length"));
        check("10.0.0.0", Some("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"));
    }

    #[test]
    fn loopback_and_link_local_endpoints_are_rejected() {
        let check = |text: &str, count: usize| {
            let mut errors = Errors::new();
            endpoint_ip(&At::root(&value!(text)), &mut errors);
            assert_eq!(errors.len(), count, "{text}");
        };
        check("10.0.0.1", 0);
        check("239.1.1.1", 0);
        check("127.0.0.1", 1);
        check("169.254.1.1", 1);
        check("fe80::1", 1);
        check("224.0.0.5", 1);
        check("::", 1);
        check("x", 1);
    }

    #[test]
    fn path_requires_a_domain_prefix() {
        let check = |text: &str, count: usize| {
            let mut errors = Errors::new();
            domain_prefixed_path(&At::root(&value!(text)), &mut errors);
            assert_eq!(errors.len(), count, "{text}");
        };
        check("example.com/a", 0);
        check("", 1);
        check("example.com", 1);
        check("Example!/a b", 2);
    }
}
