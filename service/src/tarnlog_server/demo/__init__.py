"""`python -m tarnlog_server.demo`: concurrent writers, a kill -9 in the middle, and what the log says afterwards."""
