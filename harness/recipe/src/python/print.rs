//! Classes as text.

use std::collections::HashSet;

use super::classes::{Argument, Class, tight};
use super::code::{COLUMNS, Code, Holder, Piece};
use super::dialect::Frame;
use super::forward::forward;
use super::names::{is_identifier, legal};
use super::number::{Kind, Number, plain};
use super::repeat::progression;
use super::usage::{Child, Usage};

/// The lines of a class. `doc` is its docstring, `defined` are the functions of the program, `more` are lines at the
/// end of its constructor and methods after it.
pub(crate) fn class(
    frame: &'static Frame,
    class: &Class,
    doc: &str,
    root: bool,
    defined: &HashSet<String>,
    (more, methods): (&[String], &[String]),
) -> Vec<String> {
    let sequential = class.content.as_sequential();
    let base = if sequential.is_some() { frame.sequential } else { frame.module };
    let mut out = vec![format!("class {}({base}):", class.name)];
    docstring(doc, 4, &mut out);
    out.push(String::new());
    let arguments: Vec<Code> =
        std::iter::once(Code::text("self")).chain(class.arguments.iter().map(argument)).collect();
    Code::call("def __init__", arguments).lines(4, "", " -> None:", &mut out);
    if let Some(mut items) = sequential {
        for (_, code) in &mut items {
            code.visit_mut(&mut |piece| {
                if let Piece::Number(number) | Piece::Factor(number) = piece {
                    number.renamed(&legal);
                }
            });
        }
        let mut row = frame.worded(row(Holder::Sequential, &items));
        row.pieces[0] = Piece::Text("super().__init__".to_owned());
        row.lines(8, "", "", &mut out);
        out.extend(more.iter().chain(methods).cloned());
        return out;
    }
    out.push("        super().__init__()".to_owned());
    let mut content = class.content.clone();
    for argument in kept(&mut content) {
        out.push(format!("        self.{} = {}", attribute(&argument, &content), legal(&argument)));
    }
    content.numbers_mut(&mut |number| number.renamed(&legal));
    let tree = Tree::of(frame, &content.children);
    tree.construct(&mut out);
    out.extend(more.iter().cloned());
    out.push(String::new());
    let reference = |path: &str| tree.reference(path);
    let (code, returns) = returned(&content, root);
    let forward = forward(&content, &reference, code, root, defined);
    let names = forward.arguments.iter().map(|name| Code::text(format!("{name}: Tensor")));
    let arguments = std::iter::once(Code::text("self")).chain(names).collect();
    Code::call(format!("def {}", frame.forward), arguments).lines(4, "", &format!(" -> {returns}:"), &mut out);
    for (start, code, repeat) in &forward.statements {
        match repeat {
            Some(repeat) => {
                out.push(format!("        for i in range({}):", repeat.count));
                code.lines(12, start, "", &mut out);
            }
            None => code.lines(8, start, "", &mut out),
        }
    }
    out.extend(methods.iter().cloned());
    out
}

/// Lines of a docstring that fit.
pub(crate) fn docstring(text: &str, indent: usize, out: &mut Vec<String>) {
    let margin = " ".repeat(indent);
    let text = text.replace('\\', "/").replace('"', "'");
    let mut lines = vec![format!("{margin}\"\"\"")];
    let mut line = 0;
    for (index, word) in text.split_whitespace().enumerate() {
        if lines[line].chars().count() + word.chars().count() + 5 > COLUMNS {
            lines.push(format!("{margin}{word}"));
            line += 1;
        } else {
            lines[line] += if index == 0 { "" } else { " " };
            lines[line] += word;
        }
    }
    match line {
        0 => lines[0] += "\"\"\"",
        _ => lines.push(format!("{margin}\"\"\"")),
    }
    out.extend(lines);
}

fn argument(argument: &Argument) -> Code {
    let kind = match argument.kind {
        Kind::Whole => "int",
        Kind::Real => "float",
        Kind::Switch => "bool",
    };
    let default = argument.default.map(|default| Number::scalar(default).value);
    let default = default.map(|default| format!(" = {}", plain(default, argument.kind))).unwrap_or_default();
    Code::text(format!("{}: {kind}{default}", legal(&argument.name)))
}

/// The attribute that keeps an argument for `forward`.
fn attribute(argument: &str, content: &Usage) -> String {
    let taken = content.children.iter().any(|child| child.path.split('.').next() == Some(argument));
    if taken { format!("{argument}_") } else { legal(argument) }
}

/// Makes `forward` use attributes for the arguments that it needs; returns these.
fn kept(content: &mut Usage) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    let names = content.clone();
    for statement in &mut content.statements {
        if let Some(repeat) = &mut statement.repeat {
            kept.extend(repeat.count.names().map(str::to_owned));
            repeat.count.renamed(&|name: &str| format!("self.{}", attribute(name, &names)));
        }
        statement.code.visit_mut(&mut |piece| {
            if let Piece::Number(number) | Piece::Factor(number) = piece {
                kept.extend(number.names().map(str::to_owned));
                number.renamed(&|name: &str| format!("self.{}", attribute(name, &names)));
            }
        });
    }
    kept.sort();
    kept.dedup();
    kept
}

/// What `forward` returns, and its type.
fn returned(usage: &Usage, root: bool) -> (Code, String) {
    match &usage.outputs[..] {
        [] => (Code::text("None"), "None".to_owned()),
        [(_, var)] if !usage.named => (Code::value(*var), "Tensor".to_owned()),
        outputs if root || usage.named => {
            let entry = |(name, var): &(String, super::code::Var)| {
                Code::value(*var).around(&format!("\"{name}\": "), "", super::code::Binding::Loose)
            };
            let entries = outputs.iter().map(entry).collect();
            (tight(vec![Piece::List("{", entries, "}")]), "dict[str, Tensor]".to_owned())
        }
        outputs => {
            let values = outputs.iter().map(|(_, var)| Code::value(*var)).collect();
            let types = vec!["Tensor"; outputs.len()].join(", ");
            (tight(vec![Piece::List("", values, "")]), format!("tuple[{types}]"))
        }
    }
}

/// Modules by their paths.
struct Tree<'c> {
    frame: &'static Frame,
    nodes: Vec<(String, Node<'c>)>,
}

enum Node<'c> {
    Leaf(&'c Child),
    Space(Tree<'c>),
}

impl<'c> Tree<'c> {
    fn of(frame: &'static Frame, children: &'c [Child]) -> Self {
        let paths: Vec<(&str, &Child)> = children.iter().map(|child| (child.path.as_str(), child)).collect();
        Self::grown(frame, &paths)
    }

    fn grown(frame: &'static Frame, children: &[(&str, &'c Child)]) -> Self {
        let mut nodes: Vec<(String, Node<'c>)> = Vec::new();
        for (path, child) in children {
            let Some((first, _)) = path.split_once('.') else {
                nodes.push(((*path).to_owned(), Node::Leaf(child)));
                continue;
            };
            if nodes.iter().all(|(name, _)| name != first) {
                let inside = children.iter().filter_map(|(path, child)| {
                    let (name, rest) = path.split_once('.')?;
                    (name == first).then_some((rest, *child))
                });
                let inside: Vec<_> = inside.collect();
                nodes.push((first.to_owned(), Node::Space(Self::grown(frame, &inside))));
            }
        }
        Self { frame, nodes }
    }

    /// Whether it is a list of modules, without names.
    fn is_list(&self) -> bool {
        self.nodes.iter().enumerate().all(|(index, (name, _))| *name == index.to_string())
    }

    /// Whether it can be written as one expression.
    fn is_plain(&self) -> bool {
        (self.frame.dict.is_some() || self.is_list())
            && self.nodes.iter().all(|(_, node)| match node {
                Node::Leaf(child) => !child.parameter && child.when.is_none(),
                Node::Space(tree) => tree.is_plain(),
            })
    }

    fn construct(&self, out: &mut Vec<String>) {
        self.assign_all("self", "self", 8, out);
    }

    /// Assigns all to attributes of `owner`.
    fn assign_all(&self, text: &str, owner: &str, indent: usize, out: &mut Vec<String>) {
        for (index, (name, node)) in self.nodes.iter().enumerate() {
            let later = self.nodes[..index].iter().any(|(other, _)| other == name);
            node.assign(self.frame, (&self.frame.part(text, name), name, later), owner, indent, out);
        }
    }

    /// The reference to a module.
    fn reference(&self, path: &str) -> String {
        let leaf = self.nodes.iter().find(|(name, _)| name == path).map(|(_, node)| node);
        if let Some(Node::Leaf(Child { repeat: Some(repeat), .. })) = leaf {
            return format!("self.{}(f\"{path}{}\")", self.frame.find, counter(repeat.start));
        }
        let mut parts = path.split('.');
        let mut text = self.frame.part("self", parts.next().unwrap_or_default());
        let mut tree = self;
        let mut name = path.split('.').next().unwrap_or_default();
        for part in parts {
            let space = tree.nodes.iter().find(|(known, _)| known == name).map(|(_, node)| node);
            match space {
                Some(Node::Space(inner)) if inner.is_plain() && inner.is_list() => {
                    text += &format!("[{part}]");
                    tree = inner;
                }
                Some(Node::Space(inner)) => {
                    text = self.frame.part(&text, part);
                    tree = inner;
                }
                // Inside a module: its attribute.
                Some(Node::Leaf(_)) | None => text = self.frame.part(&text, part),
            }
            name = part;
        }
        match text.strip_suffix(&format!(".{}(\"{name}\")", self.frame.find)) {
            // Parameters are no modules.
            Some(owner) if self.leaf(path).is_some_and(|child| child.parameter) => {
                format!("getattr({owner}, \"{name}\")")
            }
            _ => text,
        }
    }

    /// What has this path.
    fn leaf(&self, path: &str) -> Option<&Child> {
        self.nodes.iter().find_map(|(name, node)| match node {
            Node::Leaf(child) => (name == path).then_some(*child),
            Node::Space(tree) => tree.leaf(path.strip_prefix(name.as_str())?.strip_prefix('.')?),
        })
    }

    fn code(&self) -> Code {
        let items = |list: bool| -> Vec<Code> {
            let code = |(name, node): &(String, Node<'_>)| {
                let code = match node {
                    Node::Leaf(child) => child.code.as_ref().map_or_else(|| Code::text("nn.Identity()"), rows),
                    Node::Space(tree) => tree.code(),
                };
                if list { code } else { code.around(&format!("\"{name}\": "), "", super::code::Binding::Loose) }
            };
            self.nodes.iter().map(code).collect()
        };
        match self.is_list() {
            true => Code::call("nn.ModuleList", vec![Code::list(items(true))]),
            false => {
                Code::call(self.frame.dict.unwrap_or_default(), vec![tight(vec![Piece::List("{", items(false), "}")])])
            }
        }
    }
}

impl Node<'_> {
    fn assign(
        &self,
        frame: &Frame,
        (place, name, later): (&str, &str, bool),
        owner: &str,
        indent: usize,
        out: &mut Vec<String>,
    ) {
        let is_parameter = matches!(self, Node::Leaf(child) if child.parameter);
        let add = format!("{owner}.{}", if is_parameter { frame.add_parameter } else { frame.add });
        let assign = |code: &Code, indent: usize, out: &mut Vec<String>| {
            let code = frame.worded(code.clone());
            if is_identifier(name) {
                code.lines(indent, &format!("{place} = "), "", out);
            } else {
                let arguments = vec![Code::text(format!("\"{name}\"")), code];
                Code::call(add.clone(), arguments).lines(indent, "", "", out);
            }
        };
        match self {
            Node::Leaf(Child { code: Some(code), repeat: Some(repeat), .. }) => {
                out.push(format!("{}for i in range({}):", " ".repeat(indent), repeat.count));
                let code = frame.worded(rows(code));
                let arguments = vec![Code::text(format!("f\"{name}{}\"", counter(repeat.start))), code];
                Code::call(add, arguments).lines(indent + 4, "", "", out);
            }
            Node::Leaf(child) => {
                let code = child.code.as_ref().map_or_else(|| Code::text("nn.Identity()"), rows);
                match &child.when {
                    Some(when) => {
                        if !later {
                            assign(&Code::text("nn.Identity()"), indent, out);
                        }
                        out.push(format!("{}if {}:", " ".repeat(indent), legal(when)));
                        assign(&code, indent + 4, out);
                    }
                    None => assign(&code, indent, out),
                }
            }
            Node::Space(tree) if tree.is_plain() => assign(&tree.code(), indent, out),
            Node::Space(tree) => {
                assign(&Code::text(format!("{}()", frame.module)), indent, out);
                tree.assign_all(place, place, indent, out);
            }
        }
    }
}

/// The number of a repeated module, in a formatted text.
fn counter(start: usize) -> String {
    if start == 0 { "{i}".to_owned() } else { format!("{{i + {start}}}") }
}

/// With modules in a row written out.
fn rows(code: &Code) -> Code {
    code.filled(&|piece| match piece {
        Piece::Row(holder, items) => Some(row(*holder, items)),
        Piece::Text(_) | Piece::Value(..) | Piece::Number(_) | Piece::Factor(_) | Piece::List(..) => None,
        Piece::Child(_) | Piece::New(_) => None,
    })
}

fn row(holder: Holder, items: &[(String, Code)]) -> Code {
    let items: Vec<(String, Code)> = items.iter().map(|(name, code)| (name.clone(), rows(code))).collect();
    if items.iter().enumerate().all(|(index, (name, _))| *name == index.to_string()) {
        let mut arguments = Vec::new();
        let codes: Vec<&Code> = items.iter().map(|(_, code)| code).collect();
        let mut rest = &codes[..];
        while let Some((first, _)) = rest.split_first() {
            let (run, code) = progression(rest);
            match run {
                1 => arguments.push((*first).clone()),
                count => {
                    let index = if code == **first { "_" } else { "i" };
                    let end = format!(" for {index} in range({count})]");
                    arguments.push(code.around("*[", &end, super::code::Binding::Loose));
                }
            }
            rest = &rest[run..];
        }
        return match holder {
            Holder::Sequential => Code::call("nn.Sequential", arguments),
            Holder::List => Code::call("nn.ModuleList", vec![listed(arguments)]),
        };
    }
    if let Some(text) = numbered(&items) {
        return text;
    }
    let named = |(name, code): &(String, Code)| match is_identifier(name) {
        true => Code::named(name, code.clone()),
        false => code.clone(),
    };
    if items.iter().all(|(name, _)| is_identifier(name)) {
        let arguments = items.iter().map(named).collect();
        return Code::call("nn.Sequential", vec![Code::call("OrderedDict", arguments)]);
    }
    let pair = |(name, code): &(String, Code)| Code::tuple(vec![Code::text(format!("\"{name}\"")), code.clone()]);
    let pairs = Code::list(items.iter().map(pair).collect());
    Code::call("nn.Sequential", vec![Code::call("OrderedDict", vec![pairs])])
}

/// A list of modules: `[a, b]`, or `(a for _ in range(12))` if they are of one form.
fn listed(mut arguments: Vec<Code>) -> Code {
    if let [Code { pieces, .. }] = &mut arguments[..]
        && matches!(pieces.first(), Some(Piece::Text(text)) if text == "*[")
    {
        pieces.remove(0);
        if let Some(Piece::Text(end)) = pieces.last_mut() {
            end.pop();
        }
        return arguments.remove(0);
    }
    Code::list(arguments)
}

/// Equal modules with numbered names.
fn numbered(items: &[(String, Code)]) -> Option<Code> {
    let (first, code) = items.first()?;
    let stem = first.trim_end_matches(|c: char| c.is_ascii_digit());
    let start: usize = first[stem.len()..].parse().ok()?;
    let fits =
        |(index, (name, other)): (usize, &(String, Code))| *name == format!("{stem}{}", start + index) && other == code;
    if items.len() < 2 || !items.iter().enumerate().all(fits) {
        return None;
    }
    let range = if start == 0 { items.len().to_string() } else { format!("{start}, {}", start + items.len()) };
    let before = format!("(f\"{stem}{{i}}\", ");
    let item = code.clone().around(&before, &format!(") for i in range({range})"), super::code::Binding::Loose);
    Some(Code::call("nn.Sequential", vec![Code::call("OrderedDict", vec![item])]))
}
