"""The Kubernetes manifest of a recipe: an indexed Job, for several nodes with a headless Service.

A pod is a node: it starts the recipe, which starts the ranks of all its cards. A failed pod is started again, and the
run continues from its newest checkpoint. docs/kubernetes.md gives the reasons for the fields.

Source: the Kubernetes API reference (batch/v1 Job, v1 PodSpec).
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from data_tools.formats.json_files import quoted
from launch.config import removed
from launch.config.recipe_file import Recipe
from launch.config.run_config import RunConfig
from launch.config.variables import number
from launch.errors import UserError
from launch.nodes.meeting import wait_seconds
from launch.nodes.place import DEFAULT_PORT
from launch.processes.supervise import SECONDS_TO_SAVE

WORKDIR = "/recipes"  # of the images of .devcontainer/Dockerfile
# Variable -> folder of WORKDIR at which its claim is mounted; also the default name of the claim.
CLAIMS = {"DATA_CLAIM": "data", "MODEL_CLAIM": "models", "OUTPUT_CLAIM": "checkpoints"}
# Variables that a pod gets as they were given; the others name something of this machine, or are in the manifest.
PASSED_ON = (
    *("MODEL", "DATA", "OUTPUT", "GPUS", "GPU_MEMORY_GB", "CARD", "PROCESSES", "FIT", "ARGS"),
    *("RENDEZVOUS_MINUTES", "PORT_RANGE"),
)
REFUSED = removed.VARIABLES | {
    "RANK": "each pod has its own number",
    "MASTER": "the pods meet at the first of them",
    "DEVICES": "a pod has cards of its own; GPUS=N says how many",
    "CONFIG": "a pod has no file of this machine; give its flags by ARGS",
}
RESTARTS = 6  # Kubernetes' own default of backoffLimit
STOPPED = 75  # EX_TEMPFAIL of sysexits.h: saved and ended before the last step, to be started again
USER = 1000  # any user but root
SHARED_MEMORY = "16Gi"
WAIT_MINUTES = "60"  # for the other pods: they start when they have cards and the image
LABEL = "app.kubernetes.io/instance"
CONTAINER = "training"
POD_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
DNS_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{,251}[a-z0-9])?")  # of a claim
PORTS = re.compile(r"(\d{1,5}):(\d{1,5})", re.ASCII)
MOST_PORT = 65535
IMAGE_NAME = re.compile(r"[A-Za-z0-9][-\w./:@+]*", re.ASCII)
LONGEST_NAME = 63  # of a pod's host name and of a Service (RFC 1035)

Manifest = dict[str, Any]


@dataclass(frozen=True)
class ManifestValues:
    """The values of the manifests.

    Attributes:
        name: Of the Job and its Service image: with the repository in WORKDIR restarts: how often a pod may fail
            before the job does command: of a pod env: variables of the recipe in a pod cards: of a pod, 0 on a CPU
            nodes: number of pods claims: {folder of WORKDIR: name of the claim that is mounted there}.
    """

    name: str
    image: str
    restarts: int
    command: list[str]
    env: dict[str, str]
    cards: int
    nodes: int
    claims: dict[str, str]


def manifests(recipe: Recipe, run: RunConfig, variables: Mapping[str, str]) -> list[Manifest]:
    """Return the objects of a run, as data.

    Args:
        variables: The variables from which `run` was made.
        recipe: The recipe.
        run: Its configuration.

    Raises:
        UserError: For a variable that cannot be met, and for a path that is on no volume.
    """
    request = _request(recipe, run, variables)
    return [*([_service(request)] if request.nodes > 1 else []), _job(request)]


def _request(recipe: Recipe, run: RunConfig, variables: Mapping[str, str]) -> ManifestValues:
    for name, reason in REFUSED.items():
        if variables.get(name):
            raise UserError(f"{name}={variables[name]}: not for a manifest: {reason}. Leave it out.")
    if not variables.get("IMAGE"):
        raise UserError("IMAGE: not given. IMAGE=REGISTRY/NAME:TAG is an image with this repository in /recipes.")
    for name, form in ({"IMAGE": IMAGE_NAME} | dict.fromkeys(CLAIMS, DNS_NAME)).items():
        if (found := variables.get(name)) and not form.fullmatch(found):
            raise UserError(f"{name}: found {quoted(found)}, no name that Kubernetes takes. Correct it.")
    wait_seconds(variables)
    if ports := variables.get("PORT_RANGE"):
        found = PORTS.fullmatch(ports)
        if not found or not 0 < int(found[1]) <= int(found[2]) <= MOST_PORT:
            raise UserError(f"PORT_RANGE: found {quoted(ports)}, expected FIRST:LAST, such as 40000:40100.")
    return ManifestValues(
        name=_name(recipe, run.nodes.count, variables),
        image=variables["IMAGE"],
        restarts=number("RESTARTS", variables) or RESTARTS,
        command=["bash", f"recipes/{recipe.name}.sh"],
        env={"HOME": "/tmp"}
        | ({"RENDEZVOUS_MINUTES": WAIT_MINUTES} if run.nodes.count > 1 else {})
        | {name: variables[name] for name in PASSED_ON if variables.get(name)},
        cards=len(run.devices),
        nodes=run.nodes.count,
        claims={folder: variables.get(name) or folder for name, folder in CLAIMS.items() if folder in _folders(run)},
    )


def _name(recipe: Recipe, nodes: int, variables: Mapping[str, str]) -> str:
    name = variables.get("JOB") or re.sub("[._]", "-", recipe.target.lower())
    longest = LONGEST_NAME - len(f"-{nodes - 1}")
    if not DNS_LABEL.fullmatch(name) or len(name) > longest:
        raise UserError(
            f"JOB: found {name!r}, expected at most {longest} lower-case letters, digits and `-`, a letter first and "
            "no `-` last."
        )
    return name


def _folders(run: RunConfig) -> set[str]:
    """Return the folders of volumes that the run reads and writes. Raises UserError for a path outside all volumes."""
    paths = [("OUTPUT", word) for word in run.explicit.get("output_dir", [])]
    paths += [("DATA", word) for word in run.explicit.get(run.method.data_flag, [])]
    model = run.flags.model_name_or_path or ""
    if model.startswith((".", "/", "~", *(f"{folder}/" for folder in CLAIMS.values()))) or model.count("/") > 1:
        paths.append(("MODEL", model))  # anything else is the name of a configuration or of a hub's model
    return {_folder(variable, path) for variable, path in paths if not re.fullmatch(r"[\d.]+", path)}


def _folder(variable: str, path: str) -> str:
    """Return "data" for ./data/wiki. The numbers of a blend are no paths."""
    inside = os.path.relpath(os.path.join(WORKDIR, path), WORKDIR)
    folder = PurePosixPath(inside).parts[0]
    if folder not in CLAIMS.values():
        allowed = ", ".join(f"{folder}/" for folder in CLAIMS.values())
        raise UserError(
            f"{variable}: found {path!r}, which is on no volume of the pods: they have {allowed} below {WORKDIR}. "
            f"Give one of them: {variable}=FOLDER/..."
        )
    return folder


def _metadata(request: ManifestValues) -> Manifest:
    return {"name": request.name, "labels": {LABEL: request.name}}


def _service(request: ManifestValues) -> Manifest:
    """Return the Service, which names each pod, also before it is ready: pods look for the first one at once."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(request),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {LABEL: request.name},
            "ports": [{"name": "master", "port": DEFAULT_PORT}],
        },
    }


def _job(request: ManifestValues) -> Manifest:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(request),
        "spec": {
            "completionMode": "Indexed",
            "completions": request.nodes,
            "parallelism": request.nodes,
            # When a node fails, all end: each pod counts its own failures, so one restart of the run counts once.
            "backoffLimitPerIndex": request.restarts,
            "maxFailedIndexes": 0,
            "podReplacementPolicy": "Failed",  # two pods of one number would write the same files
            "podFailurePolicy": {
                "rules": [
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                    {
                        "action": "Ignore",
                        "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": [STOPPED]},
                    },
                ]
            },
            "template": _template(request),
        },
    }


def _template(request: ManifestValues) -> Manifest:
    """Return the template of a pod."""
    several = request.nodes > 1
    values = request.env | {"STOPPED_EXIT_CODE": str(STOPPED)}
    if several:
        values |= {"NNODES": str(request.nodes), "MASTER": f"{request.name}-0.{request.name}:{DEFAULT_PORT}"}
    # Kubernetes puts variables into values, too: $(NAME), which $$(NAME) is not.
    env: list[Manifest] = [{"name": name, "value": value.replace("$", "$$")} for name, value in values.items()]
    if several:
        env.append({"name": "RANK", "valueFrom": {"fieldRef": {"fieldPath": POD_INDEX}}})
    term = {"labelSelector": {"matchLabels": {LABEL: request.name}}, "topologyKey": "kubernetes.io/hostname"}
    one_pod_a_node = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return {
        "metadata": {"labels": {LABEL: request.name}},
        "spec": {
            "restartPolicy": "Never",
            **({"subdomain": request.name, "affinity": one_pod_a_node} if several else {}),
            # As process 1 the recipe would not be ended by SIGTERM before it handles it: while it waits for others.
            "shareProcessNamespace": True,
            "terminationGracePeriodSeconds": int(SECONDS_TO_SAVE) + 30,
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "fsGroup": USER,
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": CONTAINER,
                    "image": request.image,
                    "workingDir": WORKDIR,
                    "command": request.command,
                    "env": env,
                    "ports": [{"name": "master", "containerPort": DEFAULT_PORT}],
                    **({"resources": {"limits": {"nvidia.com/gpu": request.cards}}} if request.cards else {}),
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    "volumeMounts": [*_mounts(request), {"name": "shared-memory", "mountPath": "/dev/shm"}],
                }
            ],
            "volumes": [
                *(
                    {"name": name, "persistentVolumeClaim": {"claimName": claim}}
                    for claim, name in _volumes(request).items()
                ),
                {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": SHARED_MEMORY}},
            ],
        },
    }


def _volumes(request: ManifestValues) -> dict[str, str]:
    """Return {claim: name of the volume}: a claim of several folders is one volume."""
    return {claim: folder for folder, claim in reversed(request.claims.items())}


def _mounts(request: ManifestValues) -> Iterator[Manifest]:
    """Yield the mount of each claim, whole; one for several folders has a folder for each."""
    for folder, claim in request.claims.items():
        mount = {"name": _volumes(request)[claim], "mountPath": f"{WORKDIR}/{folder}"}
        is_shared = list(request.claims.values()).count(claim) > 1
        yield mount | ({"subPath": folder} if is_shared else {})


def as_yaml(objects: list[Manifest]) -> str:
    """Return the objects as YAML."""
    import yaml  # only here: the checks of a recipe need no packages

    return yaml.safe_dump_all(objects, sort_keys=False, width=120)
