use super::*;

/// An optimizer as a recipe writes it.
fn read(yaml: &str) -> Optimizer {
    serde_yaml::with::singleton_map_recursive::deserialize(serde_yaml::Deserializer::from_str(yaml)).unwrap()
}

const ALL: [&str; 8] = ["sgd", "adam", "adamw", "rmsprop", "adagrad", "lion", "lars", "lamb"];

#[test]
fn tags_are_what_recipes_say_and_slots_fit_the_formula() {
    for tag in ALL {
        let optimizer = read(&format!("{tag}: {{}}"));
        assert_eq!(optimizer.tag(), tag);
        let operator = optimizer.operator(Group { weight_decay: 0.1, lr_scale: 1.0 });
        let slots = optimizer.slots().len();
        assert_eq!((operator.formula.operands(), operator.formula.results().len()), (slots + 2, slots + 1), "{tag}");
        assert!(zoo_graph::Op::names().any(|name| name == operator.device), "{tag}");
    }
}

#[test]
fn rules_read_like_their_papers() {
    let formula = |yaml: &str| read(yaml).operator(Group { weight_decay: 0.1, lr_scale: 1.0 }).formula.to_string();
    insta::assert_snapshot!(formula("sgd: {momentum: 0.9}"));
    insta::assert_snapshot!(formula("lars: {}"));
}
