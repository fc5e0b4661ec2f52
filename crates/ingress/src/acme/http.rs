//! The HTTP client for the ACME server.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Limited};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};

use super::Settings;

const TIMEOUT: Duration = Duration::from_secs(30);
/// Largest response: a certificate chain.
const RESPONSE_BYTES_MAX: usize = 1 << 20;

struct Http(reqwest::Client);

/// Returns a client that trusts the CAs of the system, or those of the settings instead.
pub(super) fn client(settings: &Settings) -> Result<Box<dyn HttpClient>, reqwest::Error> {
    let mut builder = reqwest::Client::builder().timeout(TIMEOUT).redirect(reqwest::redirect::Policy::none());
    if let Some(pem) = &settings.ca_pem {
        builder = builder.tls_certs_only(reqwest::Certificate::from_pem_bundle(pem)?);
    }
    Ok(Box::new(Http(builder.build()?)))
}

impl HttpClient for Http {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let client = self.0.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map_or_else(|never| match never {}, http_body_util::Collected::to_bytes);
            let failed = |error: reqwest::Error| Error::Other(Box::new(error));
            let request = reqwest::Request::try_from(Request::from_parts(parts, body)).map_err(failed)?;
            let response: http::Response<reqwest::Body> = client.execute(request).await.map_err(failed)?.into();
            Ok(BytesResponse::from(response.map(|body| Limited::new(body, RESPONSE_BYTES_MAX))))
        })
    }
}
