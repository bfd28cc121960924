//! Numbers in files of devices and hosts.

use serde::Serialize;

zoo_recipe::settings! {
    /// A number of a device, and its source.
    pub struct Figure {
        /// The number, in the unit in the name of the key.
        #[schemars(range(min = 0))]
        pub value: f64,
        /// Where it is published, how it is derived, or that it is assumed.
        pub source: String,
        /// What it was fitted to: rows of a throughput file, or a study.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub fitted_to: Vec<String> = Vec::new(),
    }
}

/// All figures of a file, with their paths.
pub(crate) fn figures(file: &impl Serialize) -> Vec<(String, Figure)> {
    fn walk(path: &str, value: &serde_json::Value, found: &mut Vec<(String, Figure)>) {
        if let Ok(figure) = serde_json::from_value::<Figure>(value.clone()) {
            found.push((path.to_owned(), figure));
        } else if let Some(map) = value.as_object() {
            for (key, value) in map {
                let dot = if path.is_empty() { "" } else { "." };
                walk(&format!("{path}{dot}{key}"), value, found);
            }
        } else if let Some(list) = value.as_array() {
            list.iter().enumerate().for_each(|(i, value)| walk(&format!("{path}[{i}]"), value, found));
        }
    }
    let mut found = Vec::new();
    if let Ok(value) = serde_json::to_value(file) {
        walk("", &value, &mut found);
    }
    found
}
