//! RFC 3339 by the rules of Go's `time.Parse`, which are more lenient than the RFC in some cases.

use super::{DAY_SECONDS, MICROS, Time, days};
use crate::go;

/// The text is not a valid time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A part does not match the layout.
    #[error("parsing time {} as {}: cannot parse {} as {}", go::quote_bytes(.text), go::quote_bytes(.layout), go::quote_bytes(.rest), go::quote_bytes(.part))]
    Syntax {
        text: String,
        layout: &'static str,
        /// The text from the mismatch on.
        rest: String,
        /// The mismatched part of the layout.
        part: &'static str,
    },
    #[error("parsing time {}: {part} out of range", go::quote_bytes(.text))]
    Range {
        text: String,
        /// The name of the part, such as `month`.
        part: &'static str,
    },
    /// Text follows the time.
    #[error("parsing time {}: extra text: {}", go::quote_bytes(.text), go::quote_bytes(.extra))]
    Extra {
        text: String,
        /// The text after the time.
        extra: String,
    },
}

pub(super) fn parse(text: &str, layout: &'static str) -> Result<Time, Error> {
    let mut cursor = Cursor { text, rest: text, layout };
    let year = cursor.year()?;
    cursor.literal("-")?;
    let month = cursor.number("01", Width::Two)?;
    cursor.in_range(1..=12, month, "month")?;
    cursor.literal("-")?;
    let day = cursor.number("02", Width::Two)?;
    cursor.literal("T")?;
    let hour = cursor.number("15", Width::OneOrTwo)?;
    cursor.in_range(0..=23, hour, "hour")?;
    cursor.literal(":")?;
    let minute = cursor.number("04", Width::Two)?;
    cursor.in_range(0..=59, minute, "minute")?;
    cursor.literal(":")?;
    let second = cursor.number("05", Width::Two)?;
    cursor.in_range(0..=59, second, "second")?;
    let nanos = if layout == MICROS { cursor.micros()? } else { cursor.optional_fraction() };
    let offset = cursor.offset()?;
    if !cursor.rest.is_empty() {
        return Err(Error::Extra { text: text.to_owned(), extra: cursor.rest.to_owned() });
    }
    cursor.in_range(1..=days_in(year, month), day, "day")?;
    let seconds = days(year, month, day) * DAY_SECONDS + hour * 3600 + minute * 60 + second - offset;
    Ok(Time { unix_seconds: seconds, nanos })
}

enum Width {
    Two,
    OneOrTwo,
}

struct Cursor<'a> {
    text: &'a str,
    rest: &'a str,
    layout: &'static str,
}

impl<'a> Cursor<'a> {
    fn year(&mut self) -> Result<i64, Error> {
        match self.rest.as_bytes() {
            [a, b, c, d, ..] if [a, b, c, d].iter().all(|digit| digit.is_ascii_digit()) => {
                let year = [a, b, c, d].iter().fold(0, |year, digit| year * 10 + i64::from(**digit - b'0'));
                self.rest = &self.rest[4..];
                Ok(year)
            }
            _ => Err(self.syntax(self.rest, "2006")),
        }
    }

    fn literal(&mut self, expect: &'static str) -> Result<(), Error> {
        self.rest = self.rest.strip_prefix(expect).ok_or_else(|| self.syntax(self.rest, expect))?;
        Ok(())
    }

    fn number(&mut self, part: &'static str, width: Width) -> Result<i64, Error> {
        let (number, length) = match (self.rest.as_bytes(), width) {
            ([a, b, ..], _) if a.is_ascii_digit() && b.is_ascii_digit() => {
                (i64::from(a - b'0') * 10 + i64::from(b - b'0'), 2)
            }
            ([a, ..], Width::OneOrTwo) if a.is_ascii_digit() => (i64::from(a - b'0'), 1),
            _ => return Err(self.syntax(self.rest, part)),
        };
        self.rest = &self.rest[length..];
        Ok(number)
    }

    /// Parses a fraction after a point or comma, which is accepted even if the layout has none.
    fn optional_fraction(&mut self) -> u32 {
        let Some(fraction) = self.rest.strip_prefix(['.', ',']) else { return 0 };
        let length = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if length == 0 {
            return 0;
        }
        self.rest = &fraction[length..];
        nanos(&fraction.as_bytes()[..length])
    }

    fn micros(&mut self) -> Result<u32, Error> {
        const LAYOUT: &str = ".000000";
        let fraction = match self.rest.as_bytes() {
            [b'.' | b',', fraction @ ..] if fraction.len() >= 6 => &fraction[..6],
            _ => return Err(self.syntax(self.rest, LAYOUT)),
        };
        if !fraction.iter().all(u8::is_ascii_digit) {
            return Err(self.syntax(self.rest, LAYOUT));
        }
        self.rest = &self.rest[LAYOUT.len()..];
        Ok(nanos(fraction))
    }

    fn offset(&mut self) -> Result<i64, Error> {
        const PART: &str = "Z07:00";
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let start = self.rest;
        let [sign, a, b, b':', c, d, ..] = *start.as_bytes() else { return Err(self.syntax(start, PART)) };
        if ![a, b, c, d].iter().all(u8::is_ascii_digit) {
            return Err(self.syntax(start, PART));
        }
        let (hours, minutes) =
            (i64::from(a - b'0') * 10 + i64::from(b - b'0'), i64::from(c - b'0') * 10 + i64::from(d - b'0'));
        // Go accepts offsets of 24 hours or 60 minutes, which some clients write.
        self.in_range(0..=24, hours, "time zone offset hour")?;
        self.in_range(0..=60, minutes, "time zone offset minute")?;
        let sign = match sign {
            b'+' => 1,
            b'-' => -1,
            _ => return Err(self.syntax(start, PART)),
        };
        self.rest = &start[PART.len()..];
        Ok(sign * (hours * 60 + minutes) * 60)
    }

    fn in_range(&self, range: std::ops::RangeInclusive<i64>, value: i64, part: &'static str) -> Result<(), Error> {
        if range.contains(&value) { Ok(()) } else { Err(Error::Range { text: self.text.to_owned(), part }) }
    }

    fn syntax(&self, rest: &'a str, part: &'static str) -> Error {
        Error::Syntax { text: self.text.to_owned(), layout: self.layout, rest: rest.to_owned(), part }
    }
}

/// Converts digits after a decimal point to nanoseconds; digits beyond the ninth are dropped.
fn nanos(digits: &[u8]) -> u32 {
    let padded = digits.iter().copied().chain(std::iter::repeat(b'0'));
    padded.take(9).fold(0, |nanos, digit| nanos * 10 + u32::from(digit - b'0'))
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}
