//! Patterns of paths.
//!
//! `?` is one byte and `*` any number of bytes, neither a `/`. `**` is any number of bytes. `[a-z]`
//! is one byte of a set, and `[!a-z]` one that is not in it. `\` takes the next byte as it is.
//!
//! Invariant: allocates nothing, since a program's `malloc` may open files. May import nothing from
//! the crate.

/// Returns `true` if the pattern describes the whole path.
pub(crate) fn matches(pattern: &[u8], path: &[u8]) -> bool {
    begins(pattern, path, &|rest| rest.iter().all(|&c| c == b'*'))
}

/// Returns `true` if the pattern may describe a name in a folder. The path of the folder ends with
/// a slash.
pub(crate) fn may_hold(pattern: &[u8], folder: &[u8]) -> bool {
    // Only a set may have a slash that is none of a folder.
    let is_name = |rest: &[u8]| !rest.is_empty() && (!rest.contains(&b'/') || rest.contains(&b'['));
    begins(pattern, folder, &is_name)
}

/// Returns `true` if a beginning of the pattern describes the path, and `is_end` accepts the rest.
fn begins(pattern: &[u8], path: &[u8], is_end: &impl Fn(&[u8]) -> bool) -> bool {
    if path.is_empty() && is_end(pattern) {
        return true;
    }
    let Some((&first, rest)) = pattern.split_first() else { return false };
    let is_first = |c: u8| path.first() == Some(&c);
    let is_name = path.first().is_some_and(|&c| c != b'/');
    match first {
        b'*' => {
            let (rest, crosses) = match rest.strip_prefix(b"*") {
                Some(rest) => (rest, true),
                None => (rest, false),
            };
            let limit = path.iter().position(|&c| c == b'/' && !crosses).unwrap_or(path.len());
            // A `**` may go on behind the path.
            crosses && is_end(pattern) || (0..=limit).any(|n| begins(rest, &path[n..], is_end))
        }
        b'?' => is_name && begins(rest, &path[1..], is_end),
        b'[' => match set(rest) {
            Some((set, rest)) => is_name && is_in(set, path[0]) && begins(rest, &path[1..], is_end),
            None => is_first(b'[') && begins(rest, &path[1..], is_end),
        },
        b'\\' if !rest.is_empty() => is_first(rest[0]) && begins(&rest[1..], &path[1..], is_end),
        _ => is_first(first) && begins(rest, &path[1..], is_end),
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

    #[test]
    fn a_pattern_that_describes_a_file_may_describe_one_in_its_folder() {
        let cases = [
            ("/data/*.db", "/data/", true),
            ("/data/*.db", "/", false),
            ("/data/*.db", "/data/sub/", false),
            ("/data/*.db", "/dat/", false),
            ("/data/**", "/data/", true),
            ("/data/**", "/data/a/b/", true),
            ("/data/**", "/", false),
            ("/d**/x", "/data/a/", true),
            ("/d**/x", "/e/", false),
            ("/*/x", "/a/", true),
            ("/*/x", "/a/b/", false),
            ("/*/x/y", "/a/", false),
            ("/x/", "/x/", false),
            ("/x\\/y", "/x/", true),
            ("/[ab]/x[/]", "/a/", true),
            ("/**", "/", true),
        ];
        for (pattern, folder, expected) in cases {
            let found = may_hold(pattern.as_bytes(), folder.as_bytes());
            assert_eq!(found, expected, "{pattern} {folder}");
        }
    }
}
