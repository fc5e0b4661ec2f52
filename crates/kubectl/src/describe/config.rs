//! ConfigMaps, Secrets and ServiceAccounts.

use apimachinery::Value;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::common;
use super::read::Read;
use super::writer::{Writer, line};
use super::{RelatedObjects, WriteResult};

pub(super) fn config_map(w: &mut Writer<'_>, map: &Value, _: &RelatedObjects) -> WriteResult {
    common::identity(w, map);
    common::metadata(w, map);
    line!(w, 0, "\nData\n====");
    for (key, value) in map.map("data").iter() {
        line!(w, 0, "{key}:\n----");
        line!(w, 0, "{}\n", value.as_str().unwrap_or_default());
    }
    line!(w, 0, "\nBinaryData\n====");
    for (key, value) in map.map("binaryData").iter() {
        line!(w, 0, "{key}: {} bytes", decode(value).len());
    }
    line!(w, 0, "");
    Ok(())
}

pub(super) fn secret(w: &mut Writer<'_>, secret: &Value, _: &RelatedObjects) -> WriteResult {
    common::identity(w, secret);
    common::metadata(w, secret);
    let kind = secret.text("type");
    line!(w, 0, "\nType:\t{kind}");
    line!(w, 0, "\nData\n====");
    for (key, value) in secret.map("data").iter() {
        let data = decode(value);
        if key == "token" && kind == "kubernetes.io/service-account-token" {
            line!(w, 0, "{key}:\t{}", String::from_utf8_lossy(&data));
        } else {
            line!(w, 0, "{key}:\t{} bytes", data.len());
        }
    }
    Ok(())
}

pub(super) fn service_account(w: &mut Writer<'_>, account: &Value, _: &RelatedObjects) -> WriteResult {
    const TITLE: &str = "Image pull secrets:";
    common::identity(w, account);
    common::metadata(w, account);
    let secrets = account.list("imagePullSecrets");
    if secrets.is_empty() {
        line!(w, 0, "{TITLE}\t<none>");
    }
    for (index, secret) in secrets.iter().enumerate() {
        let title = if index == 0 { TITLE } else { "" };
        line!(w, 0, "{title:0$}\t{1}", TITLE.len(), secret.text("name"));
    }
    Ok(())
}

fn decode(value: &Value) -> Vec<u8> {
    STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default()
}
