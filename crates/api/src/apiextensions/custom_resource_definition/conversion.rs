//! Validation of a CRD's `spec.conversion`.

use apimachinery::field::Error;
use apimachinery::{At, Errors, Value, names};

use super::is_established;
use crate::admissionregistration::client_config;

/// ConversionReview versions that the server supports, sorted.
const REVIEWS: [&str; 2] = ["v1", "v1beta1"];

/// Validates a conversion. `old`: the CRD that is being replaced, on update.
pub(super) fn validate(conversion: &At<'_>, old: Option<&Value>, errors: &mut Errors) {
    if conversion.is_absent() {
        return;
    }
    let strategy = conversion.get("strategy");
    match strategy.str() {
        "" => errors.push(strategy.required("")),
        "None" | "Webhook" => {}
        _ => errors.push(strategy.not_supported(&["None", "Webhook"])),
    }
    let webhook = conversion.get("webhook");
    let (client, reviews) = (webhook.get("clientConfig"), webhook.get("conversionReviewVersions"));
    // Upstream's internal type has both fields one level higher.
    let client_path = conversion.path().field("webhookClientConfig");
    let reviews_path = conversion.path().field("conversionReviewVersions");
    if strategy.str() != "Webhook" {
        let detail = "should not be set when strategy is not set to Webhook";
        if client.is_present() {
            errors.push(Error::forbidden(&client_path, detail));
        }
        if !reviews.is_empty() {
            errors.push(Error::forbidden(&reviews_path, detail));
        }
        return;
    }
    if client.is_absent() {
        errors.push(Error::required(&client_path, "required when strategy is set to Webhook"));
    } else {
        validate_client(&At::new(client.value(), client_path), old, errors);
    }
    validate_reviews(&At::new(reviews.value(), reviews_path), old, errors);
}

fn validate_client(client: &At<'_>, old: Option<&Value>, errors: &mut Errors) {
    client_config::validate(client, errors);
    let bundle = client.get("caBundle");
    // An invalid bundle is accepted if the old one was invalid or the CRD is not established yet.
    let tolerated = old.is_none_or(|old| !is_established(old) || old_bundle(old).is_some_and(|old| !is_bundle(old)));
    if !bundle.is_empty() && !tolerated && !is_bundle(bundle.str()) {
        let detail = "unable to load root certificates: data does not contain any valid RSA or ECDSA certificates";
        errors.push(bundle.invalid(detail));
    }
}

fn validate_reviews(reviews: &At<'_>, old: Option<&Value>, errors: &mut Errors) {
    if reviews.is_empty() {
        return errors.push(reviews.required(""));
    }
    let mut seen: Vec<&str> = Vec::new();
    for (at, review) in reviews.list().iter().enumerate() {
        let at = At::new(review, reviews.path().index(at));
        let review = review.as_str().unwrap_or_default();
        if seen.contains(&review) {
            errors.push(at.invalid("duplicate version"));
            continue;
        }
        seen.push(review);
        errors.extend(names::dns1035_label(review).into_iter().map(|detail| at.invalid(detail)));
    }
    let known = |reviews: &[&str]| reviews.iter().any(|review| REVIEWS.contains(review));
    let before: Vec<&str> = old.map(old_reviews).unwrap_or_default();
    if !known(&seen) && (before.is_empty() || known(&before)) {
        errors.push(reviews.invalid(format!("must include at least one of {}", REVIEWS.join(", "))));
    }
}

fn old_reviews(old: &Value) -> Vec<&str> {
    let reviews = old.at(&["spec", "conversion", "webhook", "conversionReviewVersions"]);
    reviews.and_then(Value::as_array).unwrap_or_default().iter().filter_map(Value::as_str).collect()
}

fn old_bundle(old: &Value) -> Option<&str> {
    old.str_at(&["spec", "conversion", "webhook", "clientConfig", "caBundle"])
}

/// Whether base64 data contains a PEM certificate header. This detects mistakes without parsing certificates.
fn is_bundle(base64: &str) -> bool {
    // "-----BEGIN CERTIFICATE-----" in base64, at each of the three possible alignments.
    ["LS0tLS1CRUdJTiBDRVJUSUZJQ0FUR", "0tLS0tQkVHSU4gQ0VSVElGSUNBVEUt", "tLS0tLUJFR0lOIENFUlRJRklDQVRF"]
        .iter()
        .any(|prefix| base64.contains(prefix))
}
