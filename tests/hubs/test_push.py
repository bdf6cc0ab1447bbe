"""make push, by the hubs' real clients, against a server on this machine that speaks as the hubs do; and its card."""

import json
import subprocess
import sys
from collections import Counter

import pytest

from launch.commands import card, push
from launch.environment.optional_packages import require
from launch.errors import UserError
from launch.hubs.model_card import write_card
from tests.hubs.hub_server import serving, sha256
from tests.hubs.test_download import HUBS, SECRET, environment
from tests.processes.waiting import wait_for
from tests.store import ROOT

FILES = {
    "README.md": b"---\ntags: [a]\n---\n# Kestrel\n",
    "config.json": b"{}",
    "model.safetensors": bytes(range(256)) * 20,
}
SUMMARY = {
    "command": ["/home/me/.venv/bin/python", "/home/me/recipes/launch/finetune_generation.py", "--model_name_or_path",
                "/home/me/models/small", "--lora", "1", "--output_dir", "/home/me/runs/lora", "--learning_rate",
                "-1e-3"],
    "arguments": {"A": {"model_name_or_path": "/home/me/models/small", "lora": True, "lora_rank": 8},
                  "B": {"dataset_name_or_path": "['/home/me/data/chats']"}},
    "versions": {"paddlepaddle": "3.3.1"}, "git_revision": "0123abc", "hardware": "AMD EPYC",
    "topology": {"processes": 2, "data_parallel_degree": 2, "tensor_parallel_degree": 1},
    "parameters": 134_515_008, "global_step": 96, "consumed_tokens": 22_371, "first_loss": 1.911, "last_loss": 0.0584,
    "evaluation": {"eval_loss": 0.5}, "first_step_memory": {"planned_peak_bytes": 2**30, "measured_peak_bytes": 2**29},
    "seconds": 1800.0,
}  # fmt: skip


@pytest.fixture
def exported(tmp_path):
    folder = tmp_path / "exported"
    folder.mkdir()
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    for name in (".secret", "id_rsa", "train.jsonl", "optimizer.pdopt", "notes.md", "model.bin", "README.md.orig"):
        (folder / name).write_text("mine")
    return folder


@pytest.mark.parametrize("hub", HUBS)
def test_a_model_is_sent_once_to_a_new_private_repository(hub, exported, tmp_path):
    if hub == "modelscope":
        require("modelscope-hub", "hubs.lock")
    with serving({}) as server:

        def send(token: str, owner: str = "me", code: int = 0) -> str:
            command = [sys.executable, str(ROOT / "launch/commands/push.py"), str(exported), f"{hub}:{owner}/kestrel"]
            own = environment(server, tmp_path, token) | {"STUDIO_MODEL_API_URL_PREFIX": server.address}
            done = subprocess.run(command, cwd=tmp_path, env=own, capture_output=True, text=True)
            assert done.returncode == code, done.stdout + done.stderr
            assert SECRET not in done.stdout + done.stderr
            return done.stdout + done.stderr

        said = send(SECRET)
        assert f"sent: {server.address}" in said and "\n3 files, " in said
        assert said.startswith("not sent, as no files of a model: .secret, README.md.orig, id_rsa, model.bin, notes.md")
        made = server.repositories["me/kestrel"]
        assert made.files == FILES and made.private
        (exported / "README.md").write_bytes(b"better")
        puts = [line for line in server.asked if line.startswith("PUT /lfs/")]
        send(SECRET)
        assert made.files == FILES | {"README.md": b"better"}
        assert len(puts) == 1 == len([line for line in server.asked if line.startswith("PUT /lfs/")])
        del server.repositories["me/kestrel"]
        assert "does not let you write there" in " ".join(send("", code=2).split())
        if hub != "aistudio":  # whose client names no owner
            assert "does not let you write there" in " ".join(send(SECRET, "nobody", 2).split())


@pytest.mark.long
@pytest.mark.parametrize("how", ["killed", "cut"])
@pytest.mark.parametrize("hub", HUBS)
def test_a_push_that_ends_early_goes_on_with_what_is_missing(hub, how, exported, tmp_path):
    if hub == "modelscope":
        require("modelscope-hub", "hubs.lock")
    whole = FILES | {"model-2.safetensors": bytes(range(250)) * 40_000}
    (exported / "model-2.safetensors").write_bytes(whole["model-2.safetensors"])
    first, second = (sha256(whole[name]) for name in ("model.safetensors", "model-2.safetensors"))
    command = [sys.executable, str(ROOT / "launch/commands/push.py"), str(exported), f"{hub}:me/kestrel"]
    with serving({}) as server:
        own = environment(server, tmp_path, SECRET) | {"STUDIO_MODEL_API_URL_PREFIX": server.address}
        late = first if hub == "aistudio" else second  # sends in the order of the names, one file after the other
        getattr(server, {"killed": "hold", "cut": "drop"}[how])[late] = 5000
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        with subprocess.Popen(command, cwd=tmp_path, env=own, **pipes) as process:
            wait_for(server.held.is_set)
            if how == "killed":
                wait_for(lambda: len(server.stored) == 1)
                process.kill()
            said = " ".join(process.communicate(timeout=120)[0].split())
        if process.returncode:  # a client may try again by itself
            assert late not in server.stored and "me/kestrel" in server.repositories
            assert how == "killed" or "the same command " in said.lower()
            server.hold.clear()
            done = subprocess.run(command, cwd=tmp_path, env=own, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
        assert server.repositories["me/kestrel"].files == whole
        puts = Counter(line.removeprefix("PUT /lfs/") for line in server.asked if line.startswith("PUT /lfs/"))
        assert puts == {late: 2, ({first, second} - {late}).pop(): 1}


def test_what_is_no_export_is_refused(exported):
    (exported / "README.md").unlink()
    with pytest.raises(UserError, match="README.md: no such file. make export writes it"):
        push.main([str(exported), "hf:me/kestrel"])
    (exported / "train_log.jsonl").write_text("")
    with pytest.raises(UserError, match="is no export. First: make export MODEL="):
        push.main([str(exported), "hf:me/kestrel"])
    with pytest.raises(UserError, match=r"found nowhere, which is no export. First: make export MODEL=RUN\."):
        push.main(["nowhere", "hf:me/kestrel"])
    for name in ("hf:kestrel", "s3:me/kestrel", "me/kestrel", "hf:me/../kestrel"):
        with pytest.raises(UserError, match=r"TO: found .*, allowed: HUB:OWNER/NAME"):
            push.main([str(exported), name])


def test_a_card_says_how_a_model_was_trained_without_that_machines_paths(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "lora"
    run.mkdir()
    with pytest.raises(UserError, match=r"run_summary.json: no such file. Name the output directory"):
        card.main([str(run)])
    (run / "run_summary.json").write_text("[]")
    with pytest.raises(UserError, match="or the evaluation: not as this suite writes them"):
        card.main([str(run)])
    (run / "run_summary.json").write_text(json.dumps(SUMMARY))
    (tmp_path / "evaluations").mkdir()
    measured = {"acc,none": 0.75, "acc_stderr,none": 0.01, "alias": "piqa"}
    (tmp_path / "evaluations/lora.json").write_text(json.dumps({"results": {"piqa": measured}}))
    card.main([str(run)])
    text = capsys.readouterr().out
    assert text.startswith(
        '---\nbase_model: "small"\npipeline_tag: "text-generation"\ntags: ["paddle-llm-recipes", "lora"]\n'
    )
    for line in (
        "| parameters | 134,515,008, LoRA of rank 8 |", "| steps | 96, 22,371 tokens |", "| hardware | AMD EPYC |",
        "| loss | 1.911 at first, 0.0584 at the end |", "| held-out loss | 0.5 |", "| time | 0.50 hours |",
        "| layout | processes 2, data parallel 2 |", "| memory at the first step | 0.50 GiB, planned 1.00 |",
        "| piqa | acc | 0.7500 ± 0.0196 |", "    --lora 1 \\", "    --learning_rate -1e-3",
    ):  # fmt: skip
        assert f"\n{line}\n" in text
    assert "/home" not in text and "--output_dir" not in text
    target = tmp_path / "out"
    target.mkdir()
    (target / "adapter_config.json").write_text("{}")
    assert write_card(run, target) and (target / "README.md").read_text().partition("\n## Use\n")[0] == text.replace(
        "# lora", "# out"
    )
    merged = tmp_path / "merged"
    merged.mkdir()
    (merged / "out.gguf").write_text("")
    assert write_card(target, merged), "the card of what is exported again"
    again = (merged / "README.md").read_text()
    assert again.count("## Use") == 1 and "llama-cli -m out.gguf" in again and "AutoPeft" not in again
    assert not write_card(tmp_path, target)
