//! The PROXY protocol, versions 1 and 2: the client address that a load balancer sends before the connection's bytes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt};

const SIGNATURE_V2: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// `PROXY UNKNOWN\r\n`, the shortest header of version 1.
const SHORTEST: usize = 15;
const V1_BYTES_MAX: usize = 107;
/// The longest header of version 2 that is read: addresses and a few extensions.
const V2_BYTES_MAX: usize = 4 << 10;

#[derive(Debug, thiserror::Error)]
pub(super) enum ProxyProtocolError {
    #[error("failed to read the PROXY protocol header")]
    Read(#[from] io::Error),
    #[error("the connection does not start with a valid PROXY protocol header")]
    Malformed,
}

/// Reads the header and nothing after it. Returns the client's address, or `None` for a connection of the load balancer
/// itself, such as a health check.
pub(super) async fn read_header<S: AsyncRead + Unpin>(
    stream: &mut S,
) -> Result<Option<SocketAddr>, ProxyProtocolError> {
    let mut header = vec![0; SHORTEST];
    stream.read_exact(&mut header).await?;
    if header.starts_with(SIGNATURE_V2) {
        header.push(stream.read_u8().await?);
        let length = usize::from(u16::from_be_bytes([header[14], header[15]]));
        if length > V2_BYTES_MAX {
            return Err(ProxyProtocolError::Malformed);
        }
        header.resize(16 + length, 0);
        stream.read_exact(&mut header[16..]).await?;
        return parse_v2(&header).ok_or(ProxyProtocolError::Malformed);
    }
    // What follows the line belongs to the connection, so the rest is read byte by byte.
    while header.starts_with(b"PROXY ") && !header.ends_with(b"\r\n") && header.len() < V1_BYTES_MAX {
        header.push(stream.read_u8().await?);
    }
    parse_v1(&header).ok_or(ProxyProtocolError::Malformed)
}

fn parse_v1(line: &[u8]) -> Option<Option<SocketAddr>> {
    let line = std::str::from_utf8(line).ok()?.strip_suffix("\r\n")?;
    let mut parts = line.strip_prefix("PROXY ")?.split(' ');
    let family = parts.next()?;
    if family == "UNKNOWN" {
        return Some(None);
    }
    let source: IpAddr = parts.next()?.parse().ok()?;
    let destination: IpAddr = parts.next()?.parse().ok()?;
    let port = parts.next()?.parse().ok()?;
    let _: u16 = parts.next()?.parse().ok()?;
    let is_valid = match family {
        "TCP4" => source.is_ipv4() && destination.is_ipv4(),
        "TCP6" => source.is_ipv6() && destination.is_ipv6(),
        _ => false,
    };
    (is_valid && parts.next().is_none()).then_some(Some(SocketAddr::new(source, port)))
}

fn parse_v2(header: &[u8]) -> Option<Option<SocketAddr>> {
    let (command, family, addresses) = (header.get(12)?, header.get(13)?, header.get(16..)?);
    let port = |at: usize| Some(u16::from_be_bytes([*addresses.get(at)?, *addresses.get(at + 1)?]));
    match (command, family >> 4) {
        (0x21, 1) => {
            let source: [u8; 4] = addresses.get(..4)?.try_into().ok()?;
            Some(Some(SocketAddr::new(Ipv4Addr::from(source).into(), port(8)?)))
        }
        (0x21, 2) => {
            let source: [u8; 16] = addresses.get(..16)?.try_into().ok()?;
            Some(Some(SocketAddr::new(Ipv6Addr::from(source).into(), port(32)?)))
        }
        // The load balancer itself, or an address family without IP addresses.
        (0x20 | 0x21, _) => Some(None),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn check(bytes: &[u8], expect: Option<Option<&str>>) {
        let sent = [bytes, b"GET"].concat();
        let mut stream = &sent[..];
        let found = read_header(&mut stream).await.ok();
        assert_eq!(found, expect.map(|address| address.map(|text| text.parse().unwrap())), "{bytes:?}");
        if expect.is_some() {
            assert_eq!(stream, b"GET", "the header of {bytes:?} was not read exactly");
        }
    }

    #[tokio::test]
    async fn version_1_is_a_line() {
        check(b"PROXY TCP4 192.0.2.7 10.0.0.1 5000 80\r\n", Some(Some("192.0.2.7:5000"))).await;
        check(b"PROXY TCP6 2001:db8::7 ::1 5000 80\r\n", Some(Some("[2001:db8::7]:5000"))).await;
        check(b"PROXY UNKNOWN\r\n", Some(None)).await;
        check(b"PROXY TCP4 2001:db8::7 ::1 5000 80\r\n", None).await;
        check(b"PROXY TCP4 192.0.2.7 10.0.0.1 5000\r\n", None).await;
        check(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", None).await;
        check(&[b"PROXY TCP4 ", &b"1".repeat(200)[..]].concat(), None).await;
    }

    #[tokio::test]
    async fn version_2_is_binary() {
        let header = |command: u8, family: u8, addresses: &[u8]| {
            let length = u16::try_from(addresses.len()).unwrap().to_be_bytes();
            [&SIGNATURE_V2[..], &[command, family], &length, addresses].concat()
        };
        let v4 = [192, 0, 2, 7, 10, 0, 0, 1, 0x13, 0x88, 0, 80];
        check(&header(0x21, 0x11, &v4), Some(Some("192.0.2.7:5000"))).await;
        check(&header(0x21, 0x11, &[&v4[..], b"extension"].concat()), Some(Some("192.0.2.7:5000"))).await;
        check(&header(0x20, 0, &[]), Some(None)).await;
        check(&header(0x21, 0x11, &v4[..4]), None).await;
        check(&header(0x31, 0x11, &v4), None).await;
    }
}
