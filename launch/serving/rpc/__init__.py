"""gRPC: generation.proto, what is generated of it, and the server."""
