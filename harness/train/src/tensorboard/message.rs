//! The few messages of TensorBoard's event files, encoded by hand (Protocol Buffers, proto3 wire format).
//!
//! From `tensorflow/core/util/event.proto`: `Event { double wall_time = 1; int64 step = 2; string file_version = 3;
//! bytes graph_def = 4; Summary summary = 5; SessionLog session_log = 7; }`, `SessionLog { SessionStatus status = 1; }`
//! with `START = 1`; from `tensorflow/core/framework/summary.proto`: `Summary { repeated Value value = 1; }`, `Value {
//! string tag = 1; float simple_value = 2; Image image = 4; TensorProto tensor = 8; SummaryMetadata metadata = 9; }`,
//! `Image { int32 height = 1; int32 width = 2; int32 colorspace = 3; bytes encoded_image_string = 4; }`,
//! `SummaryMetadata { PluginData plugin_data = 1; }`, `PluginData { string plugin_name = 1; bytes content = 2; }`; from
//! `tensorflow/core/framework/tensor.proto`: `TensorProto { DataType dtype = 1; TensorShapeProto tensor_shape = 2; }`.

/// The content of an event.
#[derive(Clone, Debug, PartialEq)]
pub enum Content<'a> {
    /// First record of each file: the version of the format, `brain.Event:2`.
    FileVersion(&'a str),
    /// A run starts at this step: readers drop entries of earlier files from this step on.
    SessionStart,
    /// Values of scalars, by tag.
    Scalars(&'a [(&'a str, f32)]),
    /// PNG files in colour, by tag.
    Images(&'a [(String, Vec<u8>)]),
    /// The encoded graph.
    Graph(&'a [u8]),
    /// Encoded metadata for the plugin `hparams`.
    Settings(&'a [u8]),
}

/// Width and height of a PNG file, from its header (RFC 2083, section 4.1.1); zeros for other files.
fn png_size(file: &[u8]) -> (i64, i64) {
    let number = |at: usize| file.get(at..at + 4).and_then(|bytes| Some(u32::from_be_bytes(bytes.try_into().ok()?)));
    (number(16).unwrap_or_default().into(), number(20).unwrap_or_default().into())
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
        Content::Images(images) => {
            let mut summary = Message::default();
            for (tag, file) in *images {
                let (width, height) = png_size(file);
                let mut image = Message::default();
                image.int(1, height);
                image.int(2, width);
                image.int(3, 3);
                image.bytes(4, file);
                let mut entry = Message::default();
                entry.bytes(1, tag.as_bytes());
                entry.bytes(4, &image.0);
                summary.bytes(1, &entry.0);
            }
            event.bytes(5, &summary.0);
        }
        Content::Graph(definition) => event.bytes(4, definition),
        Content::Settings(content) => {
            let mut plugin = Message::default();
            plugin.bytes(1, b"hparams");
            plugin.bytes(2, content);
            let mut metadata = Message::default();
            metadata.bytes(1, &plugin.0);
            // A dummy scalar, because readers require a value.
            let mut tensor = Message::default();
            tensor.int(1, 1);
            tensor.bytes(2, b"");
            let mut entry = Message::default();
            entry.bytes(1, b"_hparams_/session_start_info");
            entry.bytes(8, &tensor.0);
            entry.bytes(9, &metadata.0);
            let mut summary = Message::default();
            summary.bytes(1, &entry.0);
            event.bytes(5, &summary.0);
        }
    }
    event.0
}

/// Fields of a message, in the order in which they are added.
#[derive(Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

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

    /// Zero is the default of proto3 and is omitted.
    fn int(&mut self, field: u64, value: i64) {
        if value != 0 {
            self.key(field, 0);
            self.varint(value as u64);
        }
    }

    pub(super) fn double(&mut self, field: u64, value: f64) {
        if value.to_bits() != 0 {
            self.key(field, 1);
            self.0.extend(value.to_le_bytes());
        }
    }

    pub(super) fn bytes(&mut self, field: u64, value: &[u8]) {
        self.key(field, 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
    }

    /// A member of a oneof: written even if zero.
    pub(super) fn member(&mut self, field: u64, value: f64) {
        self.key(field, 1);
        self.0.extend(value.to_le_bytes());
    }

    /// A member of a oneof: written even if zero.
    fn float(&mut self, field: u64, value: f32) {
        self.key(field, 5);
        self.0.extend(value.to_le_bytes());
    }
}
