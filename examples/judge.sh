#!/bin/sh
# Records a step of a port with a fault, and has zoo name the fault's line: examples/judge.sh FOLDER
set -eu
mkdir -p "$1"
folder=$(cd "$1" && pwd)
cd "$(dirname "$0")"
zoo golden inputs recipes/my_network.yaml -o "$folder/begin" --as pth
python record_step.py "$folder/begin" "$folder/recorded"
# Exit code 1: the step differs.
zoo judge recipes/my_network.yaml "$folder/recorded" || [ $? = 1 ]
