//! CertificateSigningRequests, with the parsed request.

use std::net::IpAddr;

use apimachinery::Value;
use apimachinery::labels::format_labels;
use apimachinery::table::human_duration;
use apimachinery::time::Duration;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;
use x509_parser::x509::X509Name;

use super::common;
use super::read::{Read, name};
use super::writer::{Writer, line};
use super::{RelatedObjects, WriteResult};

/// The parts of a subject that may have several values, with their object identifiers.
const SUBJECT: [(&str, &str); 7] = [
    ("Organization", "2.5.4.10"),
    ("Organizational Unit", "2.5.4.11"),
    ("Country", "2.5.4.6"),
    ("Locality", "2.5.4.7"),
    ("Province", "2.5.4.8"),
    ("StreetAddress", "2.5.4.9"),
    ("PostalCode", "2.5.4.17"),
];
const COMMON_NAME: &str = "2.5.4.3";
const SERIAL_NUMBER: &str = "2.5.4.5";

pub(super) fn request(w: &mut Writer<'_>, request: &Value, _: &RelatedObjects) -> WriteResult {
    let spec = request.sub("spec");
    let pem = STANDARD.decode(spec.text("request")).unwrap_or_default();
    let pem = Pem::iter_from_buffer(&pem).next().and_then(Result::ok).filter(|pem| pem.label == "CERTIFICATE REQUEST");
    let pem = pem.ok_or("Error parsing CSR: PEM block type must be CERTIFICATE REQUEST")?;
    let (_, parsed) =
        X509CertificationRequest::from_der(&pem.contents).map_err(|error| format!("Error parsing CSR: {error}"))?;

    line!(w, 0, "Name:\t{}", name(request));
    line!(w, 0, "Labels:\t{}", format_labels(request.at(&["metadata", "labels"])));
    line!(w, 0, "Annotations:\t{}", format_labels(request.at(&["metadata", "annotations"])));
    common::time(w, "CreationTimestamp", request.text("metadata.creationTimestamp"));
    line!(w, 0, "Requesting User:\t{}", spec.text("username"));
    if !spec.text("signerName").is_empty() {
        line!(w, 0, "Signer:\t{}", spec.text("signerName"));
    }
    if let Some(seconds) = spec.sub("expirationSeconds").as_int() {
        line!(w, 0, "Requested Duration:\t{}", human_duration(Duration::from_seconds(seconds)));
    }
    line!(w, 0, "Status:\t{}", status(request));
    write_subject(w, &parsed.certification_request_info.subject);
    write_alternative_names(w, &parsed);
    Ok(())
}

/// Returns the decision, and whether the certificate failed or was issued.
fn status(request: &Value) -> String {
    let conditions = request.list("status.conditions");
    let has = |kind: &str| conditions.iter().any(|condition| condition.text("type") == kind);
    let decision = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    };
    let failed = if has("Failed") { ",Failed" } else { "" };
    let issued = if request.text("status.certificate").is_empty() { "" } else { ",Issued" };
    format!("{decision}{failed}{issued}")
}

fn write_subject(w: &mut Writer<'_>, subject: &X509Name<'_>) {
    let values = |oid: &str| -> Vec<String> {
        let attributes = subject.iter_attributes().filter(|attribute| attribute.attr_type().to_id_string() == oid);
        attributes.filter_map(|attribute| attribute.as_str().ok().map(str::to_owned)).collect()
    };
    line!(w, 0, "Subject:");
    for (title, oid) in [("Common Name", COMMON_NAME), ("Serial Number", SERIAL_NUMBER)] {
        line!(w, 0, "\t{title}:\t{}", values(oid).last().map(String::as_str).unwrap_or_default());
    }
    for (title, oid) in SUBJECT {
        write_list(w, title, &values(oid));
    }
}

fn write_alternative_names(w: &mut Writer<'_>, request: &X509CertificationRequest<'_>) {
    let [mut dns, mut emails, mut uris, mut addresses] = [const { Vec::new() }; 4];
    for extension in request.requested_extensions().into_iter().flatten() {
        let ParsedExtension::SubjectAlternativeName(names) = extension else { continue };
        for name in &names.general_names {
            match name {
                GeneralName::DNSName(name) => dns.push((*name).to_owned()),
                GeneralName::RFC822Name(email) => emails.push((*email).to_owned()),
                GeneralName::URI(uri) => uris.push((*uri).to_owned()),
                GeneralName::IPAddress(bytes) => addresses.extend(address(bytes)),
                _ => {}
            }
        }
    }
    let lists = [("DNS Names", dns), ("Email Addresses", emails), ("URIs", uris), ("IP Addresses", addresses)];
    if lists.iter().any(|(_, values)| !values.is_empty()) {
        line!(w, 0, "Subject Alternative Names:");
    }
    for (title, values) in lists {
        write_list(w, title, &values);
    }
}

fn address(bytes: &[u8]) -> Option<String> {
    let address: Option<IpAddr> = match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    };
    address.map(|address| address.to_string())
}

fn write_list(w: &mut Writer<'_>, title: &str, values: &[String]) {
    if !values.is_empty() {
        line!(w, 0, "\t{title}:\t{}", values.join("\n\t\t"));
    }
}
