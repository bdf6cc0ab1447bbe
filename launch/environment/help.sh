#!/bin/sh
# Prints the targets of the Makefile, the recipes among them. Usage: help.sh RECIPE_FILE... (from `make help`)

root=$(cd "$(dirname "$0")/../.." && pwd)

describe() {
    echo "Usage: make TARGET [VARIABLE=VALUE ...]"
    echo
    awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $1, $2 }' "$root/Makefile"
    if [ $# -gt 0 ]; then
        echo
        echo "Recipes X (rehearse-X: tiny, on a CPU; plan-X: memory, time; print-X: command)"
        awk -f "$root/launch/environment/list_recipes.awk" "$@" | awk -F '\t' '
            { printf "  %-25s %-8s \t%s\n", $1, $3 == 0 ? "CPU" : $3 == 1 ? "1 card" : $3 " cards", $4 }' |
            awk -f "$root/launch/environment/wrap.awk"
    fi
    cat <<'VARIABLES'

Variables of every recipe (docs/recipes.md has the table)
  MODEL= DATA= OUTPUT=      which model, data, output directory
  GPUS=4 DEVICES=0,2,5,7    how many cards, which ones
  GPU_MEMORY_GB=40          memory of a card
  PROCESSES=4               how many processes, where it runs on a CPU
  NNODES=2 RANK=0 MASTER=10.0.0.1:8090   several nodes (docs/multi-node.md)
  ARGS="--max_steps 10"     further flags; the last one given wins
VARIABLES
}

# In one piece: `make help | head` has closed the pipe before a second one, which make would complain of.
printf '%s\n' "$(describe "$@")"
