//! `communication.json`: what Ascend's profiler says of each collective.
//!
//! step -> `p2p` or `collective` -> operator@group -> times and bandwidths (CANN, atlasprofiling_16_0032). Entries of
//! other shapes are passed over.

use crate::MeasuredError;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use std::fmt;
use std::io::Read;
use std::path::Path;

/// A collective of one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Collective {
    /// How the profiler calls the step.
    pub step: String,
    /// Operator and group.
    pub name: String,
    /// From start to end, in ms.
    pub elapse_ms: f64,
    /// The part in which data moved, in ms.
    pub transit_ms: f64,
    /// The part in which it waited for others, in ms.
    pub wait_ms: f64,
    /// The part of it before any data moved, in ms.
    pub synchronization_ms: f64,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "Communication Time Info")]
    time: Times,
}

#[derive(Deserialize)]
struct Times {
    #[serde(rename = "Elapse Time(ms)")]
    elapse: f64,
    #[serde(rename = "Transit Time(ms)", default)]
    transit: f64,
    #[serde(rename = "Wait Time(ms)", default)]
    wait: f64,
    #[serde(rename = "Synchronization Time(ms)", default)]
    synchronization: f64,
}

/// The name under which the profiler sums up all collectives of a step.
const TOTAL: &str = "Total Op Info";

/// Reads the file.
pub(crate) fn read<R: Read>(path: &Path, reader: R) -> Result<Vec<Collective>, MeasuredError> {
    let json = |source| MeasuredError::Json { path: path.to_owned(), source };
    let mut deserializer = serde_json::Deserializer::from_reader(reader);
    let found = deserializer.deserialize_map(Steps(Vec::new())).map_err(json)?;
    deserializer.end().map_err(json)?;
    Ok(found)
}

/// Steps, each with its kinds of collectives.
struct Steps(Vec<Collective>);

impl<'de> Visitor<'de> for Steps {
    type Value = Vec<Collective>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the steps of communication.json")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut steps: A) -> Result<Self::Value, A::Error> {
        while let Some(step) = steps.next_key::<String>()? {
            let kinds: Kinds = steps.next_value()?;
            let found = [kinds.collective, kinds.p2p].into_iter().flatten().flat_map(|entries| entries.0);
            self.0.extend(found.map(|(name, time)| Collective {
                step: step.clone(),
                name,
                elapse_ms: time.elapse,
                transit_ms: time.transit,
                wait_ms: time.wait,
                synchronization_ms: time.synchronization,
            }));
        }
        Ok(self.0)
    }
}

#[derive(Deserialize)]
struct Kinds {
    collective: Option<Entries>,
    p2p: Option<Entries>,
}

struct Entries(Vec<(String, Times)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("collectives by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == TOTAL {
                        map.next_value::<IgnoredAny>()?;
                    } else {
                        entries.push((name, map.next_value::<Entry>()?.time));
                    }
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_collective() {
        let text = r#"{"step3": {"p2p": {}, "collective": {"hcom_allReduce__445_1@16": {"Communication Time Info":
            {"Start Timestamp(us)": 1.5, "Elapse Time(ms)": 3.0, "Transit Time(ms)": 1.0, "Wait Time(ms)": 1.5,
             "Synchronization Time(ms)": 1.25, "Idle Time(ms)": 0.5}, "Communication Bandwidth Info": {}},
            "Total Op Info": {}}}}"#;
        let found = read(Path::new("communication.json"), text.as_bytes()).unwrap();
        let expected = Collective {
            step: "step3".to_owned(),
            name: "hcom_allReduce__445_1@16".to_owned(),
            elapse_ms: 3.0,
            transit_ms: 1.0,
            wait_ms: 1.5,
            synchronization_ms: 1.25,
        };
        assert_eq!(found, [expected]);
        let cut = read(Path::new("communication.json"), &text.as_bytes()[..100]).unwrap_err().to_string();
        assert!(cut.starts_with("communication.json: EOF while parsing"), "{cut}");
    }
}
