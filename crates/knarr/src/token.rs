//! `knarr token`: join tokens of the cluster.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use apimachinery::meta::Meta;
use apimachinery::{Object, Value, value};
use auth::bootstrap_token::{NAMESPACE, SECRET_TYPE};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use clap::{ArgMatches, Args, FromArgMatches, Subcommand};
use client::config::Kubeconfig;
use client::{Client, DeleteOptions, ListOptions, Patch, Settings, Target, WriteOptions};
use component_base::clock;
use pki::Pki;

use crate::component;
use crate::join::{GROUP, JoinToken, SECRETS, SERVERS, SHARED, bundle, pin};
use crate::output::outln;

/// Manage join tokens of the cluster on this host.
#[derive(Args, Debug)]
struct Tokens {
    /// Data directory of the cluster.
    #[arg(long, default_value = "/var/lib/knarr", global = true)]
    data_dir: PathBuf,
    #[command(subcommand)]
    what: TokenCommand,
}

#[derive(Subcommand, Debug)]
enum TokenCommand {
    /// Create a token and print it.
    Create {
        /// Lifetime of the token.
        #[arg(long, default_value = "24h", value_parser = component::duration)]
        ttl: Duration,
        /// Create a token for servers. It contains the key of the files that all servers share, so keep it secret.
        #[arg(long)]
        server: bool,
    },
    /// List tokens.
    Ls,
    /// Revoke a token. Nodes that have joined with it stay.
    Rm {
        /// ID of the token: the part before the first dot.
        id: String,
    },
}

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    Tokens::augment_args(command)
}

pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let Tokens { data_dir, what } = Tokens::from_arg_matches(matches)?;
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    executor.block_on(async {
        let client = admin(&data_dir)?;
        match what {
            TokenCommand::Create { ttl, server: false } => {
                outln!("{}", create(&client, &data_dir, ttl, &[GROUP]).await?);
            }
            TokenCommand::Create { ttl, server: true } => {
                outln!("{}", create_for_server(&client, &data_dir, ttl).await?);
            }
            TokenCommand::Ls => list(&client).await?,
            TokenCommand::Rm { id } => {
                let name = format!("bootstrap-token-{id}");
                let target = Target::named(&SECRETS, NAMESPACE, &name);
                client
                    .delete(&target, &DeleteOptions::default())
                    .await
                    .with_context(|| format!("failed to delete token {id}"))?;
                outln!("token {id} revoked");
            }
        }
        Ok(())
    })
}

/// Returns an admin client for the cluster of a data directory.
pub(crate) fn admin(data_dir: &Path) -> Result<Client> {
    let file = data_dir.join("admin.kubeconfig");
    ensure!(file.is_file(), "no cluster in {}; start one with `knarr up`", data_dir.display());
    let config = Kubeconfig::load(&[file])?.config(None)?;
    Ok(Client::connect(&config, Settings { attempts_max: 1, ..Settings::default() })?)
}

/// Creates a bootstrap token that expires after `ttl` and has the given groups.
pub(crate) async fn create(client: &Client, data_dir: &Path, ttl: Duration, groups: &[&str]) -> Result<JoinToken> {
    let ca = data_dir.join("pki").join("ca.crt");
    let ca = std::fs::read_to_string(&ca).with_context(|| format!("{}", ca.display()))?;
    let (id, secret) = (random(6)?, random(16)?);
    let ends = clock::now().plus(apimachinery::time::Duration::from_nanos(i64::try_from(ttl.as_nanos())?));
    let object = value!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": SECRET_TYPE,
        "metadata": {"name": (format!("bootstrap-token-{id}")), "namespace": NAMESPACE},
        "stringData": {
            "token-id": (id.as_str()),
            "token-secret": (secret.as_str()),
            "expiration": (ends.to_string()),
            "usage-bootstrap-authentication": "true",
            "usage-bootstrap-signing": "true",
            "auth-extra-groups": (groups.join(",")),
        },
    });
    let target = Target::within(&SECRETS, NAMESPACE);
    client.create(&target, &object, &WriteOptions::default()).await.context("failed to store the token")?;
    Ok(JoinToken { token: format!("{id}.{secret}"), pin: pin(&ca)?, key: None })
}

/// Creates a token for servers and stores the encrypted shared files for it. Removes those of tokens that no longer
/// exist.
async fn create_for_server(client: &Client, data_dir: &Path, ttl: Duration) -> Result<JoinToken> {
    let key = bundle::new_key()?;
    let encrypted = bundle::encrypt(&Pki::open(&data_dir.join("pki"))?, &key)?;
    let token = create(client, data_dir, ttl, &[GROUP, SERVERS]).await?;
    let target = Target::named(&SECRETS, NAMESPACE, SHARED);
    let known = client.list_all(&Target::within(&SECRETS, NAMESPACE), &ListOptions::default()).await?.items;
    let has = |id: &str| known.iter().any(|secret| Meta::of(secret).name() == format!("bootstrap-token-{id}"));
    let there = known.iter().find(|secret| Meta::of(secret).name() == SHARED);
    let mut data: Object = [(token.id().to_owned(), Value::from(BASE64.encode(encrypted)))].into_iter().collect();
    let Some(there) = there else {
        let object = value!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SHARED, "namespace": NAMESPACE},
            "data": (Value::Object(data))});
        client.create(&Target::within(&SECRETS, NAMESPACE), &object, &WriteOptions::default()).await?;
        return Ok(JoinToken { key: Some(key), ..token });
    };
    let shared = there.get("data").and_then(Value::as_object);
    for (id, _) in shared.into_iter().flat_map(Object::iter).filter(|(id, _)| !has(id)) {
        data.insert(id.to_owned(), Value::Null);
    }
    let patch = Patch::Merge(value!({"data": (Value::Object(data))}));
    client.patch(&target, &patch, &WriteOptions::default()).await.context("failed to store the key bundle")?;
    Ok(JoinToken { key: Some(key), ..token })
}

async fn list(client: &Client) -> Result<()> {
    let options = ListOptions { field_selector: format!("type={SECRET_TYPE}"), ..ListOptions::default() };
    outln!("{:<8} {:<22} GROUPS", "ID", "EXPIRES");
    for secret in client.list_all(&Target::within(&SECRETS, NAMESPACE), &options).await?.items {
        let name = Meta::of(&secret).name().to_owned();
        let id = name.strip_prefix("bootstrap-token-").unwrap_or(&name);
        let ends = field(&secret, "expiration");
        outln!("{id:<8} {:<22} {}", if ends.is_empty() { "never" } else { &ends }, field(&secret, "auth-extra-groups"));
    }
    Ok(())
}

fn field(secret: &Value, name: &str) -> String {
    let text = secret.str_at(&["data", name]).and_then(|text| BASE64.decode(text).ok()).unwrap_or_default();
    String::from_utf8(text).unwrap_or_default()
}

/// Returns random lower-case letters and digits from a secure source.
fn random(length: usize) -> Result<String> {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let mut bytes = vec![0; length];
    aws_lc_rs::rand::fill(&mut bytes).ok().context("failed to read random bytes")?;
    Ok(bytes.into_iter().map(|byte| char::from(LETTERS[usize::from(byte) % LETTERS.len()])).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_parts_form_a_valid_token() {
        let drawn = format!("{}.{}", random(6).unwrap(), random(16).unwrap());
        assert!(auth::bootstrap_token::Token::parse(&drawn).is_some(), "{drawn}");
        assert_ne!(random(16).unwrap(), random(16).unwrap());
    }
}
