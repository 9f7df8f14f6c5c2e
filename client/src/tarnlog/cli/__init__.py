"""The command line: `tarnlog`. Data goes to stdout, everything said to a person about it to stderr."""
