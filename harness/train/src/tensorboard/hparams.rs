//! Settings for TensorBoard's plugin `hparams` (`tensorboard/plugins/hparams/plugin_data.proto`): `HParamsPluginData {
//! int32 version = 1; SessionStartInfo session_start_info = 3; }`, `SessionStartInfo { map<string,
//! google.protobuf.Value> hparams = 1; double start_time_secs = 5; }`; `google.protobuf.Value { double number_value =
//! 2; string string_value = 3; }`.

use super::message::Message;
use crate::event::Started;

/// The encoded start of a session. Version 0 is the default of proto3 and is omitted.
pub fn session_start(started: &Started, wall_time: f64) -> Vec<u8> {
    let mut info = Message::default();
    let texts = [("recipe", &started.recipe), ("data", &started.data), ("device", &started.device)];
    for (name, text) in texts {
        let mut value = Message::default();
        value.bytes(3, text.as_bytes());
        setting(&mut info, name, &value);
    }
    let numbers = [
        ("seed", started.seed as f64),
        ("batch", started.batch as f64),
        ("epochs", started.epochs as f64),
        ("steps", started.steps as f64),
        ("train_samples", started.train_samples as f64),
    ];
    numbers.into_iter().for_each(|(name, it)| setting(&mut info, name, &number(it)));
    info.double(5, wall_time);
    let mut data = Message::default();
    data.bytes(3, info.as_bytes());
    data.into_bytes()
}

/// An entry of the map `hparams`.
pub(super) fn setting(info: &mut Message, name: &str, value: &Message) {
    let mut entry = Message::default();
    entry.bytes(1, name.as_bytes());
    entry.bytes(2, value.as_bytes());
    info.bytes(1, entry.as_bytes());
}

/// A numeric value.
pub(super) fn number(number: f64) -> Message {
    let mut value = Message::default();
    value.member(2, number);
    value
}
