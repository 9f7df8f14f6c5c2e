"""The dashboard: pages for people, made on the server from what this replica knows. It changes nothing."""
