//! `execl` and its kin: the arguments of a program as a list.
//!
//! Rust has no stable definitions with variable arguments. On x86-64 a few instructions put those
//! in registers below those on the stack. Then all lie one after the other, as `execv` takes them.
//!
//! Invariant: nothing here allocates or copies, so a list has any length.

#![cfg(target_arch = "x86_64")]

use super::process;
use libc::{c_char, c_int};

/// Runs `execve`. The environment lies past the end of the arguments.
///
/// # Safety
/// As for `execle`. Its list lies at `args`.
unsafe extern "C" fn with_environment(path: *const c_char, args: *const *const c_char) -> c_int {
    // SAFETY: as the caller promises: the list ends with a null pointer, and one more pointer
    // follows it.
    unsafe {
        let mut end = args;
        while !(*end).is_null() {
            end = end.add(1);
        }
        process::execve(path, args, *end.add(1).cast())
    }
}

/// Defines a variadic function with one fixed argument. It calls one that has the address of the
/// list in place of the list.
macro_rules! listed {
    ($($name:ident => $to:path;)*) => {$(
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() -> c_int {
            // The place of the address to return to is that below the arguments on the stack. It
            // becomes the place of the last argument in a register, and the address moves down.
            std::arch::naked_asm!(
                ".cfi_startproc",
                "mov rax, [rsp]",
                ".cfi_register rip, rax",
                "mov [rsp], r9",
                "push r8",
                ".cfi_adjust_cfa_offset 8",
                "push rcx",
                ".cfi_adjust_cfa_offset 8",
                "push rdx",
                ".cfi_adjust_cfa_offset 8",
                "push rsi",
                ".cfi_adjust_cfa_offset 8",
                "mov rsi, rsp",
                "push rax",
                ".cfi_adjust_cfa_offset 8",
                ".cfi_offset rip, -48",
                "call {to}",
                "pop rcx",
                ".cfi_adjust_cfa_offset -8",
                ".cfi_register rip, rcx",
                "add rsp, 32",
                ".cfi_adjust_cfa_offset -32",
                "mov [rsp], rcx",
                ".cfi_offset rip, -8",
                "ret",
                ".cfi_endproc",
                to = sym $to,
            )
        }
    )*};
}

listed! {
    execl => process::execv;
    execlp => process::execvp;
    execle => with_environment;
}
