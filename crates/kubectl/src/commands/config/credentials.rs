//! `kubectl config set-credentials`.

use std::collections::BTreeMap;
use std::io::Write;

use apimachinery::{Object, Value, go};

use super::entries::{check_file, set_file};
use super::help_failure;
use crate::command::{Command, Flag};
use crate::kubeconfig::{Entry, Files};
use crate::{Context, Failure, Invocation};

pub(super) static SET_CREDENTIALS: Command = Command {
    name: "set-credentials",
    summary: "Add or change a user of the kubeconfig",
    description: "Add a user to the kubeconfig, or change the given fields of an existing one. A user authenticates \
        with a client certificate, a bearer token, a user name and password, an auth provider, or an exec \
        plugin. A token and a password exclude each other.",
    examples: r#"  # Authenticate as alice with a client certificate, and copy it into the kubeconfig
  kubectl config set-credentials alice --client-certificate=alice.crt --client-key=alice.key --embed-certs

  # Authenticate as deployer with a bearer token
  kubectl config set-credentials deployer --token="$TOKEN"

  # Get the credentials of alice from a program
  kubectl config set-credentials alice --exec-command=corp-login --exec-api-version=client.authentication.k8s.io/v1

  # Set the environment variable REALM of that program and remove DEBUG
  kubectl config set-credentials alice --exec-env=REALM=prod --exec-env=DEBUG-

  # Use OpenID Connect
  kubectl config set-credentials bob --auth-provider=oidc --auth-provider-arg=client-id=kubectl"#,
    usage: "kubectl config set-credentials NAME [--client-certificate=path/to/certfile] [--client-key=path/to/keyfile] [--token=bearer_token] [--username=basic_user] [--password=basic_password] [--auth-provider=provider_name] [--auth-provider-arg=key=value] [--exec-command=exec_command] [--exec-api-version=exec_api_version] [--exec-arg=arg] [--exec-env=key=value] [options]",
    flags: &[&[
        Flag::text("auth-provider", "", "Auth provider of the user."),
        Flag::list("auth-provider-arg", "Setting of the auth provider as 'key=value', or 'key-' to remove it."),
        Flag::text("client-certificate", "", "File with the user's client certificate."),
        Flag::text("client-key", "", "File with the private key of the client certificate."),
        Flag::bool("embed-certs", "Copy the contents of the certificate and key files into the kubeconfig."),
        Flag::text("exec-api-version", "", "API version of the exec plugin."),
        Flag::list("exec-arg", "Argument of the exec plugin; the given arguments replace all earlier ones."),
        Flag::text("exec-command", "", "Program to run as the exec plugin."),
        Flag::array("exec-env", "Environment variable of the exec plugin as 'key=value', or 'key-' to remove it."),
        Flag::text("exec-interactive-mode", "", "Whether the exec plugin may read standard input (interactiveMode)."),
        Flag::bool("exec-provide-cluster-info", "Pass the cluster entry to the exec plugin (provideClusterInfo)."),
        Flag::text("password", "", "Password of the user for basic authentication."),
        Flag::text("token", "", "Bearer token of the user."),
        Flag::text("username", "", "User name for basic authentication."),
    ]],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let [name] = invocation.args.as_slice() else {
        let message = format!("unexpected args: [{}]", invocation.args.join(" "));
        return Err(help_failure(context, invocation, message));
    };
    let pairs = |flag| Pairs::parse(&invocation.list(flag), flag);
    let (provider, environment) = match (pairs("auth-provider-arg"), pairs("exec-env")) {
        (Ok(provider), Ok(environment)) => (provider, environment),
        (Err(failure), _) | (_, Err(failure)) => return Err(help_failure(context, invocation, failure.message)),
    };
    validate(name, invocation)?;
    let files = Files::of(context);
    let old = files.load()?;
    let mut new = old.clone();
    let user = new.users.entry(name.clone()).or_default();
    change_secrets(user, invocation)?;
    change_provider(user, invocation, &provider);
    change_exec(user, invocation, &environment);
    files.save(&old, &new, true)?;
    Ok(writeln!(context.out(), "User {} set.", go::quote(name))?)
}

fn validate(name: &str, invocation: &Invocation) -> Result<(), Failure> {
    if name.is_empty() {
        return Err(Failure::new("you must specify a non-empty user name"));
    }
    let has = |flag| !invocation.text(flag).is_empty();
    if has("token") && (has("username") || has("password")) {
        return Err(Failure::new(
            "you cannot specify more than one authentication method at the same time: --token, --username/--password",
        ));
    }
    if !invocation.bool("embed-certs") {
        return Ok(());
    }
    if !has("client-certificate") && !has("client-key") {
        return Err(Failure::new("you must specify a --client-certificate or --client-key to embed"));
    }
    let flags = ["client-certificate", "client-key"].into_iter().filter(|flag| has(flag));
    flags.into_iter().try_for_each(|flag| check_file(flag, invocation.text(flag)))
}

fn change_secrets(user: &mut Entry, invocation: &Invocation) -> Result<(), Failure> {
    for flag in ["client-certificate", "client-key"] {
        if invocation.is_set(flag) {
            set_file(user, invocation, flag)?;
        }
    }
    for flag in ["token", "username", "password"] {
        if invocation.is_set(flag) {
            user.set(flag, invocation.text(flag));
        }
    }
    // A new way to log in replaces the other.
    let given = |flag| invocation.is_set(flag) && !invocation.text(flag).is_empty();
    let (token, basic) = (given("token"), given("username") || given("password"));
    if basic && !token {
        user.set("token", "");
    }
    if token && !basic {
        user.set("username", "");
        user.set("password", "");
    }
    Ok(())
}

fn change_provider(user: &mut Entry, invocation: &Invocation, pairs: &Pairs) {
    if invocation.is_set("auth-provider") {
        let name = invocation.text("auth-provider");
        if user.fields.get("auth-provider").and_then(|provider| provider.str_at(&["name"])) != Some(name) {
            let provider: Object = [("name", name)].into_iter().collect();
            user.fields.insert("auth-provider", provider);
        }
    }
    let Some(provider) = user.fields.get_mut("auth-provider").and_then(Value::as_object_mut) else { return };
    if provider.get("config").is_none_or(Value::is_null) {
        provider.insert("config", Value::object());
    }
    let Some(config) = provider.get_mut("config").and_then(Value::as_object_mut) else { return };
    pairs.removed.iter().for_each(|key| drop(config.remove(key)));
    pairs.new.iter().for_each(|(key, value)| drop(config.insert(key.as_str(), value.as_str())));
}

fn change_exec(user: &mut Entry, invocation: &Invocation, environment: &Pairs) {
    if invocation.is_set("exec-command") {
        let exec = user.fields.get_or_insert_with("exec", Value::object);
        if let Some(exec) = exec.as_object_mut() {
            exec.insert("command", invocation.text("exec-command"));
            exec.remove("args");
        }
    }
    let Some(exec) = user.fields.get_mut("exec").and_then(Value::as_object_mut) else { return };
    if invocation.is_set("exec-api-version") {
        exec.insert("apiVersion", invocation.text("exec-api-version"));
    }
    let arguments = invocation.list("exec-arg");
    if !arguments.is_empty() {
        exec.insert("args", arguments.into_iter().map(Value::from).collect::<Vec<_>>());
    }
    if invocation.is_set("exec-interactive-mode") {
        exec.insert("interactiveMode", invocation.text("exec-interactive-mode"));
    }
    if invocation.is_set("exec-provide-cluster-info") {
        exec.insert("provideClusterInfo", invocation.bool("exec-provide-cluster-info"));
    }
    if !environment.removed.is_empty() || !environment.new.is_empty() {
        let old = exec.get("env").and_then(Value::as_array).unwrap_or_default().to_vec();
        exec.insert("env", environment.applied(old));
    }
}

/// Keys with new values, and keys to remove.
#[derive(Debug, Default)]
struct Pairs {
    new: BTreeMap<String, String>,
    removed: Vec<String>,
}

impl Pairs {
    /// Parses `key=value` and `key-`.
    fn parse(texts: &[String], flag: &str) -> Result<Self, Failure> {
        let mut pairs = Self::default();
        let mut invalid = Vec::new();
        for text in texts {
            match (text.split_once('='), text.strip_suffix('-')) {
                (Some((key, value)), _) if !key.is_empty() => drop(pairs.new.insert(key.to_owned(), value.to_owned())),
                (None, Some(key)) if !key.is_empty() => pairs.removed.push(key.to_owned()),
                _ => invalid.push(text.as_str()),
            }
        }
        match invalid.is_empty() {
            true => Ok(pairs),
            false => Err(Failure::new(format!("invalid {flag} format: {}", invalid.join(", ")))),
        }
    }

    /// Returns environment variables with these changes.
    fn applied(&self, old: Vec<Value>) -> Vec<Value> {
        let name = |variable: &Value| variable.str_at(&["name"]).unwrap_or_default().to_owned();
        let mut variables: Vec<Value> = old.into_iter().filter(|old| !self.removed.contains(&name(old))).collect();
        for (key, value) in &self.new {
            let new: Object = [("name", key.as_str()), ("value", value.as_str())].into_iter().collect();
            match variables.iter_mut().find(|variable| name(variable) == *key) {
                Some(variable) => *variable = Value::Object(new),
                None => variables.push(Value::Object(new)),
            }
        }
        variables
    }
}
