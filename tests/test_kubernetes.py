"""Manifests of recipes: their fields, what a pod starts, and how a run in a pod waits and ends."""

from pathlib import Path

import pytest
import yaml

from launch.config.recipe_file import load_recipes
from launch.config.run_config import Nodes
from launch.errors import UserError
from launch.kubernetes import CLAIMS, as_yaml, manifests
from launch.nodes import meeting
from launch.preflight.requested import requested_run
from launch.processes.supervise import SECONDS_TO_SAVE
from tests.docs.commands import Command, in_blocks
from tests.recipes.machine import ROOT, Machine

RECIPES = {recipe.target: recipe for recipe in load_recipes(ROOT)}
TWO_NODES = {"NNODES": "2", "IMAGE": "registry.example/recipes:gpu", "MODEL": "models/llama-7b"}


def manifest(target: str, **variables: str) -> list[dict]:
    """The objects, read from the YAML."""
    run, _ = requested_run(RECIPES[target], variables, Nodes(int(variables.get("NNODES", "1"))))
    return list(yaml.safe_load_all(as_yaml(manifests(RECIPES[target], run, variables))))


def pod_of(job: dict) -> dict:
    return job["spec"]["template"]["spec"]


def environment_of(pod: dict) -> dict[str, str]:
    """The values; of a field, its path."""
    variables = pod["containers"][0]["env"]
    return {
        one["name"]: one["value"] if "value" in one else one["valueFrom"]["fieldRef"]["fieldPath"] for one in variables
    }


def test_a_job_of_two_nodes():
    service, job = manifest("pretrain-llama7b-4d", **TWO_NODES)
    assert (service["kind"], job["kind"]) == ("Service", "Job")
    name, spec, pod = job["metadata"]["name"], job["spec"], pod_of(job)
    assert name == service["metadata"]["name"] == pod["subdomain"] == "pretrain-llama7b-4d"
    labels = spec["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == labels
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
    assert [spec[field] for field in ("completionMode", "completions", "parallelism")] == ["Indexed", 2, 2]
    assert (spec["backoffLimitPerIndex"], spec["maxFailedIndexes"], pod["restartPolicy"]) == (6, 0, "Never")
    [spread] = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert spread["labelSelector"]["matchLabels"] == labels
    assert pod["terminationGracePeriodSeconds"] > SECONDS_TO_SAVE
    [container] = pod["containers"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 8}}
    assert not {"livenessProbe", "readinessProbe", "startupProbe"} & container.keys()
    environment = environment_of(pod)
    assert environment["MASTER"] == "pretrain-llama7b-4d-0.pretrain-llama7b-4d:8090"
    assert environment["RANK"] == "metadata.annotations['batch.kubernetes.io/job-completion-index']"


def test_a_stopped_run_is_started_again_and_does_not_count():
    _, job = manifest("pretrain-llama7b-4d", **TWO_NODES)
    disrupted, stopped = job["spec"]["podFailurePolicy"]["rules"]
    assert disrupted == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    pod = pod_of(job)
    codes = {"containerName": pod["containers"][0]["name"], "operator": "In", "values": [75]}
    assert stopped == {"action": "Ignore", "onExitCodes": codes}
    assert environment_of(pod)["STOPPED_EXIT_CODE"] == "75"


def test_one_pod_needs_no_service_and_no_number():
    [job] = manifest("lora-qwen3-8b", IMAGE="a:b")
    pod = pod_of(job)
    assert not {"subdomain", "affinity"} & pod.keys()
    assert not {"NNODES", "RANK", "MASTER", "RENDEZVOUS_MINUTES"} & environment_of(pod).keys()


def mounts(pod: dict) -> dict[str, tuple[str, str | None]]:
    """{path: (claim, folder in it)}"""
    claims = {one["name"]: one["persistentVolumeClaim"]["claimName"] for one in pod["volumes"][:-1]}
    found = pod["containers"][0]["volumeMounts"][:-1]
    return {one["mountPath"]: (claims[one["name"]], one.get("subPath")) for one in found}


def test_a_pod_has_the_volumes_that_the_run_uses():
    pod = pod_of(manifest("pretrain-llama7b-4d", **TWO_NODES)[1])
    assert mounts(pod) == {f"/recipes/{folder}": (folder, None) for folder in CLAIMS.values()}
    assert pod["volumes"][-1] == {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}}
    assert pod["containers"][0]["volumeMounts"][-1] == {"name": "shared-memory", "mountPath": "/dev/shm"}
    [job] = manifest("lora-qwen3-8b", IMAGE="a:b", DATA_CLAIM="nfs", OUTPUT_CLAIM="nfs")  # a model of the hub
    assert mounts(pod_of(job)) == {"/recipes/data": ("nfs", "data"), "/recipes/checkpoints": ("nfs", "checkpoints")}


@pytest.mark.parametrize(
    ("target", "variables", "message"),
    [
        ("lora-qwen3-8b", {"IMAGE": ""}, "IMAGE: not given."),
        ("lora-qwen3-8b", {"KIND": "job"}, "KIND=job: not for a manifest: `make k8s-X` prints a Kubernetes Job"),
        ("lora-qwen3-8b", {"JOB": "My_run"}, "JOB: found 'My_run', expected at most 61 lower-case letters"),
        ("lora-qwen3-8b", {"DATA": "/mnt/data"}, "DATA: found '/mnt/data', which is on no volume of the pods"),
        (
            "lora-qwen3-8b",
            {"OUTPUT": "checkpoints/../out"},
            "OUTPUT: found 'checkpoints/../out', which is on no volume",
        ),
        *(
            ("lora-qwen3-8b", {name: value}, f"{name}: found {value!r}, no name that Kubernetes takes")
            for name, value in (("IMAGE", "a\nb"), ("DATA_CLAIM", "../x"), ("OUTPUT_CLAIM", "名"))
        ),
        *(
            ("lora-qwen3-8b", {name: value}, f"{name}: found {value!r}, expected {expected}")
            for name, values, expected in (
                ("PORT_RANGE", ("1", "0:9", "9:8", "1:65536", "40000-40100", "1:2\n", "٣:٤"), "FIRST:LAST, such as"),
                ("RENDEZVOUS_MINUTES", ("1e400", "nan", "0", "-1", "525601"), "minutes above 0, at most 525,600"),
                ("RESTARTS", ("2147483648",), "a whole number from 1 to 2,147,483,647"),
            )
            for value in values
        ),
        ("pretrain-llama7b", {"RANK": "1"}, "RANK=1: not for a manifest: each pod has its own number. Leave it out."),
    ],
)
def test_what_cannot_be_met_is_refused(target, variables, message):
    with pytest.raises(UserError) as refused:
        manifest(target, **({"IMAGE": "a:b"} | variables))
    assert message in str(refused.value)


def commands() -> list[Command]:
    return [command for command in in_blocks(ROOT / "docs" / "kubernetes.md") if "k8s-" in command.program]


@pytest.mark.parametrize("command", commands(), ids=str)
def test_the_commands_of_the_page(command, tmp_path):
    target = command.program.removeprefix("make k8s-")
    done = Machine(tmp_path).run(RECIPES[target].name, ACTION="k8s", **command.variables)
    assert done.returncode == 0, done.stderr
    assert [one["kind"] for one in yaml.safe_load_all(done.stdout)][-1] == "Job"


def test_a_pod_starts_the_command_that_is_printed_for_its_node(tmp_path):
    given = TWO_NODES | {"DATA": "data/wiki", "ARGS": "--tensor_parallel_degree 4 --adam_beta1 0.8"}
    pod = pod_of(manifest("pretrain-llama7b-4d", **given)[1])
    bash, script = pod["containers"][0]["command"]
    assert (bash, script) == ("bash", "recipes/llama-7b/pretrain-4d.sh")
    machine = Machine(tmp_path)
    there = {"MASTER": "127.0.0.1:8090", "RANK": "1", "ACTION": "print"}  # no other name is known here
    started = machine.run("llama-7b/pretrain-4d", **(environment_of(pod) | there))
    printed = machine.run("llama-7b/pretrain-4d", **(given | there))
    assert started.stdout == printed.stdout
    assert "# node 1, this one\n" in started.stdout and "--adam_beta1 0.8" in started.stdout


def test_flags_behind_a_recipe_are_refused(tmp_path):
    """They count for the recipe's own layout, where those of ARGS do not: a pod would train another batch."""
    done = Machine(tmp_path).run("llama-7b/pretrain-4d", "--seed", "7", ACTION="k8s", IMAGE="a:b")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: --seed: a manifest takes the flags of ARGS. Say ARGS='--seed 7'.\n"


@pytest.fixture
def names(monkeypatch):
    """Addresses that a name has one after the other; None: none."""
    found: list[str | None] = []

    def resolve(host: str) -> str:
        address = found.pop(0)
        if address is None:
            raise UserError(f"MASTER: no host named {host!r} is known here")
        return address

    monkeypatch.setattr(meeting, "resolve", resolve)
    monkeypatch.setattr(meeting, "RETRY_SECONDS", 0.0)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    return found


def test_a_pod_waits_for_the_name_of_the_first(names):
    names += [None, None, "127.0.0.1", "left"]
    meeting.await_master(Nodes(2, 1, "run-0.run:8090"))
    assert names == ["left"]


def test_the_first_pod_waits_until_its_name_means_itself(names, monkeypatch):
    """And not the pod that was there before it."""
    monkeypatch.setattr(meeting, "address_towards", lambda host: "10.0.0.2")
    names += ["10.0.0.1", "10.0.0.2", "left"]
    meeting.await_master(Nodes(2, 0, "run-0.run:8090"))
    assert names == ["left"]


def test_the_wait_ends_and_outside_of_kubernetes_there_is_none(names, monkeypatch):
    monkeypatch.setenv("RENDEZVOUS_MINUTES", "0.0001")
    names += [None] * 100_000
    meeting.await_master(Nodes(2, 1, "run-0.run:8090"))
    assert 0 < len(names) < 100_000
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    names.clear()
    meeting.await_master(Nodes(2, 1, "run-0.run:8090"))


def stopping_recipe(folder: Path, ends: str) -> Path:
    """A recipe whose rank ends as one that was stopped, or finished."""
    script = folder / "run_pretrain.py"
    script.write_text(
        f"import os, pathlib\nif {ends == 'stopped'}:\n    pathlib.Path(os.environ['LAUNCH_STOPPED_FILE']).touch()\n"
    )
    recipe = folder / "recipe.sh"
    recipe.write_text(
        f"source {ROOT}/launch/recipe.sh\nPROCESSES=1\n"
        f'run {script} --model_name_or_path llama-7b --input_dir data --output_dir out --device cpu "$@"\n'
    )
    return recipe


@pytest.mark.parametrize(
    ("ends", "variables", "code"),
    [
        ("stopped", {"STOPPED_EXIT_CODE": "75"}, 75),
        ("stopped", {}, 0),
        ("finished", {"STOPPED_EXIT_CODE": "75"}, 0),
        ("finished", {"STOPPED_EXIT_CODE": "256"}, 2),
    ],
)
def test_a_run_that_was_stopped_has_the_exit_code_that_is_asked_for(ends, variables, code, tmp_path):
    recipe = stopping_recipe(tmp_path, ends)
    done = Machine(tmp_path).run(str(recipe.with_suffix("")), **variables)
    assert done.returncode == code, done.stderr


@pytest.mark.long
@pytest.mark.parametrize("version", ["1.29", "1.37"])
@pytest.mark.parametrize("nodes", ["1", "2"])
def test_the_published_schemas_accept_it(nodes, version):
    """Strict: an unknown field is a fault."""
    validator = pytest.importorskip("kubernetes_validate")
    variables = {"IMAGE": "a:b", "NNODES": nodes, "MODEL": "models/llama-7b"}
    for one in manifest("pretrain-llama7b", **variables):
        validator.validate(one, version, strict=True)
