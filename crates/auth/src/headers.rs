//! HTTP header values as UTF-8. An identity header with another encoding must not be dropped silently.

/// An identity header that is not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value of header {0:?} is not UTF-8")]
pub struct Unreadable(String);

/// Returns headers as names and values. Values that are not UTF-8 are dropped, which is safe after [`check`].
pub fn pairs<'h>(headers: impl IntoIterator<Item = (&'h str, &'h [u8])>) -> Vec<(&'h str, &'h str)> {
    headers.into_iter().filter_map(|(name, value)| Some((name, std::str::from_utf8(value).ok()?))).collect()
}

/// Rejects a request with an identity header (`is_identity_header`) that is not UTF-8. Without that header the request
/// would run as its sender, and a front proxy has more permissions than the user.
pub fn check<'h>(
    headers: impl IntoIterator<Item = (&'h str, &'h [u8])>,
    is_identity_header: impl Fn(&str) -> bool,
) -> Result<(), Unreadable> {
    let is_unreadable = |(name, value): &(&str, &[u8])| is_identity_header(name) && std::str::from_utf8(value).is_err();
    match headers.into_iter().find(is_unreadable) {
        Some((name, _)) => Err(Unreadable(name.to_owned())),
        None => Ok(()),
    }
}
