//! TLS key exchange between this project's client and server.

use client::config::Tls as ClientTls;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, NamedGroup, ServerConnection};

use super::*;

#[test]
fn our_client_and_server_exchange_keys_with_x25519mlkem768() {
    let directory = tempfile::tempdir().unwrap();
    let files = Files { cert_dir: directory.path().to_owned(), ..Files::default() };
    let tls = Tls::new(&files, &["localhost".to_owned()], &[]).unwrap();
    let trust = ClientTls { insecure_skip_verify: true, ..ClientTls::default() };
    let config = client::transport::client_config(&trust, None).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap();
    let mut server = ServerConnection::new(Arc::clone(&tls.offer().config)).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        let mut wire = Vec::new();
        client.write_tls(&mut wire).unwrap();
        server.read_tls(&mut wire.as_slice()).unwrap();
        server.process_new_packets().unwrap();
        wire.clear();
        server.write_tls(&mut wire).unwrap();
        client.read_tls(&mut wire.as_slice()).unwrap();
        client.process_new_packets().unwrap();
    }
    let client_group = client.negotiated_key_exchange_group().unwrap().name();
    let server_group = server.negotiated_key_exchange_group().unwrap().name();
    assert_eq!((client_group, server_group), (NamedGroup::X25519MLKEM768, NamedGroup::X25519MLKEM768));
}
