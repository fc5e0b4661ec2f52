//! ClusterTrustBundle projections: the certificates of one bundle, or of all bundles that match a signer and labels.

use std::collections::{BTreeMap, BTreeSet};

use apimachinery::{Value, labels};

use super::payload::PayloadError;

/// Returns the content of a projected `clusterTrustBundle`. `bundles` are by name, `None` for absent ones.
pub(super) fn anchors(source: &Value, bundles: &BTreeMap<String, Option<Value>>) -> Result<Vec<u8>, PayloadError> {
    let text = |field: &str| source.str_at(&[field]).filter(|text| !text.is_empty());
    let optional = source["optional"].as_bool() == Some(true);
    let chosen: Vec<&Value> = match (text("name"), text("signerName")) {
        (Some(name), _) => {
            let found = bundles.get(name).and_then(Option::as_ref);
            if found.is_none() && !optional {
                let (kind, name) = ("clustertrustbundle.certificates.k8s.io", name.to_owned());
                return Err(PayloadError::Missing { kind, name });
            }
            found.into_iter().collect()
        }
        (None, Some(signer)) => {
            let of_signer = |bundle: &&Value| bundle.str_at(&["spec", "signerName"]) == Some(signer);
            // An absent selector selects nothing, an empty one everything.
            let selector = source.get("labelSelector").filter(|selector| !selector.is_null());
            let selector = labels::from_object(selector).map_err(|_| PayloadError::Selector)?;
            let all = bundles.values().flatten().filter(of_signer);
            all.filter(|bundle| selector.matches_object(bundle)).collect()
        }
        (None, None) => Vec::new(),
    };
    if chosen.is_empty() && !optional {
        return Err(PayloadError::NoBundles);
    }
    // DEVIATION: certificates of trust bundles are sorted by their text; upstream's order is random.
    let certificates: BTreeSet<&str> = chosen
        .into_iter()
        .flat_map(|bundle| certificates(bundle.str_at(&["spec", "trustBundle"]).unwrap_or_default()))
        .collect();
    Ok(certificates.into_iter().flat_map(|one| [one.as_bytes(), b"\n"].concat()).collect())
}

/// Returns the PEM certificates of a text, without the text between them.
fn certificates(text: &str) -> Vec<&str> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let parts = text.match_indices(BEGIN).filter_map(|(at, _)| {
        let end = text[at..].find(END)?;
        Some(&text[at..at + end + END.len()])
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    fn certificate(name: &str) -> String {
        format!("-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----\n")
    }

    fn bundle(signer: &str, label: &str, names: &[&str]) -> Option<Value> {
        let text: String = names.iter().map(|name| format!("# {name}\n{}", certificate(name))).collect();
        Some(value!({"metadata": {"labels": {"l": label}}, "spec": {"signerName": signer, "trustBundle": text}}))
    }

    #[test]
    fn bundle_is_selected_by_name_or_by_signer_and_labels() {
        let bundles = BTreeMap::from([
            ("one".to_owned(), bundle("", "x", &["b", "a"])),
            ("s:1".to_owned(), bundle("s", "x", &["c", "a"])),
            ("s:2".to_owned(), bundle("s", "y", &["a", "d"])),
            ("gone".to_owned(), None),
        ]);
        let check = |source: Value, expect: Result<&[&str], &str>| {
            let found = anchors(&source, &bundles).map(|bytes| String::from_utf8(bytes).unwrap());
            let expect = expect.map(|names| names.iter().map(|name| certificate(name)).collect::<String>());
            assert_eq!(found.map_err(|error| error.to_string()), expect.map_err(str::to_owned), "{source:?}");
        };
        let none = "combination of signerName and labelSelector matched zero ClusterTrustBundles";
        check(value!({"name": "one"}), Ok(&["a", "b"]));
        check(value!({"name": "gone"}), Err("clustertrustbundle.certificates.k8s.io \"gone\" not found"));
        check(value!({"name": "gone", "optional": true}), Ok(&[]));
        check(value!({"signerName": "s", "labelSelector": {}}), Ok(&["a", "c", "d"]));
        check(value!({"signerName": "s", "labelSelector": {"matchLabels": {"l": "y"}}}), Ok(&["a", "d"]));
        check(value!({"signerName": "s"}), Err(none));
        check(value!({"signerName": "t", "labelSelector": {}}), Err(none));
        check(value!({"signerName": "t", "labelSelector": {}, "optional": true}), Ok(&[]));
    }

    #[test]
    fn text_between_certificates_is_omitted() {
        assert_eq!(certificates("-----BEGIN CERTIFICATE-----\nx"), Vec::<&str>::new());
        assert_eq!(certificates("text"), Vec::<&str>::new());
        assert_eq!(certificates(&format!("a{}b{}c", certificate("1"), certificate("2"))).len(), 2);
    }
}
