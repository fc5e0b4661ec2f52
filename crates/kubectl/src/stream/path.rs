//! Paths of requests for the streams of a pod.

use client::Target;

use crate::pods::PODS;

/// The parameters of `exec` and `attach`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessQuery<'a> {
    pub container: &'a str,
    /// Empty for attach.
    pub command: &'a [String],
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    pub tty: bool,
}

/// Returns the path of a subresource of a pod with its query.
pub fn process_path(
    namespace: &str,
    pod: &str,
    subresource: &str,
    query: &ProcessQuery<'_>,
) -> Result<String, client::Error> {
    let mut pairs: Vec<(&str, &str)> = query.command.iter().map(|word| ("command", word.as_str())).collect();
    if !query.container.is_empty() {
        pairs.push(("container", query.container));
    }
    let switches = [("stderr", query.stderr), ("stdin", query.stdin), ("stdout", query.stdout), ("tty", query.tty)];
    pairs.extend(switches.into_iter().filter(|(_, on)| *on).map(|(name, _)| (name, "true")));
    subresource_path(namespace, pod, subresource, &pairs)
}

/// Returns the path of a subresource of a pod with a query of the pairs in their order.
pub fn subresource_path(
    namespace: &str,
    pod: &str,
    subresource: &str,
    query: &[(&str, &str)],
) -> Result<String, client::Error> {
    let path = Target::named(&PODS, namespace, pod).subresource(subresource).path()?;
    if query.is_empty() {
        return Ok(path);
    }
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
    Ok(format!("{path}?{query}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_command_are_parameters() {
        let command = ["sh".to_owned(), "-c".to_owned(), "a & b".to_owned()];
        let query =
            ProcessQuery { container: "c", command: &command, stdin: true, stdout: true, stderr: false, tty: true };
        assert_eq!(
            process_path("n", "p", "exec", &query).unwrap(),
            "/api/v1/namespaces/n/pods/p/exec?command=sh&command=-c&command=a+%26+b&container=c&stdin=true&stdout=true&tty=true"
        );
        assert_eq!(subresource_path("n", "p", "portforward", &[]).unwrap(), "/api/v1/namespaces/n/pods/p/portforward");
    }
}
