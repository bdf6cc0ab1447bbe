"""The servers in front of the fake model, as a process.

    python -m tests.serving.fake_server PLACES SECONDS CLIENT_SECONDS END_SECONDS [KEY]

CLIENT_SECONDS: for a header, and for a body. END_SECONDS: from a stop to the end of the process.
Says "ready PORT GRPC_PORT".
"""

import sys

from launch.serving import event_loop, rest_requests
from launch.serving.event_loop import Addresses, bind, run
from launch.serving.service import RequestLimits, Service
from launch.serving.whole_batches import WholeBatches
from tests.serving.fake_model import FakeModel


def main(places: str, seconds: str, client_seconds: str, end_seconds: str, key: str | None = None) -> None:
    rest_requests.HEAD_SECONDS = rest_requests.BODY_SECONDS = float(client_seconds)
    event_loop.END_SECONDS = float(end_seconds)
    models = {name: FakeModel(name) for name in ("base", "poems")}
    service = Service(models, WholeBatches(models, 4), RequestLimits(2000, int(places), float(seconds)))
    addresses = Addresses("127.0.0.1", 0, 0)
    run(service, bind(addresses), addresses, key, lambda rest, grpc: print("ready", rest, grpc, flush=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
