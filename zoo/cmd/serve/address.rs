//! Addresses of pages.

/// The address of a page about a run.
pub(super) fn href(path: &str, run: &str) -> String {
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("run", run).finish();
    format!("{path}?{query}")
}
