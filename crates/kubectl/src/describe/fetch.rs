//! Reads an object and the related objects of its description.

use apimachinery::{Resource, Value};
use client::{Client, ListOptions, Target};

use super::query::{Events, Query, Tolerate};
use super::{Clock, Kind, RelatedObjects, find, render};

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub show_events: bool,
    /// Maximum objects per response; zero for all.
    pub chunk_size: u32,
}

#[derive(Debug)]
pub enum Error {
    /// The server rejected a request or could not be reached.
    Client(client::Error),
    /// The object cannot be described.
    Object(String),
}

/// Reads an object and returns its description.
pub async fn describe(
    client: &Client,
    resource: &Resource,
    (namespace, name): (&str, &str),
    settings: Settings,
    clock: &Clock,
) -> Result<String, Error> {
    let kind = find(&resource.group, &resource.kind);
    let object = read(client, kind, resource, namespace, name).await?;
    let mut related = RelatedObjects::default();
    for query in kind.map_or(Ok(Vec::new()), |kind| (kind.related)(&object)).map_err(Error::Object)? {
        let response = response(client, &query, settings.chunk_size).await?;
        related.responses.push((query, response));
    }
    let events = kind.map_or(Events::Object, |kind| kind.events);
    if settings.show_events && events != Events::None {
        let mut found = Vec::new();
        for query in events.queries(&object) {
            found.extend(response(client, &query, settings.chunk_size).await?.unwrap_or_default());
        }
        related.events = Some(found);
    }
    render(kind, &object, &related, clock).map_err(Error::Object)
}

/// Reads the object in the version of its kind's description, or in an older one.
async fn read(
    client: &Client,
    kind: Option<&Kind>,
    resource: &Resource,
    namespace: &str,
    name: &str,
) -> Result<Value, Error> {
    let first = kind.map_or(resource, |kind| &kind.resource);
    let object = client.get(&Target::named(first, namespace, name)).await;
    let object = match (object, kind.and_then(|kind| kind.older.as_ref())) {
        (Err(_), Some(older)) => client.get(&Target::named(older, namespace, name)).await,
        (object, _) => object,
    };
    object.map_err(Error::Client)
}

/// Returns the objects that a query selects, or the message of a tolerated failure.
async fn response(client: &Client, query: &Query, chunk_size: u32) -> Result<Result<Vec<Value>, String>, Error> {
    let found = if query.name.is_empty() {
        let options = ListOptions {
            label_selector: query.label_selector.clone(),
            field_selector: query.field_selector.clone(),
            limit: chunk_size,
            ..ListOptions::default()
        };
        client.list_all(&Target::within(query.resource, query.namespace.clone()), &options).await.map(|list| list.items)
    } else {
        let target = Target::named(query.resource, query.namespace.clone(), query.name.clone());
        client.get(&target).await.map(|object| vec![object])
    };
    found.map(Ok).or_else(|error| {
        let tolerated = match query.tolerate {
            Tolerate::None => false,
            Tolerate::NotFound => error.is_not_found(),
            Tolerate::Forbidden => error.is_forbidden(),
            Tolerate::All => true,
        };
        if tolerated { Ok(Err(error.to_string())) } else { Err(Error::Client(error)) }
    })
}
