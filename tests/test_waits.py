"""What ends something waits with a limit: a helper that does not end must not hold up who gives it up."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.store import ROOT

WAITS = {"wait", "join", "get", "result", "recv", "recv_bytes", "communicate", "acquire", "shutdown", "readline"}
RUNS = {"run", "call", "check_call", "check_output"}  # of subprocess
ENDS = {"close", "stop", "end", "shutdown", "terminate", "kill", "cleanup", "__exit__", "__aexit__", "__del__"}
REGISTER = {"finalize", "register", "signal", "add_signal_handler", "addfinalizer", "callback"}
YIELDING = {"contextmanager", "asynccontextmanager", "fixture"}
WAIT_AT_EXIT = {"Popen", "ThreadPoolExecutor", "ProcessPoolExecutor", "Pool"}  # as context managers
# A file without these has nothing to find: parsing all takes seconds.
MAY_WAIT = re.compile(rf"\.({'|'.join(WAITS)})\((\)|\w+=)|waitpid|subprocess\.|{'|'.join(WAIT_AT_EXIT)}")
# Where the wait has a limit that the file does not show.
LIMITED = {
    "tests/serving/browser.py": "self.socket.recv()",  # the connection has a limit
    "tests/card/tiny_model.py": "ThreadPoolExecutor",  # what its threads ask has a limit of seconds
    "launch/weights/k_quants.py": "ThreadPoolExecutor",  # its threads compute alone
    "launch/commands/demo_chat.py": "ProcessPoolExecutor",  # its process computes alone, and Ctrl-C ends it, too
    "launch/commands/demo_tools.py": "ThreadPoolExecutor",  # what its threads ask has a limit of seconds
}


def unlimited(tree: ast.Module) -> Iterator[ast.AST]:
    """Calls that wait without a limit in what ends something: functions with such a name, those that are registered
    for an end or a signal, `finally`, what follows the `yield` of a context manager, and what these call in the file.
    """
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    waiting: list[ast.AST] = [node for name, node in functions.items() if name.lstrip("_") in ENDS or name in ENDS]
    for node in ast.walk(tree):
        if isinstance(node, ast.Try):
            waiting += node.finalbody
        elif isinstance(node, ast.Call) and _name(node.func) in REGISTER:
            waiting += [functions.get(_name(word), word) for word in node.args]
    for function in functions.values():
        if {_name(one.func if isinstance(one, ast.Call) else one) for one in function.decorator_list} & YIELDING:
            waiting += _after_yield(function.body)
    seen, found = set(), {}
    while waiting:
        for node in ast.walk(waiting.pop()):
            if isinstance(node, ast.Call):
                if _waits(node):
                    found[node.lineno] = node
                called = functions.get(_name(node.func))
                if called and called.name not in seen:
                    seen.add(called.name)
                    waiting.append(called)
    yield from (found[line] for line in sorted(found))


def _after_yield(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements behind the one in which a function yields."""
    for number, statement in enumerate(body):
        if any(isinstance(node, ast.Yield) for node in ast.walk(statement)):
            return body[number + 1 :] + _after_yield(getattr(statement, "body", []))
    return []


def _waits(call: ast.Call) -> bool:
    name, owner = _name(call.func), _name(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    words = {word.arg: getattr(word.value, "value", "computed") for word in call.keywords}
    if "timeout" in words:
        return words["timeout"] is None
    if words.get("wait", words.get("block")) is False:
        return False
    if name == "waitpid":
        return isinstance(call.args[-1], ast.Constant) and call.args[-1].value == 0
    if owner == "subprocess" and name in RUNS:
        return True
    if owner == "server":  # an HTTP server's shutdown() waits for its loop alone, which polls
        return False
    return isinstance(call.func, ast.Attribute) and name in WAITS and not call.args


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def waiting_contexts(tree: ast.Module) -> Iterator[ast.Call]:
    """`with` of what waits at its end for processes or threads without a limit."""
    for node in ast.walk(tree):
        for item in node.items if isinstance(node, ast.With | ast.AsyncWith) else []:
            if isinstance(item.context_expr, ast.Call) and _name(item.context_expr.func) in WAIT_AT_EXIT:
                yield item.context_expr


def test_what_ends_something_waits_with_a_limit():
    found = []
    for place in ("launch", "data_tools", "custom_ops", "tests", "benchmarks", "docs"):
        for path in sorted((ROOT / place).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if not MAY_WAIT.search(text):
                continue
            relative, tree = str(path.relative_to(ROOT)), ast.parse(text)
            calls = [*unlimited(tree), *(waiting_contexts(tree) if place in ("launch", "data_tools") else ())]
            found += [
                f"{relative}:{call.lineno}: {ast.unparse(call)}"
                for call in calls
                if LIMITED.get(relative, "nothing") not in ast.unparse(call)
            ]
    assert not found, "wait with a limit, as data_tools.children.end_process does:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "code",
    [
        "class A:\n    def __exit__(self, *_):\n        self.thread.join()",
        "class A:\n    def close(self):\n        self._end()\n    def _end(self):\n        self.process.wait()",
        "def gone():\n    queue.get()\nweakref.finalize(owner, gone)",
        "class A:\n    def __init__(self):\n        atexit.register(self.a)\n    def a(self):\n        pipe.recv()",
        "def note(number, frame):\n    os.waitpid(pid, 0)\nsignal.signal(signal.SIGTERM, note)",
        "try:\n    work()\nfinally:\n    pool.shutdown(cancel_futures=True)",
        "try:\n    work()\nfinally:\n    process.wait(timeout=None)",
        "@contextmanager\ndef server():\n    yield 1\n    future.result()",
        "@pytest.fixture(autouse=True)\ndef server():\n    with a:\n        yield 1\n        process.communicate()",
        "def stop():\n    subprocess.run(['umount', folder])",
    ],
)
def test_a_wait_without_a_limit_is_found(code):
    assert len([*unlimited(ast.parse(code))]) == 1
    for limited in ("(timeout=9)", "(9)"):
        for call in (".join()", ".wait()", ".result()", ".communicate()", ".recv()", ".get()"):
            code = code.replace(call, call[:-2] + limited)
    if "(timeout=9)" in code:
        assert not [*unlimited(ast.parse(code))]
