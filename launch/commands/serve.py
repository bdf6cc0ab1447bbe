r"""Serve a model: REST for clients of the OpenAI API, gRPC, and a page to try it in a browser.

    python launch/commands/serve.py --model_name_or_path build/demo/model
    python launch/commands/serve.py --model_name_or_path models/llama-7b \
        --adapter poems=checkpoints/poems law=checkpoints/law

The base is served under the name of its directory and each adapter (a LoRA or a prefix) under its own name, with one
copy of the base's weights. Concurrent requests are answered in batches. After Ctrl-C or SIGTERM it accepts no new
requests, answers those it has, and ends. It listens on this machine only. Another --host needs a key (--api_key, or the
variable SERVE_API_KEY, which does not appear in the list of processes) or --insecure. docs/serve.md has the clients.
"""

import argparse
import math
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # the repository, not this folder

from data_tools.cli import Parser, above_zero, amount, port
from launch.entry import start_paddle
from launch.environment.optional_packages import require
from launch.errors import UserError
from launch.families.arithmetic import require_divisible
from launch.families.named_configs import load_config
from launch.guard import guarded
from launch.prediction.model_flags import DEVICES, add_weight_flags, check_weights, default_device
from launch.preflight.report import Finding, print_findings
from launch.processes.orphans import die_with_parent, end_with_make
from launch.processes.sharded import FLAG, add_degree, is_follower, run_ranks, starts_ranks

KEY_VARIABLE = "SERVE_API_KEY"


def main(argv: list[str]) -> int:
    """Run the command."""
    args = _parse(argv)
    key = _key(args)
    name = args.model_name or Path(args.model_name_or_path).resolve().name
    adapters = _adapters(args.adapter, name)

    from launch.serving.event_loop import Addresses, bind

    addresses = Addresses(args.host, args.port, args.grpc_port)
    if not (addresses.is_local or key or args.insecure):
        raise UserError(
            f"--host: found {args.host}, which others can reach. Give a key (--api_key or {KEY_VARIABLE}), or "
            "--insecure if whoever reaches it may use it."
        )
    check_weights(args, *adapters.values())
    if args.grammar_backend:
        require(args.grammar_backend, "grammar.lock")
    if starts_ranks(args.tensor_parallel_degree):
        require_divisible(load_config(args.model_name_or_path), args.tensor_parallel_degree)
        return run_ranks(Path(__file__), argv, args.tensor_parallel_degree, args.device == "cpu")
    end_with_make()
    die_with_parent()
    socket = None if is_follower() else bind(addresses)
    models, texts = _load(args, name, adapters)
    if socket is None:
        return _follow(texts)
    return _serve(args, models, texts, socket, addresses, key)


def _key(args: argparse.Namespace) -> str | None:
    """Return the key that clients must send, if any. Raises UserError for a key that cannot be sent in a header."""
    key = args.api_key or os.environ.get(KEY_VARIABLE) or None
    invalid = [character for character in key or "" if not "!" <= character <= "~"]
    if invalid:
        raise UserError(
            f"{'--api_key' if args.api_key else KEY_VARIABLE}: found {ascii(invalid[0])} in it, which clients cannot "
            "send in a header. Use letters, digits and signs of ASCII, without spaces."
        )
    return key


def _load(args: argparse.Namespace, name: str, adapters: dict[str, Path]):
    """Return models by name, and the texts that compute them; None: they are answered in whole batches."""
    start_paddle(on_cpu=args.device == "cpu")

    from launch.adapters.add import base_format
    from launch.checkpoint.ranks import check_world, raise_first, world_size
    from launch.serving.continuous_batch import texts_for
    from launch.serving.models import load_models
    from launch.training.device import free_bytes, set_device

    check_world()
    set_device(args.device)
    backend = None if is_follower() else args.grammar_backend
    memory = int(args.kv_cache_gb * 2**30)
    models = load_models(
        name, args.model_name_or_path, adapters, args.dtype, args.chat_template, base_format(args), backend, memory
    )
    raise_first(_lacking(args.kv_cache_gb, free_bytes()))
    texts = texts_for(models, memory)
    if texts is None and world_size() > 1:
        raise UserError(
            f"{FLAG}: found {world_size()}, but {args.model_name_or_path} is answered in whole batches "
            "(docs/serve.md), on one card. launch/commands/predict.py runs it on several."
        )
    return models, texts


def _lacking(gib: float, free: int | None) -> str | None:
    """Return what is wrong where keys and values leave a card less than a tenth of what is free beside the weights."""
    if free is None or gib <= (most := math.floor(9 * free / 2**30) / 10):
        return None
    fix = f"Use --kv_cache_gb {most:g}, more cards or --weight_quantize_algo" if most else "Use more cards"
    return f"--kv_cache_gb: found {gib:g}, but {free / 2**30:.1f} GiB of a card are free beside the weights. {fix}."


def _follow(texts) -> int:
    from launch.serving.followers import follow

    follow(texts)
    return 0


def _serve(args: argparse.Namespace, models: dict, texts, socket, addresses, key: str | None) -> int:
    import paddle

    from launch.checkpoint.ranks import world_size
    from launch.serving.continuous_batch import batch_for
    from launch.serving.event_loop import EngineEnded, run
    from launch.serving.followers import lead
    from launch.serving.service import RequestLimits, Service

    batch = batch_for(models, args.batch_size, lead(texts) if world_size() > 1 else texts)
    service = Service(models, batch, RequestLimits(args.max_new_tokens, args.queue_size, args.request_timeout))
    device = paddle.get_device()
    service.engine.on_start = lambda: paddle.set_device(device)  # a new thread's card is the first one

    def ready(port: int, grpc_port: int) -> None:
        print_findings(_findings(args, service, key, port, grpc_port), sys.stdout)
        print("ready (Ctrl-C stops)", flush=True)

    try:
        run(service, socket, addresses, key, ready)
    except EngineEnded:
        print("error: the thread that answers has ended, see above why; so does the server", file=sys.stderr)
        return 1
    print("stopped")
    return 0


def _findings(args: argparse.Namespace, service, key: str | None, port: int, grpc_port: int) -> list[Finding]:
    access = f"with the key of {'--api_key' if args.api_key else KEY_VARIABLE}" if key else "no key"
    limits = service.limits
    lines = [("model", f"{name} = {served.description}") for name, served in service.models.items()]
    lines += [
        ("REST", f"http://{args.host}:{port}/v1, {access}; to try it: http://{args.host}:{port}/"),
        ("gRPC", f"{args.host}:{grpc_port}, launch/serving/rpc/generation.proto"),
        (
            "limits",
            f"{args.batch_size} answers at once, {limits.places} waiting, {limits.answer} tokens an answer, "
            f"{limits.seconds:g} s a request",
        ),
        ("sampling", _sampling_line(service)),
        ("batches", service.engine.batch.description),
    ]
    return [Finding(True, subject, found) for subject, found in lines]


def _sampling_line(service) -> str:
    """Return how tokens are drawn where a request does not say it."""
    stated = next(iter(service.models.values())).sampling
    if stated:
        values = ", ".join(f"{name} {value:g}" for name, value in stated.items())
        return f"{values}, of the model's generation_config.json, where a request names none"
    return "temperature 1, as the API has it, where a request names none; small models answer better with temperature 0"


def _adapters(words: list[str], base: str) -> dict[str, Path]:
    """Read NAME=DIRECTORY, or DIRECTORY, whose last part is then the name."""
    adapters: dict[str, Path] = {}
    for word in words:
        name, equals, directory = word.partition("=")
        path = Path(directory if equals else word)
        name = name if equals else path.resolve().name
        if not name or name == base or name in adapters:
            raise UserError(f"--adapter: found {name!r} twice or no name in {word!r}. Name each once: NAME=DIRECTORY.")
        if not path.is_dir():
            raise UserError(f"--adapter: {path} is no directory.")
        adapters[name] = path
    return adapters


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser("python launch/commands/serve.py", __doc__)
    add = parser.add_argument
    add("--model_name_or_path", required=True, help="model directory, or a name that PaddleNLP downloads")
    add("--model_name", help="name of the base for clients; default: that of its directory")
    add("--adapter", nargs="+", default=[], metavar="NAME=DIRECTORY", help="LoRA adapters and prefixes of this base")
    add("--host", default="127.0.0.1", help="address to listen on; 0.0.0.0: the network; default %(default)s")
    add("--port", type=port, default=8000, help="port of REST and the page; 0: any free port; default %(default)s")
    add("--grpc_port", type=port, default=8001, help="port of gRPC; 0: any free port; default %(default)s")
    add("--api_key", help=f"key that clients must send; default: the variable {KEY_VARIABLE}")
    add("--insecure", action="store_true", help="allow a --host that others can reach without a key")
    add("--chat_template", help="chat template: a name or file; default: that of the directory")
    add("--max_new_tokens", type=above_zero, default=1024, help="longest answer in tokens; default %(default)s")
    add("--batch_size", type=above_zero, default=64, help="answers generated at once; default %(default)s")
    add(
        "--kv_cache_gb",
        type=amount,
        default=4.0,
        help="memory of keys and values, in GiB; requests wait for room in it; default %(default)g",
    )
    add(
        "--queue_size",
        type=above_zero,
        default=128,
        help="longest queue; further requests get 429; default %(default)s",
    )
    add(
        "--request_timeout",
        type=above_zero,
        default=300,
        help="seconds for a request, including waiting; default %(default)s",
    )
    add(
        "--grammar_backend",
        choices=("llguidance",),
        help="allow response_format, answers in JSON of a schema; installs requirements/grammar.lock",
    )
    add_weight_flags(add)
    add_degree(add)
    add("--device", choices=DEVICES, default=default_device(), help="where the model runs; default here: %(default)s")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
