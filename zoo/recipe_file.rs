//! New recipe files.

pub mod reference;

use crate::Failure;
use crate::catalog::Catalog;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use zoo_recipe::LoadOptions;

/// Refuses invalid recipe names.
pub fn expect_name(name: &str) -> Result<(), Failure> {
    if zoo_recipe::is_name(name) {
        return Ok(());
    }
    let message = format!("`{}` is not a valid recipe name: {}", name.escape_debug(), zoo_recipe::NAMES);
    Err(Failure::Usage(message))
}

/// What to do if the file exists.
pub const OTHER_FILE: &str = "--out names another file";

/// Writes a new file and creates its folder. If the file exists, the error says what to do `instead`.
pub fn write(path: &Path, text: &str, instead: &str) -> Result<(), Failure> {
    make_folder(path)?;
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => Failure::Usage(format!("{} already exists; {instead}", path.display())),
        _ => Failure::Unwritable { path: path.to_owned(), source },
    };
    fs::File::create_new(path).and_then(|mut file| file.write_all(text.as_bytes())).map_err(failed)
}

/// Creates the folder of a file, and returns it.
fn make_folder(file: &Path) -> Result<&Path, Failure> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let unwritable = |source| Failure::Unwritable { path: folder.to_owned(), source };
    match folder.exists() && !folder.is_dir() {
        true => Err(unwritable(io::ErrorKind::NotADirectory.into())),
        false => fs::create_dir_all(folder).map(|()| folder).map_err(unwritable),
    }
}

/// Writes a new recipe that refers to others; `text` makes it for its folder. A recipe with mistakes is removed again.
pub fn write_valid(
    catalog: &Catalog,
    path: &Path,
    text: impl FnOnce(&Path) -> Result<String, Failure>,
) -> Result<(), Failure> {
    let text = text(make_folder(path)?)?;
    write(path, &text, OTHER_FILE)?;
    let absolute = std::path::absolute(path)?;
    if let Err(mistakes) = catalog.library().load(&absolute.to_string_lossy(), &LoadOptions::default()) {
        fs::remove_file(path).map_err(|source| Failure::Unwritable { path: path.to_owned(), source })?;
        return Err(mistakes.into());
    }
    Ok(())
}

/// Writes the schema to the path in the first line of the recipe, for completion and validation in editors.
pub fn put_schema(folder: &Path) -> Result<(), Failure> {
    let path = folder.join("schema/recipe.json");
    if path.exists() { Ok(()) } else { write(&path, &format!("{:#}\n", zoo_recipe::json_schema()), OTHER_FILE) }
}
