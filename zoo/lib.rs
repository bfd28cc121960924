//! The `zoo` command as a library.
