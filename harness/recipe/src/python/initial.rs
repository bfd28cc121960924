//! Initial values of parameters, as a method of the network.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use zoo_graph::init::{FanMode, Init, Kaiming};
use zoo_graph::{Graph, VariableRole};

use super::code::Code;
use super::number::{Kind, plain};

/// Parameters that start in the same way.
struct Rule {
    class: String,
    /// Name of the parameter within its module; empty for a parameter without a module.
    leaf: String,
    init: Init,
    /// Full names of the modules, or of the parameters without one.
    names: Vec<String>,
}

/// How a framework writes them.
pub(crate) struct Style {
    pub framework: &'static str,
    /// What a module is called.
    pub module: &'static str,
    /// The loop over all modules.
    pub modules: &'static str,
    /// The same with their names.
    pub named: &'static str,
    /// The loop over all parameters with their names.
    pub parameters: &'static str,
    /// The constructor of parameters.
    pub parameter: &'static str,
    /// The class of dense layers.
    pub dense: &'static str,
    /// Ends of the names of dense layers inside others that are of the same class and start in their own way; `modules`
    /// are the classes of modules by full name.
    pub hidden: fn(&BTreeMap<String, String>) -> Vec<String>,
    /// What a parameter of a class is called, by its name in PyTorch.
    pub leaf: for<'l> fn(&str, &'l str) -> &'l str,
    /// How a constructor starts a parameter.
    pub usual: fn(&str, &str) -> Option<Init>,
    /// A statement that draws the values of a parameter.
    pub statement: fn(&Init, &str) -> Result<String, String>,
}

/// PyTorch's way.
pub(super) const PYTORCH: Style = Style {
    framework: "PyTorch",
    module: "module",
    modules: "for module in self.modules():",
    named: "for name, module in self.named_modules():",
    parameters: "for name, parameter in self.named_parameters():",
    parameter: "nn.Parameter",
    dense: "nn.Linear",
    hidden: |_| Vec::new(),
    leaf: |_, leaf| leaf,
    usual,
    statement: |init, place| Ok(statement(init, place)),
};

/// The lines of `initialize`, or none if the framework draws all values as the recipe does. `modules` are the classes
/// of modules, and the constructor of parameters, by full name; `ties` are parameters that are others.
pub(crate) fn method(
    style: &Style,
    graph: &Graph,
    modules: &BTreeMap<String, String>,
    ties: &[(String, String)],
) -> Result<Vec<String>, String> {
    expect_axes(graph)?;
    let rules = rules(style, graph, modules);
    let hidden = (style.hidden)(modules);
    let place = |class: &str, leaf: &str| format!("{}.{}", style.module, leafed(style, class, leaf));
    let mut of_all: IndexMap<(String, String), (Init, usize)> = IndexMap::new();
    for rule in rules.iter().filter(|rule| !rule.leaf.is_empty()) {
        let usual = of_all.entry((rule.class.clone(), rule.leaf.clone())).or_insert((rule.init.clone(), 0));
        if rule.names.len() > usual.1 {
            *usual = (rule.init.clone(), rule.names.len());
        }
    }
    let mut by_class: IndexMap<&str, Vec<String>> = IndexMap::new();
    for ((class, leaf), (init, _)) in &of_all {
        if Some(init) != (style.usual)(class, leaf).as_ref() {
            let lines = by_class.entry(class).or_default();
            let with = rules.iter().filter(|rule| rule.class == *class && rule.leaf == *leaf);
            let with: usize = with.map(|rule| rule.names.len()).sum();
            let call = (style.statement)(init, &place(class, leaf))?;
            let tied = |module: &str| ties.iter().any(|(name, _)| *name == format!("{module}.{leaf}"));
            let all = modules.iter().filter(|(name, other)| *other == class && !tied(name)).count();
            match all == with {
                true => lines.push(call),
                false => lines.extend([format!("if {} is not None:", place(class, leaf)), format!("    {call}")]),
            }
        }
    }
    let mut classes: IndexMap<Vec<String>, Vec<&str>> = IndexMap::new();
    by_class.into_iter().for_each(|(class, lines)| classes.entry(lines).or_default().push(class));
    // A module that was changed is of the type that it was.
    classes.sort_by_key(|_, classes| classes.iter().all(|class| added(class).is_none()));
    let mut of_modules: IndexMap<(String, Vec<String>), Vec<String>> = IndexMap::new();
    let mut of_parameters: IndexMap<(String, Vec<String>), Vec<String>> = IndexMap::new();
    for rule in &rules {
        if rule.leaf.is_empty() {
            // The constructor fills a parameter with 0, or with what `full` says.
            let start = &modules[&rule.names[0]];
            if !matches!(rule.init, Init::Constant(value) if value == 0.0 || start.contains("full")) {
                let lines = of_parameters.entry((String::new(), suffixes(rule, &rules))).or_default();
                lines.push((style.statement)(&rule.init, "parameter")?);
            }
        } else if of_all[&(rule.class.clone(), rule.leaf.clone())].0 != rule.init {
            let class = format!("{} and ", of_type(style, &[&rule.class]));
            let lines = of_modules.entry((class, suffixes(rule, &rules))).or_default();
            lines.push((style.statement)(&rule.init, &place(&rule.class, &rule.leaf))?);
        }
    }
    if classes.is_empty() && of_modules.is_empty() && of_parameters.is_empty() {
        return Ok(Vec::new());
    }
    let mut out = vec![String::new(), "    def initialize(self) -> None:".to_owned()];
    let framework = style.framework;
    out.push(format!("        \"\"\"Draws the initial values, where they are not {framework}'s.\"\"\""));
    if !classes.is_empty() || !of_modules.is_empty() {
        let unnamed = of_modules.is_empty() && hidden.is_empty();
        out.push(format!("        {}", if unnamed { style.modules } else { style.named }));
        for (index, (lines, classes)) in classes.iter().enumerate() {
            let start = if index == 0 { "if" } else { "elif" };
            let mut of_class = of_type(style, classes);
            if classes.contains(&style.dense) && !hidden.is_empty() {
                of_class += &format!(" and not {}", ends(&hidden).flat());
            }
            let (condition, lines) = match &lines[..] {
                [test, call] if test.starts_with("if ") => {
                    (format!("{of_class} and {}", &test[3..test.len() - 1]), vec![call.trim().to_owned()])
                }
                all => (of_class, all.to_vec()),
            };
            out.push(format!("            {start} {condition}:"));
            out.extend(lines.iter().map(|line| format!("                {line}")));
        }
        exceptions(&of_modules, &mut out);
    }
    if !of_parameters.is_empty() {
        out.push(format!("        {}", style.parameters));
        exceptions(&of_parameters, &mut out);
    }
    Ok(out)
}

/// Refuses initial values that follow from the axes of a parameter that has not got them; a bias has those of its
/// weight.
fn expect_axes(graph: &Graph) -> Result<(), String> {
    for (_, variable) in graph.parameters() {
        let by_axes = match variable.init {
            Init::KaimingNormal(_) | Init::KaimingUniform(_) | Init::XavierNormal(_) | Init::XavierUniform(_) => true,
            Init::TorchDefault(_) | Init::Dirac(_) => true,
            Init::Uniform(_) | Init::Normal(_) | Init::TruncatedNormal(_) | Init::Constant(_) => false,
        };
        if by_axes && variable.role != VariableRole::Bias && graph.ty(variable.value).shape.len() < 2 {
            let message = "needs a parameter with at least two axes: use a constant or a bound";
            return Err(format!("the initialiser of `{}` {message}", variable.name));
        }
    }
    Ok(())
}

/// The name of a parameter in its class, which may be in a module inside.
fn leafed(style: &Style, class: &str, leaf: &str) -> String {
    match leaf.rsplit_once('.') {
        Some((inner, leaf)) => format!("{inner}.{}", (style.leaf)(style.dense, leaf)),
        None => (style.leaf)(class, leaf).to_owned(),
    }
}

/// Functions that change a module and return it, by what they add.
const CHANGES: [(&str, &str); 2] =
    [("nn.utils.weight_norm", "weight_g"), ("nn.utils.parametrizations.weight_norm", "parametrizations")];

/// What a function adds to a module that it changes.
fn added(class: &str) -> Option<&'static str> {
    CHANGES.iter().find(|(function, _)| *function == class).map(|(_, attribute)| *attribute)
}

/// A test of a module's type. Not `isinstance`: the output layer inside `nn.MultiheadAttention` is a subclass of
/// `nn.Linear` that starts in its own way, and so are classes of the program.
fn of_type(style: &Style, classes: &[&str]) -> String {
    let own: Vec<&str> = classes.iter().copied().filter(|class| added(class).is_none()).collect();
    let mut tests: Vec<String> = classes.iter().filter_map(|class| added(class)).map(has(style)).collect();
    match own[..] {
        [] => {}
        [one] => tests.push(format!("type({}) is {one}", style.module)),
        _ => tests.push(format!("type({}) in ({})", style.module, own.join(", "))),
    }
    let several = tests.len() > 1;
    let tests = tests.join(" or ");
    if several { format!("({tests})") } else { tests }
}

fn has(style: &Style) -> impl Fn(&str) -> String {
    let module = style.module;
    move |attribute| format!("hasattr({module}, \"{attribute}\")")
}

/// Lines for modules or parameters whose names end like this.
fn exceptions(rules: &IndexMap<(String, Vec<String>), Vec<String>>, out: &mut Vec<String>) {
    for ((class, suffixes), lines) in rules {
        ends(suffixes).lines(12, &format!("if {class}"), ":", out);
        out.extend(lines.iter().map(|line| format!("                {line}")));
    }
}

/// A test of how a name ends.
fn ends(suffixes: &[String]) -> Code {
    let texts: Vec<Code> = suffixes.iter().map(|suffix| Code::text(format!("\"{suffix}\""))).collect();
    let ends = match <[Code; 1]>::try_from(texts) {
        Ok([one]) => one,
        Err(several) => Code::tuple(several),
    };
    Code::call("name.endswith", vec![ends])
}

fn rules(style: &Style, graph: &Graph, modules: &BTreeMap<String, String>) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for (_, variable) in graph.parameters() {
        let mut owner = variable.name.as_str();
        while !modules.contains_key(owner) {
            match owner.rsplit_once('.') {
                Some((before, _)) => owner = before,
                None => break,
            }
        }
        let Some(class) = modules.get(owner) else { continue };
        let leaf = variable.name[owner.len()..].trim_start_matches('.');
        let (owner, leaf, class) = match leaf.rsplit_once('.').filter(|_| class == "nn.Sequential") {
            // The dense layers of a small network inside a layer.
            Some((inner, leaf)) => (format!("{owner}.{inner}"), leaf, style.dense),
            None if leaf.is_empty() => (owner.to_owned(), leaf, style.parameter),
            None => (owner.to_owned(), leaf, class.as_str()),
        };
        let (leaf, class) = (leaf.to_owned(), class.to_owned());
        let same = |rule: &&mut Rule| rule.class == class && rule.leaf == leaf && rule.init == variable.init;
        match rules.iter_mut().find(same) {
            Some(rule) => rule.names.push(owner),
            None => rules.push(Rule { class, leaf, init: variable.init.clone(), names: vec![owner] }),
        }
    }
    rules
}

/// How PyTorch's constructor starts a parameter.
fn usual(class: &str, leaf: &str) -> Option<Init> {
    let default = || Some(Init::TorchDefault(zoo_graph::init::TorchDefault {}));
    match (class, leaf) {
        ("nn.Conv2d" | "nn.Conv1d" | "nn.ConvTranspose2d" | "nn.Linear" | "TransposedLinear", _) => default(),
        ("nn.Embedding", _) => Some(Init::Normal(zoo_graph::init::NormalInit { std: 1.0 })),
        ("nn.MultiheadAttention", "in_proj_weight") => Some(Init::XavierUniform(zoo_graph::init::Xavier::default())),
        ("nn.MultiheadAttention", "out_proj.weight") => default(),
        (_, "weight" | "alpha") => Some(Init::Constant(1.0)),
        _ => Some(Init::Constant(0.0)),
    }
}

/// Ends of the names of a rule that no other module of its class has, or no other parameter.
fn suffixes(rule: &Rule, rules: &[Rule]) -> Vec<String> {
    let names = &rule.names;
    let same = rules.iter().filter(|other| other.class == rule.class);
    let others: Vec<&String> = same.flat_map(|rule| &rule.names).filter(|other| !names.contains(other)).collect();
    let ends = |full: &str, suffix: &str| full.ends_with(suffix);
    let mut suffixes: Vec<String> = Vec::new();
    for full in names {
        if suffixes.iter().any(|suffix| ends(full, suffix)) {
            continue;
        }
        let parts: Vec<&str> = full.split('.').collect();
        let mut longer = (1..=parts.len()).map(|length| parts[parts.len() - length..].join("."));
        let fits = |suffix: &String| others.iter().all(|other| !ends(other, suffix));
        suffixes.push(longer.find(fits).unwrap_or_else(|| full.clone()));
    }
    suffixes
}

/// A call that draws the values of a bias whose range follows from the axes of its weight.
fn of_weight(init: &Init, module: &str) -> Option<String> {
    let bias = format!("{module}.bias");
    let number = |value: f64| plain(value, Kind::Real);
    let inputs = format!("{module}.weight[0].numel()");
    let outputs = format!("{module}.weight[:, 0].numel()");
    let fan = |mode| match mode {
        FanMode::FanIn => inputs.clone(),
        FanMode::FanOut => outputs.clone(),
    };
    let both = format!("({inputs} + {outputs})");
    let uniform = |gain: f64, fan: String| {
        format!("nn.init.uniform_({bias}).data.sub_(0.5).mul_({} * {fan} ** -0.5)", number(2.0 * gain))
    };
    let normal =
        |gain: f64, fan: String| format!("nn.init.normal_({bias}).data.mul_({} * {fan} ** -0.5)", number(gain));
    match init {
        Init::KaimingNormal(settings) => Some(normal(settings.gain, fan(settings.mode))),
        Init::KaimingUniform(settings) => Some(uniform(settings.gain * 3f64.sqrt(), fan(settings.mode))),
        Init::XavierNormal(xavier) => Some(normal(xavier.gain * 2f64.sqrt(), both)),
        Init::XavierUniform(xavier) => Some(uniform(xavier.gain * 6f64.sqrt(), both)),
        // The bound of a bias is that of the weight, over the root of 3.
        Init::TorchDefault(_) => Some(uniform(1.0, inputs)),
        Init::Uniform(_) | Init::Normal(_) | Init::TruncatedNormal(_) | Init::Constant(_) | Init::Dirac(_) => None,
    }
}

/// A call that draws the values of a parameter.
fn statement(init: &Init, place: &str) -> String {
    if let Some(statement) = place.strip_suffix(".bias").and_then(|module| of_weight(init, module)) {
        return statement;
    }
    let number = |value: f64| plain(value, Kind::Real);
    let kaiming = |name: &str, kaiming: &Kaiming| {
        let mode = match kaiming.mode {
            FanMode::FanIn => "",
            FanMode::FanOut => ", mode=\"fan_out\"",
        };
        // The gain of a leaky ReLU with slope a is sqrt(2/(1 + a^2)).
        let slope = 2.0 / (kaiming.gain * kaiming.gain) - 1.0;
        if kaiming.gain == 0.0 {
            format!("nn.init.zeros_({place})")
        } else if (kaiming.gain - std::f64::consts::SQRT_2).abs() < 1e-12 {
            format!("nn.init.{name}({place}{mode}, nonlinearity=\"relu\")")
        } else if (kaiming.gain - 1.0).abs() < 1e-12 {
            format!("nn.init.{name}({place}{mode}, nonlinearity=\"linear\")")
        } else if slope >= 0.0 {
            format!("nn.init.{name}({place}, a={}{mode})", number(slope.sqrt()))
        } else {
            format!("nn.init.{name}({place}{mode}, nonlinearity=\"linear\").data.mul_({})", number(kaiming.gain))
        }
    };
    match init {
        Init::KaimingNormal(settings) => kaiming("kaiming_normal_", settings),
        Init::KaimingUniform(settings) => kaiming("kaiming_uniform_", settings),
        Init::XavierNormal(xavier) if xavier.gain == 1.0 => format!("nn.init.xavier_normal_({place})"),
        Init::XavierNormal(xavier) => format!("nn.init.xavier_normal_({place}, gain={})", number(xavier.gain)),
        Init::XavierUniform(xavier) if xavier.gain == 1.0 => format!("nn.init.xavier_uniform_({place})"),
        Init::XavierUniform(xavier) => format!("nn.init.xavier_uniform_({place}, gain={})", number(xavier.gain)),
        Init::Uniform(uniform) => {
            format!("nn.init.uniform_({place}, -{bound}, {bound})", bound = number(uniform.bound))
        }
        Init::Normal(normal) => format!("nn.init.normal_({place}, std={})", number(normal.std)),
        Init::TruncatedNormal(normal) => {
            let (std, most) = (number(normal.std), number(2.0 * normal.std));
            format!("nn.init.trunc_normal_({place}, std={std}, a=-{most}, b={most})")
        }
        Init::Constant(value) if *value == 0.0 => format!("nn.init.zeros_({place})"),
        Init::Constant(value) if *value == 1.0 => format!("nn.init.ones_({place})"),
        Init::Constant(value) => format!("nn.init.constant_({place}, {})", number(*value)),
        Init::Dirac(_) => format!("nn.init.dirac_({place}.data[: {place}.shape[1]])"),
        Init::TorchDefault(_) => format!("nn.init.kaiming_uniform_({place}, a=math.sqrt(5))"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A leaky ReLU has gains up to sqrt(2); larger ones multiply what a linear function would draw.
    #[test]
    fn gains_are_those_of_pytorchs_nonlinearities() {
        let of = |gain| statement(&Init::KaimingNormal(Kaiming { mode: FanMode::FanOut, gain }), "w");
        assert_eq!(of(std::f64::consts::SQRT_2), "nn.init.kaiming_normal_(w, mode=\"fan_out\", nonlinearity=\"relu\")");
        assert_eq!(of(1.0), "nn.init.kaiming_normal_(w, mode=\"fan_out\", nonlinearity=\"linear\")");
        assert_eq!(of(0.5), "nn.init.kaiming_normal_(w, a=2.6457513110645907, mode=\"fan_out\")");
        assert_eq!(of(2.0), "nn.init.kaiming_normal_(w, mode=\"fan_out\", nonlinearity=\"linear\").data.mul_(2.0)");
        assert_eq!(of(0.0), "nn.init.zeros_(w)");
        // The fans of a bias are those of its weight; a uniform draw is between -sqrt(3) and sqrt(3) deviations.
        let bias = statement(&Init::KaimingUniform(Kaiming { mode: FanMode::FanOut, gain: 2.0 }), "m.bias");
        let expected =
            "nn.init.uniform_(m.bias).data.sub_(0.5).mul_(6.928203230275509 * m.weight[:, 0].numel() ** -0.5)";
        assert_eq!(bias, expected);
    }
}
