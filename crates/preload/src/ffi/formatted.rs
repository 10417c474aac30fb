//! `dprintf` and its kin: the whole text is one write.
//!
//! Rust has no stable definitions with variable arguments. On x86-64 a few instructions put them
//! into a `va_list`, as the first instructions of a variadic function of C do.

use super::{data, path, real};
use libc::{c_char, c_int, c_void, size_t};
use std::ptr::null_mut;

/// A `va_list`. As an argument it is a pointer.
type List = *mut c_void;

unsafe extern "C" {
    fn vasprintf(to: *mut *mut c_char, format: *const c_char, list: List) -> c_int;
    fn __vasprintf_chk(
        to: *mut *mut c_char,
        flag: c_int,
        format: *const c_char,
        list: List,
    ) -> c_int;
}

/// Writes a text. `make` allocates it, and returns its length.
///
/// # Safety
/// `make` stores the address of as many bytes as it returns.
unsafe fn write(fd: c_int, make: impl FnOnce(*mut *mut c_char) -> c_int) -> c_int {
    let mut text = null_mut();
    let len = make(&raw mut text);
    if len < 0 {
        return len;
    }
    // SAFETY: the text of `make`, which `free` releases. It leaves `errno` as it is.
    unsafe {
        let written = data::write(fd, text.cast(), len as size_t);
        libc::free(text.cast());
        if written == len as isize { len } else { -1 }
    }
}

hook! {
    fn vdprintf(fd: c_int, format: *const c_char, list: List) -> c_int {
        if !path::is_chosen(fd) {
            return real::vdprintf(fd, format, list);
        }
        write(fd, |to| vasprintf(to, format, list))
    }
    fn __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, list: List) -> c_int {
        if !path::is_chosen(fd) {
            return real::__vdprintf_chk(fd, flag, format, list);
        }
        write(fd, |to| __vasprintf_chk(to, flag, format, list))
    }
}

/// Defines a variadic function with `$fixed` bytes of fixed arguments in registers. It calls one
/// that has a `va_list` in their place.
#[cfg(target_arch = "x86_64")]
macro_rules! variadic {
    ($($name:ident => $to:ident, $list:literal, $fixed:literal;)*) => {$(
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() -> c_int {
            // The ABI's save area of 176 bytes lies at `rsp + 32`, and the `va_list` at `rsp`. The
            // arguments on the stack begin above the address to return to.
            std::arch::naked_asm!(
                ".cfi_startproc",
                "sub rsp, 216",
                ".cfi_adjust_cfa_offset 216",
                "mov [rsp + 32], rdi",
                "mov [rsp + 40], rsi",
                "mov [rsp + 48], rdx",
                "mov [rsp + 56], rcx",
                "mov [rsp + 64], r8",
                "mov [rsp + 72], r9",
                "movaps [rsp + 80], xmm0",
                "movaps [rsp + 96], xmm1",
                "movaps [rsp + 112], xmm2",
                "movaps [rsp + 128], xmm3",
                "movaps [rsp + 144], xmm4",
                "movaps [rsp + 160], xmm5",
                "movaps [rsp + 176], xmm6",
                "movaps [rsp + 192], xmm7",
                concat!("mov dword ptr [rsp], ", $fixed),
                "mov dword ptr [rsp + 4], 48",
                "lea rax, [rsp + 224]",
                "mov [rsp + 8], rax",
                "lea rax, [rsp + 32]",
                "mov [rsp + 16], rax",
                concat!("mov ", $list, ", rsp"),
                "call {to}",
                "add rsp, 216",
                ".cfi_adjust_cfa_offset -216",
                "ret",
                ".cfi_endproc",
                to = sym $to,
            )
        }
    )*};
}

#[cfg(target_arch = "x86_64")]
variadic! {
    dprintf => vdprintf, "rdx", 16;
    __dprintf_chk => __vdprintf_chk, "rcx", 24;
}
