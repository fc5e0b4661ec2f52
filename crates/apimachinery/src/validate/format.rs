//! String formats of CRD schemas.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;

use regex::Regex;

use crate::schema::FormatKind;
use crate::{quantity, time};

/// Whether `text` has the format. Formats of numbers accept all strings.
pub(super) fn is(text: &str, kind: FormatKind) -> bool {
    match kind {
        FormatKind::Int32 | FormatKind::Int64 | FormatKind::Float | FormatKind::Double | FormatKind::Password => true,
        FormatKind::BsonObjectId => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        FormatKind::Uri => is_uri(text),
        FormatKind::Email => is_email(text),
        FormatKind::Hostname => is_hostname(text),
        FormatKind::Ipv4 => text.contains('.') && text.parse::<IpAddr>().is_ok(),
        FormatKind::Ipv6 => text.contains(':') && text.parse::<IpAddr>().is_ok(),
        FormatKind::Cidr => is_cidr(text),
        FormatKind::Mac => is_mac(text),
        FormatKind::Uuid => is_uuid(text, None),
        FormatKind::Uuid3 => is_uuid(text, Some(b'3')),
        FormatKind::Uuid4 => is_uuid(text, Some(b'4')),
        FormatKind::Uuid5 => is_uuid(text, Some(b'5')),
        FormatKind::Isbn => is_isbn10(text) || is_isbn13(text),
        FormatKind::Isbn10 => is_isbn10(text),
        FormatKind::Isbn13 => is_isbn13(text),
        FormatKind::CreditCard => is_credit_card(text),
        FormatKind::Ssn => text.len() == 11 && looks_like(text, "ddd?dd?dddd"),
        FormatKind::HexColor => {
            let digits = text.strip_prefix('#').unwrap_or(text);
            matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
        }
        FormatKind::RgbColor => is_rgb_color(text),
        FormatKind::Byte => is_base64(text),
        FormatKind::Date => is_date(text),
        FormatKind::Duration => is_duration(text),
        FormatKind::DateTime => is_date_time(text),
        FormatKind::Quantity => quantity::canonical(text).is_ok(),
        FormatKind::ShortName => text.len() <= 63 && is_name(text),
        FormatKind::LongName => text.len() <= 253 && text.split('.').all(is_name),
    }
}

/// Accepts an absolute path, or any text with a scheme.
fn is_uri(text: &str) -> bool {
    let scheme = text.split_once(':').filter(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
    });
    let bytes = text.as_bytes();
    let escapes_are_whole = bytes
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'%')
        .all(|(at, _)| bytes.get(at + 1..at + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)));
    let host = scheme
        .and_then(|(_, rest)| rest.strip_prefix("//"))
        .map_or("", |rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    (scheme.is_some() || text.starts_with('/'))
        && !bytes.iter().any(u8::is_ascii_control)
        && escapes_are_whole
        && !host.contains([' ', '"', '<', '>', '\\', '^', '`', '{', '|', '}'])
}

/// Accepts `local@domain`, alone or in angle brackets after a name.
fn is_email(text: &str) -> bool {
    let text = text.trim();
    let address = match text.strip_suffix('>') {
        Some(rest) => match rest.rsplit_once('<') {
            Some((_, address)) => address,
            None => return false,
        },
        None => text,
    };
    let atom = |c: char| c.is_alphanumeric() || !c.is_ascii() || "!#$%&'*+-/=?^_`{|}~".contains(c);
    let dotted = |text: &str| text.split('.').all(|part| !part.is_empty() && part.chars().all(atom));
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    (quoted || dotted(local)) && (dotted(domain) || domain.starts_with('[') && domain.ends_with(']'))
}

fn is_hostname(text: &str) -> bool {
    static HOSTNAME: OnceLock<Regex> = OnceLock::new();
    let hostname = HOSTNAME.get_or_init(|| {
        let c = r"a-zA-Z0-9\p{S}\p{L}";
        let one_label = format!(r"[{c}](?:-?[{c}]{{0,62}})?");
        let several = format!(r"(?:[{c}](?:[{c}-]{{0,61}}[{c}])?\.)+[{c}](?:-?[{c}]){{1,62}}");
        Regex::new(&format!("^(?:{one_label}|{several})$")).expect("a constant pattern compiles")
    });
    text.len() <= 255 && text.split('.').all(|label| label.len() <= 63) && hostname.is_match(text)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let bits_max = match address.parse() {
        Ok(IpAddr::V4(_)) => Ipv4Addr::BITS,
        Ok(IpAddr::V6(_)) => Ipv6Addr::BITS,
        Err(_) => return false,
    };
    bits.bytes().all(|b| b.is_ascii_digit()) && bits.parse::<u32>().is_ok_and(|bits| bits <= bits_max)
}

/// Accepts 6, 8 or 20 octets in pairs, or in groups of four digits with dots.
fn is_mac(text: &str) -> bool {
    let groups = |separator: char, digits: usize, counts: [usize; 3]| {
        let mut count = 0;
        text.split(separator).all(|group| {
            count += 1;
            group.len() == digits && group.bytes().all(|b| b.is_ascii_hexdigit())
        }) && counts.contains(&count)
    };
    groups(':', 2, [6, 8, 20]) || groups('-', 2, [6, 8, 20]) || groups('.', 4, [3, 4, 10])
}

/// Accepts hexadecimal digits in groups of 8, 4, 4, 4 and 12, with or without dashes between them.
fn is_uuid(text: &str, version: Option<u8>) -> bool {
    let mut rest = text.as_bytes();
    for (at, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if at > 0 {
            rest = rest.strip_prefix(b"-").unwrap_or(rest);
        }
        let Some((group, after)) = rest.split_at_checked(length) else { return false };
        let variant = matches!(group[0], b'8' | b'9' | b'a' | b'b' | b'A' | b'B');
        let fits = match (at, version) {
            (2, Some(version)) => group[0] == version,
            (3, Some(b'4' | b'5')) => variant,
            _ => true,
        };
        if !fits || !group.iter().all(u8::is_ascii_hexdigit) {
            return false;
        }
        rest = after;
    }
    rest.is_empty()
}

fn without_separators(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace() && *c != '-').collect()
}

fn is_isbn10(text: &str) -> bool {
    let text = without_separators(text);
    let digits = text.strip_suffix('X').unwrap_or(&text);
    let has_x = digits.len() < text.len();
    if text.len() != 10 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return false;
    }
    let sum: u32 = (1..).zip(digits.bytes()).map(|(factor, digit)| factor * u32::from(digit - b'0')).sum();
    (sum + if has_x { 10 * 10 } else { 0 }).is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let text = without_separators(text);
    text.len() == 13 && text.bytes().all(|b| b.is_ascii_digit()) && {
        let factors = [1, 3].into_iter().cycle();
        let sum: u32 = text.bytes().zip(factors).map(|(digit, factor)| factor * u32::from(digit - b'0')).sum();
        sum.is_multiple_of(10)
    }
}

/// Accepts a number of a large issuer with a valid Luhn checksum.
fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let prefix = |length: usize| digits.get(..length).and_then(|text| text.parse::<u32>().ok()).unwrap_or_default();
    let issued = match digits.len() {
        13 => prefix(1) == 4,
        14 => (300..=305).contains(&prefix(3)) || matches!(prefix(2), 36 | 38),
        15 => matches!(prefix(2), 34 | 37) || matches!(prefix(4), 2131 | 1800),
        16 => {
            prefix(1) == 4
                || (51..=55).contains(&prefix(2))
                || matches!(prefix(4), 6011)
                || prefix(2) == 65
                || prefix(2) == 35
        }
        _ => false,
    };
    let doubled = |digit: u32| if digit > 4 { digit * 2 - 9 } else { digit * 2 };
    let sum: u32 = digits
        .bytes()
        .rev()
        .map(|digit| u32::from(digit - b'0'))
        .enumerate()
        .map(|(at, digit)| if at % 2 == 1 { doubled(digit) } else { digit })
        .sum();
    issued && sum.is_multiple_of(10)
}

/// Whether `text` matches a template of digits (`d`) and optional separators (`?`).
fn looks_like(text: &str, picture: &str) -> bool {
    let mut rest = text.bytes().peekable();
    for symbol in picture.bytes() {
        match symbol {
            b'?' => {
                rest.next_if(|b| matches!(b, b'-' | b' '));
            }
            _ => {
                if rest.next_if(u8::is_ascii_digit).is_none() {
                    return false;
                }
            }
        }
    }
    rest.next().is_none()
}

fn is_rgb_color(text: &str) -> bool {
    let Some(channels) = text.strip_prefix("rgb(").and_then(|rest| rest.strip_suffix(')')) else { return false };
    let part = |text: &str| {
        let text = text.trim_matches(|c: char| c.is_ascii_whitespace());
        text.bytes().all(|b| b.is_ascii_digit())
            && (text == "0" || !text.starts_with('0'))
            && text.parse::<u8>().is_ok()
    };
    channels.split(',').count() == 3 && channels.split(',').all(part)
}

/// Accepts non-empty, padded base64 on one line.
fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && text.len() - digits.len() <= 2
        && digits.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && time::Time::parse(&format!("{text}T00:00:00Z")).is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let Some((date, clock)) = lower.split_once('t') else { return false };
    let Some((hms, rest)) = clock.split_at_checked(8) else { return false };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let two = |text: &str, max: &str| text.len() == 2 && digits(text) && text <= max;
    let mut parts = hms.split(':');
    let hms_fits = [("hour", "23"), ("minute", "59"), ("second", "59")]
        .iter()
        .all(|(_, max)| parts.next().is_some_and(|part| two(part, max)));
    let zone = match rest.strip_prefix('.') {
        Some(fraction) => {
            let zone = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
            if zone.len() == fraction.len() {
                return false;
            }
            zone
        }
        None => rest,
    };
    let offset = |text: &str| text.split_once(':').is_some_and(|(h, m)| two(h, "99") && two(m, "99"));
    is_date(date) && hms_fits && (zone == "z" || zone.strip_prefix(['+', '-']).is_some_and(offset))
}

/// Accepts Go durations (`1h30m`), or numbers with units spelled out (`2 days`).
fn is_duration(text: &str) -> bool {
    text.parse::<time::Duration>().is_ok() || are_spelled_durations(text)
}

fn are_spelled_durations(text: &str) -> bool {
    let mut rest = text.trim();
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        if after.len() == rest.len() {
            return false;
        }
        let unit_on = after.trim_start();
        let end = unit_on.find(|c: char| !c.is_alphabetic()).unwrap_or(unit_on.len());
        let (unit, after) = unit_on.split_at(end);
        let unit = unit.to_lowercase();
        let singular = unit.strip_suffix('s').filter(|one| one.len() > 2).unwrap_or(&unit);
        let known = [
            "ns",
            "nano",
            "nanosecond",
            "us",
            "µs",
            "micro",
            "microsecond",
            "ms",
            "milli",
            "millisecond",
            "s",
            "sec",
            "second",
            "m",
            "min",
            "minute",
            "h",
            "hr",
            "hour",
            "d",
            "day",
            "w",
            "wk",
            "week",
        ];
        if !known.contains(&singular) {
            return false;
        }
        rest = after.trim_start();
    }
    true
}

/// Accepts lowercase letters, digits and dashes, without a dash at either end.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: FormatKind, good: &[&str], bad: &[&str]) {
        for text in good {
            assert!(is(text, kind), "{text:?} is {kind:?}");
        }
        for text in bad {
            assert!(!is(text, kind), "{text:?} is not {kind:?}");
        }
    }

    #[test]
    fn formats_of_addresses_and_names() {
        check(FormatKind::Ipv4, &["1.2.3.4", "::ffff:1.2.3.4"], &["1.2.3", "01.2.3.4", "::1", ""]);
        check(FormatKind::Ipv6, &["::1", "fe80::1"], &["1.2.3.4", "fe80::1%eth0", ":"]);
        check(FormatKind::Cidr, &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33", "10.0.0.0/+8", "/8"]);
        check(FormatKind::Mac, &["01:23:45:67:89:ab", "0123.4567.89ab"], &["01:23:45", "01:23:45:67:89:zz"]);
        check(FormatKind::Hostname, &["localhost", "a-b.example.com"], &["-a.example.com", "a..b", "a_b", ""]);
        check(FormatKind::Uri, &["/a", "https://h/p?q", "mailto:x"], &["a", "", ":x", "http://a b/", "/%zz"]);
        check(FormatKind::Email, &["a@b.c", "N <a.b@c>"], &["a", "@b", "a@", "a b@c", "<a@b"]);
        check(FormatKind::ShortName, &["a", "a-1"], &["A", "-a", "a.b", ""]);
        check(FormatKind::LongName, &["a.b-c"], &["a..b", ".a"]);
    }

    #[test]
    fn formats_of_identification_numbers() {
        let uuid = "123E4567-e89b-42d3-a456-426614174000";
        check(
            FormatKind::Uuid,
            &[uuid, "123e4567e89b12d3a456426614174000"],
            &["123", "x23e4567-e89b-12d3-a456-426614174000"],
        );
        check(
            FormatKind::Uuid4,
            &[uuid],
            &["123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-42d3-c456-426614174000"],
        );
        check(FormatKind::Isbn, &["0321751043", "978-0321751041", "3-401-01319-X"], &["0321751044", "9780321751040"]);
        check(FormatKind::CreditCard, &["4111 1111 1111 1111", "378282246310005"], &["4111111111111112", ""]);
        check(FormatKind::Ssn, &["111-22-3333", "111 22 3333"], &["111223333", "111-222-333"]);
        check(FormatKind::BsonObjectId, &["507f1f77bcf86cd799439011"], &["507f"]);
    }

    #[test]
    fn formats_of_colors_bytes_and_times() {
        check(FormatKind::HexColor, &["#fff", "A0b1C2"], &["#ffff", "#ggg"]);
        check(FormatKind::RgbColor, &["rgb(0, 10,255)"], &["rgb(256,0,0)", "rgb(01,0,0)", "rgb(1,2)"]);
        check(FormatKind::Byte, &["YWI="], &["", "YWI", "Y WI"]);
        check(FormatKind::Date, &["2024-02-29"], &["2023-02-29", "2024-2-1", "2024-02-29T"]);
        check(
            FormatKind::DateTime,
            &["2024-02-29T12:00:00Z", "2024-02-29t12:00:00.5+01:00"],
            &["2024-02-29", "2024-02-29T24:00:00Z", "2024-02-29T12:00:00", "2024-02-29T12:00:00.Z"],
        );
        check(FormatKind::Duration, &["1h30m", "22 ns", "2 days", "1 week 2 hours"], &["", "x", "3 moons", "days"]);
        check(FormatKind::Quantity, &["1.5Gi"], &["1 Gi"]);
    }
}
