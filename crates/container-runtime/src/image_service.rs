//! CRI ImageService.

use std::pin::Pin;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use image_store::{Credentials, Image, Name};
use node_api::cri::v1;
use node_api::cri::v1::image_service_server::ImageService;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use crate::blocking;
use crate::cri_service::{chunks, stream};
use crate::error::Error;
use crate::ids::now;
use crate::state::Runtime;
use crate::stats::disk_usage;
use crate::user;

pub(crate) struct Images(pub Arc<Runtime>);

type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl ImageService for Images {
    type StreamImagesStream = ResponseStream<v1::StreamImagesResponse>;

    async fn list_images(
        &self,
        request: Request<v1::ListImagesRequest>,
    ) -> Result<Response<v1::ListImagesResponse>, Status> {
        let images = self.list(request.into_inner().filter);
        Ok(Response::new(v1::ListImagesResponse { images }))
    }

    async fn stream_images(
        &self,
        request: Request<v1::StreamImagesRequest>,
    ) -> Result<Response<Self::StreamImagesStream>, Status> {
        let images = self.list(request.into_inner().filter);
        Ok(stream(chunks(images, |images| v1::StreamImagesResponse { images })))
    }

    async fn image_status(
        &self,
        request: Request<v1::ImageStatusRequest>,
    ) -> Result<Response<v1::ImageStatusResponse>, Status> {
        let request = request.into_inner();
        let found = self.0.image(&request.image.unwrap_or_default().image).await?;
        let mut info = std::collections::HashMap::new();
        if let Some(image) = found.as_ref().filter(|_| request.verbose) {
            let text = serde_json::json!({"chainID": image.layers, "imageSpec": image.config}).to_string();
            info.insert("info".to_owned(), text);
        }
        Ok(Response::new(v1::ImageStatusResponse { image: found.map(|image| describe(&image)), info }))
    }

    async fn pull_image(
        &self,
        request: Request<v1::PullImageRequest>,
    ) -> Result<Response<v1::PullImageResponse>, Status> {
        let request = request.into_inner();
        let image_name = request.image.unwrap_or_default().image;
        let name = Name::parse(&image_name).map_err(Error::from)?;
        if name.registry() == image_store::BUILTIN {
            let found =
                self.0.image(&image_name).await?.ok_or(Error::NotFound { kind: "built-in image", id: image_name })?;
            return Ok(Response::new(v1::PullImageResponse { image_ref: found.id.to_string() }));
        }
        let credentials = credentials(request.auth.as_ref(), &name)?;
        let registries = blocking::in_place(|| self.0.config.registries.current());
        let pulled = self.0.images.pull(&name, &credentials, &registries).await.map_err(Error::from)?;
        Ok(Response::new(v1::PullImageResponse { image_ref: pulled.id.to_string() }))
    }

    async fn remove_image(
        &self,
        request: Request<v1::RemoveImageRequest>,
    ) -> Result<Response<v1::RemoveImageResponse>, Status> {
        let image_name = request.into_inner().image.unwrap_or_default().image;
        if self.0.images.remove(&image_name).map_err(Error::from)?.is_some() {
            self.0.images.collect(&self.0.layers_in_use()).await.map_err(Error::from)?;
        }
        Ok(Response::new(v1::RemoveImageResponse {}))
    }

    async fn image_fs_info(
        &self,
        _request: Request<v1::ImageFsInfoRequest>,
    ) -> Result<Response<v1::ImageFsInfoResponse>, Status> {
        let runtime = Arc::clone(&self.0);
        let work = move || {
            let usage = runtime.images.usage()?;
            let root = runtime.config.root.join("containers");
            Ok::<_, Error>((usage, disk_usage(&root)))
        };
        let (images, containers) = tokio::task::spawn_blocking(work).await.expect("measuring does not panic")?;
        let usage = |dir: &str, bytes, inodes| v1::FilesystemUsage {
            timestamp: now(),
            fs_id: Some(v1::FilesystemIdentifier { mountpoint: self.0.config.root.join(dir).display().to_string() }),
            used_bytes: Some(v1::UInt64Value { value: bytes }),
            inodes_used: Some(v1::UInt64Value { value: inodes }),
        };
        Ok(Response::new(v1::ImageFsInfoResponse {
            image_filesystems: vec![usage("images", images.bytes, images.inodes)],
            container_filesystems: vec![usage("containers", containers.0, containers.1)],
        }))
    }
}

impl Images {
    fn list(&self, filter: Option<v1::ImageFilter>) -> Vec<v1::Image> {
        let image_name =
            filter.and_then(|filter| filter.image).map(|image| image.image).filter(|name| !name.is_empty());
        let found: Vec<Arc<Image>> = match image_name {
            Some(name) => self.0.images.find(&name).into_iter().collect(),
            None => self.0.images.list(),
        };
        found.iter().map(|image| describe(image)).collect()
    }
}

fn describe(image: &Image) -> v1::Image {
    let user = image.config.config.user.split(':').next().unwrap_or("");
    let uid = user::number(user).map(|uid| v1::Int64Value { value: uid.into() });
    v1::Image {
        id: image.id.to_string(),
        repo_tags: image.names.iter().cloned().collect(),
        repo_digests: image.digests.iter().cloned().collect(),
        size: image.size,
        username: if uid.is_none() { user.to_owned() } else { String::new() },
        uid,
        spec: Some(v1::ImageSpec { image: image.id.to_string(), ..Default::default() }),
        pinned: image.pinned,
    }
}

/// Returns the credentials of an AuthConfig in any of its forms. Credentials for another registry are not used.
fn credentials(auth: Option<&v1::AuthConfig>, name: &Name) -> Result<Credentials, Error> {
    let Some(auth) = auth else { return Ok(Credentials::Anonymous) };
    if !auth.server_address.is_empty() && !same_host(&auth.server_address, name.registry()) {
        return Ok(Credentials::Anonymous);
    }
    if !auth.registry_token.is_empty() {
        return Ok(Credentials::Token(auth.registry_token.clone()));
    }
    if !auth.identity_token.is_empty() {
        return Ok(Credentials::Identity(auth.identity_token.clone()));
    }
    if !auth.username.is_empty() {
        return Ok(Credentials::Basic { user: auth.username.clone(), password: auth.password.clone() });
    }
    if auth.auth.is_empty() {
        return Ok(Credentials::Anonymous);
    }
    let bad = || Error::Invalid("auth: not base64 of user:password".to_owned());
    let text = STANDARD.decode(&auth.auth).map_err(|_| bad())?;
    let text = String::from_utf8(text).map_err(|_| bad())?;
    let (user, password) = text.split_once(':').ok_or_else(bad)?;
    Ok(Credentials::Basic { user: user.to_owned(), password: password.trim_end_matches('\0').to_owned() })
}

fn same_host(address: &str, registry: &str) -> bool {
    let host = address.trim_start_matches("https://").trim_start_matches("http://");
    let host = host.split('/').next().unwrap_or(host);
    let docker = |host: &str| matches!(host, "docker.io" | "index.docker.io" | "registry-1.docker.io");
    host == registry || docker(host) && docker(registry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_all_forms_are_sent_to_their_registry_only() {
        let name = Name::parse("registry.test/tool").unwrap();
        let check = |auth: v1::AuthConfig, expect: Credentials| {
            assert_eq!(credentials(Some(&auth), &name).unwrap(), expect, "{auth:?}");
        };
        let me = || Credentials::Basic { user: "me".into(), password: "secret".into() };
        let named = v1::AuthConfig { username: "me".into(), password: "secret".into(), ..Default::default() };
        check(named.clone(), me());
        check(v1::AuthConfig { auth: "bWU6c2VjcmV0".into(), ..Default::default() }, me());
        check(v1::AuthConfig { server_address: "https://registry.test/v1/".into(), ..named.clone() }, me());
        check(v1::AuthConfig { server_address: "other.test".into(), ..named }, Credentials::Anonymous);
        check(v1::AuthConfig { registry_token: "t".into(), ..Default::default() }, Credentials::Token("t".into()));
        let refresh = v1::AuthConfig { identity_token: "t".into(), ..Default::default() };
        check(refresh, Credentials::Identity("t".into()));
        let bad = v1::AuthConfig { auth: "!".into(), ..Default::default() };
        assert!(credentials(Some(&bad), &name).is_err());
    }
}
