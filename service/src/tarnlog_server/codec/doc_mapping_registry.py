"""The registry of deduplicated document mappings, in its two spellings.

Metadata holds it as configuration keys `docMappingSchema.<hash>`, states as a map by bare hash; writers in the field
mix both. References stay references here.
"""

from __future__ import annotations

from collections.abc import Mapping

PREFIX = "docMappingSchema."


def from_configuration(configuration: Mapping[str, str]) -> dict[str, str]:
    """The mappings by bare hash that a table's configuration holds."""
    return {key[len(PREFIX) :]: value for key, value in configuration.items() if key.startswith(PREFIX)}


def bare(registry: Mapping[str, str]) -> dict[str, str]:
    """A state's registry by bare hash, whichever spelling its keys have."""
    return {key.removeprefix(PREFIX): value for key, value in registry.items()}


def to_configuration(registry: Mapping[str, str]) -> dict[str, str]:
    """The configuration entries of a registry."""
    return {PREFIX + key: value for key, value in bare(registry).items()}
