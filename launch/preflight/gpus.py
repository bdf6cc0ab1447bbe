"""Are the requested cards here and in order, with enough memory, and can they do what the flags request?"""

import os
from collections import Counter

from launch.config.run_config import RunConfig
from launch.devices import cuda
from launch.devices.cards import DetectedCard, Driver, driver, list_cards, nvlink_pairs
from launch.devices.cuda import paddle_build
from launch.errors import UserError
from launch.families.named_configs import load_config
from launch.plan.hardware import GIB, NAMED_MEMORY_SHARE
from launch.preflight.report import Finding
from launch.switches import SWITCHES, precision
from launch.switches.switch import case_of

# Memory that may be in use on an idle card: the driver takes 0.3 to 1 GiB, a desktop some more.
IDLE_BYTES = 2 * GIB


def check_cards(devices: tuple[str, ...], memory_gb: int = 0) -> list[Finding]:
    """Check the requested cards.

    Where cards are missing or too small, nothing else is checked.

    Args:
        devices: As in CUDA_VISIBLE_DEVICES.
        memory_gb: Needed on each; 0: unknown.
    """
    here = list_cards()
    cards = {str(card.index): card for card in here} | {card.uuid: card for card in here}
    needed = f"{len(devices)}" + (f" of {memory_gb} GB" if memory_gb else "") + " needed"
    if len(here) < len(devices):
        if not here:
            return [Finding(False, "cards", f"{needed}, here: none", "run it on a machine that has them")]
        fix = f"GPUS={len(here)} (a step keeps its samples where they can be dealt to {len(here)} cards)"
        return [Finding(False, "cards", f"{needed}, here: {describe(here)}", fix)]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    seen = cards if visible is None else {word.strip() for word in visible.split(",")}
    absent = [device for device in devices if device not in cards or device not in seen]
    if absent:
        found = f"no card {', '.join(absent)} among {', '.join(str(card.index) for card in here)}"
        return [Finding(False, "cards", found, "DEVICES=0,1,... names cards that are here and visible")]
    chosen = [cards[device] for device in devices]
    small = [card for card in chosen if card.memory_bytes < NAMED_MEMORY_SHARE * memory_gb * GIB]
    if small:
        fix = f"GPU_MEMORY_GB={round(small[0].memory_bytes / GIB)} to try all the same"
        return [Finding(False, "cards", f"{needed}, chosen: {describe(chosen)}", fix)]
    # CUDA may number the cards differently from NVML: by default it puts the fastest kind first.
    by_speed = len({card.name for card in here}) > 1 and os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
    if by_speed and any(device.isdecimal() for device in devices):
        found = f"{describe(here)} here, which CUDA numbers by speed, but nvidia-smi and this check by bus"
        return [Finding(False, "cards", found, "export CUDA_DEVICE_ORDER=PCI_BUS_ID, so that numbers mean the same")]
    return [
        check_kind(chosen),
        *check_free(chosen),
        *check_slices(chosen),
        *check_memory_errors(chosen),
        check_driver(driver(), chosen, paddle_build()),
        *check_links(chosen),
    ]


def check_kind(chosen: list[DetectedCard]) -> Finding:
    """Check that the chosen cards have the same compute capability and memory.

    Otherwise the weakest card limits all.
    """
    kinds: dict[tuple, list[str]] = {}
    for card in chosen:
        kinds.setdefault((card.compute_capability, round(card.memory_bytes / GIB)), []).append(str(card.index))
    if len(kinds) > 1:
        most = max(kinds.values(), key=len)
        fix = f"DEVICES={','.join(most)} are of one kind"
        return Finding(False, "cards", f"of several kinds: {describe(chosen)}", fix)
    return Finding(True, "cards", describe(chosen) + (", ECC off" if False in {card.ecc for card in chosen} else ""))


def check_free(chosen: list[DetectedCard]) -> list[Finding]:
    """Check that nobody else uses the cards. One finding for each that is in use."""
    findings = []
    for card in chosen:
        used = card.memory_bytes - card.free_bytes
        if used > IDLE_BYTES:
            users = ", ".join(
                f"process {pid}" + ("" if used_bytes is None else f" ({used_bytes / GIB:.1f} GiB)")
                for pid, used_bytes in card.processes
            )
            found = f"{used / GIB:.1f} of {card.memory_bytes / GIB:.0f} GiB are in use by {users or 'others'}"
            fix = f"stop it (nvidia-smi -i {card.index} shows it), or DEVICES=0,1,... names other cards"
            findings.append(Finding(False, f"card {card.index}", found, fix))
    return findings


def check_slices(chosen: list[DetectedCard]) -> list[Finding]:
    """Check that no card is split by MIG where several are needed: slices cannot exchange data."""
    sliced = ",".join(str(card.index) for card in chosen if card.mig)
    if not sliced:
        return []
    found = f"card {sliced} is cut into slices (MIG)"
    if len(chosen) == 1:
        return [Finding(True, "MIG", f"{found}: the memory told is the whole card's")]
    # NVIDIA MIG User Guide, "CUDA Device Enumeration" and "Application Considerations": a process sees one slice,
    # and there is no peer-to-peer between slices.
    fix = f"as root: nvidia-smi -i {sliced} -mig 0; or DEVICES=0,1,... names whole cards"
    return [Finding(False, "MIG", f"{found}, and slices cannot exchange data", fix)]


def check_memory_errors(chosen: list[DetectedCard]) -> list[Finding]:
    """Check that no card has had memory errors that it could not correct."""
    return [
        Finding(
            False,
            f"card {card.index}",
            f"{card.memory_errors} uncorrected memory errors since the driver was loaded: results may be wrong",
            f"as root: nvidia-smi -i {card.index} --gpu-reset, or reboot; if they return, the card is broken",
        )
        for card in chosen
        if card.memory_errors
    ]


def check_links(chosen: list[DetectedCard]) -> list[Finding]:
    """Return one line about how the cards are connected."""
    pairs = nvlink_pairs(chosen) if len(chosen) > 1 else None
    if pairs is None:
        return []
    count = len(chosen)
    if len(pairs) == count * (count - 1) // 2:
        return [Finding(True, "links", f"NVLink between all {count}")]
    if not pairs:
        return [Finding(True, "links", "PCIe only: tensor parallel will be slow")]
    linked = ", ".join(f"{first}-{second}" for first, second in pairs)
    return [Finding(True, "links", f"NVLink between {linked}; PCIe between the others: slow for tensor parallel")]


def describe(cards: list[DetectedCard]) -> str:
    """Return the cards, such as "2 x NVIDIA A100-SXM4-80GB (80 GB)"."""
    kinds = Counter(f"{card.name} ({round(card.memory_bytes / GIB)} GB)" for card in cards)
    return ", ".join(f"{count} x {kind}" for kind, count in kinds.items()) or "none"


def check_driver(driver: Driver | None, cards: list[DetectedCard], build: str | None) -> Finding:
    """Check that the installed Paddle fits the driver and the cards. build: as cuda.paddle_build() returns it."""
    if driver is None or not cards:
        if build in (None, "cpu"):
            return Finding(True, "driver", "no NVIDIA driver, and none needed by Paddle's CPU build")
        fix = "make setup DEVICE=cpu; or install the NVIDIA driver, in a container: docker run --gpus all"
        return Finding(False, "driver", f"no NVIDIA driver, but Paddle is the build for CUDA {build}", fix)
    machine = cuda.Machine(driver.cuda, tuple(card.compute_capability for card in cards))
    which = "Paddle is the CPU build" if build in (None, "cpu") else f"Paddle is the build for CUDA {build}"
    found = "; ".join([f"{driver.version}, for CUDA up to {driver.cuda[0]}.{driver.cuda[1]}", which])
    if any(wheel.cuda == build and wheel.fits(machine) for wheel in cuda.WHEELS):
        return Finding(True, "driver", found)
    try:
        return Finding(False, "driver", found, f"make setup-gpu CUDA={cuda.choose_wheel(machine).cuda}")
    except UserError as error:
        return Finding(False, "driver", found, str(error))


def check_gates(run: RunConfig) -> list[Finding]:
    """Check that the cards can compute in the requested precision and with the requested kernels.

    [] where the cards are unknown: in a run started by hand each rank checks its own.
    """
    flags = run.flags
    if str(flags.device).startswith("cpu"):
        capabilities = [None]
    else:
        chosen = [card for card in list_cards() if {str(card.index), card.uuid} & {*run.devices}] if run.devices else []
        capabilities = sorted({card.compute_capability for card in chosen})
    if not capabilities:
        return []
    try:
        bf16, fp16 = precision.expected(flags, capabilities[0])
        rounds_products = capabilities[0] is None and precision.products_in_bfloat16(flags)
        line = precision.line(flags, bf16, fp16, capabilities[0], rounds_products)
        findings = [Finding(True, "precision", line.removeprefix("precision: "))]
    except UserError:
        obstacle = precision.bf16_obstacle(capabilities[0], flags.cpu_fast or "off")
        found = f"found {flags.precision or flags.bf16}, but {obstacle}"
        flag, fix = "--bf16", precision.instead_of_bf16(capabilities[0])
        if flags.precision:
            flag, fix = "--precision", "--precision auto"
        findings = [Finding(False, flag, found, fix)]
        bf16, fp16 = True, False
    dtype = precision.attention_dtype(bf16, fp16, flags.fp16_opt_level)
    try:
        config = load_config(flags.model_name_or_path or "")
        cases = [case_of(flags, config, capability, dtype) for capability in capabilities]
    except UserError:
        return findings  # reported by the check of the model
    for switch in SWITCHES:
        if not switch.subject or not switch.concerns(cases[0]):
            continue
        reason = switch.first_obstacle(cases)
        if switch.setting(flags) == "required" and reason:
            fix = f"--{switch.flag} auto for {switch.instead}"
            if switch.remedy:
                fix = f"{switch.remedy}; or --{switch.flag} auto for {switch.instead}"
            found = f"found required, not possible here: {reason}"
            findings.append(Finding(False, f"--{switch.flag}", found, fix))
        else:  # a run may still refuse the kernel when it starts
            findings.append(Finding(True, switch.subject, switch.expected(flags, cases).reason))
    return findings
