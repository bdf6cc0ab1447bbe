"""make download, by the hubs' real clients, against a server on this machine that speaks as the hubs do."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from launch.commands import download
from launch.commands.download import main
from launch.environment import hub_clients, optional_packages
from launch.environment.optional_packages import require
from launch.errors import UserError
from launch.families.named_configs import load_config
from launch.hubs import originals
from launch.hubs.hugging_face import HuggingFaceHub
from launch.hubs.originals import DownloadRecord, held, read_record
from launch.hubs.repository import RemoteFile, Snapshot
from launch.weights.model_directories import import_directory
from tests.families import published as models
from tests.forked_commands import start_often
from tests.hubs.hub_server import COMMIT, HubServer, Repository, serving
from tests.processes.waiting import wait_for
from tests.store import ROOT

PROGRAM = "launch/commands/download.py"
MODELSCOPE = pytest.param("modelscope", marks=pytest.mark.long)  # may be installed first
HUBS = ["huggingface", "aistudio", MODELSCOPE]
FURTHER = ["huggingface", pytest.param("aistudio", marks=pytest.mark.long), MODELSCOPE]
SECRET = "hf_this_is_nobodys_token"
INDEX = "model.safetensors.index.json"
SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
OTHERS = {
    "README.md": b"---\nlicense: apache-2.0\n---\nA model.\n",
    "modeling_theirs.py": b"raise SystemExit('remote code')\n",
    "pytorch_model.bin": b"a pickle",
    "onnx/model.onnx": b"of another program",
    ".gitattributes": b"*.bin filter=lfs\n",
}


@pytest.fixture
def hub(request) -> str:
    """Its name; its client is installed if it is not there."""
    if request.param == "modelscope":
        require("modelscope-hub", "hubs.lock")
    return request.param


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory) -> dict[str, bytes]:
    """A Qwen3 in two files, as it is published."""
    return contents(models.save(tmp_path_factory.mktemp("theirs"), *models.qwen3(), shards=2))


def whole(theirs: dict[str, bytes], **changes) -> Repository:
    return Repository({**theirs, "LICENSE": b"You may.\n", **OTHERS}, **changes)


def environment(server: HubServer, folder: Path, token: str = "") -> dict[str, str]:
    """token: of all hubs."""
    names = ("HF_ENDPOINT", "MODELSCOPE_ENDPOINT", "STUDIO_GIT_HOST")
    tokens = ("HF_TOKEN", "MODELSCOPE_API_TOKEN", "AISTUDIO_ACCESS_TOKEN")
    own = dict.fromkeys(names, server.address) | dict.fromkeys(tokens, token) | {"HOME": str(folder)}
    return {**os.environ, **own, "PYTHONPATH": str(ROOT), "MODELSCOPE_API_MAX_RETRIES": "1"}


def start(server: HubServer, folder: Path, *words: str, **changes) -> subprocess.Popen:
    command = [sys.executable, str(ROOT / PROGRAM), *words]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, env=environment(server, folder) | changes, **streams)


def run(server: HubServer, folder: Path, *words: str, **changes) -> tuple[int, str, str]:
    process = start(server, folder, *words, **changes)
    out, error = process.communicate(timeout=120)
    return process.returncode, out, error


def run_often(server: HubServer, hub: str, cases: list[tuple[Path, str]], aside: Path, token="", **changes) -> list:
    """How the download of a repository into a folder ends, for each case, in forks."""
    own = environment(server, aside, token) | {"HF_HUB_DISABLE_XET": "1", "TQDM_DISABLE": "1"} | changes
    client = "huggingface_hub.hf_api" if hub == "huggingface" else ""
    return start_often(PROGRAM, [(folder, [name, "--from", hub]) for folder, name in cases], aside, own, client)


@pytest.mark.parametrize("hub", HUBS, indirect=True)
def test_a_model_is_fetched_imported_and_known_again(theirs, tmp_path, hub):
    with serving({"some/qwen": whole(theirs)}) as server:
        code, out, error = run(server, tmp_path, "some/qwen", "--from", hub)
        assert (code, error) == (0, "")
        words = " ".join(out.split())
        assert "licence apache-2.0; to be read before use:" in words and "Qwen3, 57,136 parameters" in words
        assert "not fetched: .gitattributes, README.md, modeling_theirs.py, pytorch_model.bin" in words
        assert "0.5 MB needed (0.2 MB to fetch + 0.2 MB for the import)" in words
        assert not [line for line in server.asked if any(name in line for name in ("theirs.py", ".bin", "onnx"))]

        models.save(tmp_path / "by hand", *models.qwen3(), shards=2)
        import_directory(tmp_path / "by hand", tmp_path / "expected", None, 10**9)
        found, expected = (load_file(tmp_path / name / "model.safetensors") for name in ("models/qwen", "expected"))
        assert found.keys() == expected.keys() and all(np.array_equal(found[name], expected[name]) for name in found)
        assert load_config(str(tmp_path / "models/qwen")) == load_config(str(tmp_path / "expected"))
        assert (tmp_path / "models/qwen/LICENSE").read_bytes() == b"You may.\n"
        original = tmp_path / "models/original/qwen"
        fetched = {"LICENSE", "config.json", INDEX, *SHARDS}
        assert {path.name for path in original.iterdir()} - {".cache"} == {*fetched, "download.json"}
        commit = COMMIT if hub == "huggingface" else ""
        record = DownloadRecord(hub, "some/qwen", "", commit, tuple(sorted(fetched)))
        assert read_record(original) == record == read_record(tmp_path / "models/qwen")

        server.asked.clear()
        code, out, error = run(server, tmp_path, "some/qwen")
        assert (code, error, server.asked) == (0, "", []) and read_record(original) == record
        assert "the same command with --keep_original 0 removes it" in out
        (original / "notes.txt").write_text("mine")
        code, out, error = run(server, tmp_path, "some/qwen", "--keep_original", "0")
        assert (code, error, server.asked) == (0, "", [])
        assert out.startswith("models/qwen: is some/qwen of ") and "already, whole: nothing to fetch" in out
        assert "removed: models/original/qwen, as it was fetched" in out
        assert contents(original) == {"notes.txt": b"mine"}, "what was not fetched stays"

        (tmp_path / "models/qwen/model.safetensors").write_bytes(b"cut off")
        assert run(server, tmp_path, "some/qwen")[0] == 2
        code, _, error = run(server, tmp_path, "other/qwen")
        assert code == 2 and error.startswith("error: models/qwen: is some/qwen from ") and server.asked == []


def large_model(folder: Path) -> dict[str, bytes]:
    """A LLaMA of 25 MB in one file: clients write some MB at a time."""
    return contents(models.save(folder, *models.llama(vocab_size=16000, hidden_size=192)))


@pytest.mark.parametrize(
    ("hub", "end"),
    [
        ("huggingface", signal.SIGKILL),
        ("aistudio", signal.SIGINT),
        pytest.param("modelscope", signal.SIGKILL, marks=pytest.mark.long),
    ],
    indirect=["hub"],
)
def test_what_was_cut_off_goes_on_where_it_stopped(tmp_path, hub, end):
    files, name, held = large_model(tmp_path / "theirs"), "model.safetensors", 20 << 20
    with serving({"some/large": Repository(files)}) as server:
        server.hold[name] = held
        process = start(server, tmp_path, "some/large", "--from", hub)
        original = tmp_path / "models/original/large"

        def on_disk() -> int:
            return max((path.stat().st_size for path in original.rglob("*") if path.is_file()), default=0)

        wait_for(lambda: server.sent[name] == held and on_disk() >= held - (1 << 20))  # a client may hold some back
        process.send_signal(end)
        error = process.communicate(timeout=60)[1]
        lost = held - on_disk()
        if end == signal.SIGINT:
            assert (process.returncode, error) == (130, "interrupted: the same command goes on\n")
        assert not (tmp_path / "models/large").exists() and server.sent[name] == held
        del server.hold[name]
        server.go_on.set()
        code, out, error = run(server, tmp_path, "some/large")
        assert (code, error) == (0, "")
        assert server.sent[name] == len(files[name]) + lost, "no byte on the disk is fetched twice, none is missing"
        assert f"{download.HUBS[hub].title} (" in " ".join(out.split()), "the hub of the first start"
        assert (tmp_path / "models/large/model.safetensors").is_file()


@pytest.mark.parametrize("hub", FURTHER, indirect=True)
def test_a_connection_that_is_cut_loses_nothing(tmp_path, hub):
    """At a piece's end, so that all that was sent is on the disk. ModelScope's client goes on by itself."""
    files, name = large_model(tmp_path / "theirs"), "model.safetensors"
    with serving({"some/large": Repository(files)}) as server:
        server.drop[name] = 20 << 20
        code, _, error = run(server, tmp_path, "some/large", "--from", hub)
        if hub != "modelscope":
            assert code == 2 and "does not answer: " in error and "cut." in error, error
            assert "Then the same command again." in error and server.sent[name] == 20 << 20
            code, _, error = run(server, tmp_path, "some/large")
        assert code == 0 and server.sent[name] == len(files[name]) and not server.drop


def test_what_has_come_is_printed_where_no_terminal_shows_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(originals, "SECONDS_BETWEEN_LINES", 0.01)
    with originals._counted(tmp_path, [RemoteFile("a", 8 * 10**6)]):
        (tmp_path / "a.part").write_bytes(bytes(2 * 10**6))
        wait_for(lambda: "fetching: 2 of 8 MB, " in capsys.readouterr().out)


PICKLES = {"pytorch_model.bin": b"a pickle"}
CASES = {
    "gated": "gives it only to those who accepted its licence. Log in at",
    "pickles": "its weights are pickles (pytorch_model.bin), which may run any program",
    "adapter": "a LoRA adapter, not a model.",
    "gguf": "no config.json: found model.gguf.",
    "mirror": "refused: HF_ENDPOINT names a mirror that lists no sizes of files.",
    "huge": "config.json: found 64,000,001 bytes, allowed: 64,000,000.",
    "outside": "lists a file '../outside.safetensors', which may lead out of its folder. Nothing was fetched.",
    "index": "index.json: names '../../outside.safetensors', allowed: .safetensors files beside it.",
    "short": f"{INDEX} names model-00002-of-00002.safetensors, which the hub does not list.",
    "gptq": "quantization_config: found quant_method 'gptq', allowed: 'fp8' with",
    "mamba": "model_type: found 'mamba', allowed: baichuan",
    "nowhere": "does not have it, or not for you. Compare the name with",
    "busy": "does not answer: ",
    "altered": "came damaged from",
    "cut": "came damaged from",
}


def refused_repositories(theirs: dict[str, bytes]) -> dict[str, Repository]:
    config = {"config.json": theirs["config.json"]}
    altered = theirs[SHARDS[0]][:-1] + bytes([theirs[SHARDS[0]][-1] ^ 1])
    outside = {INDEX: json.dumps({"weight_map": {"a": "../../outside.safetensors"}}).encode()}
    mamba = json.dumps({**json.loads(theirs["config.json"]), "model_type": "mamba"}).encode()
    gptq = json.dumps({**json.loads(theirs["config.json"]), "quantization_config": {"quant_method": "gptq"}}).encode()
    return {
        "some/gated": Repository(theirs, token="right"),
        "some/pickles": Repository(config | PICKLES),
        "some/adapter": Repository({"adapter_config.json": b"{}", "adapter_model.safetensors": b""}),
        "some/gguf": Repository({"model.gguf": b"x"}),
        "some/outside": Repository(theirs | {"../outside.safetensors": b"x"}),
        "some/huge": Repository(theirs, stated={"config.json": 64_000_001}),
        "some/mirror": Repository(theirs, stated={"config.json": None}),
        "some/index": Repository(theirs | outside),
        "some/short": Repository({name: content for name, content in theirs.items() if name != SHARDS[1]}),
        "some/mamba": Repository({**theirs, "config.json": mamba}),
        "some/gptq": Repository({**theirs, "config.json": gptq}),
        "some/busy": Repository(theirs, status=503),
        "some/altered": Repository(theirs, served={SHARDS[0]: altered}),
        "some/cut": Repository(theirs, served={SHARDS[0]: theirs[SHARDS[0]][:1000]}),
    }


@pytest.mark.parametrize("hub", FURTHER, indirect=True)
def test_what_cannot_be_had_is_told_and_nothing_is_left(theirs, tmp_path, hub):
    cases = [name for name in CASES if hub == "huggingface" or name != "mirror"]
    folders = [tmp_path / name for name in cases]
    for folder in folders:
        folder.mkdir()
    with serving(refused_repositories(theirs)) as server:
        asked = [(folder, f"some/{name}") for folder, name in zip(folders, cases, strict=True)]
        started = run_often(server, hub, asked, tmp_path, SECRET)
        for name, folder, done in zip(cases, folders, started, strict=True):
            lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
            assert done.returncode == 2 and len(lines) == 1 and "Traceback" not in done.stderr, (name, done)
            assert CASES[name] in done.stderr and SECRET not in done.stdout + done.stderr, (name, done)
            assert not (folder / "models" / name).exists(), name
            if name not in ("altered", "cut"):
                assert not (folder / "models").exists() or not list((folder / "models").iterdir()), name
        weights = {SHARDS[0], f"{SHARDS[0]}.incomplete", f".{SHARDS[0]}.part"}
        assert not weights & {path.name for path in tmp_path.rglob("*")} and not list(tmp_path.rglob("*.incomplete"))
        assert not list(tmp_path.rglob("outside.safetensors"))
        gated = next(done for name, done in zip(cases, started, strict=True) if name == "gated")
        kind = download.HUBS[hub]
        assert kind.login in gated.stderr and kind.token_variable in gated.stderr, gated
        assert server.address in gated.stderr
        assert {name for name, sent in server.sent.items() if sent} == {"config.json", INDEX, SHARDS[0]}


def test_a_token_of_the_environment_opens_what_is_gated(theirs, tmp_path):
    with serving({"some/qwen": Repository(theirs, token=SECRET)}) as server:
        for hub, variable in (("huggingface", "HF_TOKEN"), ("aistudio", "AISTUDIO_ACCESS_TOKEN")):
            words = ("some/qwen", "--from", hub, "--output", hub)
            code, out, error = run(server, tmp_path, *words, **{variable: SECRET})
            assert (code, error) == (0, "") and SECRET not in out


def test_a_name_that_is_none_is_refused_at_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("qwen", "../qwen", "some/..", "some/qwen/x", "some/.qwen", "a b/c", "https://hub/some/qwen"):
        for words in ([name], [name, "--output", "elsewhere"]):
            with pytest.raises(UserError, match="^MODEL: found .*, allowed: OWNER/NAME as the hub's page has it"):
                main(words)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def here(theirs, tmp_path, monkeypatch):
    """A server for AI Studio's client in this process, which reads the address when it asks."""
    monkeypatch.chdir(tmp_path)
    with serving({"some/qwen": whole(theirs)}) as server:
        monkeypatch.setenv("STUDIO_GIT_HOST", server.address)
        yield server


QWEN = ["some/qwen", "--from", "aistudio"]


def test_a_disk_that_is_short_is_told_with_both_figures_before_the_weights(here, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "free_bytes", lambda directory: 300_000)
    with pytest.raises(UserError) as refused:
        main(QWEN)
    assert str(refused.value).startswith(
        "some/qwen: not fetched: 0.5 MB needed (0.2 MB to fetch + 0.2 MB for the import"
    )
    assert "), 0.3 MB free at models/original/qwen" in str(refused.value)
    assert not [name for name in SHARDS if here.sent[name]] and not list((tmp_path / "models").iterdir())


def test_only_the_configuration_is_enough_to_plan(here, tmp_path, capsys):
    main([*QWEN, "--only_config"])
    target = tmp_path / "models/qwen-config"
    assert load_config(str(target))["model_type"] == "qwen3"
    assert {path.name for path in target.iterdir()} == {"config.json", "LICENSE", "download.json"}
    assert {name for name, sent in here.sent.items() if sent} == {"config.json", "LICENSE"}
    main(QWEN)  # the whole model after it
    assert (tmp_path / "models/qwen/model.safetensors").is_file()
    main([*QWEN, "--only_config"])
    assert "nothing to fetch" in capsys.readouterr().out


def test_another_revision_is_another_model(here, tmp_path):
    main([*QWEN, "--revision", "v1"])
    assert all("ref=v1" in line for line in here.asked if "/media/" in line)
    with pytest.raises(
        UserError, match="models/qwen: is some/qwen at revision v1 from aistudio, not what is asked for"
    ):
        main(QWEN)
    with pytest.raises(UserError, match="--revision: found 'v2', which some/qwen at AI Studio does not have."):
        main([*QWEN, "--revision", "v2", "--output", str(tmp_path / "v2")])


def test_the_files_of_another_model_are_not_removed(here, tmp_path):
    main(QWEN)
    original = tmp_path / "models/original/qwen"
    record = json.loads((original / "download.json").read_text())
    (original / "download.json").write_text(json.dumps(record | {"repository": "other/qwen"}))
    before = contents(original)
    main([*QWEN, "--keep_original", "0"])
    assert contents(original) == before
    (original / "download.json").write_text(json.dumps(record | {"files": ["../../../outside", *record["files"]]}))
    (tmp_path / "outside").write_text("mine")
    main([*QWEN, "--keep_original", "0"])
    assert not original.exists() and (tmp_path / "outside").read_text() == "mine"


def test_a_folder_of_the_user_is_not_touched(here, tmp_path):
    mine = tmp_path / "models/original/qwen"
    mine.mkdir(parents=True)
    (mine / "config.json").write_text("mine")
    with pytest.raises(UserError, match="models/original/qwen: is there already, and not by make download"):
        main(QWEN)
    assert contents(mine) == {"config.json": b"mine"}
    (tmp_path / "models/qwen").mkdir()
    with pytest.raises(UserError, match="^models/qwen: is there already, and not by make download. OUTPUT="):
        main(QWEN)


def test_a_link_in_the_folder_leads_nowhere(here, tmp_path):
    main([*QWEN, "--only_config"])
    original = tmp_path / "models/original/qwen"
    (tmp_path / "outside").write_text("mine")
    (original / SHARDS[0]).symlink_to(tmp_path / "outside")
    with pytest.raises(UserError, match=f"models/original/qwen/{SHARDS[0]}: is a symbolic link"):
        main(QWEN)
    assert (tmp_path / "outside").read_text() == "mine"


def test_two_at_once_do_not_mix(here, tmp_path):
    with held(Path("models/original/qwen")):
        with pytest.raises(UserError, match="models/original/qwen: another make download fills it"):
            main(QWEN)


def test_a_file_beyond_what_is_fetched_by_http_is_told(tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    file = RemoteFile("model.safetensors", 50 * 10**9 + 1)
    with pytest.raises(UserError, match="^model.safetensors: found 50,000,000,001 bytes, .* HF_HUB_DISABLE_XET=0"):
        HuggingFaceHub().fetch(Snapshot("huggingface", "some/qwen", "", COMMIT, "", {}), file, tmp_path)


def test_a_hub_that_has_it_not_is_not_replaced_by_another(theirs, tmp_path):
    with serving({}) as server:
        code, _, error = run(server, tmp_path, "some/qwen")
        assert code == 2 and error.startswith("error: some/qwen: Hugging Face (http://127.0.0.1")
        assert not [line for line in server.asked if "openapi" in line]
        server.asked.clear()
        code, _, error = run(server, tmp_path, "some/qwen", HF_HUB_OFFLINE="1")
        assert (code, error, server.asked) == (2, "error: HF_HUB_OFFLINE: is set, so no hub is asked. Unset it.\n", [])


@pytest.mark.parametrize(
    ("silent", "said"), [({"HF_ENDPOINT": "http://user:secret@127.0.0.1:9"}, "no connection"), ({}, "HTTP 503")]
)
def test_no_other_hub_is_asked_where_one_does_not_answer(theirs, tmp_path, silent, said):
    """Whoever owns the name of a private model at another hub could make it ours by cutting the network."""
    with serving({"corp/private": whole(theirs, status=503)}) as server:
        address = "http://127.0.0.1:9" if silent else server.address
        code, out, error = run(server, tmp_path, "corp/private", **silent)
        assert (code, out) == (2, "") and error == (
            f"error: Hugging Face ({address}) does not answer: {said}. Check the network and its proxy (https_proxy); "
            "HF_ENDPOINT names another address. Another hub is asked where you name it: make download "
            "MODEL=corp/private FROM=modelscope. A model of the same name may be somebody else's there.\n"
        )
        assert not [line for line in server.asked if "/api/models/corp/private" not in line]


def test_a_package_is_installed_only_for_the_hub_that_is_named(tmp_path, monkeypatch):
    """A record, such as one that came with a folder, names a hub as well."""
    asked = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hub_clients, "require", lambda *package: asked.append(package))
    monkeypatch.setitem(sys.modules, "modelscope_hub", None)
    record = {"hub": "modelscope", "repository": "some/qwen", "revision": "", "commit": "", "files": []}
    original = tmp_path / "models/original/qwen"
    original.mkdir(parents=True)
    (original / "download.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match="^modelscope-hub: is not installed. The same command with FROM=modelscope"):
        main(["some/qwen"])
    assert not asked
    with pytest.raises(UserError, match="^modelscope-hub: is not installed"):
        main(["some/qwen", "--from", "modelscope"])
    assert asked == [("modelscope-hub", "hubs.lock")]


@pytest.mark.parametrize("hub", FURTHER, indirect=True)
def test_a_password_in_an_address_is_never_printed(theirs, tmp_path, hub):
    repositories = {"some/qwen": whole(theirs), "some/busy": whole(theirs, status=503), "some/odd": Repository({})}
    repositories["some/odd"].status = 418
    with serving(repositories | {"some/gated": Repository(theirs, token="right")}) as server:
        address = server.address.replace("://", "://user:se@cret@")
        changes = dict.fromkeys(("HF_ENDPOINT", "MODELSCOPE_ENDPOINT", "STUDIO_GIT_HOST"), address)
        asked = [(tmp_path, f"some/{name}") for name in ("qwen", "busy", "odd", "gated", "nowhere")]
        ended = run_often(server, hub, asked, tmp_path, **changes)
        for done in ended:
            assert "cret" not in done.stdout + done.stderr and "user" not in done.stdout + done.stderr, done
        assert [done.returncode for done in ended] == [0, 2, 2, 2, 2] and server.address in ended[-1].stderr


@pytest.mark.long
def test_what_a_client_logs_has_no_password(theirs, tmp_path):
    """Hugging Face's names the address of a file for which it waits in vain, and asks again."""
    with serving({"some/qwen": whole(theirs)}) as server:
        server.hold["config.json"] = 0
        address = server.address.replace("://", "://user:se@cret@")
        process = start(server, tmp_path, "some/qwen", HF_ENDPOINT=address, HF_HUB_DOWNLOAD_TIMEOUT="1")
        assert server.held.wait(60)
        del server.hold["config.json"]
        error = process.communicate(timeout=60)[1]
        assert process.returncode == 0 and f"Error while downloading from {server.address}/some/qwen/resolve" in error
        assert "cret" not in error


def test_a_package_that_is_there_is_not_installed_and_one_that_is_not_as_locked(tmp_path, monkeypatch, capsys):
    commands = []

    def pip(command, **how):
        commands.append(command)
        return subprocess.CompletedProcess(command, 1, "", "no route to the index\n")

    (tmp_path / "some.lock").write_text(
        "no-such-package==1.0 \\\n    --hash=sha256:aa\npip==0.0 \\\n    --hash=sha256:bb\n"
    )
    monkeypatch.setattr(optional_packages, "REQUIREMENTS", tmp_path)
    monkeypatch.setattr(optional_packages.subprocess, "run", pip)
    monkeypatch.setattr(optional_packages, "version", {"pip": "0.0"}.get)
    require("pip", "some.lock")
    assert not commands
    with pytest.raises(UserError, match="no-such-package 1.0 cannot be installed:\n  | no route to the index\n"):
        require("no-such-package", "some.lock")
    assert commands[0][-4:] == ["--no-deps", "--require-hashes", "-r", str(tmp_path / "some.lock")]
    assert "installing no-such-package 1.0 into" in capsys.readouterr().out
