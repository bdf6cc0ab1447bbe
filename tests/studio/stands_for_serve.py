"""Stands for launch/commands/serve.py: says its words, then serves the fake model, whose answer to "a" is "<a>".

A model whose folder is called `broken` fails as the command does."""

import argparse
import os
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

from launch.serving.event_loop import Addresses, bind, run
from launch.serving.service import RequestLimits, Service
from launch.serving.whole_batches import WholeBatches
from tests.serving.fake_model import FakeModel

parser = argparse.ArgumentParser()
for name in ("--port", "--grpc_port", "--model_name_or_path", "--model_name", "--adapter"):
    parser.add_argument(name)
args = parser.parse_args()
print(" ".join(sys.argv[1:]), flush=True)
if args.model_name_or_path.endswith("broken"):
    sys.exit("error: this model is broken")
names = [args.model_name, *([args.adapter.partition("=")[0]] if args.adapter else [])]
models = {name: FakeModel(name) for name in names}
service = Service(models, WholeBatches(models, 4), RequestLimits(2000, 64, 30.0))
addresses = Addresses("127.0.0.1", int(args.port), int(args.grpc_port))


def ready(rest: int, grpc: int) -> None:
    print(f"REST  http://127.0.0.1:{rest}/v1, with the key\nready", flush=True)


run(service, bind(addresses), addresses, os.environ["SERVE_API_KEY"], ready)
