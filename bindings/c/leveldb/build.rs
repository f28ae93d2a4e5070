//! The name by which programs that were linked with LevelDB look for it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libleveldb.so.1");
}
