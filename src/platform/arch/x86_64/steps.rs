//! Instructions that several blocks of assembly share.
//!
//! Owns: one macro a step; each becomes a template of `asm!`. In loops the operands `{s}` and `{d}`
//! are the addresses of the source and the target, and `{n}` is the number of bytes left.
//!
//! Invariant: a step touches the bytes of its places only. The blocks that use it say why these are
//! the caller's.

/// Joins literals, as `concat` does.
macro_rules! text {
    ($($part:literal)*) => { concat!($($part),*) };
}

/// Copies a line by one load and one store. Takes `zmm16`.
macro_rules! copy_wide_line {
    ($store:literal, $from:literal to $to:literal) => {
        text!("vmovdqu64 zmm16, zmmword ptr [" $from "]\n" $store " zmmword ptr [" $to "], zmm16")
    };
}

/// Copies a line by four loads and four stores. Takes the operands `{a}`, `{b}`, `{e}` and `{f}`.
macro_rules! copy_narrow_line {
    ($store:literal, $from:literal to $to:literal) => {
        text!(
            "movups {a}, xmmword ptr [" $from "]\n"
            "movups {b}, xmmword ptr [" $from " + 16]\n"
            "movups {e}, xmmword ptr [" $from " + 32]\n"
            "movups {f}, xmmword ptr [" $from " + 48]\n"
            $store " xmmword ptr [" $to "], {a}\n"
            $store " xmmword ptr [" $to " + 16], {b}\n"
            $store " xmmword ptr [" $to " + 32], {e}\n"
            $store " xmmword ptr [" $to " + 48], {f}"
        )
    };
}

/// Goes on by one line. Sets the flags by the number of bytes left.
macro_rules! next_line {
    () => {
        "add {s}, 64\nadd {d}, 64\nsub {n}, 64"
    };
}

/// Copies four lines at a time, while four are left. Takes `zmm16` to `zmm19` and the labels 2 and
/// 3.
macro_rules! copy_four_wide_lines {
    ($store:literal) => {
        text!(
            "cmp {n}, 256\n"
            "jb 3f\n"
            "2:\n"
            "vmovdqu64 zmm16, zmmword ptr [{s}]\n"
            "vmovdqu64 zmm17, zmmword ptr [{s} + 64]\n"
            "vmovdqu64 zmm18, zmmword ptr [{s} + 128]\n"
            "vmovdqu64 zmm19, zmmword ptr [{s} + 192]\n"
            $store " zmmword ptr [{d}], zmm16\n"
            $store " zmmword ptr [{d} + 64], zmm17\n"
            $store " zmmword ptr [{d} + 128], zmm18\n"
            $store " zmmword ptr [{d} + 192], zmm19\n"
            "add {s}, 256\nadd {d}, 256\nsub {n}, 256\n"
            "cmp {n}, 256\n"
            "jae 2b\n"
            "3:"
        )
    };
}
