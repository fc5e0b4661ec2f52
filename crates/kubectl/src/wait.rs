//! Waits until an object fulfils a condition, by a list and a watch of it.

use std::time::Duration;

use apimachinery::Value;
use apimachinery::meta::Meta;
use client::{Client, Event, ListOptions, Target, WatchOptions};
use tokio::time::{Instant, sleep, timeout_at};

use crate::Failure;
use crate::resources::Info;

/// The delay before a watch that ended immediately is restarted.
const PAUSE: Duration = Duration::from_millis(200);

/// The time limit of a wait for which no limit is given: a week.
pub const FOREVER: Duration = Duration::from_secs(168 * 3600);

/// Waits until `check` returns a result for the state of an object: `None` after its deletion. Returns `None` at the
/// deadline.
pub async fn until<T>(
    client: &Client,
    info: &Info,
    deadline: Instant,
    mut check: impl FnMut(Option<&Value>) -> Result<Option<T>, Failure>,
) -> Result<Option<T>, Failure> {
    match timeout_at(deadline, watch(client, info, &mut check)).await {
        Ok(done) => done.map(Some),
        Err(_) => Ok(None),
    }
}

async fn watch<T>(
    client: &Client,
    info: &Info,
    check: &mut impl FnMut(Option<&Value>) -> Result<Option<T>, Failure>,
) -> Result<T, Failure> {
    let target = Target::within(&info.mapping.resource, info.namespace.as_str());
    let field_selector = format!("metadata.name={}", info.name);
    loop {
        let options = ListOptions { field_selector: field_selector.clone(), ..ListOptions::default() };
        let list = client.list(&target, &options).await?;
        if let Some(done) = check(list.items.first())? {
            return Ok(done);
        }
        let options = WatchOptions {
            field_selector: field_selector.clone(),
            resource_version: list.resource_version,
            ..WatchOptions::default()
        };
        let mut events = client.watch(&target, &options).await?;
        // An error or the end of a watch is a reason to list again.
        while let Some(Ok(event)) = events.next().await {
            let done = match &event {
                Event::Added(object) | Event::Modified(object) => check(Some(object))?,
                Event::Deleted(_) => check(None)?,
                Event::Bookmark { .. } => None,
            };
            if let Some(done) = done {
                return Ok(done);
            }
        }
        sleep(PAUSE).await;
    }
}

/// Waits until an object is deleted, or replaced by another one if its UID is given.
pub async fn deleted(client: &Client, info: &Info, uid: Option<&str>, deadline: Instant) -> Result<(), Failure> {
    let deleted = |object: Option<&Value>| {
        Ok(match (object, uid) {
            (None, _) => Some(()),
            (Some(object), Some(uid)) if Meta::of(object).uid() != uid => Some(()),
            _ => None,
        })
    };
    match client.get(&info.target()).await {
        Err(error) if error.is_not_found() => return Ok(()),
        Err(error) => return Err(error.into()),
        Ok(object) if deleted(Some(&object))?.is_some() => return Ok(()),
        Ok(_) => {}
    }
    until(client, info, deadline, deleted).await?.ok_or_else(|| timed_out(info))
}

/// Returns the failure of a wait that reached its deadline.
pub fn timed_out(info: &Info) -> Failure {
    Failure::new(format!("timed out waiting for the condition on {}/{}", info.mapping.resource.plural, info.name))
}
