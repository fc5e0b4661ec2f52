//! An image registry on the loopback interface, well-behaved or hostile.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

use image_store::Digest;
use serde_json::{Value, json};

pub(crate) const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Content and behaviour of a registry.
#[derive(Clone, Default)]
pub(crate) struct Registry {
    /// Blobs by digest.
    pub blobs: BTreeMap<String, Vec<u8>>,
    /// Digest and media type of the manifest of each repository.
    pub tags: BTreeMap<String, (String, String)>,
    /// Required value of the `Authorization` header.
    pub authorization: Option<&'static str>,
    /// Whether requests without credentials are referred to a token endpoint.
    pub tokens: bool,
    /// Required value of the `Authorization` header at the token endpoint.
    pub token_authorization: Option<&'static str>,
    /// Certificate and key of a registry that uses TLS.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Whether every request fails.
    pub fails: bool,
}

impl Registry {
    /// Adds all blobs of an image store.
    pub(crate) fn add_store(&mut self, dir: &Path) {
        for entry in fs::read_dir(dir.join("blobs/sha256")).unwrap().flatten() {
            let name = format!("sha256:{}", entry.file_name().to_string_lossy());
            self.blobs.insert(name, fs::read(entry.path()).unwrap());
        }
    }

    /// Tags a manifest.
    pub(crate) fn tag(&mut self, repository: &str, digest: &str) {
        self.tags.insert(repository.to_owned(), (digest.to_owned(), MANIFEST.to_owned()));
    }

    /// Adds a blob. Returns its digest.
    pub(crate) fn add(&mut self, bytes: Vec<u8>) -> String {
        let digest = Digest::of(&bytes).to_string();
        self.blobs.insert(digest.clone(), bytes);
        digest
    }

    /// Adds an image of one layer whose archive unpacks to `tar`. Returns the digest of the layer.
    pub(crate) fn add_image(&mut self, repository: &str, kind: &str, layer: Vec<u8>, tar: &[u8]) -> String {
        let config = json!({"architecture": image_store::Platform::host().architecture, "os": "linux",
            "config": {"Cmd": ["true"]}, "rootfs": {"type": "layers", "diff_ids": [Digest::of(tar).to_string()]}});
        let docker = kind.contains("docker");
        let (of_manifest, of_config) = match docker {
            true => (
                "application/vnd.docker.distribution.manifest.v2+json",
                "application/vnd.docker.container.image.v1+json",
            ),
            false => (MANIFEST, "application/vnd.oci.image.config.v1+json"),
        };
        let config = config.to_string().into_bytes();
        let described =
            |kind: &str, size: usize, digest: &str| json!({"mediaType": kind, "size": size, "digest": digest});
        let config = described(of_config, config.len(), &self.add(config));
        let size = layer.len();
        let layer = self.add(layer);
        let manifest = json!({"schemaVersion": 2, "mediaType": of_manifest, "config": config,
            "layers": [described(kind, size, &layer)]});
        let manifest = self.add(Value::to_string(&manifest).into_bytes());
        self.tags.insert(repository.to_owned(), (manifest, of_manifest.to_owned()));
        layer
    }

    /// Serves other bytes for a digest than it stands for.
    pub(crate) fn forge(&mut self, digest: &str, bytes: Vec<u8>) {
        self.blobs.insert(digest.to_owned(), bytes);
    }

    /// Returns the manifest digest of a repository.
    pub(crate) fn tagged(&self, repository: &str) -> &str {
        &self.tags[repository].0
    }

    /// Serves until the test ends. Returns the address.
    pub(crate) fn start(self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (registry, host) = (Arc::new(self), address.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (registry, host) = (Arc::clone(&registry), host.clone());
                std::thread::spawn(move || match registry.tls.clone() {
                    None => drop(registry.converse(stream, &host)),
                    Some(config) => {
                        let connection = rustls::ServerConnection::new(config).unwrap();
                        drop(registry.converse(rustls::StreamOwned::new(connection, stream), &host));
                    }
                });
            }
        });
        address
    }

    fn converse(&self, stream: impl Read + Write, host: &str) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream);
        loop {
            let mut first = String::new();
            if reader.read_line(&mut first)? == 0 {
                return Ok(());
            }
            let mut headers = BTreeMap::new();
            loop {
                let mut line = String::new();
                reader.read_line(&mut line)?;
                let Some((name, value)) = line.trim().split_once(": ") else { break };
                headers.insert(name.to_lowercase(), value.to_owned());
            }
            let mut tokens = first.split(' ');
            let (method, path) = (tokens.next().unwrap_or_default(), tokens.next().unwrap_or_default());
            let (status, kind, body) = self.respond(path, headers.get("authorization").map(String::as_str));
            let stream = reader.get_mut();
            write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {}\r\ncontent-type: {kind}\r\n", body.len())?;
            if status.starts_with("401") && self.tokens {
                let scheme = if self.tls.is_some() { "https" } else { "http" };
                write!(stream, "www-authenticate: Bearer realm=\"{scheme}://{host}/token\",service=\"test\"\r\n")?;
            } else {
                write!(stream, "www-authenticate: Basic realm=\"test\"\r\n")?;
            }
            write!(stream, "docker-content-digest: {}\r\n\r\n", Digest::of(&body))?;
            if method != "HEAD" {
                stream.write_all(&body)?;
            }
            stream.flush()?;
        }
    }

    fn respond(&self, path: &str, authorization: Option<&str>) -> (&'static str, String, Vec<u8>) {
        let kind = "application/octet-stream".to_owned();
        if self.fails {
            return ("503 Service Unavailable", kind, Vec::new());
        }
        if path.starts_with("/token") {
            if self.token_authorization.is_some() && authorization != self.token_authorization {
                return ("401 Unauthorized", kind, Vec::new());
            }
            return ("200 OK", "application/json".to_owned(), br#"{"token": "given"}"#.to_vec());
        }
        if self.authorization.is_some() && authorization != self.authorization {
            return ("401 Unauthorized", kind, Vec::new());
        }
        let path = path.split('?').next().unwrap_or(path);
        let Some((before, reference)) = path.trim_matches('/').rsplit_once('/') else {
            return ("200 OK", kind, Vec::new());
        };
        let repository = before.trim_start_matches("v2/").trim_end_matches("/manifests");
        let (digest, kind) = match self.tags.get(repository) {
            Some((_, of_manifest)) if reference.starts_with("sha256:") => (reference, of_manifest.clone()),
            Some((digest, of_manifest)) => (digest.as_str(), of_manifest.clone()),
            None => (reference, kind),
        };
        match self.blobs.get(digest) {
            Some(bytes) => ("200 OK", kind, bytes.clone()),
            None => ("404 Not Found", kind, Vec::new()),
        }
    }
}
