//! Cache of the compressed OpenAPI documents.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use openapi::CompressedDocument;

/// Cached OpenAPI documents by path, with the hash of their input.
#[derive(Default)]
pub struct OpenApiCache(Mutex<BTreeMap<String, (String, Arc<CompressedDocument>)>>);

impl OpenApiCache {
    /// Returns the cached document; makes it again if the hash has changed.
    pub fn get(&self, key: &str, hash: String, make: impl FnOnce() -> CompressedDocument) -> Arc<CompressedDocument> {
        if let Some((have, packed)) = self.0.lock().expect("no holder panics").get(key)
            && *have == hash
        {
            return packed.clone();
        }
        // The document is made without the lock: making it is slow, and making it twice does no harm.
        let packed = Arc::new(make());
        self.0.lock().expect("no holder panics").insert(key.to_owned(), (hash, packed.clone()));
        packed
    }
}
