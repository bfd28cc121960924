//! Metrics.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// Properties of a metric for comparing, formatting and drawing its values.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Facts {
    name: &'static str,
    documentation: &'static str,
    better: Better,
    /// Least and largest value; an infinite end is none.
    range: [f64; 2],
    unit: Unit,
}

/// Which of two values of a metric is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// The higher one.
    Higher,
    /// The lower one.
    Lower,
}

/// How values of a metric are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Fractions of 1, in per cent.
    Share,
    /// As they are.
    Plain,
}

impl Unit {
    /// A value in at most four significant digits.
    pub fn format(self, value: f64) -> String {
        match self {
            Self::Share => format!("{} %", few_digits(value * 100.0)),
            Self::Plain => few_digits(value),
        }
    }
}

/// At most four significant digits, without trailing zeros.
fn few_digits(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let magnitude = value.abs().log10().floor() as i32;
    if !(-4..7).contains(&magnitude) {
        return format!("{value:.1e}");
    }
    let text = format!("{value:.*}", (3 - magnitude).max(0) as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A fraction of which more is better.
const SHARE: (Better, [f64; 2], Unit) = (Better::Higher, [0.0, 1.0], Unit::Share);
/// A distance or a cost: 0 at best, without an upper end.
const COST: (Better, [f64; 2], Unit) = (Better::Lower, [0.0, f64::INFINITY], Unit::Plain);

macro_rules! metrics {
    ($($metric:ident = $name:literal, $kind:expr, $documentation:literal;)*) => {
        /// The metric measured on the held-out set.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Metric {
            $(#[doc = $documentation] $metric,)*
        }

        impl Metric {
            /// All metrics.
            pub const ALL: &'static [Self] = &[$(Self::$metric),*];

            fn facts(self) -> Facts {
                match self {
                    $(Self::$metric => {
                        let (better, range, unit) = $kind;
                        Facts { name: $name, documentation: $documentation, better, range, unit }
                    })*
                }
            }
        }
    };
}

// The list of metrics. Their computations are in harness/tasks/src/metrics/.
metrics! {
    Top1 = "top1", SHARE, "Share of samples whose true class is ranked first.";
    Top5 = "top5", SHARE, "Share of samples whose true class is among the first five.";
    CrossEntropy = "cross_entropy", COST,
        "Mean cross entropy in nats, of samples, tokens or pixels, without smoothing and regularisation.";
    Perplexity = "perplexity", (Better::Lower, [1.0, f64::INFINITY], Unit::Plain),
        "Exponential of the mean cross entropy per token.";
    BitsPerCharacter = "bits_per_character", COST, "Mean cross entropy per character, in bits.";
    MaskedAccuracy = "masked_accuracy", SHARE, "Share of the hidden tokens that are ranked first (`preprocess.masking`).";
    NextSentenceAccuracy = "next_sentence_accuracy", SHARE,
        "Share of the pairs of sentences of which the network knows whether the second follows the first \
         (`preprocess.masking.sentence_pairs`).";
    Hmean = "hmean", SHARE, "Harmonic mean of precision and recall of text detection (protocol of ICDAR 2015).";
    Precision = "precision", SHARE, "Share of the detected texts that are correct.";
    Recall = "recall", SHARE, "Share of the texts that are detected.";
    MeanIou = "mean_iou", SHARE,
        "Intersection over union of the pixels of a class over all images, mean over the classes (PASCAL VOC).";
    PixelAccuracy = "pixel_accuracy", SHARE, "Share of the pixels whose true class is ranked first.";
    Map = "map", SHARE,
        "Mean average precision of boxes over the classes and the thresholds of IoU from 0.5 to 0.95 (COCO's AP).";
    Map50 = "map_50", SHARE, "Mean average precision of boxes that overlap an object by an IoU of at least 0.5.";
    Map75 = "map_75", SHARE, "Mean average precision of boxes that overlap an object by an IoU of at least 0.75.";
    MapSmall = "map_small", SHARE, "`map` of objects of at most 32x32 pixels.";
    MapMedium = "map_medium", SHARE, "`map` of objects from 32x32 to 96x96 pixels.";
    MapLarge = "map_large", SHARE, "`map` of objects of at least 96x96 pixels.";
    Mar100 = "mar_100", SHARE,
        "Share of the objects that the best 100 boxes of a class in an image find, mean over the classes and the \
         thresholds of IoU from 0.5 to 0.95 (COCO's AR).";
    MaskIou = "mask_iou", SHARE,
        "Mean intersection over union of the mask of the target, at the position where the network detects the target.";
    Tracked = "tracked", SHARE, "Share of the sequences in which the target is tracked from the first frame to the \
                                 last.";
    Overlap = "overlap", SHARE, "Mean intersection over union of the box of the target over all tracked frames.";
    Eao = "eao", SHARE, "Expected average overlap by the supervised protocol of VOT, over sequences of 108 to 371 \
                         frames as in VOT2016.";
}

impl Metric {
    /// Its name in recipes and reports.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// Which of two values is better.
    pub fn better(self) -> Better {
        self.facts().better
    }

    /// Least and largest value; an infinite end is none.
    pub fn range(self) -> [f64; 2] {
        self.facts().range
    }

    /// The worst value: what a training that came to nothing has reached.
    pub fn worst(self) -> f64 {
        let [low, high] = self.range();
        match self.better() {
            Better::Higher => low,
            Better::Lower => high,
        }
    }

    /// How values are written.
    pub fn unit(self) -> Unit {
        self.facts().unit
    }

    /// How much better `value` is than `other`: negative if it is worse.
    pub fn gain(self, value: f64, other: f64) -> f64 {
        match self.better() {
            Better::Higher => value - other,
            Better::Lower => other - value,
        }
    }

    /// Whether `value` is at least as good as `target`; never for NaN.
    pub fn reaches(self, value: f64, target: f64) -> bool {
        match self.better() {
            Better::Higher => value >= target,
            Better::Lower => value <= target,
        }
    }

    /// Formats a value: `92.7 %`, or with four decimals.
    pub fn format(self, value: f64) -> String {
        match self.unit() {
            Unit::Share => format!("{:.1} %", 100.0 * value),
            Unit::Plain => format!("{value:.4}"),
        }
    }

    /// Formats a difference of two values, or a spread: with one more digit than values in per cent.
    pub fn format_difference(self, difference: f64) -> String {
        match self.unit() {
            Unit::Share => format!("{:.2} %", 100.0 * difference),
            Unit::Plain => format!("{difference:.4}"),
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Metric {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = Cow::<'de, str>::deserialize(deserializer)?;
        let found = Self::ALL.iter().find(|metric| metric.name() == name);
        found.copied().ok_or_else(|| D::Error::custom(format!("`{name}` is not a metric")))
    }
}

impl JsonSchema for Metric {
    fn schema_name() -> Cow<'static, str> {
        "Metric".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let one = |metric: &Metric| {
            let Facts { name, documentation, .. } = metric.facts();
            json_schema!({"description": documentation, "type": "string", "const": name})
        };
        let all: Vec<Schema> = Self::ALL.iter().map(one).collect();
        json_schema!({"description": "The metric measured on the held-out set.", "oneOf": all})
    }
}

/// A metric and its value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Score {
    /// What was measured.
    pub metric: Metric,
    /// In the metric's range; a share as a fraction. Null if it is not finite, which reads back as NaN.
    #[serde(deserialize_with = "number")]
    #[schemars(with = "Option<f64>", required)]
    pub value: f64,
    /// The denominator of the share, if it is small enough to be shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
}

/// A number that JSON cannot represent is null.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

impl fmt::Display for Score {
    /// As people read it: a few things are counted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.of {
            Some(n) => write!(f, "{} {:.0} of {n}", self.metric, self.value * n as f64),
            None => write!(f, "{} {}", self.metric, self.metric.format(self.value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_read_back() {
        for metric in Metric::ALL {
            let json = serde_json::to_string(metric).unwrap();
            assert_eq!(json, format!("\"{metric}\""));
            assert_eq!(serde_json::from_str::<Metric>(&json).unwrap(), *metric);
            assert_eq!(Metric::ALL.iter().filter(|other| other.name() == metric.name()).count(), 1);
        }
        assert!(serde_json::from_str::<Metric>("\"top2\"").is_err());
    }

    #[test]
    fn the_direction_decides_what_is_better() {
        let (rising, falling) = (Metric::Top1, Metric::CrossEntropy);
        assert!(rising.reaches(0.9, 0.8) && rising.reaches(0.8, 0.8) && !rising.reaches(0.7, 0.8));
        assert!(falling.reaches(1.5, 1.88) && falling.reaches(1.88, 1.88) && !falling.reaches(1.9, 1.88));
        assert!(!rising.reaches(f64::NAN, 0.0) && !falling.reaches(f64::NAN, 9.0));
        assert_eq!((rising.gain(0.75, 0.5), falling.gain(1.5, 2.0)), (0.25, 0.5));
    }

    #[test]
    fn numbers_have_few_digits() {
        let plain = |value| Unit::Plain.format(value);
        assert_eq!([0.0, 0.1, 2.0, 900.0, 12345.0].map(plain), ["0", "0.1", "2", "900", "12345"]);
        assert_eq!([0.000123, 1e-9, 0.30000000000000004].map(plain), ["0.000123", "1.0e-9", "0.3"]);
        assert_eq!(Unit::Share.format(0.927), "92.7 %");
    }

    #[test]
    fn a_score_that_is_not_finite_reads_back() {
        for value in [f64::INFINITY, f64::NAN] {
            let json = serde_json::to_string(&Score { metric: Metric::Perplexity, value, of: None }).unwrap();
            assert_eq!(json, r#"{"metric":"perplexity","value":null}"#);
            assert!(serde_json::from_str::<Score>(&json).unwrap().value.is_nan());
        }
        assert!(serde_json::from_str::<Score>(r#"{"metric":"perplexity"}"#).is_err());
    }

    #[test]
    fn the_unit_decides_how_values_are_written() {
        assert_eq!(Metric::Top1.format(0.9269), "92.7 %");
        assert_eq!(Metric::CrossEntropy.format(21.4), "21.4000");
        let counted = Score { metric: Metric::Tracked, value: 0.75, of: Some(20) };
        assert_eq!(counted.to_string(), "tracked 15 of 20");
    }
}
