//! The built user interface, embedded as gzip files.

use std::io::Read;
use std::sync::LazyLock;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::HeaderValue;

/// Names and gzip contents of all assets, sorted by name.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/assets.rs"));
/// Maximum size of an asset without compression.
const UNPACKED_BYTES_MAX: u64 = 16 << 20;

/// The name of the page.
pub(crate) const INDEX: &str = "index.html";

/// Media types by the extension of the name.
const MEDIA_TYPES: &[(&str, &str)] = &[
    (".css", "text/css; charset=utf-8"),
    (".html", "text/html; charset=utf-8"),
    (".js", "text/javascript; charset=utf-8"),
    (".svg", "image/svg+xml"),
    (".txt", "text/plain; charset=utf-8"),
    (".webmanifest", "application/manifest+json"),
    (".woff2", "font/woff2"),
];

/// An embedded file.
#[derive(Debug)]
pub(crate) struct Asset {
    name: &'static str,
    gzip: &'static [u8],
    pub media_type: &'static str,
    /// The hash of the compressed content in quotes.
    pub etag: HeaderValue,
}

static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| FILES.iter().filter_map(asset).collect());

/// Finds an asset by its exact name. There is no file system behind it.
pub(crate) fn find(name: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.name == name)
}

impl Asset {
    pub(crate) fn gzip(&self) -> Bytes {
        Bytes::from_static(self.gzip)
    }

    /// Returns the content without compression, for clients that do not accept gzip.
    pub(crate) fn unpacked(&self) -> std::io::Result<Bytes> {
        let mut content = Vec::new();
        flate2::read::GzDecoder::new(self.gzip).take(UNPACKED_BYTES_MAX).read_to_end(&mut content)?;
        Ok(content.into())
    }
}

fn asset((name, gzip): &(&'static str, &'static [u8])) -> Option<Asset> {
    let (_, media_type) = MEDIA_TYPES.iter().find(|(extension, _)| name.ends_with(extension))?;
    let hash = URL_SAFE_NO_PAD.encode(digest(&SHA256, gzip));
    let etag = HeaderValue::try_from(format!("\"{hash}\"")).expect("base64 is visible ASCII");
    Some(Asset { name, gzip, media_type, etag })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_asset_has_a_media_type_and_unpacks() {
        assert_eq!(ASSETS.len(), FILES.len());
        for asset in ASSETS.iter() {
            assert!(!asset.unpacked().unwrap().is_empty(), "{}", asset.name);
        }
    }

    #[test]
    fn assets_are_less_than_400_kb_compressed() {
        let bytes: usize = FILES.iter().map(|(_, gzip)| gzip.len()).sum();
        assert!(bytes < 400_000, "{bytes} bytes");
    }

    #[test]
    fn page_loads_scripts_and_styles_only_from_files() {
        let page = String::from_utf8(find(INDEX).unwrap().unpacked().unwrap().to_vec()).unwrap();
        for script in page.split("<script").skip(1) {
            let (attributes, content) = script.split_once('>').unwrap();
            assert!(attributes.contains(" src=\"") && content.starts_with("</script>"), "{script}");
        }
        assert!(!page.contains("<style") && !page.contains(" style=") && !page.contains(" onload="), "{page}");
    }
}
