//! JSON Patch library: escaping of keys in paths.

use super::{Args, Row, row};
use crate::cost::Cost;
use crate::eval::Failure;
use crate::value::Val;

pub(super) const ROWS: &[Row] = &[row("jsonpatch.escapeKey(string) -> string", Cost::ScanSame, escape_key)];

fn escape_key<'a>(args: Args<'_, 'a>) -> Result<Val<'a>, Failure> {
    let key = args.str(0)?;
    args.meter.allocate(key.len() * 2)?;
    Ok(Val::text(key.replace('~', "~0").replace('/', "~1")))
}
