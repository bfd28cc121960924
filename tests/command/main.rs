//! The command as its users meet it: arguments in; exit code, stdout and stderr out.

mod check;
mod data;
mod device;
mod faults;
mod help;
mod new;
mod npu;
mod run;
mod show;
mod validate;
mod workbench;
