//! Environment files for `fileKeyRef`: a sequence of `NAME='value'`; the value may contain anything except a quote.

/// Returns the value of a name, or `None` if the file lacks it. Fails if the file is malformed.
pub(super) fn find(text: &str, name: &str) -> Result<Option<String>, String> {
    let mut rest = text;
    let mut found = None;
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return Ok(found);
        }
        if rest.starts_with('#') {
            rest = rest.split_once('\n').map_or("", |(_, after)| after);
            continue;
        }
        let bad = || format!("invalid line {:?}", rest.lines().next().unwrap_or_default());
        let (key, after) = rest.split_once('=').ok_or_else(bad)?;
        let (key, after) = (key.trim_end(), after.trim_start_matches([' ', '\t']));
        let (value, after) = after.strip_prefix('\'').and_then(|inner| inner.split_once('\'')).ok_or_else(bad)?;
        let (line, after) = after.split_once('\n').unwrap_or((after, ""));
        let ends = line.trim().is_empty() || line.trim_start().starts_with('#');
        if key.is_empty() || key.contains(char::is_whitespace) || !ends {
            return Err(bad());
        }
        if key == name {
            found = Some(value.to_owned());
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_values_may_contain_anything_except_a_quote() {
        let text = "# of the database\n\n  DB='addr = #1'  # main\nEMPTY=''\nLONG = 'two\nlines'\nDB='later'\n";
        let check = |name: &str, expect: Option<&str>| {
            assert_eq!(find(text, name).unwrap().as_deref(), expect, "{name}");
        };
        check("DB", Some("later"));
        check("EMPTY", Some(""));
        check("LONG", Some("two\nlines"));
        check("lines", None);
        for bad in ["A=b", "A='b' c", "A B='c'", "='c'", "A", "A='open"] {
            assert!(find(bad, "A").unwrap_err().starts_with("invalid line"), "{bad}");
        }
    }
}
