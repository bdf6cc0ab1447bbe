"""What is generated of generation.proto is that of today. grpcio-tools is among requirements/compare.txt."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROTO = "launch/serving/rpc/generation.proto"


@pytest.mark.nightly
def test_the_stubs_are_what_the_command_in_the_proto_makes(tmp_path):
    pytest.importorskip("grpc_tools")
    [command] = [line.strip("/ \n") for line in (ROOT / PROTO).open() if "-m grpc_tools.protoc" in line]
    words = command.replace("_out=.", f"_out={tmp_path}").split()
    subprocess.run([sys.executable, *words[1:]], cwd=ROOT, check=True)
    for path in sorted(tmp_path.rglob("*.py")):
        assert path.read_text() == (ROOT / path.relative_to(tmp_path)).read_text()
    assert len(list(tmp_path.rglob("*.py"))) == 2
