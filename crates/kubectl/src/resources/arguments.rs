//! Types and names on the command line.

use crate::Failure;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arguments {
    /// Types, and names of the single type.
    Types(Vec<String>, Vec<String>),
    /// Pairs of type and name.
    Tuples(Vec<(String, String)>),
}

pub(super) fn parse(args: &[String]) -> Result<Arguments, Failure> {
    let args = normalize(args);
    let with_slash = args.iter().filter(|arg| arg.contains('/')).count();
    if with_slash > 0 {
        if with_slash < args.len() {
            return Err(Failure::new(
                "there is no need to specify a resource type as a separate argument when passing arguments in \
                 resource/name form (e.g. 'kubectl get resource/<resource_name>' instead of 'kubectl get resource \
                 resource/<resource_name>'",
            ));
        }
        let mut tuples = Vec::new();
        for arg in &args {
            tuples.extend(tuple(arg)?);
        }
        return Ok(Arguments::Tuples(tuples));
    }
    match args.split_first() {
        None => Ok(Arguments::Types(Vec::new(), Vec::new())),
        Some((types, names)) => Ok(Arguments::Types(split(types), names.to_vec())),
    }
}

/// Whether arguments contain names of objects.
pub fn has_names(args: &[String]) -> Result<bool, Failure> {
    Ok(match parse(args)? {
        Arguments::Tuples(_) => true,
        Arguments::Types(_, names) => !names.is_empty(),
    })
}

/// Parses `type/name`; `None` without a slash.
pub(super) fn tuple(arg: &str) -> Result<Option<(String, String)>, Failure> {
    let Some((resource, name)) = arg.split_once('/') else { return Ok(None) };
    if name.contains('/') {
        return Err(Failure::new("arguments in resource/name form may not have more than one slash"));
    }
    if resource.is_empty() || name.is_empty() || split(resource).len() != 1 {
        return Err(Failure::new("arguments in resource/name form must have a single resource and name"));
    }
    Ok(Some((resource.to_owned(), name.to_owned())))
}

/// Turns `a,b c` into `a/c b/c`.
fn normalize(args: &[String]) -> Vec<String> {
    let types = args.first().map(|types| split(types)).unwrap_or_default();
    if args.len() < 2 || types.len() < 2 {
        return args.to_vec();
    }
    types.iter().flat_map(|kind| args[1..].iter().map(move |name| format!("{kind}/{name}"))).collect()
}

/// Splits at commas; repeated values are dropped.
fn split(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for part in text.split(',') {
        if !out.iter().any(|have| have == part) {
            out.push(part.to_owned());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn arguments_are_types_with_names_or_pairs() {
        let types = |args: &str, types: &str, names: &str| {
            assert_eq!(parse(&words(args)).unwrap(), Arguments::Types(words(types), words(names)), "{args}");
        };
        types("pods", "pods", "");
        types("pods,svc,pods", "pods svc", "");
        types("pods a b", "pods", "a b");
        types("", "", "");
        let pairs = |args: &str, expect: &[(&str, &str)]| {
            let expect = expect.iter().map(|(kind, name)| ((*kind).to_owned(), (*name).to_owned())).collect();
            assert_eq!(parse(&words(args)).unwrap(), Arguments::Tuples(expect), "{args}");
        };
        pairs("pod/a svc/b", &[("pod", "a"), ("svc", "b")]);
        pairs("pod,svc a b", &[("pod", "a"), ("pod", "b"), ("svc", "a"), ("svc", "b")]);
    }

    #[test]
    fn mixed_forms_are_rejected() {
        let check = |args: &str, expect: &str| {
            let message = parse(&words(args)).unwrap_err().message;
            assert!(message.starts_with(expect), "{message}");
        };
        check("pod a/b", "there is no need to specify a resource type as a separate argument");
        check("pod/a/b", "arguments in resource/name form may not have more than one slash");
        check("pod/", "arguments in resource/name form must have a single resource and name");
        check("pod,svc/a", "arguments in resource/name form must have a single resource and name");
    }
}
