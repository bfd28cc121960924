//! Settings for TensorBoard's plugin `hparams`.

use super::message::{Hparams, SessionStart, Setting, SettingKind};
use crate::event::Started;

/// The start of a session.
pub fn session_start(started: &Started, start_time_secs: f64) -> Hparams {
    let texts = [("recipe", &started.recipe), ("data", &started.data), ("device", &started.device)];
    let texts = texts.map(|(name, text)| (name, SettingKind::Text(text.clone())));
    let numbers = [
        ("seed", started.seed as f64),
        ("batch", started.batch as f64),
        ("epochs", started.epochs as f64),
        ("steps", started.steps as f64),
        ("train_samples", started.train_samples as f64),
    ];
    let numbers = numbers.map(|(name, number)| (name, SettingKind::Number(number)));
    let setting = |(name, kind): (&str, _)| (name.to_owned(), Setting { kind: Some(kind) });
    let hparams = texts.into_iter().chain(numbers).map(setting).collect();
    Hparams { session_start: Some(SessionStart { hparams, start_time_secs }) }
}
