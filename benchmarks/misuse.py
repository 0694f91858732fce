"""Commands and settings that a person may get wrong, for benchmarks/survival.py."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from ex2.bonus import BONUSES
from ex2.training.config import configure
from ex2.training.run import CHECKPOINT
from victim import made

ODD = [
    None,
    True,
    -1,
    0,
    1,
    -0.5,
    2.5,
    1e30,
    1e-30,
    math.nan,
    math.inf,
    -math.inf,
    2**31,
    2**63,
    2**70,
    10**12,
    "",
    "abc",
    "auto",
]
ODD += [
    "cuda:99",
    "meta",
    "maze",
    "none",
    [],
    [1],
    [0],
    [-1, 2],
    [[1, 2, 3]],
    [None],
    ["a"],
    {},
    {"a": 1},
    {"start": 2},
    "1",
    "é\0",
]
"""Values that settings may be given."""


def misuse(place: Path, random: np.random.Generator) -> list[list[Any]]:
    """Commands that a person may get wrong."""
    folder, file, new = made(place), place / "file", place / "new"
    file.write_text("x")
    (place / "empty").mkdir(exist_ok=True)
    commands: list[list[Any]] = [
        [],
        ["nope"],
        ["train"],
        ["train", "mase"],
        ["train", "maze", "--env", "CartPole-v1"],
        ["--nope"],
    ]
    commands += [
        ["train", "--env", name]
        for name in ("", "Nope-v0", "nope:Nope-v0", "json:Nope", "CartPole", "../x", ":", "a:b:c", "Blackjack-v1")
    ]
    for words in (
        *(["--bonus", name] for name in ("", "nope", "+", "rnd+", "none+none", "rnd+rnd", "rnd+simhash+nope", "kde+none")),
        *(["--algo", name] for name in ("", "sac", "PPO")),
        *(["--preset", name] for name in ("", "papers")),
        *(["--device", name] for name in ("", "gpu", "meta", "cuda:99", "cpu:3", "cuda:-1", "mps", "xpu", "cuda:x", "é")),
        *(["--steps", number] for number in (0, -1, "x", 10**30, 1.5, "nan")),
        *(["--seed", number] for number in (-1, 2**64, 10**40, "x", 1.5)),
        *(["--threads", number] for number in (0, -1, 10**9, 10**30)),
        *(["--out", path] for path in (file, folder, file / "x", "", "/proc/nope", "/dev/null", "/nope\0x", "x" * 300)),
        *(["--actor-of", path] for path in (file, place / "empty", "nope", "")),
        *(
            ["--set", text]
            for text in ("", "=", "x", "a=b", "bonus.=1", ".=1", "task.nope=1", "task.render_mode=human", "task.num_envs=3")
        ),
        *(
            ["--set", text]
            for text in (
                "task.max_episode_steps=0",
                "task.max_episode_steps=-3",
                'task.max_episode_steps="x"',
                "task.autoreset_mode=x",
            )
        ),
        *(
            ["--set", text]
            for text in (
                "seed=3",
                "steps=10",
                "bonus=rnd",
                "task=doom",
                "weight=1",
                "device=meta",
                "actor_of=/nope",
                "bonus.replay_capacity=1000000000000",
            )
        ),
        *(
            ["--set", text]
            for text in (
                "num_envs=1000000000",
                "rollout_steps=100000000000",
                "policy.hidden=[1000000000]",
                "policy.hidden=[]",
                "groups=2",
                "stack=4",
            )
        ),
        ["--bonus", "none", "--set", "bonus.k=1"],
    ):
        commands.append(["train", "maze", *words])
    for task in ("doom", "freeway", "cheetah", "gather"):
        commands += [
            ["train", task, "--set", text]
            for text in ("task.nope=1", "num_envs=0", "stack=3", "task.threads=-1", "policy.convolutions=[[1,99,1]]")
        ]
    for command in ("resume", "eval", "novelty", "plot", "density-figure"):
        commands += [[command, path] for path in (file, place / "empty", "nope", "", "/dev/null", "/nope\0x", "x" * 300)] + [
            [command, folder, "--nope"]
        ]
    commands += [["eval", folder, "--episodes", number] for number in (0, -1, "x")] + [["eval", folder, "--seed", -1]]
    commands += [
        ["eval", folder, "--episodes", 1, "--video", name]
        for name in ("x", "x.avi", place / "no" / "x.mp4", file / "x.mp4", "/dev/null", "")
    ]
    commands += [["plot", folder, "--out", path] for path in (place / "no" / "x.png", place, "x.nope", "")]
    commands += [
        ["plot", folder, "--beside", path] for path in (file, place, "nope", folder / "metrics.csv", folder / CHECKPOINT)
    ]
    commands += [["plot", folder, place / "empty"], ["plot", folder, "nope"], ["plot", folder, folder, "--out", place]]
    commands += [["novelty", folder, "--out", path] for path in (place / "no" / "x.png", place, "x.nope")] + [
        ["novelty", folder, "--seed", -1]
    ]
    commands += [
        ["density-figure", folder, *words]
        for words in (["--model", "nope"], ["--out", place / "no" / "x.png"], ["--out", place])
    ]
    commands += [["play", task] for task in ("", "nope", "maze\0")] + [
        ["play", "maze", "--episodes", 0],
        ["play", "maze", "--video", "x.avi"],
    ]
    commands += [["bonuses", name] for name in ("nope", "", "+", "rnd+nope")] + [
        ["resume", folder, "--previous"],
        ["tasks", "x"],
    ]
    for _ in range(80):
        config = configure("maze", str(random.choice([name for name in BONUSES if name != "none"]))).as_dict()
        part = str(random.choice(["", "", "policy", "weight", "bonus", "algo", "task"]))
        names = list(
            config[{"bonus": "bonus_settings", "algo": "algo_settings", "task": "task_settings"}.get(part, part)]
            if part
            else config
        )
        key = ".".join(filter(None, [part, str(random.choice(names or ["sparse"]))]))
        value = json.dumps(ODD[random.integers(len(ODD))])
        commands.append(
            [
                "train",
                "maze",
                "--bonus",
                config["bonus"],
                "--steps",
                480,
                "--set",
                "num_envs=4",
                "--set",
                "rollout_steps=60",
                "--set",
                f"{key}={value}",
            ]
        )
    return [[*words, "--out", new] if words[:1] == ["train"] and "--out" not in words else words for words in commands]
