"""Names that were removed, each with what to take instead: targets and variables of make.

A row answers in one sentence, "NAME was removed: INSTEAD.", with exit code 2.
"""

TARGETS = {
    "studio-static": "`make studio` shows the same plans in the browser, and `make plan-X` prints them",
}
VARIABLES = {
    "ELASTIC": "the same command, started again with NNODES= of the nodes that are there, continues the run, and a "
    "scheduler starts it by itself (docs/multi-node.md)",
    "KIND": "`make k8s-X` prints a Kubernetes Job, which needs no operator",
}


def answer(name: str, instead: str) -> str:
    """Return the sentence about a removed name."""
    return f"{name} was removed: {instead}."
