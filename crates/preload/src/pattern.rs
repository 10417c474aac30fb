//! Patterns of paths.
//!
//! `?` is one byte and `*` any number of bytes, neither a `/`. `**` is any number of bytes. `[a-z]`
//! is one byte of a set, and `[!a-z]` one that is not in it. `\` takes the next byte as it is.
//!
//! Invariant: allocates nothing, since a program's `malloc` may open files. May import nothing from
//! the crate.

/// Returns `true` if the pattern describes the whole path.
pub(crate) fn matches(pattern: &[u8], path: &[u8]) -> bool {
    let Some((&first, rest)) = pattern.split_first() else { return path.is_empty() };
    match first {
        b'*' => {
            let (rest, crosses) = match rest.strip_prefix(b"*") {
                Some(rest) => (rest, true),
                None => (rest, false),
            };
            let limit = path.iter().position(|&c| c == b'/' && !crosses).unwrap_or(path.len());
            (0..=limit).any(|n| matches(rest, &path[n..]))
        }
        b'?' => path.first().is_some_and(|&c| c != b'/') && matches(rest, &path[1..]),
        b'[' => match set(rest) {
            Some((set, rest)) => {
                path.first().is_some_and(|&c| c != b'/' && is_in(set, c))
                    && matches(rest, &path[1..])
            }
            None => path.first() == Some(&b'[') && matches(rest, &path[1..]),
        },
        b'\\' if !rest.is_empty() => {
            path.first() == Some(&rest[0]) && matches(&rest[1..], &path[1..])
        }
        _ => path.first() == Some(&first) && matches(rest, &path[1..]),
    }
}

/// Splits the text after a `[` into the set and what follows its `]`.
fn set(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let first = usize::from(text.first() == Some(&b'!'));
    // A `]` that begins the set is in it.
    let end = first + 1 + text.get(first + 1..)?.iter().position(|&c| c == b']')?;
    Some((&text[..end], &text[end + 1..]))
}

fn is_in(set: &[u8], byte: u8) -> bool {
    let (set, is_negated) = match set.strip_prefix(b"!") {
        Some(set) => (set, true),
        None => (set, false),
    };
    let (mut n, mut is_found) = (0, false);
    while n < set.len() {
        let is_range = set.get(n + 1) == Some(&b'-') && n + 2 < set.len();
        let last = if is_range { set[n + 2] } else { set[n] };
        is_found |= (set[n]..=last).contains(&byte);
        n += if is_range { 3 } else { 1 };
    }
    is_found != is_negated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_describe_paths() {
        let cases = [
            ("/data/*.db", "/data/x.db", true),
            ("/data/*.db", "/data/.db", true),
            ("/data/*.db", "/data/sub/x.db", false),
            ("/data/**.db", "/data/sub/x.db", true),
            ("/data/**", "/data/a/b", true),
            ("/data/**", "/dat", false),
            ("/x/y", "/x/y", true),
            ("/x/y", "/x/yz", false),
            ("/x/y", "/x/", false),
            ("/a?c", "/abc", true),
            ("/a?c", "/a/c", false),
            ("/f[0-9a]", "/f7", true),
            ("/f[0-9a]", "/fa", true),
            ("/f[0-9a]", "/fb", false),
            ("/f[!0-9]", "/fb", true),
            ("/f[!0-9]", "/f1", false),
            ("/f[]x]", "/f]", true),
            ("/f[-x]", "/f-", true),
            ("/f[x", "/f[x", true),
            ("/f\\*", "/f*", true),
            ("/f\\*", "/fx", false),
            ("", "", true),
            ("*", "", true),
        ];
        for (pattern, path, expected) in cases {
            assert_eq!(matches(pattern.as_bytes(), path.as_bytes()), expected, "{pattern} {path}");
        }
    }
}
