//! Builds again when a recipe or golden is added: the command carries all of them.

fn main() {
    println!("cargo::rerun-if-changed=recipes");
    println!("cargo::rerun-if-changed=golden");
}
