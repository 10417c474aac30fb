//! Names and paths as messages show them.
//!
//! Owns: [`Shown`], the only way of a name into a message, and the names of findings.
//!
//! Invariant: a name ends no line, moves no cursor, and reorders no text around it. Other names are
//! shown as they are.
//!
//! May import: nothing from the crate.

use std::ffi::OsStr;
use std::fmt::{self, Write};

/// A name, a path or a message that may hold some, without what a terminal obeys.
///
/// Control characters and those that reorder text are escaped, and so are bytes that are no UTF-8.
/// A backslash stays one. So what is shown once is shown the same again.
#[derive(Clone, Copy)]
pub struct Shown<'a>(&'a OsStr);

/// Returns a name, a path or a message as it is shown: escaped where a terminal would obey it.
pub fn shown(name: &(impl AsRef<OsStr> + ?Sized)) -> Shown<'_> {
    Shown(name.as_ref())
}

/// Returns `true` if a terminal may obey the character, or order text by it.
pub fn is_obeyed(c: char) -> bool {
    let orders = ['\u{61c}', '\u{200e}', '\u{200f}', '\u{2028}', '\u{2029}'];
    let is_order = |c| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || orders.contains(&c) || is_order(c)
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.as_encoded_bytes().utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\t' | '\n' | '\r' => write!(f, "{}", c.escape_default())?,
                    c if is_obeyed(c) => write!(f, "{}", c.escape_unicode())?,
                    c => f.write_char(c)?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// Returns the names of the variants in a value, as `of-this-file`.
pub fn variants(value: &impl std::fmt::Debug) -> Vec<String> {
    let text = format!("{value:?}");
    let variants = text.split(|c: char| !c.is_alphanumeric());
    let variants = variants.filter(|word| word.starts_with(|c: char| c.is_uppercase()));
    let name = |variant: &str| {
        let mut name = String::new();
        for c in variant.chars() {
            if c.is_uppercase() && !name.is_empty() {
                name.push('-');
            }
            name.extend(c.to_lowercase());
        }
        name
    };
    variants.map(name).collect()
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn what_terminals_obey_is_escaped_and_all_else_stays() {
        let ordinary = r"/srv/Müller’s «données»/é̳/日本/שלום/a\b\x1b/👩‍🔬 1";
        assert_eq!(shown(ordinary).to_string(), ordinary);
        let all: String = (0..=0x2fff).filter_map(char::from_u32).collect();
        let once = shown(&all).to_string();
        let c1 = |c: char| ('\u{80}'..='\u{9f}').contains(&c);
        assert!(!once.contains(|c: char| c < ' ' || c == '\u{7f}' || c1(c)));
        assert!(!once.contains(['\u{200e}', '\u{200f}', '\u{202e}', '\u{2066}', '\u{2028}']));
        assert_eq!(shown(&once).to_string(), once, "messages hold what is shown already");
        assert_eq!(shown("\0\t\n\x1b\u{9b}\u{202e}").to_string(), r"\u{0}\t\n\u{1b}\u{9b}\u{202e}");
    }

    #[cfg(unix)]
    #[test]
    fn bytes_that_are_no_text_are_numbers() {
        use std::os::unix::ffi::OsStrExt;
        let name = OsStr::from_bytes(b"a\xff\xe2\x82b\x9b\xc3\xbc");
        assert_eq!(shown(name).to_string(), r"a\xff\xe2\x82b\x9bü");
    }
}
