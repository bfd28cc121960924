//! Builds again when a recipe is added: the command carries all of them.

fn main() {
    println!("cargo::rerun-if-changed=recipes");
}
