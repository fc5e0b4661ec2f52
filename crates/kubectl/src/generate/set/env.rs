//! `set env`: environment variables of the containers of a pod template.

use std::collections::BTreeSet;

use apimachinery::{Object, Value, go, names, value};

use crate::generate::{Error, put};

/// Changes of an environment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// `EnvVar` objects.
    pub set: Vec<Value>,
    pub remove: Vec<String>,
    /// An argument `-` reads variables from standard input.
    pub reads_stdin: bool,
}

/// Splits arguments into resources and variables (`KEY=value` or `KEY-`), which come last.
pub fn split(args: &[String]) -> Result<(Vec<String>, Vec<String>), Error> {
    let is_variable = |arg: &String| arg.find('=').is_some_and(|at| at > 0) || arg.ends_with('-');
    let at = args.iter().position(is_variable).unwrap_or(args.len());
    let (resources, variables) = args.split_at(at);
    if !variables.iter().all(is_variable) {
        let args = args.join(" ");
        return Err(Error::new(format!("all resources must be specified before environment changes: {args}")));
    }
    Ok((resources.to_vec(), variables.to_vec()))
}

/// Parses variables. `stdin` is read for the argument `-`.
pub fn parse(variables: &[String], mut stdin: impl FnMut() -> Result<String, Error>) -> Result<Changes, Error> {
    let mut changes = Changes::default();
    let mut given = BTreeSet::new();
    for variable in variables {
        if variable == "-" {
            changes.set.extend(lines(&stdin()?));
            changes.reads_stdin = true;
        } else if let Some((name, text)) = variable.split_once('=') {
            let faults = names::env_var_name(name);
            if !faults.is_empty() {
                return Err(Error::new(format!("{} is not a valid key name: {}", go::quote(name), faults.join(";"))));
            }
            given.insert(name);
            changes.set.push(env_var(name, text));
        } else if let Some(name) = variable.strip_suffix('-') {
            changes.remove.push(name.to_owned());
        } else {
            return Err(Error::new(format!("unknown environment variable: {variable}")));
        }
    }
    if changes.remove.iter().any(|name| given.contains(name.as_str())) {
        return Err(Error::new("can not both modify and remove the same environment variable in the same command"));
    }
    Ok(changes)
}

/// Returns references to the keys of a config map or secret, all of them if `keys` is empty, with the warnings about
/// renamed keys.
pub fn from_object(object: &Value, keys: &[String]) -> Result<(Vec<Value>, Vec<String>), Error> {
    let field = match (object.str_at(&["apiVersion"]), object.str_at(&["kind"])) {
        (Some("v1"), Some("Secret")) => "secretKeyRef",
        (Some("v1"), Some("ConfigMap")) => "configMapKeyRef",
        _ => return Err(Error::new("unsupported resource specified in --from")),
    };
    let name = object.str_at(&["metadata", "name"]).unwrap_or_default();
    let (mut variables, mut warnings) = (Vec::new(), Vec::new());
    for key in object.get("data").and_then(Value::as_object).into_iter().flat_map(Object::keys) {
        if !keys.is_empty() && !keys.iter().any(|selected| selected == key) {
            continue;
        }
        let env = env_name(key);
        if env != key {
            warnings.push(format!("key {key} transferred to {env}"));
        }
        let mut variable = value!({"name": env});
        put(&mut variable, &["valueFrom", field], value!({"name": name, "key": key}));
        variables.push(variable);
    }
    Ok((variables, warnings))
}

/// Puts a prefix before the name of each variable.
pub fn add_prefix(variables: &mut [Value], prefix: &str) {
    for variable in variables {
        let name = format!("{prefix}{}", variable.str_at(&["name"]).unwrap_or_default());
        put(variable, &["name"], name);
    }
}

/// Fails if a change replaces a variable with another value.
pub fn validate_no_overwrite(container: &Value, changes: &Changes) -> Result<(), Error> {
    let existing = container.get("env").and_then(Value::as_array).unwrap_or_default();
    let text = |variable: &Value, field: &str| variable.str_at(&[field]).unwrap_or_default().to_owned();
    for change in &changes.set {
        let current = existing.iter().find(|variable| text(variable, "name") == text(change, "name"));
        if let Some(current) = current.filter(|current| text(current, "value") != text(change, "value")) {
            let (name, value) = (text(current, "name"), text(current, "value"));
            return Err(Error::new(format!("'{name}' already has a value ({value}), and --overwrite is false")));
        }
    }
    Ok(())
}

/// Changes the environment of a container. A variable keeps its position; new variables are appended.
pub fn update(container: &mut Value, changes: &Changes) {
    let name = |variable: &Value| variable.str_at(&["name"]).unwrap_or_default().to_owned();
    let mut done: BTreeSet<String> = changes.remove.iter().cloned().collect();
    let mut env = Vec::new();
    for variable in container.get("env").and_then(Value::as_array).unwrap_or_default() {
        let this = name(variable);
        if done.contains(&this) {
            continue;
        }
        match changes.set.iter().find(|change| name(change) == this) {
            Some(change) => {
                env.push(change.clone());
                done.insert(this);
            }
            None => env.push(variable.clone()),
        }
    }
    for change in &changes.set {
        if done.insert(name(change)) {
            env.push(change.clone());
        }
    }
    if env.is_empty() {
        if let Value::Object(fields) = container {
            fields.remove("env");
        }
    } else {
        put(container, &["env"], env);
    }
}

/// Describes the source of a variable: `configmap NAME, key KEY`.
pub fn reference_text(source: &Value) -> String {
    let text = |path: &[&str]| source.str_at(path).unwrap_or_default();
    for (field, what) in [("configMapKeyRef", "configmap"), ("secretKeyRef", "secret")] {
        if source.get(field).is_some() {
            return format!("{what} {}, key {}", text(&[field, "name"]), text(&[field, "key"]));
        }
    }
    if source.get("fieldRef").is_some() {
        return format!("field path {}", text(&["fieldRef", "fieldPath"]));
    }
    if source.get("resourceFieldRef").is_some() {
        let container = match text(&["resourceFieldRef", "containerName"]) {
            "" => String::new(),
            name => format!("{name}/"),
        };
        return format!("resource field {container}{}", text(&["resourceFieldRef", "resource"]));
    }
    "invalid valueFrom".to_owned()
}

fn env_var(name: &str, text: &str) -> Value {
    if text.is_empty() { value!({"name": name}) } else { value!({"name": name, "value": text}) }
}

/// Parses variables from lines; what follows `#` is a comment.
fn lines(text: &str) -> Vec<Value> {
    let parse = |line: &str| {
        let line = line.split('#').next().unwrap_or_default();
        line.split_once('=').map(|(name, text)| env_var(name, text))
    };
    text.lines().filter_map(parse).collect()
}

/// Makes a variable name from a key.
fn env_name(key: &str) -> String {
    key.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}
