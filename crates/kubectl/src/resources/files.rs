//! Objects in files, directories, URLs and standard input.

use std::path::{Path, PathBuf};

use apimachinery::list::{self, KindMissing};
use apimachinery::{Value, json, yaml};
use bytes::Bytes;
use client::{Client, Config, Settings};
use http::header::LOCATION;
use http::{Method, Request, StatusCode, Uri};
use http_body_util::BodyExt;

use crate::failure::{chain, go_io_error, request_failure};
use crate::{Context, Failure};

/// An object with its source: the file, the URL or `STDIN`.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    pub object: Value,
    pub source: String,
}

/// The files of a directory that are read.
const EXTENSIONS: [&str; 3] = ["json", "yaml", "yml"];
const REDIRECTS_MAX: usize = 10;
const ATTEMPTS_MAX: usize = 3;

/// Reads all objects. Returns failures of single files, and whether exactly one object is implied.
pub(super) async fn load(
    context: &Context,
    files: &[String],
    kustomize: &str,
    recursive: bool,
    validate: bool,
) -> Result<(Vec<Document>, Vec<Failure>, bool), Failure> {
    let (mut documents, mut failures, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    let mut sources: Vec<(String, Vec<u8>)> = Vec::new();
    let mut single = kustomize.is_empty() && files.len() == 1;
    for file in files {
        if file == "-" {
            single = false;
            sources.push(("STDIN".to_owned(), context.read_stdin()?));
        } else if file.starts_with("http://") || file.starts_with("https://") {
            sources.push((file.clone(), download(file).await?));
        } else {
            let paths = expand(file, recursive).unwrap_or_else(|failure| {
                missing.push(failure);
                Vec::new()
            });
            for path in paths {
                single &= path == Path::new(file);
                let source = path.display().to_string();
                match std::fs::read(&path) {
                    Ok(bytes) => sources.push((source, bytes)),
                    Err(error) => failures.push(Failure::new(format!("open {source}: {}", go_io_error(&error)))),
                }
            }
        }
    }
    Failure::all(missing)?;
    if !kustomize.is_empty() {
        sources.push((
            kustomize.to_owned(),
            crate::kustomize::build_yaml(kustomize, crate::kustomize::Restriction::RootOnly)?.into_bytes(),
        ));
    }
    for (source, bytes) in sources {
        // The objects before a malformed one are used.
        let read = read_into(&mut documents, &bytes, &source, validate);
        failures.extend(read.err());
    }
    Ok((documents, failures, single))
}

/// Parses the objects of a file. Lists are replaced by their items.
pub fn read_documents(bytes: &[u8], source: &str, validate: bool) -> Result<Vec<Document>, Failure> {
    let mut documents = Vec::new();
    read_into(&mut documents, bytes, source, validate)?;
    Ok(documents)
}

/// Reads the objects of a text. Those before a malformed one are read.
fn read_into(documents: &mut Vec<Document>, bytes: &[u8], source: &str, validate: bool) -> Result<(), Failure> {
    let text = decode(bytes);
    // A text that starts like JSON may still be YAML. If it is neither, the JSON error is reported.
    let mut json_error = None;
    if text.trim_start().starts_with('{') {
        match json::parse_all(text.as_bytes()) {
            Ok(objects) => return objects.into_iter().try_for_each(|object| add(documents, object, source, validate)),
            Err(error) => json_error = Some(error),
        }
    }
    for part in split(&text) {
        let objects = yaml::parse_all(part).map_err(|error| {
            let problem = match &json_error {
                Some(json) => json_problem(json),
                None => format!("error converting YAML to JSON: {}", yaml_problem(&error, part)),
            };
            Failure::new(format!("error parsing {source}: {problem}"))
        })?;
        objects.into_iter().try_for_each(|object| add(documents, object, source, validate))?;
    }
    Ok(())
}

/// Returns the problem with its offset in the text, counted from one as by kubectl.
fn json_problem(error: &json::Error) -> String {
    match error {
        json::Error::Character { offset, .. } => format!("json: offset {}: {error}", offset + 1),
        json::Error::End => "unexpected EOF".to_owned(),
        other => other.to_string(),
    }
}

fn add(documents: &mut Vec<Document>, object: Value, source: &str, validate: bool) -> Result<(), Failure> {
    if object.is_null() {
        return Ok(());
    }
    if validate {
        check_type(&object, source)?;
        if object.str_at(&["kind"]) == Some("List") {
            let items = object.get("items").and_then(Value::as_array).unwrap_or_default();
            items.iter().try_for_each(|item| check_type(item, source))?;
        }
    }
    flatten(object, source, documents)
}

/// Splits a text at lines with `---`. As with kubectl, lines in error messages are those of a part.
fn split(text: &str) -> Vec<&str> {
    let is_separator = |line: &str| {
        let rest = line.strip_prefix("---").map(str::trim);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('#'))
    };
    let (mut parts, mut start, mut at) = (Vec::new(), 0, 0);
    for line in text.split_inclusive('\n') {
        if is_separator(line) && at > start {
            parts.push(&text[start..at]);
            start = at + line.len();
        }
        at += line.len();
    }
    parts.push(&text[start..]);
    parts
}

/// Returns the problem with its line in the text. The most common ones are worded like kubectl's.
fn yaml_problem(error: &yaml::Error, text: &str) -> String {
    let yaml::Error::Syntax(syntax) = error else { return chain(error) };
    let info = syntax.info();
    let line = syntax.marker().line();
    let (line, problem) = match info.as_str() {
        "unclosed bracket '{'" => (line, "did not find expected ',' or '}'"),
        "unclosed bracket '['" => (line, "did not find expected ',' or ']'"),
        // kubectl's parser counts lines from zero here.
        "while parsing a block mapping, did not find expected key" => (line - 1, "did not find expected key"),
        "invalid indentation in multiline quoted scalar" if line > text.lines().count() => {
            (line, "found unexpected end of stream")
        }
        "tabs disallowed within this context (block indentation)" => {
            (line, "found character that cannot start any token")
        }
        "while parsing node, found unknown anchor" => {
            let start = text.lines().nth(line - 1).and_then(|line| line.get(syntax.marker().col()..)).unwrap_or("");
            let name = start.trim_start_matches('*').split([' ', ',', '}', ']']).next().unwrap_or_default();
            return format!("yaml: unknown anchor '{name}' referenced");
        }
        other => (line, other),
    };
    format!("yaml: line {line}: {problem}")
}

/// Decodes UTF-8, or UTF-16 with a byte order mark.
fn decode(bytes: &[u8]) -> String {
    let units = |from: fn([u8; 2]) -> u16| -> Vec<u16> {
        bytes[2..].chunks_exact(2).map(|pair| from([pair[0], pair[1]])).collect()
    };
    match bytes {
        [0xff, 0xfe, ..] => String::from_utf16_lossy(&units(u16::from_le_bytes)),
        [0xfe, 0xff, ..] => String::from_utf16_lossy(&units(u16::from_be_bytes)),
        [0xef, 0xbb, 0xbf, rest @ ..] => String::from_utf8_lossy(rest).into_owned(),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

fn check_type(object: &Value, source: &str) -> Result<(), Failure> {
    let unset =
        |field: &'static str| object.str_at(&[field]).is_none_or(str::is_empty).then(|| format!("{field} not set"));
    let problems: Vec<String> = [unset("apiVersion"), unset("kind")].into_iter().flatten().collect();
    let problem = match problems.as_slice() {
        _ if object.as_object().is_none() => "invalid object to validate".to_owned(),
        [] => return Ok(()),
        [one] => one.clone(),
        _ => format!("[{}]", problems.join(", ")),
    };
    Err(Failure::new(format!(
        "error validating {source:?}: error validating data: {problem}; if you choose to ignore these errors, turn \
         validation off with --validate=false"
    )))
}

fn flatten(object: Value, source: &str, out: &mut Vec<Document>) -> Result<(), Failure> {
    let mut objects = Vec::new();
    let flattened = list::flatten(object, &mut objects);
    out.extend(objects.into_iter().map(|object| Document { object, source: source.to_owned() }));
    flattened.map_err(|KindMissing(object)| {
        let text = json::to_string(&object);
        Failure::new(format!("unable to decode {source:?}: Object 'Kind' is missing in '{text}'"))
    })
}

/// Returns the files of a path: itself, the files of a directory, or the matches of a pattern.
fn expand(file: &str, recursive: bool) -> Result<Vec<PathBuf>, Failure> {
    let path = Path::new(file);
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => {
            let mut files = Vec::new();
            walk(path, recursive, &mut files)?;
            if files.is_empty() {
                let list = EXTENSIONS.map(|extension| format!(".{extension}")).join(" ");
                return Err(Failure::new(format!("error reading [{file}]: recognized file extensions are [{list}]")));
            }
            Ok(files)
        }
        Ok(_) => Ok(vec![path.to_owned()]),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let matches = glob(file);
            if matches.is_empty() {
                return Err(Failure::new(format!("the path {file:?} does not exist")));
            }
            let mut files = Vec::new();
            for path in matches {
                if path.is_dir() { walk(&path, recursive, &mut files)? } else { files.push(path) }
            }
            Ok(files)
        }
        Err(error) => {
            Err(Failure::new(format!("the path {file:?} cannot be accessed: stat {file}: {}", go_io_error(&error))))
        }
    }
}

fn walk(directory: &Path, recursive: bool, out: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let failed = |error: &std::io::Error| Failure::new(format!("open {}: {}", directory.display(), go_io_error(error)));
    let entries = std::fs::read_dir(directory).map_err(|error| failed(&error))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() && !path.is_symlink() {
            if recursive {
                walk(&path, recursive, out)?;
            }
        } else if path.extension().is_some_and(|extension| EXTENSIONS.iter().any(|known| extension == *known)) {
            out.push(path);
        }
    }
    Ok(())
}

/// Returns the paths that match a pattern with `*`, `?` and `[…]` in any component.
fn glob(pattern: &str) -> Vec<PathBuf> {
    let mut found = vec![if pattern.starts_with('/') { PathBuf::from("/") } else { PathBuf::new() }];
    for component in pattern.split('/').filter(|component| !component.is_empty()) {
        let mut next = Vec::new();
        for base in &found {
            if !component.contains(['*', '?', '[']) {
                let path = base.join(component);
                if path.exists() {
                    next.push(path);
                }
                continue;
            }
            let Ok(regex) = regex::Regex::new(&regex_of(component)) else { return Vec::new() };
            let directory = if base.as_os_str().is_empty() { Path::new(".") } else { base.as_path() };
            let Ok(entries) = std::fs::read_dir(directory) else { continue };
            let mut names: Vec<String> =
                entries.filter_map(Result::ok).map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
            names.sort();
            next.extend(names.iter().filter(|name| regex.is_match(name)).map(|name| base.join(name)));
        }
        found = next;
    }
    found
}

fn regex_of(pattern: &str) -> String {
    let mut regex = "^".to_owned();
    for c in pattern.chars() {
        match c {
            '*' => regex.push_str("[^/]*"),
            '?' => regex.push_str("[^/]"),
            '[' | ']' | '-' | '^' => regex.push(c),
            other => regex.push_str(&regex::escape(&other.to_string())),
        }
    }
    regex + "$"
}

async fn download(url: &str) -> Result<Vec<u8>, Failure> {
    let mut address = url.to_owned();
    for _ in 0..REDIRECTS_MAX {
        let uri: Uri = address
            .parse()
            .map_err(|error| Failure::new(format!("the URL passed to filename {address:?} is not valid: {error}")))?;
        let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
        let server = Uri::from_parts(parts).map_err(|error| Failure::new(error.to_string()))?;
        let settings = Settings { attempts_max: 1, ..Settings::default() };
        let client = Client::connect(&Config::new(server), settings)?;
        let mut attempt = 1;
        let response = loop {
            let request = Request::builder().method(Method::GET).uri(&path).header("accept", "*/*").body(Bytes::new());
            let authority = uri.authority().map_or("", http::uri::Authority::as_str);
            let response = client.raw(request.map_err(client::Error::from)?).await;
            let response = response.map_err(|error| request_failure(error, authority))?;
            if !response.status().is_server_error() || attempt == ATTEMPTS_MAX {
                break response;
            }
            attempt += 1;
        };
        let status = response.status();
        if status.is_redirection()
            && let Some(to) = response.headers().get(LOCATION).and_then(|to| to.to_str().ok())
        {
            address = if to.starts_with('/') {
                let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
                format!("{}://{authority}{to}", uri.scheme_str().unwrap_or("https"))
            } else {
                to.to_owned()
            };
            continue;
        }
        if status != StatusCode::OK {
            return Err(Failure::new(format!(
                "unable to read URL {url:?}, server reported {status}, status code={}",
                status.as_u16()
            )));
        }
        let body = response.into_body().collect().await.map_err(client::TransportError::Broken)?;
        return Ok(body.to_bytes().to_vec());
    }
    Err(Failure::new(format!("unable to read URL {url:?}: stopped after {REDIRECTS_MAX} redirects")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_replaced_by_their_items() {
        let text = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod}\n- {apiVersion: v1, kind: PodList, items: [{metadata: {name: a}}]}\n---\n---\n{apiVersion: v1, kind: Secret}\n";
        let found = read_documents(text.as_bytes(), "f", true).unwrap();
        let kinds: Vec<&str> = found.iter().filter_map(|document| document.object.str_at(&["kind"])).collect();
        assert_eq!(kinds, ["Pod", "Pod", "Secret"]);
    }

    #[test]
    fn texts_are_split_at_separators() {
        assert_eq!(split("a\n---\nb\n--- # c\nd"), ["a\n", "b\n", "d"]);
        assert_eq!(split("---\na\n---\n"), ["---\na\n", ""]);
        assert_eq!(split("a: |\n  ---\n--- b\n"), ["a: |\n  ---\n--- b\n"]);
    }

    #[test]
    fn objects_before_a_malformed_one_are_read() {
        let mut documents = Vec::new();
        let text = "apiVersion: v1\nkind: Pod\n---\na: [b\n";
        let failure = read_into(&mut documents, text.as_bytes(), "f.yaml", true).unwrap_err();
        assert_eq!(documents.len(), 1);
        let expect =
            "error parsing f.yaml: error converting YAML to JSON: yaml: line 1: did not find expected ',' or ']'";
        assert_eq!(failure.message, expect);
    }

    #[test]
    fn malformed_texts_are_reported_with_the_line() {
        let check = |text: &str, expect: &str| {
            let failure = read_documents(text.as_bytes(), "f.yaml", true).unwrap_err();
            let problem = failure.message.strip_prefix("error parsing f.yaml: error converting YAML to JSON: yaml: ");
            assert_eq!(problem, Some(expect), "{text}");
        };
        check("a: {b: c\n", "line 1: did not find expected ',' or '}'");
        check("a:\n  - b\n c: d\n", "line 2: did not find expected key");
        check("a: \"b\n", "line 2: found unexpected end of stream");
        check("a:\n\tb: c\n", "line 2: found character that cannot start any token");
        check("a: [1, *none]\n", "unknown anchor 'none' referenced");
    }

    #[test]
    fn objects_without_a_type_are_rejected() {
        let check = |text: &str, validate: bool, expect: &str| {
            assert_eq!(read_documents(text.as_bytes(), "f.yaml", validate).unwrap_err().message, expect);
        };
        let rest = "; if you choose to ignore these errors, turn validation off with --validate=false";
        check(
            "a: 1",
            true,
            &format!("error validating \"f.yaml\": error validating data: [apiVersion not set, kind not set]{rest}"),
        );
        check(
            "kind: Pod",
            true,
            &format!("error validating \"f.yaml\": error validating data: apiVersion not set{rest}"),
        );
        check(
            "a",
            true,
            &format!("error validating \"f.yaml\": error validating data: invalid object to validate{rest}"),
        );
        check("a: 1", false, "unable to decode \"f.yaml\": Object 'Kind' is missing in '{\"a\":1}'");
    }

    #[test]
    fn directories_contain_only_known_extensions() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["b.yaml", "a.json", "c.txt", "d.yml"] {
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        std::fs::create_dir(directory.path().join("sub")).unwrap();
        std::fs::write(directory.path().join("sub/e.yaml"), "").unwrap();
        let names = |recursive| -> Vec<String> {
            let files = expand(directory.path().to_str().unwrap(), recursive).unwrap();
            files.iter().map(|file| file.strip_prefix(directory.path()).unwrap().display().to_string()).collect()
        };
        assert_eq!(names(false), ["a.json", "b.yaml", "d.yml"]);
        assert_eq!(names(true), ["a.json", "b.yaml", "d.yml", "sub/e.yaml"]);
        let pattern = directory.path().join("*.y*ml").display().to_string();
        assert_eq!(expand(&pattern, false).unwrap().len(), 2);
        assert!(expand("/nonexistent/x", false).is_err());
    }
}
