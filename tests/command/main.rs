//! The command as its users meet it: arguments in; exit code, stdout and stderr out.

mod check;
mod data;
mod device;
mod export;
mod faults;
mod help;
mod new;
mod npu;
mod run;
mod show;
mod tasks;
mod validate;
mod weights;
mod workbench;
