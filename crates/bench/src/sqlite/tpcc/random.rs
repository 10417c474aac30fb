//! The random numbers and names of TPC-C.

use fastrand::Rng;

const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
/// The constant C of all non-uniform numbers.
const C: i64 = 123;

/// Returns the non-uniform random number NURand(a, from, to).
pub fn non_uniform(rng: &mut Rng, a: i64, from: i64, to: i64) -> i64 {
    (((rng.i64(0..=a) | rng.i64(from..=to)) + C) % (to - from + 1)) + from
}

/// Returns the last name of number `n`, from 0 to 999.
pub fn last_name(n: i64) -> String {
    [n / 100, n / 10 % 10, n % 10].map(|n| SYLLABLES[n as usize]).concat()
}

/// Returns a string of letters and digits, of `from` to `to` bytes.
pub fn text(rng: &mut Rng, from: usize, to: usize) -> String {
    let len = rng.usize(from..=to);
    (0..len).map(|_| rng.alphanumeric()).collect()
}

/// Returns the data of an item or a row of stock: every tenth is an original.
pub fn data(rng: &mut Rng) -> String {
    let mut data = text(rng, 26, 50);
    if rng.u8(0..10) == 0 {
        let at = rng.usize(..=data.len() - 8);
        data.replace_range(at..at + 8, "ORIGINAL");
    }
    data
}
