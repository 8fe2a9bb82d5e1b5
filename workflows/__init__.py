"""The order of things, durable and deterministic: one workflow per job, one per cluster."""
