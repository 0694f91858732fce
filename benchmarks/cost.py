"""What a bonus costs beside the agent's own update, measured in one run.

    python benchmarks/cost.py                  # some minutes on 2 cores; writes results/cost/cost.json
    python benchmarks/cost.py --device cuda    # on a GPU; writes results/cost/cost-cuda.json

A batch of 4,000 new states is fitted and scored by a bonus that has seen 100,000 vectors (or 20,000 pictures) before, and the
same batch is used for a TRPO update (sb3-contrib; 32-32 units, behind the paper's convolutions for pictures). The two
alternate; medians are compared. `r` is the correlation of the batch's log densities with the true ones: of vectors with
those of the data, unsmoothed, of pictures with that of the place shown. `longest of the first` is the longest of the
four fits before the timed ones: a first fit, and those that fit the metric anew because twice as much has been seen, are longer
than a usual one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from sb3_contrib import TRPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import nn

from ex2 import Batch, make_bonus
from ex2.training.presets.paper import AMORTIZED
from known_densities import VECTORS, films, log_density_of_places

STEPS, ENVS = 200, 20
WARM, ROUNDS = 4, 3  # fits before the timed ones, and those; the metric is fitted anew at fits 1, 2, 4, 8
FRAMES = 250_000  # of the FIFO whose memory is measured
KINDS = {
    "20-dim vectors": spaces.Box(-np.inf, np.inf, (20,), np.float32),
    "32x32 RGB": spaces.Box(0, 255, (32, 32, 3), np.uint8),
}
ACTIONS = spaces.Discrete(4)
MODELS: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "20-dim vectors": {
        "kernel-exemplar": ("kernel-exemplar", {}),
        "amortized, 80 steps": (
            "amortized",
            {"state_noise": "auto", "steps": 80, "first_steps": 1_000, "learning_rate": 3e-3, "kl_weight": 1e-4, "samples": 0},
        ),
        "k-exemplar, 40 steps": (
            "k-exemplar",
            {
                "k": 1,
                "state_noise": "auto",
                "latent_noise": 0.0,
                "steps": 40,
                "newton_steps": 5,
                "newton_negatives": 400,
                "draws": 4,
            },
        ),
        "amortized, the paper's 1,000 steps": (
            "amortized",
            {**AMORTIZED, "kl_weight": 0.01, "steps": 1_000, "first_steps": None},
        ),
    },
    "32x32 RGB": {
        "kernel-exemplar": ("kernel-exemplar", {}),
        "amortized, 100 steps": ("amortized", {"kl_weight": "auto", "steps": 100, "learning_rate": 1e-3, "samples": 0}),
        "k-exemplar, 40 steps": ("k-exemplar", {"k": 5, "steps": 40, "newton_steps": 5, "newton_negatives": 400, "draws": 4}),
    },
}


class Convolutions(BaseFeaturesExtractor):
    """The paper's: two layers of 16 4x4 filters, stride 2."""

    def __init__(self, observation_space: spaces.Box) -> None:
        layers = [nn.Conv2d(3, 16, 4, 2), nn.ReLU(), nn.Conv2d(16, 16, 4, 2), nn.ReLU(), nn.Flatten()]
        super().__init__(observation_space, 16 * 6 * 6)
        self.layers = nn.Sequential(*layers)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.layers(observations)


class Blank(gymnasium.Env):
    """Has the spaces; the rollout is filled by hand."""

    def __init__(self, space: spaces.Box) -> None:
        self.observation_space, self.action_space = space, ACTIONS

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self.observation_space.sample(), {}


def make_agent(space: spaces.Box, device: str) -> TRPO:
    image = len(space.shape) == 3
    settings = {"net_arch": [32, 32]} | ({"features_extractor_class": Convolutions} if image else {})
    env = DummyVecEnv([lambda: Blank(space) for _ in range(ENVS)])
    policy = "CnnPolicy" if image else "MlpPolicy"
    agent = TRPO(
        policy, env, n_steps=STEPS, batch_size=500, policy_kwargs=settings, device=device, learning_rate=1e-3, cg_damping=0.03
    )
    agent._setup_learn(STEPS * ENVS)
    return agent


def update(agent: TRPO, frames: np.ndarray) -> float:
    """Seconds of one TRPO update on observations [T, N, ...] with random actions and rewards."""
    buffer = agent.rollout_buffer
    buffer.reset()
    for observations in frames:
        observations = np.moveaxis(observations, -1, 1) if observations.ndim == 4 else observations
        with torch.no_grad():
            tensor = torch.as_tensor(observations, device=agent.device)
            actions, values, log_probabilities = agent.policy(tensor)
        rewards, starts = np.random.default_rng(0).normal(size=ENVS), np.zeros(ENVS)
        buffer.add(observations, actions.cpu().numpy().reshape(ENVS, -1), rewards, starts, values, log_probabilities)
    buffer.compute_returns_and_advantage(values.flatten(), np.zeros(ENVS))
    synchronise(agent.device.type)
    started = time.perf_counter()
    agent.train()
    synchronise(agent.device.type)
    return time.perf_counter() - started


def synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def stream(kind: str, batches: int, random: np.random.Generator) -> list[tuple[np.ndarray, Any]]:
    """Batches [200, 20, ...] and what their true log densities are made from."""
    if kind == "20-dim vectors":
        known = VECTORS["mixture, 20-D"]()
        return [(known.draw(STEPS * ENVS, random).astype(np.float32).reshape(STEPS, ENVS, 20), None) for _ in range(batches)]
    made = []
    for _ in range(batches):
        frames, places = films(STEPS * ENVS // 5, 5, False, random)  # films of 5 frames, end to end
        frames, places = (np.concatenate(np.split(x, STEPS // 5 * ENVS // ENVS, axis=1)) for x in (frames, places))
        made.append((frames, places))
    return made


def as_batch(frames: np.ndarray) -> Batch:
    ends = np.zeros(frames.shape[:2], bool)
    if frames.ndim == 5:
        ends[4::5] = True
    return Batch.of(frames, np.zeros(frames.shape[:2], np.int64), frames, truncated=ends)


def correlation(model: Any, frames: np.ndarray, places: Any) -> float:
    found = model.log_density_of_batch(as_batch(frames)).flatten().numpy()
    if places is not None:
        return float(np.corrcoef(found, log_density_of_places(places.reshape(-1, 2)))[0, 1])
    return float(np.corrcoef(found, VECTORS["mixture, 20-D"]().log_density(frames.reshape(-1, 20), 1e-3))[0, 1])


def ratios(device: str) -> list[dict[str, Any]]:
    rows = []
    for kind, space in KINDS.items():
        random = np.random.default_rng(0)
        seen = stream(kind, 25 if kind == "20-dim vectors" else 5, random)
        agent = make_agent(space, device)
        for label, (name, settings) in MODELS[kind].items():
            model = make_bonus(name, space, ACTIONS, device=device, **settings)
            for frames, _ in seen:
                model.remember(as_batch(frames))
            times, updates, found, early = [], [], [], []
            for frames, _ in stream(kind, WARM, random):  # the first fits are longer, and on a GPU capture the step
                started = time.perf_counter()
                model.observe(as_batch(frames))
                early.append(time.perf_counter() - started)
            for frames, places in stream(kind, ROUNDS, random):
                batch = as_batch(frames)
                updates.append(update(agent, frames))
                synchronise(device)
                started = time.perf_counter()
                model.prepare(batch)
                model.score(batch)
                synchronise(device)
                times.append(time.perf_counter() - started)
                found.append(correlation(model, frames, places))
                model.remember(batch)
            row = {"states": kind, "model": label, "seconds": float(np.median(times)), "update": float(np.median(updates))}
            row |= {"ratio": float(np.median(np.array(times) / updates)), "r": float(np.mean(found)), "longest": max(early)}
            rows.append(row)
            print(row, flush=True)
    return rows


def growth(device: str) -> list[dict[str, Any]]:
    """Preparing and scoring of batches, and with replays, 10 and 100 times as large."""
    known, space = VECTORS["mixture, 20-D"](), KINDS["20-dim vectors"]
    rows = []
    for new, held in ((4_000, 4_000), (4_000, 40_000), (4_000, 400_000), (40_000, 400_000), (400_000, 400_000)):
        model = make_bonus("kernel-exemplar", space, ACTIONS, device=device, replay_capacity=400_000)
        random = np.random.default_rng(0)
        behind, batch = (as_batch(known.draw(n, random).astype(np.float32).reshape(-1, 20, 20)) for n in (held, new))
        model.remember(behind)
        model.prepare(batch)
        spent = []
        for _ in range(3):
            began = time.perf_counter()
            model.prepare(batch)
            between = time.perf_counter()
            model.score(batch)
            spent.append((between - began, time.perf_counter() - between))
        prepare, score = np.median(spent, axis=0)
        rows.append({"new": new, "held": held, "prepare": float(prepare), "score": float(score)})
        print(rows[-1], flush=True)
    return rows


MEMORY = """
import sys
import numpy as np, torch
from gymnasium import spaces
from ex2 import Batch, make_bonus
def read(name):
    return int(next(line for line in open("/proc/self/status") if line.startswith(name)).split()[1]) * 1024
count, name = int(sys.argv[1]), sys.argv[2]
space = spaces.Box(0, 255, (32, 32, 3), np.uint8)
frames = torch.randint(256, (200, 20, 32, 32, 3), dtype=torch.uint8)
batch = Batch.of(frames, torch.zeros(200, 20), frames)
settings = {"steps": 40, "first_steps": 40} if name == "amortized" else {}
def use(count):
    model = make_bonus(name, space, spaces.Discrete(2), replay_capacity=count, **settings)
    for _ in range(count // 4000 + 1):
        model.remember(batch)
    model.prepare(batch); model.score(batch)
    return model
before = read("VmRSS")
small = use(4000)
peak = read("VmHWM") - before
del small
model = use(count)
print(read("VmHWM") - before, peak)
"""


def memory() -> list[dict[str, Any]]:
    """What a full FIFO of 250,000 frames, a fit and a score add to a process at their peak, beside the frames' own bytes.

    The peak of the same with 4,000 frames is what the fit and the score themselves take; the rest is the FIFO's.
    """
    frames = FRAMES * 32 * 32 * 3
    rows: list[dict[str, Any]] = []
    for name in ("kernel-exemplar", "amortized"):
        command = [sys.executable, "-W", "ignore", "-c", MEMORY, str(FRAMES), name]
        used, small = map(int, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
        rows.append({"model": name, "bytes": used, "small": small, "frames": frames})
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results/cost"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    machine = torch.cuda.get_device_name() if options.device == "cuda" else f"{options.threads} threads of a CPU"
    results: dict[str, Any] = {"machine": machine, "ratios": ratios(options.device), "growth": growth(options.device)}
    if options.device == "cpu":
        results["memory"] = memory()
    options.out.mkdir(parents=True, exist_ok=True)
    name = "cost" if options.device == "cpu" else f"cost-{options.device}"
    (options.out / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
