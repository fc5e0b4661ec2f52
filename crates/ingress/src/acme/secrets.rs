//! The Secrets of issued certificates, and of the account.

use apimachinery::value;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::{Client, Patch, Target, WriteOptions};
use controller::kinds::SECRETS;
use instant_acme::AccountCredentials;

use super::IssueError;
use crate::plan::acme::Order;
use crate::plan::objects::ISSUER;

/// Namespace and name of the Secret with the account.
const ACCOUNT: (&str, &str) = ("kube-system", "knarr-ingress-acme");

/// Writes a certificate. A Secret that another client has created or changed since the plan is kept.
pub(super) async fn write(client: &Client, order: &Order, chain: &str, key: &str) -> Result<(), client::Error> {
    let data = value!({"tls.crt": (STANDARD.encode(chain)), "tls.key": (STANDARD.encode(key))});
    let written = match order.replaces {
        None => {
            let secret = value!({
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {
                    "namespace": (order.secret.namespace.clone()),
                    "name": (order.secret.name.clone()),
                    "labels": {"app.kubernetes.io/managed-by": ISSUER},
                },
                "type": "kubernetes.io/tls",
                "data": (data),
            });
            let target = Target::within(&SECRETS, order.secret.namespace.clone());
            client.create(&target, &secret, &WriteOptions::default()).await
        }
        Some(revision) => {
            let patch = value!({"metadata": {"resourceVersion": (revision.to_string())}, "data": (data)});
            let target = Target::object(&SECRETS, &order.secret);
            client.patch(&target, &Patch::Merge(patch), &WriteOptions::default()).await
        }
    };
    match written {
        Err(error) if error.is_already_exists() || error.is_conflict() => Ok(()),
        written => written.map(drop),
    }
}

/// Returns the stored account of a server.
pub(super) async fn account(client: &Client, directory: &str) -> Result<Option<AccountCredentials>, IssueError> {
    let stored = match client.get(&Target::named(&SECRETS, ACCOUNT.0, ACCOUNT.1)).await {
        Ok(stored) => stored,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    // An account is valid for one server only.
    if stored.str_at(&["data", "directory"]) != Some(&STANDARD.encode(directory)) {
        return Ok(None);
    }
    let unusable = |error: &dyn std::fmt::Display| IssueError::Account(error.to_string());
    let text = stored.str_at(&["data", "account"]).unwrap_or_default();
    let json = STANDARD.decode(text).map_err(|error| unusable(&error))?;
    serde_json::from_slice(&json).map(Some).map_err(|error| unusable(&error))
}

/// Stores the account, and replaces an account of another server.
pub(super) async fn store_account(
    client: &Client,
    directory: &str,
    credentials: &AccountCredentials,
) -> Result<(), IssueError> {
    let json = serde_json::to_vec(credentials).map_err(|error| IssueError::Account(error.to_string()))?;
    let (namespace, name) = ACCOUNT;
    let secret = value!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": namespace, "name": name, "labels": {"app.kubernetes.io/managed-by": ISSUER}},
        "data": {"directory": (STANDARD.encode(directory)), "account": (STANDARD.encode(json))},
    });
    let created = client.create(&Target::within(&SECRETS, namespace), &secret, &WriteOptions::default()).await;
    match created {
        Err(error) if error.is_already_exists() => {
            let target = Target::named(&SECRETS, namespace, name);
            client.patch(&target, &Patch::Merge(secret), &WriteOptions::default()).await?;
        }
        created => drop(created?),
    }
    Ok(())
}
