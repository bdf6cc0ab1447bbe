"""Models behind REST and gRPC: requests in a bounded queue, answered in batches, streamed to the client."""
