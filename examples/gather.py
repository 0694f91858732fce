"""SwimmerGather in two runs: learn to swim ahead, then to steer.

    python examples/gather.py --seed 102     # 10 million steps, about half an hour on one core

What novelty is about decides how the swimmer swims. With that of its position alone it learns to swim far, but as often
backwards as ahead, and a swimmer that goes backwards does not see what it comes to: its sensors look ahead. So in the first run
the bonus looks at the sensors, too, where an object that comes nearer is new. The second run begins with the first one's actor.
A seventh of the bonus, of the position alone, keeps it swimming while it learns to steer; that takes a critic that hears the
sensors (standardised, with more units), advantages that rest on it (a lambda below 1), and a trust region that shrinks, so that
the agent can settle. Its weights are those of -log p on no scale, from before the weight "auto".
docs/experiments/gather.md has the scores, and what did not work.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import ex2
from ex2.training.config import configure
from ex2.training.display import Display
from ex2.training.run import Result

POSITION, SENSORS = [10, 11], list(range(13, 33))  # in an observation
BEFORE: dict[str, Any] = {"scaled": False, "bonus.form": "log", "policy.standardise": "none"}  # what the recipe was found with
SWIM = BEFORE | {
    "bonus.entries": POSITION + SENSORS,
    "weight.start": 0.01,
    "weight.schedule": "constant",
    "algo.cg_damping": 0.03,
}
STEER = BEFORE | {
    "bonus.entries": POSITION,
    "weight.start": 0.0015,
    "weight.schedule": "constant",
    "rollout_steps": 200,
    "policy.standardise": "critic",
    "policy.critic_hidden": [128, 128],
    "algo.gae_lambda": 0.95,
    "algo.target_kl": 0.01,
    "algo.final_kl": 0.002,
    "algo.cg_damping": 0.01,
    "algo.batch_size": 1_000,
    "algo.n_critic_updates": 5,
}


def run(seed: int, steps: int, out: Path, settings: dict[str, Any]) -> Result:
    """A training, shown while it goes on."""
    with Display(configure("gather", seed=seed, steps=steps, overrides=settings)) as display:
        return ex2.train("gather", seed=seed, steps=steps, out=out, overrides=settings, listener=display)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--swim", type=int, default=2_500_000, help="steps of the first run (default: %(default)s)")
    parser.add_argument("--steer", type=int, default=7_500_000, help="steps of the second run (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="where the two runs go (default: %(default)s)")
    options = parser.parse_args()
    swimmer, gatherer = options.out / f"swimmer-{options.seed}", options.out / f"gatherer-{options.seed}"
    try:
        if not (swimmer / "summary.json").exists():
            run(options.seed, options.swim, swimmer, SWIM)
        if not json.loads((swimmer / "summary.json").read_text())["finished"]:
            raise SystemExit(f"The first run has stopped: go on with 'ex2 resume {swimmer}', then start this again.")
        result = run(options.seed, options.steer, gatherer, {**STEER, "actor_of": str(swimmer)})
    except ex2.UsageError as error:
        raise SystemExit(str(error)) from None
    print(f"{result.steps:,} steps, the last 20 episodes: {result.score:.2f}. See more: ex2 eval {gatherer} --episodes 1000")


if __name__ == "__main__":
    main()
