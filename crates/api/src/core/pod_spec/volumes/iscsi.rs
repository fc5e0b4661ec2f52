//! iSCSI volumes and their initiator names.

use apimachinery::field::Error;
use apimachinery::{At, Errors, names};

use super::super::report::{int, required};

/// Maximum combined length of volume name and portal, which form one file name.
const NAME_AND_PORTAL_MAX: usize = 64;

pub(super) fn validate(source: &At<'_>, errors: &mut Errors) {
    required(&source.get("targetPortal"), errors);
    let iqn = source.get("iqn");
    if required(&iqn, errors) {
        match fault(iqn.str()) {
            Some(Fault::Prefix) => errors.push(iqn.invalid("must be valid format starting with iqn, eui, or naa")),
            Some(Fault::Format) => errors.push(iqn.invalid("must be valid format")),
            None => {}
        }
    }
    let lun = source.get("lun");
    int(&lun, names::in_range(lun.int(), 0, 255), errors);
    let authenticates = source.get("chapAuthDiscovery").bool() || source.get("chapAuthSession").bool();
    if authenticates && source.get("secretRef").is_absent() {
        errors.push(source.get("secretRef").required(""));
    }
    let initiator = source.get("initiatorName");
    if initiator.is_present() {
        let path = source.path().field("initiatorname");
        let invalid = |detail: &str| Error::invalid(&path, initiator.str(), detail);
        match fault(initiator.str()) {
            Some(Fault::Prefix) => errors.push(invalid("must be valid format starting with iqn, eui, or naa")),
            Some(Fault::Format) => errors.push(invalid("must be valid format")),
            None => {}
        }
    }
}

/// Limits volume name and portal of a volume with `initiatorName`.
pub(super) fn length(volume: &At<'_>, errors: &mut Errors) {
    let (source, name) = (volume.get("iscsi"), volume.get("name"));
    let length = name.str().len() + 1 + source.get("targetPortal").str().len();
    if source.get("initiatorName").is_present() && length > NAME_AND_PORTAL_MAX {
        let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
        errors.push(Error::invalid(name.path(), name.str(), detail));
    }
}

enum Fault {
    Prefix,
    Format,
}

fn fault(name: &str) -> Option<Fault> {
    let right = match name.get(..3) {
        Some("iqn") => is_iqn(name),
        Some("eui") => is_code(name, 16),
        Some("naa") => is_code(name, 32),
        _ => return Some(Fault::Prefix),
    };
    (!right).then_some(Fault::Format)
}

/// Whether the name is an IQN such as `iqn.2003-01.org.linux-iscsi.host:sn.1`: a month, a reversed domain, and an
/// optional suffix.
fn is_iqn(name: &str) -> bool {
    name.match_indices("iqn.").any(|(start, prefix)| {
        let rest = &name[start + prefix.len()..];
        let Some((date, rest)) = rest.split_once('.') else { return false };
        let Some((domain, unique)) = rest.split_once(':') else { return false };
        let is_date = date.len() == 7
            && date.bytes().enumerate().all(|(at, c)| if at == 4 { c == b'-' } else { c.is_ascii_digit() });
        let is_domain =
            !domain.is_empty() && domain.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.'));
        let is_unique =
            !unique.is_empty() && !unique.contains([',', ';', '*', '&', '$', '|', ' ', '\t', '\n', '\r', '\x0c']);
        is_date && is_domain && is_unique
    })
}

/// Whether a separator and exactly `length` alphanumeric characters follow the first three letters, as in EUI and NAA
/// names.
fn is_code(name: &str, length: usize) -> bool {
    let mut rest = name[3..].chars();
    let separated = rest.next().is_some_and(|c| c != '\n');
    let code = rest.as_str();
    separated && code.len() == length && code.bytes().all(|c| c.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initiator_names_are_iqn_eui_or_naa() {
        let check = |name: &str, right: bool| assert_eq!(fault(name).is_none(), right, "{name}");
        check("iqn.2003-01.org.linux-iscsi.host.x8664:sn.2613", true);
        check("iqn.2003-01.org:a:b", true);
        check("iqn.2003-1.org:a", false);
        check("iqn.2003-01.org", false);
        check("iqn.2003-01.org:a,b", false);
        check("eui.0123456789abcdef", true);
        check("eui.0123456789abcde", false);
        check(&format!("naa.{}", "0".repeat(32)), true);
        check("abc", false);
        check("", false);
    }
}
