"""One module a peer; they run in environments of their own and may import only the standard library and their peer."""
