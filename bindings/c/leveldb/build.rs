//! Sets the name under which programs that were linked with LevelDB look for the library.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libleveldb.so.1");
}
