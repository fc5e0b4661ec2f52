//! `kubectl kuberc set`.

use apimachinery::{Object, Value, go};

use super::{empty, location, read, save};
use crate::changes::require;
use crate::command::{Command, Flag};
use crate::{Context, Failure, Invocation};

pub(super) static SET: Command = Command {
    name: "set",
    summary: "Change the user preferences",
    description: "Add or replace an entry of the kuberc file.\n\n\
        --section=defaults gives flags of a command other values when they are not set; --command names the command \
        without resources, such as \"get\" or \"set env\".\n\n\
        --section=aliases gives a command another name, with flags and with arguments such as resources.\n\n\
        --section=credentialplugin limits the credential plugins of kubeconfigs that may run.",
    examples: "  # Let 'kubectl get' print wide tables
  kubectl kuberc set --section defaults --command get --option output=wide

  # Make 'kubectl getn' list nodes
  kubectl kuberc set --section aliases --name getn --command get --prependarg nodes --option output=wide

  # Replace the default of 'kubectl get'
  kubectl kuberc set --section defaults --command get --option output=json --overwrite

  # Run only one credential plugin
  kubectl kuberc set --section credentialplugin --policy Allowlist --allowlist-entry command=cloud-login",
    usage: "kubectl kuberc set --section (defaults|aliases|credentialplugin) [--command=COMMAND] [options]",
    flags: &[&[
        Flag::array("allowlist-entry", "Credential plugin that may run, as command=PATH; repeat the flag for others."),
        Flag::array("appendarg", "Argument of an alias after those of the user; repeat the flag for others."),
        Flag::text("command", "", "Command to configure, such as 'get', 'create' or 'set env'."),
        Flag::text("name", "", "Name of the alias."),
        Flag::array("option", "Flag and value, as flag=value; repeat the flag for others."),
        Flag::bool("overwrite", "Replace an existing entry."),
        Flag::text("policy", "", "Policy of credential plugins: 'AllowAll', 'DenyAll' or 'Allowlist'."),
        Flag::array("prependarg", "Argument of an alias before those of the user; repeat the flag for others."),
        Flag::text("section", "", "Section to change: 'defaults', 'aliases', or 'credentialplugin'."),
    ]],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

/// An entry to write.
#[derive(Debug, PartialEq)]
enum Change {
    Defaults { command: String, options: Vec<Value> },
    Alias { name: String, command: String, prepend: Vec<Value>, append: Vec<Value>, options: Vec<Value> },
    PluginPolicy { policy: String, allowlist: Option<Vec<Value>> },
}

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    require(invocation, &["section"])?;
    let location = location(invocation)?;
    let change = change(invocation).map_err(Failure::new)?;
    let mut preference = read(&location.file)?.unwrap_or_else(empty);
    apply(&mut preference, change, invocation.bool("overwrite")).map_err(Failure::new)?;
    save(context, preference, &location.file)
}

fn change(invocation: &Invocation) -> Result<Change, String> {
    let text = |name: &str| invocation.text(name).to_owned();
    let texts = |name: &str| invocation.list(name).into_iter().map(Value::from).collect::<Vec<_>>();
    let section = text("section");
    let (command, name) = (text("command"), text("name"));
    let args = !invocation.values("prependarg").is_empty() || !invocation.values("appendarg").is_empty();
    let missing_command = || "--command is required when --section=aliases or --section=defaults".to_owned();
    match section.as_str() {
        "aliases" if name.is_empty() => Err("--name is required when --section=aliases".to_owned()),
        "defaults" if !name.is_empty() => Err("--name should not be specified when --section=defaults".to_owned()),
        "defaults" if args => Err("--prependarg and --appendarg are only valid for --section=aliases".to_owned()),
        "aliases" | "defaults" if command.is_empty() => Err(missing_command()),
        "defaults" => Ok(Change::Defaults { command, options: options(&invocation.list("option"))? }),
        "aliases" => Ok(Change::Alias {
            name,
            command,
            prepend: texts("prependarg"),
            append: texts("appendarg"),
            options: options(&invocation.list("option"))?,
        }),
        "credentialplugin" => plugin_policy(&text("policy"), &invocation.list("allowlist-entry")),
        other => Err(format!("--section must be \"defaults\", \"aliases\", or \"credentialplugin\", got: {other}")),
    }
}

fn options(pairs: &[String]) -> Result<Vec<Value>, String> {
    let option = |pair: &String| {
        let expected = || format!("invalid option format {}, expected flag=value", go::quote(pair));
        let (name, value) = pair.split_once('=').ok_or_else(expected)?;
        let mut option = Object::new();
        option.insert("name", name.trim_start_matches('-'));
        option.insert("default", value);
        Ok(Value::Object(option))
    };
    pairs.iter().map(option).collect()
}

fn plugin_policy(policy: &str, entries: &[String]) -> Result<Change, String> {
    let allowlist = match (policy, entries) {
        ("", _) => return Err("--policy is required when --section=credentialplugin".to_owned()),
        ("AllowAll" | "DenyAll", []) => None,
        ("AllowAll" | "DenyAll", _) => {
            let section = "--section=credentialplugin and --policy=Allowlist";
            return Err(format!("--allowlist-entry may only be used when {section}"));
        }
        ("Allowlist", []) => {
            let section = "--section=credentialplugin and --policy=Allowlist";
            return Err(format!("--allowlist-entry is required when {section}"));
        }
        ("Allowlist", entries) => Some(allowlist(entries)?),
        (other, _) => {
            return Err(format!(" --policy must be  \"AllowAll\", \"DenyAll\", or \"Allowlist\", got: {other}"));
        }
    };
    Ok(Change::PluginPolicy { policy: policy.to_owned(), allowlist })
}

fn allowlist(entries: &[String]) -> Result<Vec<Value>, String> {
    let (mut list, mut problems) = (Vec::new(), Vec::new());
    for pair in entries.iter().flat_map(|entry| entry.split(',')) {
        match pair.split_once('=') {
            None => problems.push(format!("improperly formatted allowlist entry: {}", go::quote(pair))),
            Some(("command", command)) if command.trim().is_empty() => {
                problems.push("empty value in allowlist entry for field \"command\"".to_owned());
            }
            Some(("command", command)) => {
                let mut entry = Object::new();
                entry.insert("command", command);
                list.push(Value::Object(entry));
            }
            Some(("name", _)) => {
                problems.push("allowlist entry field \"name\" is deprecated, use \"command\" instead".to_owned());
            }
            Some((field, _)) => problems.push(format!("unrecognized allowlist entry field: {}", go::quote(field))),
        }
    }
    match problems.as_slice() {
        [] => Ok(list),
        [one] => Err(one.clone()),
        several => Err(format!("[{}]", several.join(", "))),
    }
}

fn apply(preference: &mut Object, change: Change, overwrite: bool) -> Result<(), String> {
    match change {
        Change::Defaults { command, options } => {
            let mut entry = Object::new();
            entry.insert("command", command.as_str());
            entry.insert("options", list_or_null(options));
            let exists = format!("defaults for command {} already exist", go::quote(&command));
            upsert(preference, "defaults", ("command", &command), entry, overwrite.then_some(()).ok_or(exists))
        }
        Change::Alias { name, command, prepend, append, options } => {
            let mut entry = Object::new();
            entry.insert("name", name.as_str());
            entry.insert("command", command);
            for (field, list) in [("prependArgs", prepend), ("appendArgs", append), ("options", options)] {
                if !list.is_empty() {
                    entry.insert(field, Value::Array(list));
                }
            }
            let exists = format!("alias {} already exists", go::quote(&name));
            upsert(preference, "aliases", ("name", &name), entry, overwrite.then_some(()).ok_or(exists))
        }
        Change::PluginPolicy { policy, allowlist } => {
            if let Some(allowlist) = allowlist {
                preference.insert("credentialPluginAllowlist", Value::Array(allowlist));
            }
            preference.insert("credentialPluginPolicy", policy);
            Ok(())
        }
    }
}

/// Adds an entry, or replaces that with the same key. Lists that the new entry does not have are retained.
fn upsert(
    preference: &mut Object,
    section: &str,
    (key, value): (&str, &str),
    entry: Object,
    may_replace: Result<(), String>,
) -> Result<(), String> {
    if preference.get(section).is_none_or(Value::is_null) {
        preference.insert(section, Value::Array(Vec::new()));
    }
    let entries = preference.get_mut(section).and_then(Value::as_array_mut).expect("the reader checked for a list");
    let Some(existing) = entries.iter_mut().find(|existing| existing.str_at(&[key]) == Some(value)) else {
        entries.push(Value::Object(entry));
        return Ok(());
    };
    may_replace.map_err(|problem| format!("{problem}, use --overwrite to replace"))?;
    let mut merged = entry;
    for field in ["prependArgs", "appendArgs", "options"] {
        if merged.get(field).is_none_or(Value::is_null)
            && let Some(list) = existing.get(field)
        {
            merged.insert(field, list.clone());
        }
    }
    *existing = Value::Object(merged);
    Ok(())
}

fn list_or_null(list: Vec<Value>) -> Value {
    if list.is_empty() { Value::Null } else { Value::Array(list) }
}

#[cfg(test)]
mod tests {
    use apimachinery::yaml;

    use super::*;
    use crate::commands::ROOT;
    use crate::flags::{Parsed, parse};

    fn set(preference: &mut Object, line: &[&str]) -> Result<(), String> {
        let args: Vec<String> = ["kuberc", "set"].iter().chain(line).map(|arg| (*arg).to_owned()).collect();
        let Ok(Parsed::Run(invocation)) = parse(&ROOT, &args) else { panic!("{args:?} does not parse") };
        apply(preference, change(&invocation)?, invocation.bool("overwrite"))
    }

    #[test]
    fn entries_are_added_and_replaced() {
        let mut preference = empty();
        let get = ["--section=defaults", "--command=get"];
        set(&mut preference, &[&get[..], &["--option=--output=wide"]].concat()).unwrap();
        let again = set(&mut preference, &[&get[..], &["--option=output=json"]].concat());
        assert_eq!(again.unwrap_err(), "defaults for command \"get\" already exist, use --overwrite to replace");
        set(&mut preference, &[&get[..], &["--overwrite"]].concat()).unwrap();
        let alias = ["--section=aliases", "--name=runx", "--command=run"];
        set(&mut preference, &[&alias[..], &["--appendarg=--", "--appendarg=a", "--option=image=b"]].concat()).unwrap();
        assert!(set(&mut preference, &alias).unwrap_err().starts_with("alias \"runx\" already exists"));
        set(&mut preference, &[&alias[..], &["--overwrite", "--appendarg=c"]].concat()).unwrap();
        let policy = ["--section=credentialplugin", "--policy=Allowlist", "--allowlist-entry=command=x,command=z"];
        set(&mut preference, &policy).unwrap();
        let expect = "aliases:\n- appendArgs:\n  - c\n  command: run\n  name: runx\n  options:\n  - default: b\n    name: image\n\
            apiVersion: kubectl.config.k8s.io/v1beta1\ncredentialPluginAllowlist:\n- command: x\n- command: z\n\
            credentialPluginPolicy: Allowlist\ndefaults:\n- command: get\n  options:\n  - default: wide\n    name: output\n\
            kind: Preference\n";
        assert_eq!(yaml::to_string(&Value::Object(preference)), expect);
    }

    #[test]
    fn wrong_flags_are_rejected() {
        for (line, expect) in [
            ("--section=x", "--section must be \"defaults\", \"aliases\", or \"credentialplugin\", got: x"),
            ("--section=aliases --command=get", "--name is required when --section=aliases"),
            ("--section=defaults --command=get --name=a", "--name should not be specified when --section=defaults"),
            (
                "--section=defaults --command=get --appendarg=a",
                "--prependarg and --appendarg are only valid for --section=aliases",
            ),
            ("--section=defaults", "--command is required when --section=aliases or --section=defaults"),
            ("--section=defaults --command=get --option=a", "invalid option format \"a\", expected flag=value"),
            ("--section=credentialplugin", "--policy is required when --section=credentialplugin"),
            (
                "--section=credentialplugin --policy=A",
                " --policy must be  \"AllowAll\", \"DenyAll\", or \"Allowlist\", got: A",
            ),
            (
                "--section=credentialplugin --policy=Allowlist --allowlist-entry=a --allowlist-entry=name=b,command=",
                "[improperly formatted allowlist entry: \"a\", allowlist entry field \"name\" is deprecated, use \
                 \"command\" instead, empty value in allowlist entry for field \"command\"]",
            ),
        ] {
            let line: Vec<&str> = line.split(' ').collect();
            assert_eq!(set(&mut empty(), &line).unwrap_err(), expect, "{line:?}");
        }
    }
}
