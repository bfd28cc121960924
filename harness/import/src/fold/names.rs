//! Names of blocks.

use std::collections::HashMap;

use super::{Block, LISTS, Part};
use crate::item::{Item, each_list};

/// The class in lower case; for a `Sequential`, its name in the enclosing class. Further blocks with the same name
/// are distinguished by layers or blocks that the others do not have, or by layers that they lack themselves.
pub(super) fn block_name(part: &Part, body: &[Item], blocks: &[Block], classes: &HashMap<&str, &str>) -> String {
    let name = match part.class.as_str() {
        "Sequential" => {
            // In a list of modules, it has the name of the list.
            let is_list = |path: &str| classes.get(path).is_some_and(|class| LISTS.contains(class));
            let mut path = part.path.as_str();
            while let Some((around, own)) = path.rsplit_once('.')
                && own.starts_with(|c: char| c.is_ascii_digit())
                && is_list(around)
            {
                path = around;
            }
            let (around, own) = path.rsplit_once('.').unwrap_or(("", path));
            let class = classes.get(around).filter(|_| !around.is_empty() && !is_list(around));
            match (class, own.starts_with(|c: char| c.is_ascii_alphabetic())) {
                (Some(class), true) if snake(class) == snake(own) => snake(class),
                (Some(class), true) => format!("{}_{}", snake(class), snake(own)),
                (_, true) => snake(own),
                (Some(class), false) => format!("{}_part", snake(class)),
                (None, false) => "part".to_owned(),
            }
        }
        class => snake(class),
    };
    // Of a class without a letter of ASCII, nothing is left.
    let name = if name.is_empty() { "part".to_owned() } else { name };
    let taken = |name: &str| blocks.iter().any(|block| block.name == name);
    if !taken(&name) {
        return name;
    }
    let like = || blocks.iter().filter(|block| block.name.starts_with(&name));
    let others: Vec<&str> = like().flat_map(|block| words(&block.body)).collect();
    let (own, used) = (words(body), uses(body));
    let blocks_of_others: Vec<String> = like().flat_map(|block| uses(&block.body)).collect();
    let inside = used.iter().filter(|block| !blocks_of_others.contains(block));
    let inside = inside.map(|block| {
        // What tells it from a block of the others tells this one too.
        let rest = blocks_of_others.iter().find_map(|other| block.strip_prefix(other)?.strip_prefix('_'));
        rest.map_or_else(|| format!("{name}_with_{block}"), |rest| format!("{name}_{rest}"))
    });
    let telling = own.iter().filter(|word| !others.contains(word)).map(|word| format!("{name}_{word}"));
    let lacking = others.iter().filter(|word| !own.contains(word)).map(|word| format!("{name}_without_{word}"));
    let numbered = (2..).map(|number| format!("{name}_{number}"));
    telling.chain(inside).chain(lacking).chain(numbered).find(|name| !taken(name)).unwrap_or(name)
}

/// The kinds of layers in a list, except those of blocks.
pub(super) fn words(items: &[Item]) -> Vec<&'static str> {
    let one = |item: &Item| match item {
        Item::Layer { word, .. } => vec![word.tag],
        Item::Tap(_) | Item::From(_) | Item::Again { .. } | Item::Use { .. } | Item::Stack { .. } => Vec::new(),
        Item::Join(tag, _) => vec![*tag],
        Item::Residual { main, shortcut } => [vec!["residual"], words(main), words(shortcut)].concat(),
        Item::Concat { branches, .. } => {
            std::iter::once("concat").chain(branches.iter().flat_map(|branch| words(branch))).collect()
        }
        Item::Around { word, body } => [vec![word.tag], words(body)].concat(),
        Item::Scope { body, .. } | Item::Module { body, .. } => words(body),
    };
    items.iter().flat_map(one).collect()
}

/// The blocks that a list uses.
pub(super) fn uses(items: &[Item]) -> Vec<String> {
    let mut found = Vec::new();
    each_list(&mut items.to_vec(), &mut |list| {
        for item in list.iter() {
            if let Item::Use { block, .. } | Item::Stack { block, .. } = item {
                found.push(block.clone());
            }
        }
    });
    found
}

/// `InvertedResidual` as `inverted_residual`.
fn snake(class: &str) -> String {
    let mut name = String::new();
    let letters: Vec<char> = class.chars().collect();
    for (index, letter) in letters.iter().enumerate() {
        let next = letters.get(index + 1);
        let begins = letter.is_ascii_uppercase()
            && index > 0
            && (letters[index - 1].is_ascii_lowercase() || next.is_some_and(char::is_ascii_lowercase));
        // The last letter of a short name: ViT, BeiT.
        let ends = next.is_none_or(|next| {
            next.is_ascii_uppercase() && letters.get(index + 2).is_none_or(char::is_ascii_lowercase)
        });
        let is_short = name.len() - name.rfind('_').map_or(0, |at| at + 1) <= 3;
        if begins && !name.ends_with('_') && !(ends && is_short) {
            name.push('_');
        }
        name.push(if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '_' });
    }
    name.trim_matches('_').to_owned()
}

#[cfg(test)]
mod tests {
    use super::snake;

    #[test]
    fn classes_are_words_in_lower_case() {
        let names = [
            ("InvertedResidual", "inverted_residual"),
            ("ResnetBlock2D", "resnet_block2d"),
            ("GPT2Block", "gpt2_block"),
            ("ViTAttention", "vit_attention"),
            ("MobileViTLayer", "mobile_vit_layer"),
            ("BeiT", "beit"),
            ("T5LayerFF", "t5_layer_ff"),
            ("MLPBlock", "mlp_block"),
            ("SelfAttentionQKV", "self_attention_qkv"),
            ("BatchNormAct2d", "batch_norm_act2d"),
            ("ResNetV2", "res_net_v2"),
            ("_Private", "private"),
        ];
        for (class, name) in names {
            assert_eq!(snake(class), name);
        }
    }
}
