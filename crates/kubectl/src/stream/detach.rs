//! The keys that detach a terminal from a container.

/// The keys of a terminal by their notation, `ctrl-p,ctrl-q`; an error names the unknown one.
pub fn parse_keys(text: &str) -> Result<Vec<u8>, String> {
    text.split(',').map(parse_key).collect()
}

fn parse_key(key: &str) -> Result<u8, String> {
    let unknown = || format!("Unknown character: '{key}'");
    if let [byte] = key.as_bytes() {
        return Ok(*byte);
    }
    let control = key.strip_prefix("ctrl-").ok_or_else(unknown)?;
    match control.as_bytes() {
        [letter @ b'a'..=b'z'] => Ok(letter - b'a' + 1),
        [b'@'] => Ok(0),
        [sign @ b'['..=b'_'] => Ok(sign - b'[' + 27),
        _ => Err(unknown()),
    }
}

/// Finds the detach keys in the input of a terminal.
#[derive(Clone, Debug)]
pub struct Detector {
    keys: Vec<u8>,
    matched: usize,
}

/// A piece of input after the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetectorOutput {
    /// The input without detach keys.
    pub bytes: Vec<u8>,
    /// Whether all keys were typed. The rest of the input is dropped.
    pub detached: bool,
}

impl Detector {
    pub const fn new(keys: Vec<u8>) -> Self {
        Self { keys, matched: 0 }
    }

    /// Returns what to send. The start of the keys is withheld until the next key decides.
    pub fn pass(&mut self, input: &[u8]) -> DetectorOutput {
        let mut bytes = Vec::with_capacity(input.len());
        for &byte in input {
            if self.keys.get(self.matched) == Some(&byte) {
                self.matched += 1;
                if self.matched == self.keys.len() {
                    self.matched = 0;
                    return DetectorOutput { bytes, detached: true };
                }
                continue;
            }
            bytes.extend_from_slice(&self.keys[..self.matched]);
            self.matched = usize::from(self.keys.first() == Some(&byte));
            if self.matched == 0 {
                bytes.push(byte);
            }
        }
        DetectorOutput { bytes, detached: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_a_notation() {
        let check = |text: &str, expect: Result<&[u8], &str>| {
            let found = parse_keys(text);
            assert_eq!(found.as_deref().map_err(String::as_str), expect, "{text}");
        };
        check("ctrl-p,ctrl-q", Ok(&[16, 17]));
        check("a", Ok(b"a"));
        check("ctrl-@,ctrl-[,ctrl-\\,ctrl-],ctrl-^,ctrl-_", Ok(&[0, 27, 28, 29, 30, 31]));
        check("ctrl-", Err("Unknown character: 'ctrl-'"));
        check("", Err("Unknown character: ''"));
        check("ctrl-p,DEL", Err("Unknown character: 'DEL'"));
    }

    #[test]
    fn only_the_complete_keys_detach() {
        let check = |pieces: &[&[u8]], sent: &[u8], detached: bool| {
            let mut detector = Detector::new(vec![16, 17]);
            let mut all = Vec::new();
            let mut ended = false;
            for piece in pieces {
                let passed = detector.pass(piece);
                all.extend(passed.bytes);
                ended |= passed.detached;
            }
            assert_eq!((all.as_slice(), ended), (sent, detached), "{pieces:?}");
        };
        check(&[b"ab"], b"ab", false);
        check(&[b"a\x10\x11b"], b"a", true);
        check(&[b"a\x10", b"\x11"], b"a", true);
        check(&[b"\x10", b"x"], b"\x10x", false);
        check(&[b"\x10\x10\x11"], b"\x10", true);
        check(&[b"\x11\x10"], b"\x11", false);
    }
}
