//! The few messages of TensorBoard's event files, encoded by hand (Protocol Buffers, proto3 wire format).
//!
//! From `tensorflow/core/util/event.proto`: `Event { double wall_time = 1; int64 step = 2; string file_version = 3;
//! Summary summary = 5; SessionLog session_log = 7; }`, `SessionLog { SessionStatus status = 1; }` with `START = 1`; from
//! `tensorflow/core/framework/summary.proto`: `Summary { repeated Value value = 1; }`,
//! `Value { string tag = 1; float simple_value = 2; }`.

/// What an event says.
#[derive(Clone, Debug, PartialEq)]
pub enum Content<'a> {
    /// First record of each file: the format's version, `brain.Event:2`.
    FileVersion(&'a str),
    /// A run starts at this step: readers drop what earlier files say about it and later ones.
    SessionStart,
    /// Values of scalars by tag.
    Scalars(&'a [(&'a str, f32)]),
}

/// One event.
pub fn event(wall_time: f64, step: i64, content: &Content<'_>) -> Vec<u8> {
    let mut event = Message::default();
    event.double(1, wall_time);
    event.int(2, step);
    match content {
        Content::FileVersion(version) => event.bytes(3, version.as_bytes()),
        Content::SessionStart => {
            let mut log = Message::default();
            log.int(1, 1);
            event.bytes(7, &log.0);
        }
        Content::Scalars(scalars) => {
            let mut summary = Message::default();
            for (tag, value) in *scalars {
                let mut entry = Message::default();
                entry.bytes(1, tag.as_bytes());
                entry.float(2, *value);
                summary.bytes(1, &entry.0);
            }
            event.bytes(5, &summary.0);
        }
    }
    event.0
}

/// Fields of a message in the order in which they were added.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn key(&mut self, field: u64, wire_type: u64) {
        self.varint(field << 3 | wire_type);
    }

    /// Zero is the default of proto3 and left out.
    fn int(&mut self, field: u64, value: i64) {
        if value != 0 {
            self.key(field, 0);
            self.varint(value as u64);
        }
    }

    fn double(&mut self, field: u64, value: f64) {
        if value.to_bits() != 0 {
            self.key(field, 1);
            self.0.extend(value.to_le_bytes());
        }
    }

    fn bytes(&mut self, field: u64, value: &[u8]) {
        self.key(field, 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
    }

    /// A member of a oneof: written even if zero.
    fn float(&mut self, field: u64, value: f32) {
        self.key(field, 5);
        self.0.extend(value.to_le_bytes());
    }
}
