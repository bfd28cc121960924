//! The few messages of TensorBoard's event files, with the field numbers of `tensorflow/core/util/event.proto`,
//! `tensorflow/core/framework/summary.proto`, `tensor.proto`, `graph.proto` and `node_def.proto`,
//! `tensorboard/plugins/hparams/plugin_data.proto` and `google/protobuf/struct.proto`.

use std::collections::BTreeMap;

use prost::{Message, Oneof};

/// A record of a file.
#[derive(Clone, PartialEq, Message)]
pub struct Event {
    #[prost(double, tag = "1")]
    pub wall_time: f64,
    #[prost(int64, tag = "2")]
    pub step: i64,
    #[prost(oneof = "Content", tags = "3, 4, 5, 7")]
    pub content: Option<Content>,
}

/// The content of an event.
#[derive(Clone, PartialEq, Oneof)]
pub enum Content {
    /// First record of each file: the version of the format, `brain.Event:2`.
    #[prost(string, tag = "3")]
    FileVersion(String),
    /// An encoded [`GraphDef`].
    #[prost(bytes = "vec", tag = "4")]
    Graph(Vec<u8>),
    #[prost(message, tag = "5")]
    Summary(Summary),
    #[prost(message, tag = "7")]
    SessionLog(SessionLog),
}

/// With the status 1, a run starts at this step: readers drop entries of earlier files from this step on.
#[derive(Clone, PartialEq, Message)]
pub struct SessionLog {
    #[prost(int32, tag = "1")]
    pub status: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Summary {
    #[prost(message, repeated, tag = "1")]
    pub value: Vec<Entry>,
}

/// A value with its tag.
#[derive(Clone, PartialEq, Message)]
pub struct Entry {
    #[prost(string, tag = "1")]
    pub tag: String,
    #[prost(oneof = "Value", tags = "2, 4, 8")]
    pub value: Option<Value>,
    #[prost(message, optional, tag = "9")]
    pub metadata: Option<Metadata>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Value {
    #[prost(float, tag = "2")]
    Scalar(f32),
    #[prost(message, tag = "4")]
    Image(Image),
    #[prost(message, tag = "8")]
    Tensor(Tensor),
}

/// An image file; three channels are colour.
#[derive(Clone, PartialEq, Message)]
pub struct Image {
    #[prost(int32, tag = "1")]
    pub height: i32,
    #[prost(int32, tag = "2")]
    pub width: i32,
    #[prost(int32, tag = "3")]
    pub channels: i32,
    #[prost(bytes = "vec", tag = "4")]
    pub file: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Tensor {
    #[prost(int32, tag = "1")]
    pub dtype: i32,
    #[prost(message, optional, tag = "2")]
    pub shape: Option<Shape>,
}

/// That of a scalar.
#[derive(Clone, PartialEq, Message)]
pub struct Shape {}

#[derive(Clone, PartialEq, Message)]
pub struct Metadata {
    #[prost(message, optional, tag = "1")]
    pub plugin: Option<Plugin>,
}

/// What a value means to a plugin.
#[derive(Clone, PartialEq, Message)]
pub struct Plugin {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(bytes = "vec", tag = "2")]
    pub content: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct GraphDef {
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<NodeDef>,
}

#[derive(Clone, PartialEq, Message)]
pub struct NodeDef {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub op: String,
    #[prost(string, repeated, tag = "3")]
    pub input: Vec<String>,
}

/// The content for the plugin `hparams`.
#[derive(Clone, PartialEq, Message)]
pub struct Hparams {
    #[prost(message, optional, tag = "3")]
    pub session_start: Option<SessionStart>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SessionStart {
    #[prost(btree_map = "string, message", tag = "1")]
    pub hparams: BTreeMap<String, Setting>,
    #[prost(double, tag = "5")]
    pub start_time_secs: f64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Setting {
    #[prost(oneof = "SettingKind", tags = "2, 3")]
    pub kind: Option<SettingKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum SettingKind {
    #[prost(double, tag = "2")]
    Number(f64),
    #[prost(string, tag = "3")]
    Text(String),
}
