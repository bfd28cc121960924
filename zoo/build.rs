//! Rebuilds if a recipe or golden is added, because all of them are embedded in the binary.

fn main() {
    println!("cargo::rerun-if-changed=recipes");
    println!("cargo::rerun-if-changed=golden");
}
