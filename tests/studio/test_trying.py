"""Results of runs: what is asked, exported and merged, and the server that is started for it, which here stands for the
real one; tests/studio/test_try_page.py has that."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest
from starlette.testclient import TestClient

from data_tools.formats.benchmarks.files import find_form
from launch.checkpoint.output_directory import lock_start
from launch.environment.start import filled_in
from launch.errors import UserError
from launch.studio import trying
from launch.studio.app import make_app
from launch.studio.run_records import evaluation_of
from launch.studio.run_result import ANY_PORTS, IN_TURN, RunResult, StudioTask, files_in, result_in
from launch.studio.runs import Runs
from launch.studio.trying import Trial
from tests.checkpoint.test_checkpoint_writer import write
from tests.processes.waiting import wait_for
from tests.studio.test_runs import log_of

TOKEN = "a-token-of-the-tests"
STANDS_FOR_SERVE = Path(__file__).with_name("stands_for_serve.py")


def result_of(folder: Path, config: str, **values: object) -> str:
    folder.mkdir(parents=True)
    (folder / config).write_text(json.dumps(values))
    return str(folder)


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trying, "SERVE", STANDS_FOR_SERVE)
    result_of(tmp_path / "run/output", "lora_config.json", base_model_name_or_path="llama-7b")
    return tmp_path


@pytest.fixture
def client(here):
    """In one thread, with which the kernel would end the server."""
    trial = Trial()
    with TestClient(make_app(TOKEN, Runs(), trial, slow=None), base_url="http://127.0.0.1:8020") as client:
        client.headers["Authorization"] = f"Bearer {TOKEN}"
        yield client
        trial.stop()


def test_what_a_folder_has_that_has_a_name(here):
    model = RunResult.read(result_of(here / "model", "config.json"))
    assert (model.kind, model.base, list(model.tasks(""))) == ("model", "", ["export", "gguf", "serve", "push"])
    assert model.tasks("")["gguf"].command.endswith("OUTPUT=exported/model-gguf FORMAT=gguf QUANT=q8_0")
    assert model.tasks("", quant="q4_k_m")["gguf"].arguments[-1] == "q4_k_m"
    with pytest.raises(UserError, match="QUANT: found 'q9', allowed: f32, f16, bf16, q8_0, q4_0, q4_k_m"):
        model.tasks("", quant="q9")
    (here / "model/sub").mkdir()
    (here / "model/weights").write_bytes(bytes(9))
    assert files_in(here / "model") == [{"name": "weights", "bytes": 9}, {"name": "config.json", "bytes": 2}]
    assert files_in(here / "model/weights") == [{"name": "weights", "bytes": 9}] and files_in(here / "none") == []
    lora = RunResult.read("run/output")
    assert (lora.kind, lora.base, lora.weights_bytes) == ("LoRA", "llama-7b", 4 * 6_738_415_616)
    assert RunResult.read("run/output", "models/mine").base == "models/mine"
    prefix = result_of(here / "prefix/checkpoint-5", "prefix_config.json")
    with pytest.raises(UserError, match="base: prefix/checkpoint-5 does not name the model"):
        RunResult.read("prefix/checkpoint-5")
    (here / "prefix/run_summary.json").write_text('{"arguments": {"A": {}, "B": {"model_name_or_path": "opt-125m"}}}')
    found = RunResult.read(prefix)
    assert (found.kind, found.base, list(found.tasks(""))) == ("prefix", "opt-125m", ["serve"])
    assert RunResult.read(prefix, "nowhere/none").weights_bytes is None
    with pytest.raises(UserError, match="^folder: found '~nobody-of-that-name/x', which is none"):
        RunResult.read("~nobody-of-that-name/x")
    with pytest.raises(UserError, match="^output: found .*, which is no name of a folder"):
        RunResult.read("run/output").tasks("a\0b")


def test_the_result_of_a_run_that_was_stopped_is_its_newest_whole_checkpoint(here):
    assert result_in(here / "run/output") == str(here / "run/output")
    for step in (5, 10, 15):
        (write(here / "stopped", step) / "config.json").touch()
    (here / "stopped/checkpoint-15/run.json").unlink()
    assert result_in(here / "stopped") == str(here / "stopped/checkpoint-10")
    assert result_in(here / "nowhere") == ""


@pytest.mark.parametrize(
    ("folder", "said"),
    [("", "which is none"), ("nowhere", "which is none"), ("\0", "which is none"), ("empty", "at its end")],
)
def test_a_folder_without_a_result(here, folder, said):
    (here / "empty").mkdir()
    with pytest.raises(UserError, match=f"folder: .*{said}"):
        RunResult.read(folder)


def test_an_evaluation_stands_beside_the_base_with_the_questions_it_asked(here):
    data = here / "dev.json"
    data.write_text("".join(json.dumps({"src": f"q{n}", "tgt": f"a{n}"}) + "\n" for n in range(2)))
    form = find_form([data])
    for name, said, score in (("scores", "new", 0.5), ("scores-base", "old", 0.0)):
        samples = [
            {"digest": str(n), "place": f"{data}:{n + 1}", "metrics": ["f1"], "resps": [[f"{said}{n}"]]} for n in (0, 1)
        ]
        report = {"samples": {form: samples}, "results": {form: {"f1,none": score}}}
        (here / f"{name}.json").write_text(json.dumps(report))
    found = evaluation_of(here / "scores.json", "-base")
    assert (found["rows"], found["measures"]) == (2, [{"name": "f1", "base": 0.0, "result": 0.5}])
    assert found["answers"][1] == {"asked": "q1", "reference": "a1", "base": "old1", "result": "new1"}
    os.utime(data, (2e9, 2e9))  # other rows, perhaps
    assert evaluation_of(here / "scores.json", "-base")["answers"][1]["asked"] == f"{data}:2"


def test_results_of_another_kind_are_named(here):
    (here / "scores.json").write_text('{"samples": {"wiki": [{"bits_per_byte": [1, 2]}]}}')
    with pytest.raises(UserError, match="scores.json: no results of questions that the model answers"):
        evaluation_of(here / "scores.json", "-base")


def test_commands_are_those_of_make(here):
    found = RunResult.read("run/output", "my base").tasks("")
    assert {name: one.command for name, one in found.items()} == {
        "export": "make export MODEL=run/output OUTPUT=exported/run ARGS='--base '\"'\"'my base'\"'\"''",
        "gguf": "make merge ADAPTER=run/output MODEL='my base' OUTPUT=exported/run-gguf-merged && "
        "make export MODEL=exported/run-gguf-merged OUTPUT=exported/run-gguf FORMAT=gguf QUANT=q8_0",
        "merge": "make merge ADAPTER=run/output MODEL='my base' OUTPUT=models/run-merged",
        "serve": "make serve MODEL='my base' ADAPTER=run=run/output ARGS='--port 0 --grpc_port 0'",
        "push": "make push MODEL=exported/run TO=hf:OWNER/NAME",
    }
    root = Path(__file__).resolve().parents[2]
    chat = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    (here / "run/dev.json").write_text(json.dumps(chat) + "\n")
    summary = {"arguments": {"Data": {"dataset_name_or_path": str([str(here / "run")])}}}
    (here / "run/output/run_summary.json").write_text(json.dumps(summary))
    found = RunResult.read("run/output", "my base").tasks("")
    assert f"TASKS=chat={here}/run/dev.json" in found["evaluate"].command
    assert found["evaluate"].command.endswith(" ARGS=--apply_chat_template")
    first = {"asked": "a", "reference": "b", "system": ""}
    assert RunResult.read("run/output").held_out() == {"system": "", "questions": [first]}
    roles = ({"role": "system", "content": "short"}, *chat["messages"])
    (here / "run/train.json").write_text(2 * (json.dumps({"messages": roles}) + "\n"))
    assert RunResult.read("run/output").held_out() == {"system": "short", "questions": [first]}
    command = found["evaluate"].command
    assert command.startswith(
        f"make evaluate MODEL='my base' TASKS=chat={here}/run/dev.json OUTPUT=evaluations/run-base.json"
    )
    assert " && make evaluate MODEL='my base' ADAPTER=run/output TASKS=" in command
    target = found["evaluate"].output
    target.parent.mkdir()
    (here / "evaluations/run-base.json").touch()
    again = RunResult.read("run/output").tasks("")["evaluate"].output
    assert (str(target), str(again)) == ("evaluations/run.json", "evaluations/run-2.json")
    both = found.pop("gguf")
    (here / "exported/run-gguf-merged").mkdir(parents=True)
    assert " MODEL=exported/run-gguf-merged-2 " in RunResult.read("run/output").tasks("")["gguf"].command
    for name, task in found.items():  # what make starts for it
        started = task.arguments[2] if task.arguments[0] == "bash" else [shlex.join(task.arguments[2:])]
        for command in task.command.split(" && "):
            typed = shlex.split(command)[1:]
            dry = ["make", "-n", "--no-print-directory", "-o", "setup", *typed]
            said = subprocess.run(dry, cwd=root, capture_output=True, text=True, check=True).stdout
            words = shlex.split(said.replace("\\\n", ""))
            variables = dict(word.split("=", 1) for word in typed[1:])
            path, *arguments = filled_in(words[words.index(f"launch/commands/{name}.py") :], variables)
            assert path == f"launch/commands/{name}.py" and shlex.join(arguments) in started
    merged, steps = "exported/run-gguf-merged", both.arguments[2]
    assert shlex.join(found["merge"].arguments).replace("models/run-merged", merged) in steps
    assert f"export.py {merged} {both.output} --format gguf --quant q8_0" in steps
    result_of(here / "run/checkpoint-7", "config.json")
    assert RunResult.read("run/checkpoint-7").tasks("")["export"].output == Path("exported/run-checkpoint-7")


def test_a_result_is_asked_beside_its_base(client):
    given = {"folder": "run/output"}
    assert client.get("/api/trial").json()["state"] == "none"
    assert client.post("/api/held_out", json=given).json() == {"system": "", "questions": []}
    question = {"model": "base", "prompt": "<img src=x onerror=y>", "temperature": 0, "max_tokens": 99}
    refused = client.post("/api/trial/completions", json=question)
    assert refused.status_code == 400 and "none is loaded" in refused.json()["detail"]
    client.post("/api/trial/start", json=given).raise_for_status()
    wait_for(lambda: client.get("/api/trial").json()["state"] == "ready")
    state = client.get("/api/trial").json()
    assert state["models"] == ["base", "result"] and state["folder"] == "run/output"
    assert state["log"].splitlines()[0] == (
        "--port 0 --grpc_port 0 --model_name_or_path llama-7b --model_name base --adapter result=run/output"
    )
    for model in state["models"]:
        text, ended = answer(client, question | {"model": model})
        assert (text, ended) == ("<<img src=x onerror=y>>", True)
    chat = {"model": "base", "messages": [{"role": "user", "content": "ab"}], "max_tokens": 2}
    assert answer(client, chat, "chat/completions")[0] == "<a"
    reply = client.post("/api/trial/completions", json=question | {"max_tokens": 5000})
    assert json.loads(reply.text.removeprefix("data: "))["error"]["message"].startswith("max_tokens: found 5000")
    first = processes()
    client.post("/api/trial/start", json=given).raise_for_status()  # in its place
    wait_for(lambda: client.get("/api/trial").json()["state"] == "ready")
    assert len(first) == len(processes()) == 1 and first != processes()
    client.post("/api/trial/stop", json={}).raise_for_status()
    assert processes() == [] and client.get("/api/trial").json()["state"] == "none"


def answer(client, question: dict, path: str = "completions") -> tuple[str, bool]:
    """The text of a stream, and whether it came to its end."""
    *events, last, _ = client.post(f"/api/trial/{path}", json=question).text.split("\n\n")
    choices = [json.loads(event.removeprefix("data: "))["choices"][0] for event in events]
    text = "".join(one.get("text") or one.get("delta", {}).get("content", "") for one in choices)
    return text, last == "data: [DONE]"


def processes() -> list[int]:
    """Servers of this process."""
    running = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    return [child.pid for child in running if str(STANDS_FOR_SERVE) in child.cmdline()]


def test_a_server_that_fails_shows_the_end_of_its_log(client):
    result_of(Path("broken"), "config.json")
    client.post("/api/trial/start", json={"folder": "broken"}).raise_for_status()
    assert Path("build/studio").stat().st_mode & 0o777 == 0o700
    wait_for(lambda: client.get("/api/trial").json()["state"] == "ended")
    state = client.get("/api/trial").json()
    assert state["models"] == ["result"] and state["log"].endswith("\nerror: this model is broken")


def test_the_server_ends_with_the_studio_that_is_killed(here):
    script = f"""
import time
from launch.studio import trying
from launch.studio.run_result import RunResult
trying.SERVE = {str(STANDS_FOR_SERVE)!r}
trial = trying.Trial()
trial.start(RunResult.read("run/output"))
print(trial.process.pid, flush=True)
time.sleep(60)
"""
    root = str(Path(__file__).resolve().parents[2])
    environment = os.environ | {"PYTHONPATH": root}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment) as studio:
        server = psutil.Process(int(studio.stdout.readline()))
        studio.send_signal(signal.SIGKILL)
    server.wait(timeout=10)


def test_what_takes_memory_is_told(client):
    records = ({"global_step": 1, "loss": 2.5, "peak_memory_bytes": peak} for peak in (9, 5))  # it went on: a new peak
    log_of(Path("build/going"), *records, {"global_step": 2})
    Path("build/going/config.json").touch()
    lock = lock_start("build/going")
    log_of(Path("build/ended"), {"global_step": 1, "loss": 2.5, "peak_memory_bytes": 7})
    found = client.post("/api/result", json={"folder": "run/output", "output": "mine"}).json()
    assert {row["output"]: row["result"] for row in Runs().list()} == {"build/going": "", "build/ended": ""}
    os.close(lock)
    assert {row["output"]: row["result"] for row in Runs().list()}["build/going"] == "build/going"
    assert found["training"] == [{"output": "build/going", "peak_memory_bytes": 5}]
    tasks = {name: (one["command"], one["lacks"]) for name, one in found["tasks"].items()}
    assert tasks["merge"] == ("make merge ADAPTER=run/output MODEL=llama-7b OUTPUT=mine", "")
    assert tasks["push"] == ("make push MODEL=mine TO=hf:OWNER/NAME", "export")
    Path("mine").mkdir()
    tasks = client.post("/api/result", json={"folder": "run/output", "output": "mine"}).json()["tasks"]
    assert (tasks["merge"]["lacks"], tasks["push"]["lacks"]) == ("folder", "")


def test_an_export_is_a_process_with_a_log_in_the_list(client):
    given = {"folder": "run/output", "output": "exports/mine"}
    refused = client.post("/api/task/delete", json=given).text
    assert "target: found 'delete', allowed here: export, gguf, merge, serve, push." in refused
    assert client.post("/api/task/export", json=given).json() == "exports/mine"
    wait_for(lambda: client.get("/api/runs").json()[0]["state"] == "failed")  # there are no tensors
    [row] = client.get("/api/runs").json()
    assert "run/output" in row["reason"] and row["exit_code"] == 2
    assert (row["command"], row["trains"]) == ("make export MODEL=run/output OUTPUT=exports/mine", False)
    log = client.get("/api/log", params={"output": "exports/mine", "of": "console"}).json()
    assert log.startswith("error: ") and "run/output" in log
    Path("exports/mine").mkdir(parents=True)
    refused = client.post("/api/task/push", json=given | {"to": "s3:me/x"})
    assert refused.status_code == 400 and "TO: found 's3:me/x', allowed: HUB:OWNER/NAME" in refused.json()["detail"]
    refused = client.post("/api/task/merge", json=given)
    assert refused.status_code == 400 and "OUTPUT: exports/mine is there already" in refused.json()["detail"]


def test_the_second_command_follows_the_first_and_both_end_when_they_are_asked_to(here):
    runs, wait = Runs(), "touch began; exec sleep 60"
    for first, state in ((wait, "stopped"), ("exit 3", "failed"), ("true", "stopped")):
        words = (shlex.join(["bash", "-c", text]) for text in (first, wait))
        Path("began").unlink(missing_ok=True)
        runs.perform(StudioTask("export", "make merge", ["bash", "-c", IN_TURN.format(*words)], Path(f"made-{first}")))
        [row, *_] = runs.list()
        if state == "stopped":
            wait_for(Path("began").exists)
            [sleeping] = psutil.Process(runs.children[row["name"]].pid).children()
            runs.stop(row["name"])
            sleeping.wait(timeout=10)
        wait_for(lambda: runs.list()[0]["state"] != "running")
        assert runs.list()[0]["state"] == state


def test_a_server_has_a_page_once_it_answers_and_is_stopped(here, monkeypatch):
    monkeypatch.setenv("SERVE_API_KEY", TOKEN)
    runs, words = Runs(), [sys.executable, str(STANDS_FOR_SERVE), *ANY_PORTS, "--model_name_or_path", "llama-7b"]
    task = StudioTask("serve", "make serve MODEL=llama-7b", [*words, "--model_name", "base"], Path("served:run/output"))
    assert runs.perform(task) == "served:run/output"
    wait_for(lambda: runs.list()[0]["page"])
    [row] = Runs().list()  # of a later studio
    assert httpx.get(row["page"], trust_env=False).status_code == 200
    runs.stop(row["name"])
    wait_for(lambda: runs.list()[0]["state"] != "running")
    [row] = runs.list()
    assert (row["state"], row["page"], row["reason"]) == ("stopped", "", "")
