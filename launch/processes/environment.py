"""What in a user's environment would lead paddle.distributed.launch astray, and how its command is kept from it.

Some variables win over the launcher's own flags, without asking (paddle/distributed/launch/context/args_envs.py and
plugins/__init__.py). On AI Studio and in Kubernetes they are set; what they say of nodes is in the flags already
(launch/nodes). And the nodes talk over HTTP: with a proxy set, in capitals, they wait for ever.

CUDA_VISIBLE_DEVICES makes the launcher believe in cards (context/device.py, Device.parse_device), also where ranks on
the CPU are asked for: it then gives each rank one of the variable's words, and ends with an IndexError where it has
fewer words than ranks; an empty variable has one. And it looks for each of --gpus among the words, to the letter.
"""

from collections.abc import Mapping

OVERRIDING = (
    "DISTRIBUTED_TRAINER_ENDPOINTS",
    "PADDLE_DEVICES",
    "PADDLE_IPS",
    "PADDLE_LOG_DIR",
    "PADDLE_MASTER",
    "PADDLE_NNODES",
    "PADDLE_NPROC_PER_NODE",
    "PADDLE_RANK",
    "PADDLE_TRAINER_ENDPOINTS",
    "PADDLE_TRAINER_ID",
    "POD_IP",
)
PROXIES = ("HTTP_PROXY", "ALL_PROXY", "all_proxy")  # http_proxy, https_proxy: the launcher forgets them by itself
WITHOUT_PROXY = ("no_proxy", "NO_PROXY")
CARDS = "CUDA_VISIBLE_DEVICES"


def environment_words(variables: Mapping[str, str], master_host: str | None, devices: tuple[str, ...]) -> list[str]:
    """What to put before the launcher's command: ["env", "-u", "POD_IP", ...], nothing where nothing is in the way.

    master_host: where several nodes meet, which is reached without a proxy; None on one node. devices: the cards that
    --gpus names; empty: ranks on the CPU.
    """
    forgotten = [name for name in OVERRIDING if name in variables]
    if not devices and CARDS in variables:
        forgotten.append(CARDS)
    words = [word for name in forgotten for word in ("-u", name)]
    if master_host and any(variables.get(name) for name in PROXIES):
        exceptions = [variables[name] for name in WITHOUT_PROXY if variables.get(name)][:1]
        words.append(f"no_proxy={','.join([*exceptions, master_host])}")
    if not _found(devices, variables.get(CARDS)):
        words.append(f"{CARDS}={','.join(devices)}")
    return ["env", *words] if words else []


def _found(devices: tuple[str, ...], visible: str | None) -> bool:
    """Whether the launcher finds all the cards; without the variable it knows them by numbers alone."""
    if visible is None:
        return all(device.isdecimal() for device in devices)
    return set(devices) <= set(visible.split(","))
