#!/bin/sh
# Ports my_network.py and proves the recipe; then writes the recipe as a program and proves that: examples/prove.sh FOLDER
set -eu
mkdir -p "$1"
folder=$(cd "$1" && pwd)
cd "$(dirname "$0")"
python -m zoo_golden port my_network:my_network --classes 10 --size 16 -o "$folder"
zoo emit "$folder/recipes/my_network.yaml" --to pytorch -o "$folder/program"
python -m zoo_golden prove "$folder/program" --golden "$folder/golden/my_network/step.json"
