//! Minimal gRPC client on HTTP/2 streams.
//!
//! The clients share the CPUs with the server under test, so they must use little of them.

use anyhow::{Context, Result, ensure};
use bytes::{BufMut, Bytes, BytesMut};
use h2::RecvStream;
use h2::client::SendRequest;
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderMap, HeaderValue, Request, Uri};
use prost::Message;
use tokio::net::TcpStream;

/// Large flow-control windows, so that a range is not limited by round trips.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;
/// Length of the gRPC message prefix: compressed flag and message length.
const PREFIX: usize = 5;

/// A connection to a server; clones share it.
#[derive(Clone)]
pub(crate) struct Wire {
    sender: SendRequest<Bytes>,
    methods: Methods,
}

/// Request paths of the measured methods, parsed once.
#[derive(Clone)]
pub(crate) struct Methods {
    pub put: Uri,
    pub range: Uri,
    pub txn: Uri,
}

impl Wire {
    /// Connects to an address such as `http://127.0.0.1:2379`.
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let server: Uri = url.parse()?;
        let address = server.authority().context("a URL has an address")?.as_str();
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
        let (sender, connection) = builder.handshake(tcp).await?;
        tokio::spawn(connection);
        let method = |name: &str| format!("{url}/etcdserverpb.KV/{name}").parse();
        let methods = Methods { put: method("Put")?, range: method("Range")?, txn: method("Txn")? };
        Ok(Self { sender, methods })
    }

    /// Calls a unary method and reads its response.
    pub(crate) async fn call<Answer: Message + Default>(
        &mut self,
        method: impl Fn(&Methods) -> &Uri,
        message: &impl Message,
    ) -> Result<Answer> {
        let mut request = Request::post(method(&self.methods)).body(())?;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
        let mut sender = self.sender.clone().ready().await?;
        let (response, mut body) = sender.send_request(request, false)?;
        body.send_data(framed(message)?, true)?;
        let response = response.await?;
        ensure_well(response.headers())?;
        let response_body = read(response.into_body()).await?;
        Ok(Answer::decode(response_body.get(PREFIX..).context("the response has no message")?)?)
    }
}

fn framed(message: &impl Message) -> Result<Bytes> {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(PREFIX + length);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(length)?);
    message.encode(&mut frame)?;
    Ok(frame.freeze())
}

/// Reads a complete body. Most bodies are one chunk.
async fn read(mut body: RecvStream) -> Result<Bytes> {
    let mut pieces = Vec::with_capacity(1);
    while let Some(piece) = body.data().await {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        pieces.push(piece);
    }
    if let Some(trailers) = body.trailers().await? {
        ensure_well(&trailers)?;
    }
    Ok(if pieces.len() == 1 { pieces.remove(0) } else { pieces.concat().into() })
}

/// Fails if the headers have a gRPC error status.
fn ensure_well(headers: &HeaderMap) -> Result<()> {
    let status = headers.get("grpc-status").map_or("0", |status| status.to_str().unwrap_or("no text"));
    ensure!(status == "0", "the server returned status {status}: {:?}", headers.get("grpc-message"));
    Ok(())
}
