//! The backend of all proxies: answers every request with the same response, with as little work as possible.

use std::net::Ipv4Addr;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Bytes of the body of each response.
pub(crate) const BODY_BYTES: usize = 1024;
const HEAD_END: &[u8] = b"\r\n\r\n";

/// Serves until the process is killed.
pub(crate) fn serve(port: u16) -> Result<()> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {BODY_BYTES}\r\n\r\n");
    let response: &'static [u8] = (head + &"x".repeat(BODY_BYTES)).into_bytes().leak();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(answer(stream, response));
        }
    })
}

async fn answer(mut stream: TcpStream, response: &[u8]) {
    let _ = stream.set_nodelay(true);
    let mut request = Vec::with_capacity(4096);
    // A proxy sends the next request after the response to the previous one.
    while stream.read_buf(&mut request).await.is_ok_and(|length| length > 0) {
        if request.ends_with(HEAD_END) {
            request.clear();
            if stream.write_all(response).await.is_err() {
                return;
            }
        }
    }
}
