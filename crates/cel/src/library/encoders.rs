//! Base64 library.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use super::{Args, Row, row};
use crate::cost::Cost;
use crate::eval::Failure;
use crate::value::Val;

type Result<T> = std::result::Result<T, Failure>;

pub(super) const ROWS: &[Row] = &[
    row("base64.encode(bytes) -> string", Cost::ScanSame, encode),
    row("base64.decode(string) -> bytes", Cost::ScanSame, decode),
];

fn encode<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let [Val::Bytes(bytes)] = args.args else { return Err(Failure::no_overload()) };
    args.meter.allocate(bytes.len() * 2)?;
    Ok(Val::text(STANDARD.encode(bytes)))
}

/// Decodes base64; the padding may be omitted.
fn decode<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let text = args.str(0)?;
    args.meter.allocate(text.len())?;
    let decoded = STANDARD.decode(text).or_else(|error| STANDARD_NO_PAD.decode(text).map_err(|_| error));
    decoded.map(|bytes| Val::Bytes(bytes.into())).map_err(|_| Failure::message("illegal base64 data"))
}
