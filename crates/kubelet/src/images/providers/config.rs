//! The CredentialProviderConfig of a kubelet.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use apimachinery::{names, time};
use component_base::config_file::{ConfigFile, ConfigFileError, Node};

use crate::images::credentials;

/// Versions of the configuration.
const CONFIG_VERSIONS: [&str; 3] =
    ["kubelet.config.k8s.io/v1", "kubelet.config.k8s.io/v1beta1", "kubelet.config.k8s.io/v1alpha1"];
/// Version of the plugin protocol that has service account tokens.
const V1: &str = "credentialprovider.kubelet.k8s.io/v1";
/// Versions of the plugin protocol.
const PLUGIN_VERSIONS: [&str; 3] =
    [V1, "credentialprovider.kubelet.k8s.io/v1beta1", "credentialprovider.kubelet.k8s.io/v1alpha1"];
/// Keys of a provider.
const PROVIDER: &[&str] =
    &["name", "matchImages", "defaultCacheDuration", "apiVersion", "args", "env", "tokenAttributes"];
/// Keys of the token attributes.
const TOKEN: &[&str] = &[
    "serviceAccountTokenAudience",
    "cacheType",
    "requireServiceAccount",
    "requiredServiceAccountAnnotationKeys",
    "optionalServiceAccountAnnotationKeys",
];

/// A credential provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderConfig {
    pub name: String,
    pub executable: PathBuf,
    pub match_images: Vec<String>,
    pub default_cache_duration: Duration,
    pub api_version: String,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    pub token: Option<TokenAttributes>,
}

/// The service account token that a provider gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenAttributes {
    pub audience: String,
    pub cache_type: CacheType,
    /// Whether the provider is called only for pods with a service account.
    pub require_service_account: bool,
    /// The provider is called only if the service account has all of these annotations.
    pub required_annotations: Vec<String>,
    pub optional_annotations: Vec<String>,
}

/// The pods that share a cached response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheType {
    /// Those with the same service account.
    ServiceAccount,
    /// Those with the same token.
    Token,
}

impl ProviderConfig {
    /// Whether the provider has credentials for an image.
    pub fn matches(&self, image: &str) -> bool {
        self.match_images.iter().any(|pattern| credentials::specificity(pattern, image).is_some())
    }
}

/// Reads a configuration file, or all `*.yaml`, `*.yml` and `*.json` files of a directory. The plugins are executables
/// in `bin_dir`.
pub fn read(path: &Path, bin_dir: &Path) -> Result<Vec<ProviderConfig>, ConfigFileError> {
    let mut providers = Vec::new();
    let mut names = BTreeSet::new();
    for path in list_files(path)? {
        let file = ConfigFile::read(&path)?;
        let root = file.root().known(&["apiVersion", "kind", "providers"])?;
        let is = |key: &str, known: &[&str]| -> Result<(), ConfigFileError> {
            match root.get(key) {
                Some(node) if known.contains(&node.text()?) => Ok(()),
                Some(node) => Err(node.error(format!("use {}", known.join(" or ")))),
                None => Err(file.root().error(format!("{key} is missing: set it to {}", known[0]))),
            }
        };
        is("kind", &["CredentialProviderConfig"])?;
        is("apiVersion", &CONFIG_VERSIONS)?;
        let list = root.get("providers").ok_or_else(|| file.root().error("`providers` is missing"))?;
        for node in list.items()? {
            let provider = parse_provider(&node, bin_dir)?;
            if !names.insert(provider.name.clone()) {
                return Err(node.error(format!("another provider has the name {}", provider.name)));
            }
            providers.push(provider);
        }
    }
    Ok(providers)
}

fn list_files(path: &Path) -> Result<Vec<PathBuf>, ConfigFileError> {
    let failed = |source| ConfigFileError::Read { path: path.to_owned(), source };
    if !std::fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries: std::io::Result<Vec<PathBuf>> =
        std::fs::read_dir(path).map_err(failed)?.map(|entry| Ok(entry?.path())).collect();
    let mut files = entries.map_err(failed)?;
    files.retain(|file| {
        let extension = file.extension().and_then(|extension| extension.to_str());
        matches!(extension, Some("yaml" | "yml" | "json")) && !file.is_dir()
    });
    files.sort();
    if files.is_empty() {
        let problem = " has no *.yaml, *.yml or *.json file".to_owned();
        return Err(ConfigFileError::File { path: path.to_owned(), problem });
    }
    Ok(files)
}

fn parse_provider(node: &Node<'_>, bin_dir: &Path) -> Result<ProviderConfig, ConfigFileError> {
    let fields = node.known(PROVIDER)?;
    let field = |key: &str| fields.get(key).ok_or_else(|| node.error(format!("{key} is missing")));
    let name = field("name")?;
    let text = name.text()?;
    if text.contains(['/', ' ']) || matches!(text, "." | "..") {
        return Err(name.error("use the name of an executable, without `/` and spaces"));
    }
    let executable = bin_dir.join(text);
    if !is_executable(&executable) {
        return Err(name.error(format!("{} is not an executable file", executable.display())));
    }
    let api_version = field("apiVersion")?;
    if !PLUGIN_VERSIONS.contains(&api_version.text()?) {
        return Err(api_version.error(format!("use {}", PLUGIN_VERSIONS.join(" or "))));
    }
    let match_images = parse_texts(field("matchImages")?)?;
    if match_images.is_empty() {
        return Err(field("matchImages")?.error("the list is empty"));
    }
    let duration = field("defaultCacheDuration")?;
    let nanos = duration.text()?.parse::<time::Duration>().ok().and_then(|value| u64::try_from(value.nanos()).ok());
    let nanos = nanos.ok_or_else(|| duration.error("use a duration such as 12h"))?;
    let token = fields.get("tokenAttributes").map(parse_token).transpose()?;
    if let Some(node) = fields.get("tokenAttributes").filter(|_| api_version.text().ok() != Some(V1)) {
        return Err(node.error(format!("this needs apiVersion: {V1}")));
    }
    Ok(ProviderConfig {
        name: text.to_owned(),
        executable,
        match_images,
        default_cache_duration: Duration::from_nanos(nanos),
        api_version: api_version.text()?.to_owned(),
        args: fields.get("args").map(parse_texts).transpose()?.unwrap_or_default(),
        env: fields.get("env").map(parse_environment).transpose()?.unwrap_or_default(),
        token,
    })
}

fn parse_token(node: &Node<'_>) -> Result<TokenAttributes, ConfigFileError> {
    let fields = node.known(TOKEN)?;
    let field = |key: &str| fields.get(key).ok_or_else(|| node.error(format!("{key} is missing")));
    let cache_type = field("cacheType")?;
    let cache_type = match cache_type.text()? {
        "ServiceAccount" => CacheType::ServiceAccount,
        "Token" => CacheType::Token,
        _ => return Err(cache_type.error("use ServiceAccount or Token")),
    };
    let keys = |key: &str| -> Result<Vec<String>, ConfigFileError> {
        let Some(list) = fields.get(key) else { return Ok(Vec::new()) };
        let mut seen = BTreeSet::new();
        for item in list.items()? {
            let text = item.text()?;
            if let Some(problem) = names::qualified_name(&text.to_lowercase()).first() {
                return Err(item.error(format!("not the key of an annotation: {problem}")));
            }
            if !seen.insert(text) {
                return Err(item.error("the key is listed twice"));
            }
        }
        parse_texts(list)
    };
    let attributes = TokenAttributes {
        audience: field("serviceAccountTokenAudience")?.text()?.to_owned(),
        cache_type,
        require_service_account: field("requireServiceAccount")?.flag()?,
        required_annotations: keys("requiredServiceAccountAnnotationKeys")?,
        optional_annotations: keys("optionalServiceAccountAnnotationKeys")?,
    };
    if !attributes.require_service_account && !attributes.required_annotations.is_empty() {
        return Err(node.error("requiredServiceAccountAnnotationKeys needs requireServiceAccount: true"));
    }
    if let Some(key) = attributes.required_annotations.iter().find(|key| attributes.optional_annotations.contains(key))
    {
        return Err(node.error(format!("the annotation {key} is required and optional")));
    }
    Ok(attributes)
}

fn parse_texts(node: &Node<'_>) -> Result<Vec<String>, ConfigFileError> {
    node.items()?.iter().map(|item| Ok(item.text()?.to_owned())).collect()
}

fn parse_environment(node: &Node<'_>) -> Result<Vec<(String, String)>, ConfigFileError> {
    let variable = |item: &Node<'_>| {
        let fields = item.known(&["name", "value"])?;
        let name = fields.get("name").ok_or_else(|| item.error("name is missing"))?;
        let value = fields.get("value").ok_or_else(|| item.error("value is missing"))?;
        if name.text()?.contains(['=', '\0']) {
            return Err(name.error("not the name of an environment variable"));
        }
        Ok((name.text()?.to_owned(), value.text()?.to_owned()))
    };
    node.items()?.iter().map(variable).collect()
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}
