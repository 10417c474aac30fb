//! Names the shared library for the dynamic linker. Cargo gives it no such name.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // `cargo capi` passes a name of its own.
    let is_elf = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux");
    if is_elf && std::env::var_os("CARGO_FEATURE_CAPI").is_none() {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libatomic_mmap.so.0");
    }
}
