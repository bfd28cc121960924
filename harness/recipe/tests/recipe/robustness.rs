//! Whatever is in a file, loading ends with a recipe or with diagnostics.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use tempfile::TempDir;
use zoo_recipe::{Library, LoadOptions};

fn recipes() -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes");
    ["resnet50", "alexnet", "vgg16"].map(|name| fs::read(dir.join(format!("{name}.yaml"))).unwrap()).to_vec()
}

/// Loads `content` as every profile; a recipe that loads must come out of its own YAML as an equal.
fn must_not_panic(content: &[u8], sets: &[String]) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("mutant.yaml");
    fs::write(&path, content).unwrap();
    let library = Library::new([dir.path()]);
    let rendered = library.validate("mutant").to_string();
    assert!(rendered.len() < 50_000_000);
    let options = LoadOptions { profile: None, sets: sets.to_vec() };
    match library.load("mutant", &options) {
        Ok(loaded) => {
            fs::write(&path, loaded.recipe.to_yaml().unwrap()).unwrap();
            let again = library.load("mutant", &LoadOptions::default());
            assert_eq!(again.unwrap_or_else(|d| panic!("{d}")).recipe, loaded.recipe);
        }
        Err(diagnostics) => assert!(diagnostics.has_errors()),
    }
}

/// Pieces that recipes are made of, to replace others with.
const PIECES: [&str; 28] = [
    "~",
    "[]",
    "{}",
    "-1",
    "0",
    "1e308",
    "1/0",
    "$width",
    "$",
    "$width*$width",
    "1/3",
    "99999999999999999999",
    "\"",
    "'",
    ": ",
    "- ",
    "\n",
    "&a ",
    "*a",
    "!x ",
    "[[[",
    "{{{",
    "|",
    "relu",
    "5 epochs",
    "true",
    "\t",
    "é",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        must_not_panic(&bytes, &[]);
    }

    #[test]
    fn random_text_of_yaml(pieces in proptest::collection::vec(0..PIECES.len(), 0..60)) {
        let text: String = pieces.into_iter().map(|piece| PIECES[piece]).collect();
        must_not_panic(text.as_bytes(), &[]);
    }

    /// Recipes in which words, lines and stretches are replaced, doubled or dropped.
    #[test]
    fn mutated_recipes(
        recipe in 0..3_usize,
        cuts in proptest::collection::vec((any::<prop::sample::Index>(), 0..40_usize, 0..PIECES.len() + 2), 1..4),
    ) {
        let mut text = recipes()[recipe].clone();
        for (place, length, piece) in cuts {
            let start = place.index(text.len());
            let end = (start + length).min(text.len());
            let new = match PIECES.get(piece) {
                Some(piece) => piece.as_bytes().to_vec(),
                None if piece == PIECES.len() => text[start..end].repeat(2),
                None => Vec::new(),
            };
            text.splice(start..end, new);
            if text.is_empty() {
                text.push(b'\n');
            }
        }
        must_not_panic(&text, &[]);
    }

    /// Values of a recipe replaced as a whole: more often sound YAML than cuts anywhere.
    #[test]
    fn mutated_values(recipe in 0..3_usize, line in any::<prop::sample::Index>(), piece in 0..PIECES.len()) {
        let text = String::from_utf8(recipes()[recipe].clone()).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let line = &mut lines[line.index(text.lines().count())];
        if let Some(colon) = line.rfind(": ") {
            line.replace_range(colon + 2.., PIECES[piece]);
        }
        must_not_panic(lines.join("\n").as_bytes(), &[]);
    }

    #[test]
    fn overrides(
        path in "(model|train|schedule|body|conv1|layer1|blocks|bottleneck|[a-z]{1,4}|[0-9])(\\.(conv1|features|0|body\\[[0-9]\\]|cosine|sgd|main|kernel|[a-z.\\[\\]]{0,4})){0,4}",
        piece in 0..PIECES.len(),
        recipe in 0..3_usize,
    ) {
        must_not_panic(&recipes()[recipe], &[format!("{path}={}", PIECES[piece]), path]);
    }
}
