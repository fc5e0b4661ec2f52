//! File specifications of `kubectl cp`, and Go's lexical operations on paths.

/// A local path, or a path in a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileSpec {
    /// Empty for the namespace of the command.
    pub namespace: String,
    /// Empty for a local path.
    pub pod: String,
    pub file: String,
}

/// Parses `[[namespace/]pod:]file/path`.
pub(super) fn parse_spec(text: &str) -> Result<FileSpec, String> {
    let wrong = || "filespec must match the canonical format: [[namespace/]pod:]file/path".to_owned();
    let Some((pod, file)) = text.split_once(':') else {
        return Ok(FileSpec {
            namespace: String::new(),
            pod: String::new(),
            file: strip_trailing_slash(text).to_owned(),
        });
    };
    if pod.is_empty() {
        return Err(wrong());
    }
    let (namespace, pod) = match pod.split('/').collect::<Vec<_>>().as_slice() {
        [pod] => ("", *pod),
        [namespace, pod] => (*namespace, *pod),
        _ => return Err(wrong()),
    };
    Ok(FileSpec { namespace: namespace.to_owned(), pod: pod.to_owned(), file: remote(file) })
}

/// Returns a path of a container, which always has slashes.
pub(super) fn remote(file: &str) -> String {
    strip_trailing_slash(file).replace('\\', "/")
}

fn strip_trailing_slash(file: &str) -> &str {
    if file == "/" { file } else { file.strip_suffix('/').unwrap_or(file) }
}

/// Returns the shortest equal path, without `.`, and without `..` where possible.
pub(super) fn clean(path: &str) -> String {
    let absolute = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => match parts.last() {
                Some(&"..") | None if !absolute => parts.push(".."),
                Some(_) => {
                    parts.pop();
                }
                None => {}
            },
            part => parts.push(part),
        }
    }
    match (absolute, parts.is_empty()) {
        (true, _) => format!("/{}", parts.join("/")),
        (false, true) => ".".to_owned(),
        (false, false) => parts.join("/"),
    }
}

pub(super) fn join(first: &str, second: &str) -> String {
    match (first.is_empty(), second.is_empty()) {
        (true, true) => String::new(),
        (true, false) => clean(second),
        (false, true) => clean(first),
        (false, false) => clean(&format!("{first}/{second}")),
    }
}

pub(super) fn dir(path: &str) -> String {
    clean(path.rfind('/').map_or("", |end| &path[..=end]))
}

pub(super) fn base(path: &str) -> String {
    match path.trim_end_matches('/') {
        "" if path.is_empty() => ".".to_owned(),
        "" => "/".to_owned(),
        path => path.rsplit('/').next().unwrap_or_default().to_owned(),
    }
}

/// Returns the names that the archive of a path in a pod starts with: `tar` removes leading slashes.
pub(super) fn archive_prefix(path: &str) -> String {
    strip_shortcuts(&clean(path.trim_start_matches(['/', '\\'])))
}

/// Removes leading `../`.
fn strip_shortcuts(path: &str) -> String {
    let mut rest = path;
    while let Some(shorter) = rest.strip_prefix("../") {
        rest = shorter;
    }
    if rest == "." || rest == ".." {
        rest = "";
    }
    rest.strip_prefix('/').unwrap_or(rest).to_owned()
}

/// Whether a path is a directory or below it. Compares names only.
pub(super) fn is_within(directory: &str, path: &str) -> bool {
    let (directory, path) = (clean(directory), clean(path));
    if directory.starts_with('/') != path.starts_with('/') {
        return false;
    }
    let parts = |path: &str| -> Vec<String> {
        path.split('/').filter(|part| !part.is_empty() && *part != ".").map(str::to_owned).collect()
    };
    let (directory, path) = (parts(&directory), parts(&path));
    path.starts_with(&directory) && path[directory.len()..].iter().all(|part| part != "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specifications_name_a_pod_before_the_colon() {
        let check = |text: &str, expect: Option<(&str, &str, &str)>| {
            let found = parse_spec(text).ok();
            let found = found.as_ref().map(|spec| (spec.namespace.as_str(), spec.pod.as_str(), spec.file.as_str()));
            assert_eq!(found, expect, "{text}");
        };
        check("/tmp/a", Some(("", "", "/tmp/a")));
        check("dir/", Some(("", "", "dir")));
        check("/", Some(("", "", "/")));
        check("pod:/tmp/a", Some(("", "pod", "/tmp/a")));
        check("ns/pod:/tmp/a/", Some(("ns", "pod", "/tmp/a")));
        check("pod:c:\\a", Some(("", "pod", "c:/a")));
        check("pod:", Some(("", "pod", "")));
        check(":/tmp/a", None);
        check("a/b/pod:/tmp", None);
    }

    #[test]
    fn paths_are_those_of_go() {
        for (path, cleaned, directory, last) in [
            ("", ".", ".", "."),
            ("/", "/", "/", "/"),
            ("a", "a", ".", "a"),
            ("a/b/", "a/b", "a/b", "b"),
            ("/a/../b", "/b", "/a/..", "b"),
            ("/../a", "/a", "/..", "a"),
            ("../a/..", "..", "../a", ".."),
            ("./a//b", "a/b", "a", "b"),
        ] {
            let expect = (cleaned.to_owned(), clean(directory), last.to_owned());
            assert_eq!((clean(path), dir(path), base(path)), expect, "{path:?}");
        }
        assert_eq!((join("a", "../b"), join("", "b"), join("/a", "")), ("b".into(), "b".into(), "/a".into()));
    }

    #[test]
    fn prefix_of_an_archive_has_no_leading_slash_or_parent() {
        for (path, expect) in
            [("/tmp/foo", "tmp/foo"), ("../foo", "foo"), (".", ""), ("/", ""), ("a/../../b", "b"), ("./x/", "x")]
        {
            assert_eq!(archive_prefix(path), expect, "{path}");
        }
    }

    #[test]
    fn paths_outside_of_a_directory_are_recognized() {
        for (directory, path, expect) in [
            ("/tmp/d", "/tmp/d/a", true),
            ("/tmp/d", "/tmp/d", true),
            ("/tmp/d", "/tmp/d/../e", false),
            ("/tmp/d", "/tmp/dd", false),
            (".", "a/b", true),
            (".", "../a", false),
            ("..", "../a", true),
            ("..", "../../a", false),
            ("d", "/d/a", false),
        ] {
            assert_eq!(is_within(directory, path), expect, "{directory} {path}");
        }
    }
}
