//! Initial values by `mindspore.common.initializer`.

use std::collections::{BTreeMap, BTreeSet};

use zoo_graph::init::{FanMode, Init, Kaiming, NormalInit, TorchDefault, Xavier};

use crate::python::initial::Style;
use crate::python::number::{Kind, plain};

/// Their classes, as imports are sorted.
pub(crate) const INITIALIZERS: [&str; 11] = [
    "Constant",
    "HeNormal",
    "HeUniform",
    "Initializer",
    "Normal",
    "One",
    "TruncatedNormal",
    "Uniform",
    "XavierNormal",
    "XavierUniform",
    "Zero",
];

/// How they are written.
pub(crate) const STYLE: Style = Style {
    framework: "MindSpore",
    module: "cell",
    modules: "for _, cell in self.cells_and_names():",
    named: "for name, cell in self.cells_and_names():",
    parameters: "for name, parameter in self.parameters_and_names():",
    parameter: "Parameter",
    dense: "nn.Dense",
    hidden,
    leaf,
    usual,
    statement,
};

/// What a parameter or statistic of a class is called.
pub(super) fn leaf<'l>(class: &str, leaf: &'l str) -> &'l str {
    match (class, leaf) {
        ("nn.BatchNorm1d" | "nn.BatchNorm2d" | "nn.LayerNorm" | "LayerNorm2d" | "nn.GroupNorm", leaf) => match leaf {
            "weight" => "gamma",
            "bias" => "beta",
            "running_mean" => "moving_mean",
            "running_var" => "moving_variance",
            other => other,
        },
        ("nn.Embedding", "weight") => "embedding_table",
        (_, other) => other,
    }
}

/// The output layers of attention.
fn hidden(modules: &BTreeMap<String, String>) -> Vec<String> {
    let attention = modules.iter().filter(|(_, class)| *class == "nn.MultiheadAttention");
    let last = attention.map(|(name, _)| format!("{}.out_proj", name.rsplit('.').next().unwrap_or(name)));
    last.collect::<BTreeSet<_>>().into_iter().collect()
}

/// How a constructor starts a parameter, by its name in PyTorch.
fn usual(class: &str, leaf: &str) -> Option<Init> {
    let default = || Some(Init::TorchDefault(TorchDefault {}));
    match (class, leaf) {
        ("nn.Conv2d" | "nn.Conv2dTranspose" | "nn.Dense", _) => default(),
        ("nn.Embedding", _) => Some(Init::Normal(NormalInit { std: 0.01 })),
        ("nn.MultiheadAttention", "in_proj_weight") => Some(Init::XavierUniform(Xavier::default())),
        ("nn.MultiheadAttention", "out_proj.weight") => default(),
        ("nn.MultiheadAttention", "out_proj.bias") => None,
        (_, "weight" | "alpha") => Some(Init::Constant(1.0)),
        _ => Some(Init::Constant(0.0)),
    }
}

/// A call that draws the values of a parameter.
fn statement(init: &Init, place: &str) -> Result<String, String> {
    let number = |value: f64| plain(value, Kind::Real);
    let kaiming = |name: &str, kaiming: &Kaiming| {
        let mode = match kaiming.mode {
            FanMode::FanIn => "",
            FanMode::FanOut => "mode=\"fan_out\", ",
        };
        let slope = 2.0 / (kaiming.gain * kaiming.gain) - 1.0;
        if kaiming.gain == 0.0 {
            Ok("Zero()".to_owned())
        } else if (kaiming.gain - std::f64::consts::SQRT_2).abs() < 1e-12 {
            Ok(format!("{name}({mode}nonlinearity=\"relu\")"))
        } else if (kaiming.gain - 1.0).abs() < 1e-12 {
            Ok(format!("{name}({mode}nonlinearity=\"linear\")"))
        } else if slope >= 0.0 {
            Ok(format!("{name}({}{})", number(slope.sqrt()), mode.trim_end_matches(", ").replace("mode", ", mode")))
        } else {
            Err(format!("initial values with a gain of {} are not written in MindSpore yet", kaiming.gain))
        }
    };
    let gain =
        |xavier: &Xavier| if xavier.gain == 1.0 { String::new() } else { format!("gain={}", number(xavier.gain)) };
    let start = match init {
        Init::KaimingNormal(settings) => kaiming("HeNormal", settings)?,
        Init::KaimingUniform(settings) => kaiming("HeUniform", settings)?,
        Init::XavierNormal(xavier) => format!("XavierNormal({})", gain(xavier)),
        Init::XavierUniform(xavier) => format!("XavierUniform({})", gain(xavier)),
        Init::Uniform(uniform) => format!("Uniform({})", number(uniform.bound)),
        Init::Normal(normal) => format!("Normal({})", number(normal.std)),
        Init::TruncatedNormal(normal) => {
            let most = number(2.0 * normal.std);
            format!("TruncatedNormal({}, a=-{most}, b={most})", number(normal.std))
        }
        Init::Constant(value) if *value == 0.0 => "Zero()".to_owned(),
        Init::Constant(value) if *value == 1.0 => "One()".to_owned(),
        Init::Constant(value) => format!("Constant({})", number(*value)),
        Init::Dirac(_) => return Err("initial values `dirac` are not written in MindSpore yet".to_owned()),
        Init::TorchDefault(_) => "HeUniform(math.sqrt(5))".to_owned(),
    };
    Ok(format!("fill({place}, {start})"))
}
