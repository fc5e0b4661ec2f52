//! URL query parsing with Go's semantics.

use apimachinery::go;
use apimachinery::status::Status;

/// Names and values in their original order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses a query. Pairs with invalid escapes are dropped, as Go does.
    pub fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';'));
        let split = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        Self(split.filter_map(|(key, value)| Some((unescape(key)?, unescape(value)?))).collect())
    }

    /// Returns the first value of that name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns all values of that name.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect()
    }

    /// Returns the first value of that name, empty if absent.
    pub fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// Whether the parameter is present and neither `0` nor `false`.
    pub fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// Returns a boolean parameter, `None` if absent.
    pub fn switch(&self, name: &str) -> Option<bool> {
        self.get(name).map(|_| self.flag(name))
    }

    /// Returns an integer parameter, `None` if absent.
    pub fn int(&self, name: &str) -> Result<Option<i64>, Status> {
        match self.get(name) {
            None | Some("") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| {
                let problem = if is_number(text) { "value out of range" } else { "invalid syntax" };
                Status::bad_request(format!("strconv.ParseInt: parsing {}: {problem}", go::quote(text)))
            }),
        }
    }

    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Decodes query escapes, where a plus is a space.
fn unescape(text: &str) -> Option<String> {
    percent_decode(&text.replace('+', " "))
}

/// Decodes percent escapes; `None` if one is invalid.
pub fn percent_decode(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_owned());
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'%' {
            let digit = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
            let (high, low) = (digit(at + 1)?, digit(at + 2)?);
            out.push(u8::try_from(high * 16 + low).expect("two hexadecimal digits are a byte"));
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    Some(String::from_utf8(out).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_parsed_as_go_does() {
        let query = Query::parse("a=b+c&labelSelector=x%3Dy&watch&limit=7&a=d&bad=%zz&no=false&zero=0");
        assert_eq!(query.get("a"), Some("b c"));
        assert_eq!(query.all("a"), ["b c", "d"]);
        assert_eq!(query.text("labelSelector"), "x=y");
        assert!(query.flag("watch") && !query.flag("no") && !query.flag("zero") && !query.flag("absent"));
        assert_eq!(query.int("limit"), Ok(Some(7)));
        assert_eq!(query.get("bad"), None);
        let error = Query::parse("limit=abc").int("limit").unwrap_err();
        assert_eq!(error.message, "strconv.ParseInt: parsing \"abc\": invalid syntax");
    }
}
