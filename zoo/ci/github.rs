//! GitHub annotations: messages shown next to a line of a file.
//!
//! <https://docs.github.com/en/actions/reference/workflow-commands-for-github-actions>; escaped as GitHub's own toolkit
//! does (actions/toolkit, packages/core/src/command.ts). The runner reads them from stderr as well as from stdout.

use super::suite::Position;
use std::path::{Path, PathBuf};
use zoo_recipe::Severity;

/// One annotation as a line.
pub fn annotation(severity: Severity, title: &str, message: &str, place: Option<&Position>) -> String {
    let command = match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let mut properties = Vec::new();
    if let Some(Position { file, line, column }) = place {
        let workspace = std::env::var_os("GITHUB_WORKSPACE").map(PathBuf::from);
        let file = within(file, workspace.as_deref());
        properties.push(format!("file={},line={line},col={column}", property(&file)));
    }
    properties.push(format!("title={}", property(title)));
    format!("::{command} {}::{}", properties.join(","), data(message))
}

/// The path for GitHub: relative to the checkout, independent of the working directory.
fn within(file: &str, workspace: Option<&Path>) -> String {
    let absolute = Path::new(file).canonicalize().ok();
    let workspace = workspace.and_then(|workspace| workspace.canonicalize().ok());
    let relative = absolute.zip(workspace).and_then(|(file, root)| file.strip_prefix(root).map(Path::to_owned).ok());
    relative.map_or_else(|| file.to_owned(), |file| file.display().to_string())
}

/// Escapes a message.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Escapes the value of a property.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_are_escaped_by_github_s_rules() {
        let place = Position { file: "no, such:file%.yaml".into(), line: 3, column: 7 };
        assert_eq!(
            annotation(Severity::Error, "a: b, c", "100 % of\r\nit: wrong, all", Some(&place)),
            "::error file=no%2C such%3Afile%25.yaml,line=3,col=7,title=a%3A b%2C c::100 %25 of%0D%0Ait: wrong, all"
        );
        assert_eq!(annotation(Severity::Warning, "zoo", "x", None), "::warning title=zoo::x");
    }

    #[test]
    fn files_are_named_as_in_the_checkout() {
        let dir = tempfile::tempdir().unwrap();
        let recipes = dir.path().join("sub/recipes");
        std::fs::create_dir_all(&recipes).unwrap();
        let file = recipes.join("x.yaml");
        std::fs::write(&file, "").unwrap();
        let (file, root) = (file.display().to_string(), dir.path());
        assert_eq!(within(&file, Some(root)), "sub/recipes/x.yaml");
        assert_eq!(within(&file, None), file);
        assert_eq!(within("recipes/gone.yaml", Some(root)), "recipes/gone.yaml");
    }
}
