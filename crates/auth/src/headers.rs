//! Header values as text. HTTP allows bytes that are not; a header that says who a request is for must not get lost over them.

/// A header that says who a request is for, and cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value of header {0:?} is not UTF-8")]
pub struct Unreadable(String);

/// Headers as names and values. Values are UTF-8, as Go takes them; others are left out, which [`check`] makes safe.
pub fn pairs<'h>(headers: impl IntoIterator<Item = (&'h str, &'h [u8])>) -> Vec<(&'h str, &'h str)> {
    headers.into_iter().filter_map(|(name, value)| Some((name, std::str::from_utf8(value).ok()?))).collect()
}

/// Refuses a request with a header that `says_who` and cannot be read. Without that header the request would run as whoever sent
/// it, which for a proxy is somebody with more rights.
pub fn check<'h>(
    headers: impl IntoIterator<Item = (&'h str, &'h [u8])>,
    says_who: impl Fn(&str) -> bool,
) -> Result<(), Unreadable> {
    let is_unreadable = |(name, value): &(&str, &[u8])| says_who(name) && std::str::from_utf8(value).is_err();
    match headers.into_iter().find(is_unreadable) {
        Some((name, _)) => Err(Unreadable(name.to_owned())),
        None => Ok(()),
    }
}
