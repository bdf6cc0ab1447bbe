"""The gRPC server: generation.proto with health and reflection."""

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from launch.serving.rest.limits import LARGEST_BODY
from launch.serving.rpc import generation_pb2, generation_pb2_grpc
from launch.serving.rpc.servicer import Servicer
from launch.serving.service import Service

NAME = generation_pb2.DESCRIPTOR.services_by_name["Generation"].full_name
MINUTE = 60_000  # in milliseconds, as the options have it
# A client that answers no pings is gone. One that answers them but never finishes its message ends with the age of its
# connection: from then on clients connect again, and calls that run have an hour to finish.
LIMITS = {
    "grpc.keepalive_time_ms": MINUTE,
    "grpc.keepalive_timeout_ms": MINUTE // 2,
    "grpc.max_connection_age_ms": 60 * MINUTE,
    "grpc.max_connection_age_grace_ms": 60 * MINUTE,
}
OPTIONS = {"grpc.max_receive_message_length": LARGEST_BODY, "grpc.so_reuseport": 0}


class RpcServer:
    """Takes its port at once, answers from start() on. key: see Servicer. Raises RuntimeError where it gets no port."""

    def __init__(self, service: Service, address: str, key: str | None):
        self.server = grpc.aio.server(options=list((OPTIONS | LIMITS).items()))
        self.health = health.aio.HealthServicer()
        generation_pb2_grpc.add_GenerationServicer_to_server(Servicer(service, key), self.server)
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self.server)
        reflection.enable_server_reflection((NAME, health.SERVICE_NAME, reflection.SERVICE_NAME), self.server)
        self.port = self.server.add_insecure_port(address)

    async def start(self) -> None:
        await self.health.set(NAME, health_pb2.HealthCheckResponse.SERVING)
        await self.server.start()

    async def stop(self, seconds: float) -> None:
        """Take no more calls; those that are not answered after so many seconds are cancelled."""
        await self.health.enter_graceful_shutdown()
        await self.server.stop(seconds)
