fn main() {
    for path in std::env::args().skip(1) {
        let bytes = std::fs::read(&path).unwrap();
        let result = zoo_import::Trace::read(&bytes).and_then(|trace| {
            zoo_import::import(&trace, "x")
        });
        match result {
            Ok(imported) => {
                println!("{path}: ok, {} lines, {:?}", imported.text.lines().count(), imported.proof);
                std::fs::write(path.replace(".json", ".yaml"), imported.text).unwrap();
            }
            Err(error) => println!("{path}: {error}"),
        }
    }
}
