"""What do bonuses do with bad and odd input? Batches are fuzzed over all bonuses and many spaces.

    python benchmarks/faults.py                             # a few minutes on one core
    python benchmarks/faults.py --batches 500 --seed 3      # fewer, and others

A bonus sees two good batches and then odd ones: wild, tiny and constant numbers, NaN, wrong shapes and types, nothing at all,
views of every kind. Each one is either taken or refused by an `ex2.UsageError`. Counted are, and all should be 0:

- crashed: other exceptions, of `observe`, `prepare`, `score` and `remember`, and of building a bonus from odd spaces.
- not finite: batches that were taken with scores or metrics that are not finite, or after which a good batch has such scores.
- changed: refused batches, and batches only scored, that changed the bonus, its random generator included.
"""

from __future__ import annotations

import argparse
import copy
import math
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from ex2 import BONUSES, Batch, UsageError, make_bonus
from ex2.bonus import Bonus, setting_names

NAMES = [*BONUSES, "simhash+rnd"]
SMALL = {"steps": 3, "first_steps": 4, "groups": 16, "negatives": 32, "newton_negatives": 64, "pairs": 16, "exemplars": 16}
SMALL |= {"subsample": 50, "bits": 4, "buckets": 1_000, "replay_capacity": 2_000, "bins": 4}
LARGER = SMALL | {"steps": 20, "subsample": 500, "bits": 32, "replay_capacity": 20_000}
VARIED = {"inputs": ["state", "next-state", "state-action"], "min_replay": [0, 0, 50], "samples": [0, 3], "k": [1, 5, None]}
VARIED |= {"state_noise": [0.1, "auto"], "projection": ["auto", "auto", "variance", "neighbours", "none"], "share": [1.0, 0.5]}
VARIED |= {"form": ["log", "sqrt-count", "inverse-count"], "tolerance": [0.0, 0.1], "all_pairs": [False, True]}
PER_BONUS = 12  # odd batches that a bonus sees before the next one is built
COLUMNS = ("batches", "taken", "refused", "unbuilt", "crashed", "not finite", "changed")


def box(low: Any, high: Any, shape: tuple[int, ...] | None, dtype: Any = np.float32) -> spaces.Box:
    return spaces.Box(low, high, shape, dtype)


INF = np.inf
SPACES: dict[str, spaces.Space] = {
    "bounded": box(-1.0, 1.0, (2,)),
    "unbounded": box(-INF, INF, (3,)),
    "float64": box(-INF, INF, (2,), np.float64),
    "bounded float64": box(-5.0, 1e5, (2,), np.float64),
    "zero width": box(np.array([0.0, 2.0], np.float32), np.array([1.0, 2.0], np.float32), None),
    "all zero width": box(3.0, 3.0, (2,)),
    "narrow": box(0.0, 1e-6, (2,)),
    "one-sided": box(0.0, INF, (2,)),
    "mixed sides": box(np.array([-INF, 0.0, -1.0], np.float32), np.array([0.0, INF, 1.0], np.float32), None),
    "largest": box(-3.4e38, 3.4e38, (2,)),
    "one number": box(-1.0, 1.0, ()),
    "matrix": box(-INF, INF, (3, 4)),
    "bounded matrix": box(0.0, 1.0, (12, 12)),
    "float16": box(-1.0, 1.0, (2,), np.float16),
    "int64": box(-10, 10, (3,), np.int64),
    "all of int64": box(np.iinfo(np.int64).min, np.iinfo(np.int64).max, (2,), np.int64),
    "int8": box(-128, 127, (2,), np.int8),
    "wide": box(-INF, INF, (300,)),
    "bytes": box(0, 255, (6,), np.uint8),
    "Discrete": spaces.Discrete(5),
    "Discrete from -3": spaces.Discrete(4, start=-3),
    "one place": spaces.Discrete(1),
    "many places": spaces.Discrete(10**6, start=7),
    "MultiDiscrete": spaces.MultiDiscrete([3, 1, 7], start=[0, 2, -5]),
    "MultiDiscrete 2-D": spaces.MultiDiscrete([[3, 4], [2, 2]]),
    "MultiBinary": spaces.MultiBinary(4),
    "MultiBinary 2-D": spaces.MultiBinary([2, 3]),
    "1x1x1": box(0, 255, (1, 1, 1), np.uint8),
    "9x9x3": box(0, 255, (9, 9, 3), np.uint8),
    "10x10x1": box(0, 255, (10, 10, 1), np.uint8),
    "20x20x3": box(0, 255, (20, 20, 3), np.uint8),
    "3x12x20": box(0, 255, (3, 12, 20), np.uint8),
    "grey": box(0, 255, (16, 12), np.uint8),
    "float picture": box(0.0, 1.0, (3, 12, 12)),
    "signed picture": box(-1.0, 1.0, (12, 12, 1), np.float64),
}
SPACES |= {
    "Dict": spaces.Dict({"place": SPACES["unbounded"], "key": SPACES["Discrete"]}),
    "Dict with picture": spaces.Dict({"view": SPACES["10x10x1"], "more": SPACES["float64"], "map": SPACES["float picture"]}),
    "nested": spaces.Dict(
        {"a": spaces.Tuple([SPACES["bounded"], spaces.Dict({"b": SPACES["MultiBinary"]})]), "c": SPACES["grey"]}
    ),
    "Tuple": spaces.Tuple([SPACES["one number"], SPACES["int64"], SPACES["many places"]]),
}
ACTIONS: dict[str, spaces.Space] = {name: SPACES[name] for name in ("bounded", "unbounded", "Discrete", "MultiBinary")}
ACTIONS |= {name: SPACES[name] for name in ("Discrete from -3", "one number", "MultiDiscrete", "all zero width", "matrix")}
ODD_SPACES: list[Any] = [
    *(None, "Box", spaces.Text(3), spaces.Sequence(SPACES["bounded"]), spaces.Graph(SPACES["bounded"], None), spaces.Dict({})),
    *(spaces.Tuple(()), spaces.Dict({"a": spaces.Text(3)}), spaces.OneOf([SPACES["bounded"], SPACES["Discrete"]])),
    *(box(0, 1, (0,)), box(0, 255, (0, 20, 3), np.uint8), spaces.Discrete(2**62), spaces.Dict({"a": spaces.Dict({})})),
    *(box(0.0, 1.0, (2, 2, 2, 2)), box(0, 1, (3,), bool), spaces.MultiDiscrete([2**40, 3])),
]

Change = Callable[[np.ndarray, np.random.Generator], Any]


def put(value: float) -> Change:
    """One number replaced."""

    def change(values: np.ndarray, random: np.random.Generator) -> np.ndarray:
        values = np.array(values, values.dtype if values.dtype.kind == "f" and abs(value) < 3e38 else np.float64)
        values.reshape(-1)[random.integers(values.size)] = value
        return values

    return change


def times(value: float) -> Change:
    """All numbers of a float array multiplied; those of others stay."""
    return lambda x, _: x * x.dtype.type(value) if x.dtype.kind == "f" else x


CHANGES: dict[str, Change] = {
    "as it is": lambda x, _: x,
    "constant": lambda x, _: np.broadcast_to(x[:1, :1], x.shape),
    "one state twice": lambda x, _: np.broadcast_to(x[:1], x.shape),
    **{f"times {value:g}": times(value) for value in (0.0, 1e-13, 1e-30, 1e6, 1e30, 3e38)},
    **{f"a number {value:g}": put(value) for value in (1e4, -1e30, 3.4e38, 1e39, -1e300, math.nan, math.inf, -math.inf)},
    "shifted by 1e6": lambda x, _: x + x.dtype.type(1e6) if x.dtype.kind == "f" and x.itemsize > 2 else x,
    "all 1e39": lambda x, _: np.full(x.shape, 1e39),
    **{name: (lambda x, _, kind=name: x.astype(kind)) for name in ("float16", "float32", "float64", "int64", "int8", "uint8")},
    **{
        name: (lambda x, _, kind=name: x.astype(kind))
        for name in ("bool", "complex64", "longdouble", "uint16", "uint64", "str")
    },
    "object": lambda x, _: x.astype(object),
    "dates": lambda x, _: np.zeros(x.shape, "datetime64[s]"),
    "big-endian": lambda x, _: x.astype(x.dtype.newbyteorder(">")),
    "reversed view": lambda x, _: x[::-1, ::-1],
    "Fortran order": lambda x, _: np.asfortranarray(x),
    "every second of a larger array": lambda x, _: np.repeat(x, 2, axis=0)[::2],
    "read-only": lambda x, _: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
    "nested lists": lambda x, _: x.tolist(),
    "ragged": lambda x, _: [*x.tolist()[:-1], [[1.0]] * 7],
    "a tensor with gradients": lambda x, _: torch.tensor(x.astype(np.float32), requires_grad=True),
    "a bfloat16 tensor": lambda x, _: torch.tensor(x.astype(np.float32)).bfloat16(),
    "a complex tensor": lambda x, _: torch.zeros(x.shape, dtype=torch.complex64),
    "a sparse tensor": lambda x, _: torch.tensor(x.astype(np.float32)).to_sparse(),
    "outside": lambda x, _: x + 9 if x.dtype.kind in "iu" else x + 9.0,
    "far outside": lambda x, _: x.astype(np.int64) + 2**62 if x.dtype.kind in "iu" else x,
    "below": lambda x, _: -1 - x.astype(np.int64) if x.dtype.kind in "iu" else -x,
    "fractions": lambda x, _: x + 0.5,
    "one dimension more": lambda x, _: x[..., None],
    "one dimension less": lambda x, _: x.reshape(*x.shape[:2], -1)[..., 0],
    "one number more": lambda x, _: np.concatenate([x, x[..., :1]], -1) if x.ndim > 2 else np.stack([x, x], -1),
    "one number less": lambda x, _: x[..., :-1],
    "flat": lambda x, _: x.reshape(-1),
    "axes swapped": lambda x, _: x.swapaxes(0, 1),
    "no steps": lambda x, _: x[:0],
    "no environments": lambda x, _: x[:, :0],
    "one step less": lambda x, _: x[1:],
    "None": lambda x, _: None,
    "a dict": lambda x, _: {"value": x},
    "a tuple": lambda x, _: (x, x),
    "a number": lambda x, _: 1.0,
}


def sample(space: spaces.Space, lead: tuple[int, ...], random: np.random.Generator) -> Any:
    """Values of a space, [*lead, ...]."""
    if isinstance(space, spaces.Dict):
        return {key: sample(part, lead, random) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(sample(part, lead, random) for part in space.spaces)
    if isinstance(space, spaces.Discrete):
        return random.integers(space.start, space.start + space.n, lead)
    if isinstance(space, spaces.MultiDiscrete):
        return random.integers(space.start, space.start + space.nvec, (*lead, *space.shape))
    if isinstance(space, spaces.MultiBinary):
        return random.integers(0, 2, (*lead, *space.shape), np.int8)
    assert isinstance(space, spaces.Box)
    shape = (*lead, *space.shape)
    if space.dtype.kind in "iu":
        return random.integers(space.low, space.high, shape, space.dtype, endpoint=True)
    bounded = np.isfinite(space.low) & np.isfinite(space.high) & (np.abs(space.low) < 1e6)
    low, high = np.where(bounded, space.low, 0.0), np.where(bounded, space.high, 0.0)
    return np.where(bounded, random.uniform(low, high, shape), random.normal(0.0, 1.0, shape)).astype(space.dtype)


def changed(values: Any, change: Change, random: np.random.Generator) -> Any:
    """Observations with one of their arrays changed, or a part of them gone."""
    if isinstance(values, dict | tuple):
        keys = list(values) if isinstance(values, dict) else list(range(len(values)))
        chosen = keys[random.integers(len(keys))]
        gone = random.random() < 0.05
        parts = {
            key: changed(values[key], change, random) if key == chosen else values[key]
            for key in keys
            if not (gone and key == chosen)
        }
        return parts if isinstance(values, dict) else tuple(parts.values())
    return change(values, random) if isinstance(values, np.ndarray) else values


def fields(pair: tuple[spaces.Space, spaces.Space], lead: tuple[int, int], random: np.random.Generator) -> dict[str, Any]:
    """A good batch's."""
    steps, envs = lead
    mask = random.random(lead) < random.choice([0.0, 0.5, 1.0, 1.0, 1.0, 1.0])
    return {
        "obs": sample(pair[0], lead, random),
        "action": sample(pair[1], lead, random),
        "next_obs": sample(pair[0], lead, random),
        "truncated": random.random((steps, envs)) < 0.05,
        "mask": mask,
    }


def odd(good: dict[str, Any], random: np.random.Generator) -> tuple[str, dict[str, Any]]:
    """The fields with one fault or two, and what they are."""
    made, words = dict(good), []
    for _ in range(random.choice([1, 1, 2])):
        name = str(random.choice(list(CHANGES)))
        which = [("obs",), ("next_obs",), ("obs", "next_obs"), ("obs", "next_obs"), ("action",), ("mask",)]
        seed, chosen = int(random.integers(2**31)), which[random.choice(6, p=[0.15, 0.15, 0.25, 0.2, 0.2, 0.05])]
        for field in chosen:  # the same change in each
            try:
                made[field] = changed(made[field], CHANGES[name], np.random.default_rng(seed))
            except (IndexError, TypeError, ValueError, OverflowError):  # it does not go with the one before
                continue
        words.append(f"{'+'.join(chosen)} {name}")
    return ", ".join(words), made


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(same(x, y) for x, y in zip(one, other, strict=True))
    return one == other


class Campaign:
    """Counts by bonus, and the cases that should not be."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.counts = {name: Counter[str]() for name in NAMES}
        self.cases: dict[tuple[str, ...], str] = {}

    def note(self, name: str, kind: str, what: str, where: str) -> None:
        """One more offence; of those that read the same, the first is kept."""
        self.counts[name][kind] += 1
        self.cases.setdefault((name, kind, what), where)

    def spaces(self) -> None:
        """Bonuses of odd spaces are refused, or built."""
        for name in NAMES:
            for space in ODD_SPACES:
                for pair in ((space, ACTIONS["Discrete"]), (SPACES["bounded"], space)):
                    try:
                        make_bonus(name, *pair)
                    except UsageError:
                        self.counts[name]["unbuilt"] += 1
                    except Exception as error:
                        self.note(name, "crashed", f"{type(error).__name__}: {error}"[:200], f"built of {str(pair)[:100]}")

    def build(self, name: str) -> tuple[Bonus | None, tuple[str, str], dict[str, Any], bool]:
        names = str(self.random.choice(list(SPACES))), str(self.random.choice(list(ACTIONS)))
        larger = self.random.random() < 0.1
        settings: dict[str, Any] = {"seed": int(self.random.integers(100))}
        for key in setting_names(name):
            short = key.split(".")[-1]
            if short in SMALL:
                settings[key] = (LARGER if larger else SMALL)[short]
            elif short in VARIED and self.random.random() < 0.4:
                settings[key] = VARIED[short][self.random.integers(len(VARIED[short]))]
        try:
            return make_bonus(name, SPACES[names[0]], ACTIONS[names[1]], **settings), names, settings, larger
        except UsageError:
            self.counts[name]["unbuilt"] += 1
        except Exception as error:
            self.note(name, "crashed", f"{type(error).__name__}: {error}"[:200], f"built of {names} with {settings}")
        return None, names, settings, larger

    def batch(self, bonus: Bonus, pair: tuple[spaces.Space, spaces.Space], larger: bool) -> tuple[str, str, str]:
        """Gives a bonus an odd batch; what came of it, its offence or "", and what the batch was."""
        lead = [(30, 4), (1, 4), (30, 1), (1, 1), (2, 2)][self.random.choice(5, p=[0.5, 0.15, 0.15, 0.1, 0.1])]
        good = fields(pair, (200, 8) if larger else lead, self.random)
        words, made = odd(good, self.random)
        method = str(self.random.choice(["observe", "observe", "observe", "prepare", "score", "remember"]))
        words = f"{method} of {lead} with {words}"
        before = copy.deepcopy(bonus.state_dict())
        try:
            answer = getattr(bonus, method)(Batch.of(**made))
        except UsageError:
            return ("refused", "", words) if same(before, bonus.state_dict()) else ("changed", "a refused batch", words)
        except Exception as error:
            return "crashed", f"{type(error).__name__}: {error}"[:200], words
        if method == "score" and not same(before, bonus.state_dict()):
            return "changed", "scoring", words
        scores = answer[0] if method == "observe" else answer if method == "score" else torch.zeros(())
        metrics = answer[1] if method == "observe" else answer if method == "prepare" else {}
        if not torch.isfinite(scores).all() or not all(math.isfinite(value) for value in metrics.values()):
            return "not finite", "a batch that was taken", words
        try:
            scores = bonus.score(Batch.of(**(good | {"mask": None})))
        except Exception as error:
            return "crashed", f"on a good batch, {type(error).__name__}: {error}"[:200], words
        return ("taken", "", words) if torch.isfinite(scores).all() else ("not finite", "a good batch afterwards", words)

    def run(self, batches: int) -> None:
        done = 0
        while done < batches:
            name = NAMES[done // PER_BONUS % len(NAMES)]
            bonus, names, settings, larger = self.build(name)
            if bonus is None:
                continue
            pair = SPACES[names[0]], ACTIONS[names[1]]
            history: list[str] = []
            for number in range(PER_BONUS + 2):
                if number < 2:
                    bonus.observe(Batch.of(**(fields(pair, (30, 4), self.random) | {"mask": None})))
                    continue
                kind, offence, words = self.batch(bonus, pair, larger)
                done += 1
                self.counts[name]["batches"] += 1
                history.append(words)
                if not offence:
                    self.counts[name][kind] += 1
                    continue
                self.note(name, kind, offence, f"{names}, {words}; {settings}; before: {history[:-1]}")
                break  # what such a bonus does next says little

    def offences(self) -> tuple[int, int, int]:
        crashed, infinite, refused = (sum(count[kind] for count in self.counts.values()) for kind in COLUMNS[-3:])
        return crashed, infinite, refused

    def report(self, shown: int = 12) -> str:
        lines = [f"{'bonus':18}" + "".join(f"{column:>11}" for column in COLUMNS)]
        total = Counter[str]()
        for name, count in self.counts.items():
            lines.append(f"{name:18}" + "".join(f"{count[column]:11}" for column in COLUMNS))
            total += count
        lines.append(f"{'all':18}" + "".join(f"{total[column]:11}" for column in COLUMNS))
        lines += [f"\n{' | '.join(case)}\n    {where[:600]}" for case, where in list(self.cases.items())[:shown]]
        return "\n".join(lines)


def campaign(batches: int, seed: int) -> Campaign:
    """Odd spaces, then so many batches."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        made = Campaign(seed)
        made.spaces()
        made.run(batches)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    found = campaign(chosen.batches, chosen.seed)
    print(found.report())
    raise SystemExit(1 if any(found.offences()) else 0)


if __name__ == "__main__":
    main()
