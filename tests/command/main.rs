//! The command as its users meet it: arguments in; exit code, stdout and stderr out.

mod check;
mod ci;
mod crashes;
mod data;
mod device;
mod events;
mod export;
mod faults;
mod help;
mod import;
mod judge;
mod language;
mod memory;
mod new;
mod npu;
mod numbers;
mod report;
mod run;
mod run_folder;
mod serve;
mod show;
mod tasks;
mod validate;
mod verdict;
mod weights;
mod workbench;
