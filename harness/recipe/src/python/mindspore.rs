//! MindSpore's words for what layers, losses and optimizers write in PyTorch's.
//!
//! [`words`] is the table, `helpers` and `rules` have whole functions. What they do not list is refused where a recipe
//! needs it.

mod calls;
mod helpers;
mod initial;
mod rules;
mod words;

use std::collections::BTreeMap;

use super::code::Code;

pub(crate) use initial::INITIALIZERS;
pub(super) use initial::STYLE;
pub(crate) use rules::{AVERAGE, CLIPPED_NORM, CLIPPED_VALUE, RULE, optimizer};

/// An expression in MindSpore's words, and the functions of the program that it calls.
pub(super) fn code(code: &Code) -> Result<(Code, Vec<&'static str>), String> {
    let mut helpers = Vec::new();
    let code = calls::rewritten(code, &mut helpers)?;
    Ok((code, helpers))
}

/// A function of the program in MindSpore's words.
pub(super) fn helper(text: &str) -> Result<&'static str, String> {
    let name = super::names::defined(text).next().unwrap_or_default();
    helpers::named(&name).ok_or_else(|| unwritten(&name))
}

/// The name of a parameter or a running statistic; `modules` are the classes of modules by full name.
pub(super) fn parameter(name: &str, modules: &BTreeMap<String, String>) -> String {
    let Some((owner, leaf)) = name.rsplit_once('.') else { return name.to_owned() };
    let class = modules.get(owner).map_or("", String::as_str);
    format!("{owner}.{}", initial::leaf(class, leaf))
}

/// Why something is refused.
fn unwritten(name: &str) -> String {
    format!("`{name}` is not written in MindSpore yet; `--to pytorch` writes it")
}

/// Whether every cell has an attribute of this name (nn.Cell of MindSpore 2.10, without those with an underscore).
pub(super) fn is_attribute(name: &str) -> bool {
    ATTRIBUTES.split_whitespace().any(|known| known == name)
}

const ATTRIBUTES: &str = "\
    IGNORE_LIST T_destination add_flags add_flags_recursive append apply arguments_key bprop_debug \
    buffers cast_inputs cell_init_args cell_list cell_type cells cells_and_names check_names \
    check_names_and_refresh_name cls_name compile compile_and_run compile_cache compile_phase compiled \
    construct create_time enable_backward_hook exist_names exist_objs extend extend_repr generate_scope \
    get_buffer get_extra_state get_flags get_func_graph_proto get_inputs get_mixed_precision_type \
    get_parameters get_scope get_sub_cell global_cells grad_ops_label has_bprop init_parameters_data \
    initialize insert insert_child_to_cell insert_param_to_cell is_top_cell jit_config_dict \
    load_state_dict mixed_precision_type name_cells named_buffers offload \
    parallel_parameter_merge_net_dict parallel_parameter_name_list param_prefix parameter_layout_dict \
    parameters_and_names parameters_broadcast_dict parameters_dict phase phase_cache pipeline_segment \
    pipeline_stage recompute register_backward_hook register_backward_pre_hook register_buffer \
    register_forward_hook register_forward_pre_hook register_load_state_dict_post_hook \
    register_load_state_dict_pre_hook register_parameter_forward_hook register_saved_tensors_hooks \
    register_state_dict_post_hook register_state_dict_pre_hook remove_redundant_parameters requires_grad \
    run_construct set_boost set_broadcast_flag set_comm_fusion set_data_parallel set_extra_state \
    set_grad set_inputs set_jit_config set_mixed_precision_type set_train shard state_dict to to_empty \
    to_float total_instance_count trainable_params training untrainable_params update_cell_prefix \
    update_cell_type update_parameters_name";
