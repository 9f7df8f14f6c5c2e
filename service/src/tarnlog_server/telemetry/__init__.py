"""What the service tells its operators: metrics for Prometheus, and logs."""
