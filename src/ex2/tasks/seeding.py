"""Seeds of the environments in a batch."""

from __future__ import annotations

from collections.abc import Sequence

from ex2.errors import UsageError


def seeds_for(seed: int | Sequence[int | None] | None, num_envs: int) -> list[int | None]:
    """A seed for each environment: s + i from one seed s, the seeds themselves from a list, None from none.

    >>> seeds_for(5, 3), seeds_for(None, 2)
    ([5, 6, 7], [None, None])
    """
    if seed is None:
        return [None] * num_envs
    seeds: list[int | None] = list(seed) if isinstance(seed, Sequence) else [int(seed) + index for index in range(num_envs)]
    if len(seeds) != num_envs:
        raise UsageError(f"reset got {len(seeds)} seeds for {num_envs} environments: pass one for each, or an int.")
    return seeds
