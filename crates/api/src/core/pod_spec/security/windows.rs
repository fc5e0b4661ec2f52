//! Windows security context options.

use apimachinery::field::Error;
use apimachinery::{At, Errors, Value, names};

use super::super::visit;

/// Maximum size of a GMSA credential spec: 64 KiB.
const CREDENTIAL_MAX: usize = 64 << 10;
/// Exclusive maximum length of a user's domain.
const DOMAIN_END: usize = 256;
/// Maximum length of a user name.
const USER_MAX: usize = 104;

/// Validates the `windowsOptions` of a container or pod.
pub(super) fn options(options: &At<'_>, errors: &mut Errors) {
    let (name, credential) = (options.get("gmsaCredentialSpecName"), options.get("gmsaCredentialSpec"));
    if name.is_present() {
        errors.extend(names::dns1123_subdomain(name.str()).into_iter().map(|detail| name.invalid(detail)));
    }
    if credential.is_present() {
        if credential.is_empty() {
            errors.push(credential.invalid("gmsaCredentialSpec cannot be an empty string"));
        } else if credential.len() > CREDENTIAL_MAX {
            errors.push(credential.invalid("gmsaCredentialSpec size must be under 64 KiB"));
        }
    }
    let user = options.get("runAsUserName");
    if user.is_present() {
        errors.extend(user_name(user.str()).into_iter().map(|detail| user.invalid(detail)));
    }
}

/// Validates HostProcess containers: all containers of a pod must be HostProcess containers, or none.
pub(crate) fn host_process(spec: &At<'_>, errors: &mut Errors) {
    let of =
        |context: &Value| context.at(&["securityContext", "windowsOptions", "hostProcess"]).and_then(Value::as_bool);
    let pod = of(spec.value());
    let (mut all, mut processes) = (0, 0);
    visit(spec, |container| {
        all += 1;
        let own = of(container.value());
        if let (Some(pod), Some(own)) = (pod, own)
            && pod != own
        {
            let detail = format!("pod hostProcess value must be identical if both are specified, was {pod}");
            let context = container.get("securityContext");
            let options = context.get("windowsOptions");
            errors.push(Error::invalid(&options.path().field("hostProcess"), own, detail));
        }
        processes += usize::from(own.or(pod).unwrap_or_default());
    });
    if processes == 0 {
        return;
    }
    if processes != all {
        let detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.push(Error::invalid(spec.path(), "", detail));
    }
    if !spec.get("hostNetwork").bool() {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.push(Error::invalid(&spec.path().field("hostNetwork"), false, detail));
    }
}

fn user_name(name: &str) -> Vec<String> {
    let parts: Vec<_> = name.split('\\').collect();
    let (domain, user) = match parts.as_slice() {
        _ if name.is_empty() => return vec!["runAsUserName cannot be an empty string".to_owned()],
        _ if name.chars().any(|c| c.is_ascii_control()) => {
            return vec!["runAsUserName cannot contain control characters".to_owned()];
        }
        [user] => (None, *user),
        [domain, user] => (Some(*domain), *user),
        _ => return vec!["runAsUserName cannot contain more than one backslash".to_owned()],
    };
    let mut wrong = Vec::new();
    if domain.is_some_and(|domain| domain.len() >= DOMAIN_END) {
        wrong.push(format!("runAsUserName's Domain length must be under {DOMAIN_END} characters"));
    }
    if domain.is_some_and(|domain| !is_netbios(domain) && !is_dns(domain)) {
        wrong.push("runAsUserName's Domain doesn't match the NetBios nor the DNS format".to_owned());
    }
    if user.is_empty() {
        wrong.push("runAsUserName's User cannot be empty".to_owned());
    } else if user.len() > USER_MAX {
        wrong.push(format!("runAsUserName's User length must not be longer than {USER_MAX} characters"));
    }
    if !user.is_empty() && user.chars().all(|c| matches!(c, '.' | ' ')) {
        wrong.push("runAsUserName's User cannot contain only periods or spaces".to_owned());
    }
    if user.contains(['"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']']) {
        wrong.push(r#"runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]"#.to_owned());
    }
    wrong
}

fn is_netbios(domain: &str) -> bool {
    let length = domain.chars().count();
    let banned = ['\\', '/', ':', '*', '?', '"', '<', '>', '|'];
    (1..=15).contains(&length) && !domain.contains(banned) && !domain.starts_with('.')
}

fn is_dns(domain: &str) -> bool {
    domain.split('.').all(|label| {
        let inner = label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
        (1..=63).contains(&label.len()) && inner && !label.starts_with('-') && !label.ends_with('-')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_users_may_have_a_domain() {
        let check = |name: &str, wrong: usize| assert_eq!(user_name(name).len(), wrong, "{name}");
        check("Container User", 0);
        check("NT AUTHORITY\\SYSTEM", 0);
        check("a.example\\bob", 0);
        check("", 1);
        check("a\\b\\c", 1);
        check("a\tb", 1);
        check("-a.b.example-\\bob", 0);
        check("a*\\bob", 1);
        check("a\\", 1);
        check("..", 1);
        check("bob@example", 1);
        check(&"x".repeat(105), 1);
    }
}
