//! Check for blocking file access in async code: file calls of kubelet and runtime must run on blocking threads.
//!
//! The check reads source text, not types. A function blocks if it calls `std::fs` or a file function of `sys`, or a
//! function of the same crate that does. Calls are followed within a file, by `module::function`, and by function names
//! that are unique in the crate. Async code may call such functions only inside a call of [`OFF_THREAD`].

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::Tree;

/// Crates that access files which containers can write.
const CRATES: &[&str] = &["kubelet", "container-runtime"];

/// Calls that may block on a disk, or on whatever a container put in place of a file.
const BLOCKING: &[&str] = &[
    "fs::canonicalize",
    "fs::copy",
    "fs::create_dir",
    "fs::create_dir_all",
    "fs::metadata",
    "fs::read",
    "fs::read_dir",
    "fs::read_link",
    "fs::read_to_string",
    "fs::remove_dir",
    "fs::remove_dir_all",
    "fs::remove_file",
    "fs::rename",
    "fs::set_permissions",
    "fs::symlink_metadata",
    "fs::write",
    "File::create",
    "File::open",
    "sys::create_dirs",
    "sys::open_container_file",
    "sys::open_container_file_in",
    "sys::read_container_file",
    "sys::remove_tree",
    "sys::replace_file",
    "sys::tail_container_file",
    "sys::unmount_below",
    "sys::walk_container_tree",
    "sys::write_container_file",
];

/// Functions that run their argument on a blocking thread.
const OFF_THREAD: &[&str] = &["blocking::in_place", "blocking::run", "blocking::within_deadline", "spawn_blocking"];

/// Exceptions: path, function and reason.
const EXCUSED: &[(&str, &str, &str)] = &[
    ("crates/kubelet/src/kubelet.rs", "start", "before anything is served"),
    ("crates/container-runtime/src/state.rs", "open", "before anything is served"),
    ("crates/container-runtime/src/state.rs", "recover", "before anything is served"),
    ("crates/container-runtime/src/serve.rs", "serve", "before anything is served"),
];

struct Function<'a> {
    file: &'a str,
    name: &'a str,
    body: Range<usize>,
    is_async: bool,
}

/// A file with comments, strings and tests blanked out, so that offsets stay the same.
struct Source<'a> {
    path: &'a str,
    text: &'a str,
    code: String,
}

pub(super) fn check(tree: &Tree, findings: &mut Vec<String>) {
    for name in CRATES {
        let root = format!("crates/{name}/src/");
        let files = tree.rust().filter(|(path, _)| path.starts_with(&root));
        let sources: Vec<Source<'_>> = files.filter_map(|(path, text)| Source::read(path, text)).collect();
        check_crate(&sources, findings);
    }
}

fn check_crate(sources: &[Source<'_>], findings: &mut Vec<String>) {
    let functions: Vec<(&Source<'_>, Function<'_>)> = sources
        .iter()
        .flat_map(|source| source.functions().into_iter().map(move |function| (source, function)))
        .collect();
    let mut named: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, (_, function)) in functions.iter().enumerate() {
        named.entry(function.name).or_default().push(at);
    }
    let calls: Vec<Vec<(usize, Option<usize>)>> =
        functions.iter().map(|(source, function)| calls(source, function, &named, &functions)).collect();
    let mut blocking = BTreeSet::new();
    loop {
        let before = blocking.len();
        for (at, (source, function)) in functions.iter().enumerate().filter(|(_, (_, function))| !function.is_async) {
            let async_code = source.async_parts(&function.body);
            let waits = |(call, target): &(usize, Option<usize>)| {
                !async_code.iter().any(|part| part.contains(call))
                    && target.is_none_or(|target| blocking.contains(&target))
            };
            if calls[at].iter().any(waits) {
                blocking.insert(at);
            }
        }
        if blocking.len() == before {
            break;
        }
    }
    for (at, (source, function)) in functions.iter().enumerate() {
        let parts = match function.is_async {
            true => vec![function.body.clone()],
            false => source.async_parts(&function.body),
        };
        let waits = |(call, target): &&(usize, Option<usize>)| {
            parts.iter().any(|part| part.contains(call)) && target.is_none_or(|target| blocking.contains(&target))
        };
        let is_excused = EXCUSED.iter().any(|(path, name, _)| *path == source.path && *name == function.name);
        if let Some((call, _)) = calls[at].iter().find(waits).filter(|_| !is_excused) {
            let line = source.code[..*call].lines().count();
            let what = source.code[*call..].split('(').next().unwrap_or_default();
            findings.push(format!(
                "{}:{line}: async code of `{}` blocks on files in `{what}`; move the call into `blocking::run` or a similar function",
                source.path, function.name
            ));
        }
    }
}

/// Returns the calls of a function that may block, with their positions and the called function of the crate, or `None`
/// for a direct file call. Calls inside [`OFF_THREAD`] are skipped.
fn calls(
    source: &Source<'_>,
    function: &Function<'_>,
    named: &BTreeMap<&str, Vec<usize>>,
    functions: &[(&Source<'_>, Function<'_>)],
) -> Vec<(usize, Option<usize>)> {
    let apart = source.arguments_of(OFF_THREAD, &function.body);
    let mut found = Vec::new();
    for at in source.call_names(&function.body).filter(|at| !apart.iter().any(|part| part.contains(&at.start))) {
        let path = &source.code[at.clone()];
        let name = path.rsplit([':', '.']).next().unwrap_or(path);
        if is_blocking(path) && !source.reads_the_kernel(&at) {
            found.push((at.start, None));
            continue;
        }
        let candidates = named.get(name).map(Vec::as_slice).unwrap_or_default();
        let own = |index: &&usize| functions[**index].1.file == source.path;
        let qualifier = path.strip_suffix(name).unwrap_or_default();
        let target = match qualifier {
            "" => candidates.iter().find(own).or(candidates.first().filter(|_| candidates.len() == 1)),
            "self." | "Self::" => candidates.iter().find(own),
            _ if qualifier.ends_with("::") => {
                let module = qualifier.trim_end_matches("::").rsplit("::").next().unwrap_or_default();
                candidates.iter().find(|index| stem(functions[**index].1.file) == module)
            }
            // A method is resolved only if its name is unique.
            _ => candidates.first().filter(|_| candidates.len() == 1),
        };
        found.extend(target.map(|target| (at.start, Some(*target))));
    }
    found
}

fn is_blocking(path: &str) -> bool {
    let known = |word: &str| path.strip_suffix(word).is_some_and(|before| before.is_empty() || before.ends_with("::"));
    !path.contains("tokio::") && BLOCKING.iter().any(|word| known(word))
}

fn stem(path: &str) -> &str {
    path.rsplit('/').next().and_then(|name| name.strip_suffix(".rs")).unwrap_or(path)
}

impl<'a> Source<'a> {
    fn read(path: &'a str, text: &'a str) -> Option<Self> {
        if path.ends_with("/tests.rs") {
            return None;
        }
        let product = text.split("\n#[cfg(test)]").next().unwrap_or_default();
        Some(Self { path, text, code: without_comments_and_strings(product) })
    }

    fn functions(&self) -> Vec<Function<'_>> {
        let mut found = Vec::new();
        for (at, _) in self.code.match_indices("fn ") {
            let name = word_at(&self.code, at + 3);
            let is_start = self.code[..at].ends_with([' ', '\n', '(']) || at == 0;
            let Some(body) = self.body_after(at).filter(|_| is_start && !name.is_empty()) else { continue };
            let is_async = self.code[..at].ends_with("async ");
            // The name is a slice of the text, which outlives the code.
            let name = &self.text[at + 3..at + 3 + name.len()];
            found.push(Function { file: self.path, name, body, is_async });
        }
        found
    }

    /// Returns the range of a function's braces, or `None` if it has no body.
    fn body_after(&self, at: usize) -> Option<Range<usize>> {
        let mut depth = 0;
        for (offset, byte) in self.code[at..].bytes().enumerate() {
            match byte {
                b'(' | b'[' => depth += 1,
                b')' | b']' => depth -= 1,
                b';' if depth == 0 => return None,
                b'{' if depth == 0 => return closing(&self.code, at + offset).map(|end| at + offset..end),
                _ => {}
            }
        }
        None
    }

    /// Returns the async blocks and closures inside a body.
    fn async_parts(&self, body: &Range<usize>) -> Vec<Range<usize>> {
        let body_code = &self.code[body.clone()];
        let starts = body_code.match_indices("async ").map(|(at, _)| body.start + at);
        starts.filter(|at| !self.code[*at..].starts_with("async fn")).filter_map(|at| self.body_after(at)).collect()
    }

    /// Returns the arguments of calls to these functions: the text between the parentheses, or the closure that a
    /// variable there was assigned before.
    fn arguments_of(&self, names: &[&str], body: &Range<usize>) -> Vec<Range<usize>> {
        let body_code = &self.code[body.clone()];
        let calls = names.iter().flat_map(|name| body_code.match_indices(name).map(|(at, name)| at + name.len()));
        let open = calls.filter_map(|at| body_code[at..].find('(').map(|open| body.start + at + open));
        let arguments = open.filter_map(|open| closing(&self.code, open).map(|end| open..end));
        arguments.map(|argument| self.closure_of(&argument, body).unwrap_or(argument)).collect()
    }

    fn closure_of(&self, argument: &Range<usize>, body: &Range<usize>) -> Option<Range<usize>> {
        let name = self.code[argument.clone()].trim_matches(['(', ')', ' ', '\n']);
        let before = body.start..argument.start;
        let start = before.start + self.code[before].rfind(&format!("let {name} = move |"))?;
        let mut depth = 0;
        let end = self.code[start..].bytes().position(|byte| {
            match byte {
                b'{' | b'(' | b'[' => depth += 1,
                b'}' | b')' | b']' => depth -= 1,
                _ => {}
            }
            byte == b';' && depth == 0
        })?;
        Some(start..start + end)
    }

    /// Returns the ranges of called paths and methods.
    fn call_names(&self, body: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':' | b'.');
        let bytes = self.code.as_bytes();
        self.code[body.clone()].match_indices('(').filter_map(move |(open, _)| {
            let end = body.start + open;
            let start = bytes[..end].iter().rposition(|byte| !is_part(*byte)).map_or(0, |at| at + 1);
            (start < end).then_some(start..end)
        })
    }

    /// Whether a call is on a file of /proc or /sys, which never blocks.
    fn reads_the_kernel(&self, call: &Range<usize>) -> bool {
        let argument = self.text[call.end + 1..].trim_start_matches([' ', '\n', '&']);
        let argument = argument.strip_prefix("format!(").unwrap_or(argument);
        ["\"/proc/", "\"/sys/", "\"/dev/null\""].iter().any(|path| argument.starts_with(path))
    }
}

/// Returns the position of the brace or parenthesis that closes `open`.
fn closing(code: &str, open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (offset, byte) in code[open..].bytes().enumerate() {
        match byte {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some(open + offset + 1);
        }
    }
    None
}

fn word_at(code: &str, at: usize) -> &str {
    let end = code[at..].find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(0);
    &code[at..at + end]
}

/// Replaces comments, strings and characters by spaces, so that braces in them are ignored.
fn without_comments_and_strings(text: &str) -> String {
    let mut code: Vec<u8> = text.bytes().collect();
    let mut at = 0;
    while at < code.len() {
        let rest = &text.as_bytes()[at..];
        let end = match rest {
            [b'/', b'/', ..] => rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()),
            [b'r', b'"', ..] => {
                2 + rest[2..].iter().position(|byte| *byte == b'"').map_or(rest.len() - 2, |end| end + 1)
            }
            [b'r', b'#', b'"', ..] => find(rest, b"\"#").map_or(rest.len(), |end| end + 2),
            [b'"', ..] => 1 + string_end(&rest[1..], b'"'),
            [b'\'', b'\\', ..] => 2 + string_end(&rest[2..], b'\'').max(1),
            [b'\'', _, b'\'', ..] => 3,
            _ => {
                at += 1;
                continue;
            }
        };
        let end = (at + end).min(code.len());
        code[at..end].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
        at = end;
    }
    String::from_utf8_lossy(&code).into_owned()
}

fn string_end(rest: &[u8], quote: u8) -> usize {
    let mut at = 0;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|(path, text)| (format!("crates/kubelet/src/{path}"), (*text).to_owned()));
        let mut findings = Vec::new();
        check(&Tree { root: ".".into(), files: files.collect() }, &mut findings);
        findings
    }

    #[test]
    fn indirect_file_call_in_async_code_is_found() {
        let check = |text: &str, expect: usize| assert_eq!(findings(&[("a.rs", text)]).len(), expect, "{text}");
        check("async fn a() { std::fs::read(path); }", 1);
        check("async fn a() { x.map(|x| b(x)) } fn b() { std::fs::File::open(path); }", 1);
        check("fn a() { spawn(async move { File::open(path); }) }", 1);
        check("async fn a() { b(1) } fn b(n: u8) { c() } fn c() { fs::write(x, y); }", 1);
        check("impl A { async fn a(&self) { self.b(); } fn b(&self) { fs::rename(x, y); } }", 1);
        check("fn a() { fs::read(path); }", 0);
        check("async fn a() { // fs::read(path)\n let x = \"fs::read(\"; }", 0);
        check("async fn a() { tokio::fs::read(path).await; }", 0);
        check("async fn a() { fs::read_to_string(\"/proc/self/stat\"); }", 0);
    }

    #[test]
    fn file_call_on_a_blocking_thread_is_allowed() {
        let check = |text: &str| assert_eq!(findings(&[("a.rs", text)]), [""; 0], "{text}");
        check("async fn a() { blocking::run(move || fs::read(path)).await; }");
        check("async fn a() { blocking::in_place(|| b()); } fn b() { fs::read(path); }");
        check("async fn a() { tokio::task::spawn_blocking(move || { fs::read(path) }).await; }");
        check("async fn a() { let work = move || { fs::read(path); fs::read(path) }; spawn_blocking(work).await; }");
    }

    #[test]
    fn calls_are_followed_into_other_files() {
        let a = "async fn a() { logs::tail(path); }";
        let b = "async fn a(x: Logs) { x.shorten(path); }";
        let logs = "pub fn tail(path: &Path) { fs::read(path); } impl Logs { fn shorten(&self) { fs::write(x, y); } }";
        assert_eq!(findings(&[("a.rs", a), ("logs.rs", logs)]).len(), 1);
        assert_eq!(findings(&[("b.rs", b), ("logs.rs", logs)]).len(), 1);
        assert_eq!(findings(&[("a.rs", a), ("other.rs", logs)]).len(), 0);
    }

    #[test]
    fn file_calls_in_tests_are_allowed() {
        assert_eq!(
            findings(&[("a.rs", "fn x() {}\n#[cfg(test)]\nmod tests { async fn a() { fs::read(p); } }")]).len(),
            0
        );
    }
}
