"""docs/serve.md and what docs/deploy.md asks the server: every command of them that this machine can run."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
from safetensors.numpy import load_file

from tests.repository_folder import link_repository
from tests.serving.servers import ROOT, Server, start

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(shutil.which("make") is None, reason="no make here")]
PAGE = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")
READY = r"http://127\.0\.0\.1:(\d+)/v1.*gRPC\s+127\.0\.0\.1:(\d+).*ready"


def blocks(language: str, page: str = PAGE) -> list[str]:
    return [body for one, body in re.findall(r"^```(\w*)\n(.*?)^```$", page, re.M | re.S) if one == language]


@pytest.fixture(scope="module")
def folder(served, tmp_path_factory) -> Path:
    """Looks like the repository, with a small model as the demo's, and adapters."""
    folder = link_repository(tmp_path_factory.mktemp("repository"))
    (folder / "made").symlink_to(served)
    places = {
        "build/demo/model": "model",
        "models/base": "model",
        "checkpoints/poems": "lora",
        "checkpoints/law": "prefix",
    }
    for name, made in places.items():
        shutil.copytree(served / made, folder / name)
    return folder


def serve(command: str, folder: Path) -> Server:
    """Start a server by a command of the page, on any ports."""
    ports = "--port 0 --grpc_port 0"
    command = command.strip() if "ARGS=" in command else f'{command.strip()} ARGS=""'
    command = command.replace('ARGS="', f'ARGS="{ports} ')
    script = command.replace("make ", "exec make --no-print-directory -o setup ", 1)  # .venv is ours
    return start(["-c", f"import os; os.execvp('sh', ['sh', '-c', {script!r}])"], READY, folder)


def run(words: list[str], text: str | None = None) -> str:
    done = subprocess.run(words, cwd=ROOT, input=text, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{words} {text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def with_ports(text: str, server: Server) -> str:
    return text.replace("127.0.0.1:8000", f"127.0.0.1:{server.port}").replace("127.0.0.1:8001", server.grpc)


def test_the_commands_of_the_pages(folder):
    first, second, with_grammars, on_two = blocks("sh")
    server = serve(first, folder)
    said = " ".join("".join(server.said).split())
    expected = " ".join(with_ports(blocks("")[0], server).split())
    memory = r"[\d,]+ tokens of [\d,]+ bytes"  # of the demo's model on the page
    assert re.sub(memory, "", said) == re.sub(memory, "", expected) != expected
    by_rest, by_grpc = (run([sys.executable, "-"], with_ports(block, server)) for block in blocks("python"))
    assert "completion_tokens=32" in by_rest and "prompt_tokens=" in by_rest
    text = by_rest.rpartition(" CompletionUsage")[0]
    assert text == by_grpc
    if shutil.which("curl"):
        answers = run(["bash", "-ec", with_ports(blocks("bash")[0], server)])
        assert '"text_completion"' in answers and '"id":"model"' in answers and '{"status":"ok"}' in answers
        assert "serving_completion_tokens_total" in answers
    [ask] = blocks("python", (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8"))
    assert run([sys.executable, "-c", with_ports(ask, server)])
    assert stopped(server) == 0

    server = serve(second, folder)
    assert [model.id for model in server.client().models.list()] == ["base", "poems", "law"]
    assert stopped(server) == 0

    server = serve(with_grammars, folder)
    ask = {"model": "base", "prompt": "a", "max_tokens": 4, "response_format": {"type": "json_object"}}
    assert '"text":"{' in server.ask("/v1/completions", ask)[1]
    assert stopped(server) == 0

    server = serve(on_two, folder)  # two processes on the CPU, where there are no cards
    assert '"finish_reason":"length"' in server.ask("/v1/completions", ask | {"response_format": None})[1]
    assert stopped(server) == 0


def test_the_chapter_of_the_readme(folder):
    """Its commands in their order, on the small model; what was exported is what is imported. The server's are those of
    docs/serve.md."""
    chapter = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Export and serve")[2].partition("\n## ")[0]
    [commands] = blocks("", chapter)
    assert f"`{blocks('sh')[0].strip()}`" in chapter
    shutil.copytree(folder / "made" / "model", folder / "models" / "llama-7b")
    shutil.copytree(folder / "made" / "lora", folder / "checkpoints" / "llama-7b-lora")
    (folder / "Llama-2-7b-hf").symlink_to(folder / "exported")
    environment = os.environ | {"HOME": str(folder)}
    for command in commands.replace("make ", "make --no-print-directory -o setup ").splitlines():
        done = subprocess.run(
            ["bash", "-ec", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    merged, imported = (load_file(folder / "models" / name / "model.safetensors") for name in ("merged", "llama-2-7b"))
    assert merged.keys() == imported.keys()
    assert all(np.array_equal(merged[name], imported[name]) for name in merged)


def stopped(server: Server) -> int:
    """The exit code of make, once the server below it has ended."""
    below = psutil.Process(server.process.pid).children(recursive=True)
    serving, *_ = [process for process in below if "launch/commands/serve.py" in process.cmdline()]
    serving.terminate()  # the first of several starts the others
    return server.process.wait(timeout=60)


def test_flags_on_the_page_are_there():
    help_text = run([sys.executable, "launch/commands/serve.py", "--help"])
    named = set(re.findall(r"`(--[a-z_]+)`", PAGE))
    assert named and all(flag in help_text for flag in named)
