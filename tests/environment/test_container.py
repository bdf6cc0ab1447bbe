"""The Dockerfile and the devcontainer, which no test machine can build: their versions and names fit the rest.
`make lint` runs hadolint on the Dockerfile."""

import json
import re
from pathlib import Path

from launch.devices import cuda

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / ".devcontainer" / "Dockerfile").read_text()
STAGES = dict(re.findall(r"^FROM \S+ AS (\w+)\n((?:(?!FROM ).*\n)*)", DOCKERFILE, re.MULTILINE))


def test_the_gpu_image_has_the_cuda_of_a_wheel():
    [requested] = re.findall(r"make setup-gpu CUDA=(\S+)", STAGES["gpu"])
    [image] = re.findall(r"nvidia/cuda:(\d+\.\d+)\.\d+-devel", DOCKERFILE)
    assert requested == image
    assert cuda.wheel_named(requested).tag == "cu" + requested.replace(".", "")


def test_the_cpu_image_has_a_supported_python():
    [version] = re.findall(r"FROM python:3\.(\d+)-slim", DOCKERFILE)
    assert int(version) in (10, 11, 12)
    assert "make setup DEVICE=cpu" in STAGES["cpu"]


def test_an_image_takes_nothing_from_the_working_folder_that_git_leaves_out():
    left_out = {line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()}
    ignored = {line.removeprefix("**/") for line in (ROOT / ".dockerignore").read_text().splitlines()}
    assert ignored - left_out == {"data", ".env*"}  # what users have: no part of an image
    assert left_out - ignored == {"*.pyc", "*.egg-info", ".pytest_cache"}  # small


def test_the_devcontainer_names_a_stage_and_a_target_of_make():
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert container["build"]["target"] in STAGES
    assert (ROOT / ".devcontainer" / container["build"]["dockerfile"]).is_file()
    assert re.search(
        rf"^{container['postCreateCommand'].removeprefix('make ')}:", (ROOT / "Makefile").read_text(), re.M
    )
