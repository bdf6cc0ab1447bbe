"""The Dockerfile and the devcontainer, which no test machine can build: their versions and names fit the rest.
`make lint` runs hadolint on the Dockerfile."""

import re

from launch.devices import cuda
from tests.store import ROOT

DOCKERFILE = (ROOT / ".devcontainer" / "Dockerfile").read_text()
STAGES = dict(re.findall(r"^FROM \S+ AS (\w+)\n((?:(?!FROM ).*\n)*)", DOCKERFILE, re.MULTILINE))


def test_the_gpu_image_has_the_cuda_of_a_wheel_and_no_image_what_git_leaves_out():
    [requested] = re.findall(r"make setup-gpu CUDA=(\S+)", STAGES["gpu"])
    [image] = re.findall(r"nvidia/cuda:(\d+\.\d+)\.\d+-devel", DOCKERFILE)
    assert requested == image
    assert cuda.wheel_named(requested).tag == "cu" + requested.replace(".", "")
    left_out = {line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()}
    ignored = {line.removeprefix("**/") for line in (ROOT / ".dockerignore").read_text().splitlines()}
    assert ignored - left_out == {"data", ".env*"}  # what users have: no part of an image
    assert left_out - ignored == {"*.pyc", "*.egg-info", ".pytest_cache"}  # small
