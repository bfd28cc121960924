#!/bin/sh
# Trains my_network on images of your own, and evaluates it: examples/images.sh IMAGES RUN
# IMAGES has a folder for each class, below train/ and val/ or directly; RUN is the new run folder.
set -eu
recipe="$(dirname "$0")/recipes/my_network.yaml"
zoo data inspect "$recipe" --data "$1"
zoo run "$recipe" --data "$1" --out "$2"
zoo eval "$2"
