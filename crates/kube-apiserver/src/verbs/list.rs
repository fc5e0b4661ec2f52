//! List: GET of a collection.

use std::sync::Arc;

use api::codec;
use api_registry::negotiate::{Encoding, Form};
use api_registry::options::ListOptions;
use api_registry::paging::{self, Continue};
use api_registry::selection::Selection;
use apimachinery::Object;
use apimachinery::status::Status;
use bytes::Bytes;
use mvcc::{Range, Revision, Span};
use store::client::ClientError;

use super::get::{parse_version, wait};
use super::selected::{Item, Selecting};
use super::{Call, render};
use crate::conversion;
use crate::encrypted_store;
use crate::response::{self, HttpResponse};
use crate::storage::unavailable;
use crate::watch_cache::{Entry, KindCache};

/// A page of a list.
struct Page {
    items: Vec<Item>,
    revision: Revision,
    /// The start key of the next page, and the number of remaining objects if known.
    rest: Option<(String, Option<i64>)>,
}

/// Serves the selected objects of a collection.
pub(super) async fn serve(call: &Call<'_>) -> Result<HttpResponse, Status> {
    let options = ListOptions::of_list(&call.request.query)?;
    let selection = Selection::of(&call.kind, call.version(), &options)?;
    let kind_cache = call.state.storage.cache.kind_cache(&call.kind);
    let selecting = selecting(call, &kind_cache, &selection);
    let mut page = page(call, &options, &selecting).await?;
    let mut metadata = Object::new();
    metadata.insert("resourceVersion", page.revision.to_string().as_str());
    if let Some((start, remaining)) = &page.rest {
        let token = Continue { revision: page.revision, start: start.clone() }.token();
        metadata.insert("continue", token.as_str());
        if let Some(remaining) = remaining {
            metadata.insert("remainingItemCount", *remaining);
        }
    }
    let accepted = call.accepted;
    if accepted.encoding == Encoding::Json
        && accepted.form == Form::Object
        && page.items.iter().all(|item| conversion::is_servable(&call.kind, call.version(), &item.entry))
    {
        return Ok(response::json(200, spliced(call, &page.items, &metadata), accepted));
    }
    selecting.convert(&mut page.items, |_| true).await?;
    render::many(call, page.items.into_iter().filter_map(|item| item.object).collect(), metadata)
}

/// Returns the selection of a request on the watch cache of its kind.
pub(super) fn selecting<'c>(call: &'c Call<'_>, kind_cache: &'c KindCache, selection: &'c Selection) -> Selecting<'c> {
    Selecting { state: &call.state, kind_cache, kind: &call.kind, version: call.version(), selection }
}

/// Returns the list as single-line JSON, assembled from the bytes of its objects. Upstream represents a list of custom
/// resources as a map, so its keys are sorted.
fn spliced(call: &Call<'_>, items: &[Item], metadata: &Object) -> Vec<u8> {
    const ITEMS: &[u8] = b"\"items\":[";
    let size: usize = items.iter().map(|item| item.entry.size()).sum();
    let mut out = Vec::with_capacity(size + 256);
    let list = render::list_of(&call.kind, call.version(), Vec::new(), metadata.clone());
    codec::JSON.write(&list, &mut out);
    let at = out.windows(ITEMS.len()).rposition(|window| window == ITEMS).expect("a list has items") + ITEMS.len();
    let rest = out.split_off(at);
    let is_built_in = matches!(call.version().shape, api::kind::Shape::BuiltIn(_));
    for (at, Item { entry, .. }) in items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        if is_built_in {
            entry.write_item(&mut out);
        } else {
            entry.write(entry.revision, &mut out);
        }
    }
    out.extend_from_slice(&rest);
    out
}

/// Returns a page at the revision that the options request.
async fn page(call: &Call<'_>, options: &ListOptions, selecting: &Selecting<'_>) -> Result<Page, Status> {
    if !options.continue_token.is_empty() {
        let token = Continue::parse(&options.continue_token)?;
        if !matches!(options.resource_version.as_str(), "" | "0") {
            return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
        }
        return continued(call, options, selecting, token).await;
    }
    let version = match options.resource_version.as_str() {
        "" => None,
        text => Some(parse_version(text)?),
    };
    let exact = options.resource_version_match == "Exact"
        || (options.resource_version_match.is_empty()
            && options.limit > 0
            && version.is_some_and(|version| version > 0));
    match version {
        Some(version) if exact => stored(call, options, selecting, version, None).await,
        Some(version) => {
            wait(call, version).await?;
            cached(call, options, selecting).await
        }
        None => {
            call.state.storage.catch_up().await?;
            cached(call, options, selecting).await
        }
    }
}

/// Returns a page from the watch cache.
async fn cached(call: &Call<'_>, options: &ListOptions, selecting: &Selecting<'_>) -> Result<Page, Status> {
    // The revision is read first, so the entries are at least as new.
    let revision = call.state.storage.cache.reached();
    let entries = selecting.kind_cache.list(call.namespace(), |entry| selecting.may_see(entry));
    let mut items = selecting.select(entries).await?;
    let rest = cut(call, &mut items, options.limit, selecting.selection);
    Ok(Page { items, revision, rest })
}

/// Truncates the items to the limit and returns the start of the next page.
fn cut(call: &Call<'_>, items: &mut Vec<Item>, limit: i64, selection: &Selection) -> Option<(String, Option<i64>)> {
    let limit = usize::try_from(limit).ok().filter(|limit| *limit > 0 && items.len() > *limit)?;
    let left = i64::try_from(items.len() - limit).ok();
    items.truncate(limit);
    let last = items.last().map(|item| below(call, &item.entry.key)).unwrap_or_default();
    // With a selector the number of remaining objects is unknown.
    Some((format!("{last}\u{0}"), left.filter(|_| selection.is_everything())))
}

/// Returns the key for a continue token. For a list of one namespace the key is relative to the namespace.
fn below(call: &Call<'_>, key: &str) -> String {
    let namespace = call.namespace();
    match key.strip_prefix(namespace).and_then(|rest| rest.strip_prefix('/')) {
        Some(rest) if !namespace.is_empty() => rest.to_owned(),
        _ => key.to_owned(),
    }
}

/// Continues a list at the revision of its first page. A token with a negative revision continues at the latest
/// revision.
async fn continued(
    call: &Call<'_>,
    options: &ListOptions,
    selecting: &Selecting<'_>,
    token: Continue,
) -> Result<Page, Status> {
    if token.revision < 0 {
        call.state.storage.catch_up().await?;
        let revision = call.state.storage.cache.reached();
        return stored(call, options, selecting, revision, Some(&token.start)).await;
    }
    stored(call, options, selecting, token.revision, Some(&token.start)).await
}

/// Returns a page from the store at a revision. Reads the rest of the collection and truncates it to the limit.
async fn stored(
    call: &Call<'_>,
    options: &ListOptions,
    selecting: &Selecting<'_>,
    revision: Revision,
    start: Option<&str>,
) -> Result<Page, Status> {
    let prefix = call.state.storage.layout.span_start(&call.kind, call.namespace());
    let whole = Span::prefix(prefix.clone().into_bytes());
    let from = start.map_or_else(|| whole.start.clone(), |start| Bytes::from(format!("{prefix}{start}")));
    let range = Range { revision, ..Range::of(Span { start: from, end: whole.end.clone() }) };
    let (found, _) = call.state.storage.store.range(range).await.map_err(|error| match (&error, start) {
        (encrypted_store::Error::Store(ClientError::Rejected(mvcc::Error::Compacted { .. })), Some(start)) => {
            paging::expired(start)
        }
        _ => unavailable(&error),
    })?;
    let kind_start = call.state.storage.layout.span_start(&call.kind, "");
    let entries = found.into_iter().filter_map(|found| {
        let key = std::str::from_utf8(&found.key).ok()?.strip_prefix(&kind_start)?;
        let value = found.value.ok().flatten()?;
        Entry::new(key, value, found.revision, selecting.kind_cache.selectable()).ok().map(Arc::new)
    });
    let entries = entries.filter(|entry| selecting.may_see(entry)).collect();
    let mut items = selecting.select(entries).await?;
    let rest = cut(call, &mut items, options.limit, selecting.selection);
    Ok(Page { items, revision, rest })
}
