//! Format library: named formats of names, labels and other texts, with upstream's error messages.

use apimachinery::names;

use super::opaque::Opaque;
use super::time::{parse_date, parse_timestamp};
use super::url::Url;
use super::{Args, Row, row};
use crate::cost::Cost;
use crate::eval::Failure;
use crate::value::Val;

type Result<T> = std::result::Result<T, Failure>;

#[derive(Debug)]
pub struct NamedFormat {
    /// The name in expressions.
    pub name: &'static str,
    /// The length of upstream's regular expression for the format; the cost depends on it.
    pub regex_size: u64,
    /// Returns all errors in a text.
    pub wrong: fn(&str) -> Vec<String>,
}

/// The length of a format's regular expression that cost estimates assume.
pub const REGEX_SIZE_MAX: u64 = 128;

const fn named(name: &'static str, regex_size: u64, wrong: fn(&str) -> Vec<String>) -> NamedFormat {
    NamedFormat { name, regex_size, wrong }
}

pub static FORMATS: [NamedFormat; 13] = [
    named("dns1123Label", 30, names::dns1123_label),
    named("dns1123Subdomain", 60, names::dns1123_subdomain),
    named("dns1035Label", 30, names::dns1035_label),
    named("qualifiedName", 60, names::qualified_name),
    named("dns1123LabelPrefix", 30, |text| names::dns1123_label(&unfinished(text))),
    named("dns1123SubdomainPrefix", 60, |text| names::dns1123_subdomain(&unfinished(text))),
    named("dns1035LabelPrefix", 30, |text| names::dns1035_label(&unfinished(text))),
    named("labelValue", 40, names::label_value),
    named("uri", 760, |text| Url::parse(text).err().into_iter().collect()),
    named("uuid", 89, |text| error_unless(is_uuid(text), "does not match the UUID format")),
    named("byte", 92, |text| error_unless(is_base64(text), "invalid base64")),
    named("date", 186, |text| error_unless(parse_date(text).is_some(), "invalid date")),
    named("datetime", 186, |text| error_unless(is_datetime(text), "invalid datetime")),
];

pub const ROWS: &[Row] = &[
    row("format.named(string) -> optional<Format>", Cost::Unit, by_name),
    row("format.dns1123Label() -> Format", Cost::Unit, |_| constant(0)),
    row("format.dns1123Subdomain() -> Format", Cost::Unit, |_| constant(1)),
    row("format.dns1035Label() -> Format", Cost::Unit, |_| constant(2)),
    row("format.qualifiedName() -> Format", Cost::Unit, |_| constant(3)),
    row("format.dns1123LabelPrefix() -> Format", Cost::Unit, |_| constant(4)),
    row("format.dns1123SubdomainPrefix() -> Format", Cost::Unit, |_| constant(5)),
    row("format.dns1035LabelPrefix() -> Format", Cost::Unit, |_| constant(6)),
    row("format.labelValue() -> Format", Cost::Unit, |_| constant(7)),
    row("format.uri() -> Format", Cost::Unit, |_| constant(8)),
    row("format.uuid() -> Format", Cost::Unit, |_| constant(9)),
    row("format.byte() -> Format", Cost::Unit, |_| constant(10)),
    row("format.date() -> Format", Cost::Unit, |_| constant(11)),
    row("format.datetime() -> Format", Cost::Unit, |_| constant(12)),
    row("Format.validate(string) -> optional<list<string>>", Cost::Validate, validate),
];

fn constant<'a>(at: usize) -> Result<Val<'a>> {
    Ok(Val::Opaque(Opaque::Format(&FORMATS[at])))
}

fn by_name<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let name = args.str(0)?;
    let found = FORMATS.iter().find(|format| format.name == name);
    Ok(found.map_or(Val::Optional(None), |format| Val::Opaque(Opaque::Format(format)).some()))
}

fn validate<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let Val::Opaque(Opaque::Format(format)) = &args.args[0] else { return Err(Failure::no_overload()) };
    let wrong = (format.wrong)(args.str(1)?);
    Ok(if wrong.is_empty() {
        Val::Optional(None)
    } else {
        Val::list(wrong.into_iter().map(Val::text).collect()).some()
    })
}

fn error_unless(right: bool, otherwise: &str) -> Vec<String> {
    if right { Vec::new() } else { vec![otherwise.to_owned()] }
}

/// Replaces a trailing dash and the character before it by `a`, as upstream does: a name prefix may end with a dash.
fn unfinished(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let mut chars: Vec<char> = rest.chars().collect();
            chars.pop();
            chars.push('a');
            chars.into_iter().collect()
        }
        _ => text.to_owned(),
    }
}

fn is_uuid(text: &str) -> bool {
    let digits: Vec<&str> = text.split('-').collect();
    let hexadecimal = |part: &str| part.bytes().all(|b| b.is_ascii_hexdigit());
    match digits.as_slice() {
        [whole] => whole.len() == 32 && hexadecimal(whole),
        [a, b, c, d, e] => {
            [a.len(), b.len(), c.len(), d.len(), e.len()] == [8, 4, 4, 4, 12]
                && digits.iter().all(|part| hexadecimal(part))
        }
        _ => false,
    }
}

fn is_base64(text: &str) -> bool {
    use base64::Engine;
    !text.is_empty() && base64::engine::general_purpose::STANDARD.decode(text).is_ok()
}

/// Whether the text is an RFC 3339 date and time. The letters `t` and `z` may be lowercase, as the RFC permits.
fn is_datetime(text: &str) -> bool {
    text.len() >= 10 && parse_timestamp(&text.to_ascii_uppercase()).is_some()
}
