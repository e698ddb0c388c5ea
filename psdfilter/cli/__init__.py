"""The `psdfilter` command. Nothing here is imported before it is needed: `--help` knows no JAX."""
