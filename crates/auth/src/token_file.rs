//! Static token file: one `token,user,uid,"group1,group2"` per line.

use std::collections::BTreeMap;

use apimachinery::Str;

use crate::User;

/// A token file cannot be used. Tokens are never part of a message.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("line {line} of the token file must have at least 3 columns (token, user name, user uid), found {found}")]
    Columns {
        /// The line number, starting at 1.
        line: usize,
        /// The number of columns.
        found: usize,
    },
    /// A quote is not closed or at an invalid position.
    #[error("line {line} of the token file has a stray quote")]
    Quote {
        /// The line number, starting at 1.
        line: usize,
    },
    /// A token is empty: a request without a token would be authenticated as that user.
    #[error("line {line} of the token file has an empty token")]
    Empty {
        /// The line number, starting at 1.
        line: usize,
    },
}

/// Parses a token file into users by token. Later lines override earlier ones with the same token.
pub fn parse(file: &str) -> Result<BTreeMap<Str, User>, Error> {
    let mut users = BTreeMap::new();
    for (at, text) in file.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
        let line = at + 1;
        let columns = columns(text).ok_or(Error::Quote { line })?;
        let [token, name, uid, rest @ ..] = columns.as_slice() else {
            return Err(Error::Columns { line, found: columns.len() });
        };
        if token.is_empty() {
            return Err(Error::Empty { line });
        }
        let groups = rest.first().into_iter().flat_map(|groups| groups.split(','));
        let groups = groups.map(str::trim).filter(|group| !group.is_empty()).map(Str::from);
        let user = User { uid: uid.as_str().into(), ..User::authenticated(name.as_str(), groups) };
        users.insert(token.as_str().into(), user);
    }
    Ok(users)
}

/// Splits at commas outside quotes. Two quotes inside quotes are one.
fn columns(line: &str) -> Option<Vec<String>> {
    let mut columns = vec![String::new()];
    let mut quoted = false;
    let mut chars = line.trim_end_matches('\r').chars().peekable();
    while let Some(char) = chars.next() {
        let column = columns.last_mut().expect("the list of columns starts with one");
        match (char, quoted) {
            ('"', true) if chars.peek() == Some(&'"') => {
                chars.next();
                column.push('"');
            }
            ('"', true) if matches!(chars.peek(), None | Some(',')) => quoted = false,
            ('"', false) if column.is_empty() => quoted = true,
            ('"', _) => return None,
            (',', false) => columns.push(String::new()),
            _ => column.push(char),
        }
    }
    (!quoted).then_some(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_defines_a_user() {
        let users = parse("t1,admin,u1,\"system:masters, devs\"\n\nt2,bob,u2\r\n").unwrap();
        assert_eq!(users["t1"].groups, ["system:masters", "devs", "system:authenticated"]);
        assert_eq!((users["t2"].name.as_str(), users["t2"].uid.as_str()), ("bob", "u2"));
    }

    #[test]
    fn invalid_lines_are_reported_by_number_without_the_token() {
        let check = |file: &str, expect: Error| assert_eq!(parse(file).unwrap_err(), expect, "{file}");
        check("a,b,c\nsecret,x", Error::Columns { line: 2, found: 2 });
        check("secret,b,c,\"d", Error::Quote { line: 1 });
        check("se\"cret,b,c", Error::Quote { line: 1 });
        check(",b,c", Error::Empty { line: 1 });
    }
}
