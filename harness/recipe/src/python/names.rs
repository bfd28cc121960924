//! Names in Python: those that are taken, and how others become legal.

/// Words of the language (Python 3.12, keyword.kwlist).
const KEYWORDS: [&str; 35] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
    "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal",
    "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];

/// What the functions of a program use under these names.
const USED: [&str; 10] =
    ["self", "nn", "torch", "functional", "ops", "math", "range", "i", "stochastic_depth", "super"];

/// Attributes of every module (nn.Module of PyTorch 2.15, without those with an underscore), and methods of
/// `nn.ModuleDict` and `nn.Sequential`: no module can have these names.
const ATTRIBUTES: [&str; 60] = [
    "T_destination",
    "add_module",
    "append",
    "apply",
    "bfloat16",
    "buffers",
    "call_super_init",
    "children",
    "clear",
    "compile",
    "cpu",
    "cuda",
    "double",
    "dump_patches",
    "eval",
    "extend",
    "extra_repr",
    "float",
    "forward",
    "get_buffer",
    "get_extra_state",
    "get_parameter",
    "get_submodule",
    "half",
    "initialize",
    "insert",
    "ipu",
    "items",
    "keys",
    "load_state_dict",
    "modules",
    "mtia",
    "named_buffers",
    "named_children",
    "named_modules",
    "named_parameters",
    "parameters",
    "pop",
    "register_backward_hook",
    "register_buffer",
    "register_forward_hook",
    "register_forward_pre_hook",
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
    "register_load_state_dict_post_hook",
    "register_load_state_dict_pre_hook",
    "register_module",
    "register_parameter",
    "register_state_dict_post_hook",
    "requires_grad_",
    "set_extra_state",
    "set_submodule",
    "share_memory",
    "state_dict",
    "to",
    "to_empty",
    "train",
    "training",
    "type",
    "update",
];

/// A name for an argument: with an underscore behind it if it is a word of Python.
pub(super) fn legal(name: &str) -> String {
    if KEYWORDS.contains(&name) || name == "self" || name == "i" { format!("{name}_") } else { name.to_owned() }
}

/// A name for a variable, if it is not taken.
pub(super) fn identifier(wish: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    let start = if wish.starts_with(|c: char| c.is_ascii_alphabetic()) { "" } else { "x" };
    start.chars().chain(wish.chars().map(legal)).collect()
}

/// Whether a variable cannot have this name.
pub(super) fn is_taken(name: &str) -> bool {
    KEYWORDS.contains(&name) || USED.contains(&name)
}

/// Whether every module of PyTorch has an attribute of this name.
pub(super) fn is_attribute(name: &str) -> bool {
    ATTRIBUTES.contains(&name)
}

/// Whether a module of this name can be reached as `owner.name`.
pub(super) fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !KEYWORDS.contains(&name)
}

/// The functions and classes that a text defines.
pub(crate) fn defined(text: &str) -> impl Iterator<Item = String> {
    let names = text.lines().filter_map(|line| line.strip_prefix("def ").or_else(|| line.strip_prefix("class ")));
    names.filter_map(|rest| rest.split(['(', ':']).next().map(str::to_owned))
}
