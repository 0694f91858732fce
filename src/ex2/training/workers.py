"""Collecting a rollout on several Ray workers: each holds a share of the environments and a copy of the actor.

An iteration sends the actor's weights once, and to each worker its share of the noise that actions are drawn by; each sends
back its environments' part of the rollout. All draws are made here, so a run repeats to the bit, whoever is done first. The
state of environments that can be saved comes back, too: the worker that takes a dead one's place goes on from there.

Ray is imported when there is a worker to start.
"""

from __future__ import annotations

import itertools
import warnings
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Space

from ex2.arrays import Array
from ex2.cluster import Session, lines
from ex2.errors import UsageError
from ex2.tasks import find_task
from ex2.tasks.cores import cores
from ex2.training.config import Config
from ex2.training.environments import groups_of
from ex2.training.policy import Policy
from ex2.training.rollout import SCORE_EPISODES, Collector, Rollout, Steps
from ex2.training.seen import Seen, SeenFrames

START_SECONDS = 300.0  # that a worker may take to come up, on a cluster that starts machines for it
CLOSE_SECONDS = 10.0  # that it may take to end its games
LIVES = 3  # that a worker may lose in one iteration
THREADED = ("mujoco", "ale_py")  # what steps environments in threads: a worker has one processor

State = dict[str, Any]


class Worker:
    """A share of a run's environments, in a process of its own."""

    def __init__(self, config: Config) -> None:
        torch.set_num_threads(1)
        self.config = config

    def spaces(self) -> tuple[Space[Any], Space[Any]]:
        """Makes the environments, and says what they show and what they take."""
        self.exact = find_task(self.config.task).exact
        self.envs = groups_of(self.config)
        return self.envs[0].single_observation_space, self.envs[0].single_action_space

    def begin(self, seed: int, settings: dict[str, Any], state: State | None) -> State:
        """Begins all episodes, or goes on from where a state was taken; returns the state."""
        first = self.envs[0]
        policy = Policy(first.single_observation_space, first.single_action_space, self.config.policy)
        self.collector = Collector(self.envs, policy, seed=seed, generator=torch.Generator(), **settings)
        if state is not None:
            self.collector.load_state(state)
        return self.collector.state(self.exact)

    def take(self, weights: dict[str, Array], noise: Array) -> tuple[dict[str, Any], State, list[str]]:
        """Its part of a rollout, its state behind it, and what there was to warn of."""
        collector = self.collector
        collector.policy.actor.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            taken = collector.take(torch.tensor(noise))
        shape = taken.rewards.shape
        part = {
            "seen": taken.seen.parts(),
            "actions": taken.actions.unflatten(0, shape).numpy(),
            "parameters": taken.parameters.unflatten(0, shape).numpy(),
            "rewards": taken.rewards,
            "terminated": taken.terminated,
            "truncated": taken.truncated,
            "episodes": taken.episodes,
            "places": taken.places,
        }
        return part, collector.state(self.exact), [str(one.message) for one in told]

    def close(self) -> None:
        for env in getattr(self, "envs", []):
            env.close()


class Remote:
    """A worker as seen from here: it stands where a run without workers has a group of environments."""

    def __init__(self, config: Config, number: int, where: slice) -> None:
        self.number, self.where, self.num_envs = number, where, where.stop - where.start
        settings = {"threads": 1} if find_task(config.task).needs in THREADED else {}
        self.config = config.changed(
            num_envs=self.num_envs,
            groups=min(config.groups, self.num_envs),
            workers=0,
            device="cpu",
            task_settings=settings | config.task_settings,
        )
        self.single_observation_space: Any = None
        self.single_action_space: Any = None
        self.state: State = {}
        self.closed = False
        self.start()

    def start(self) -> None:
        """Starts its process; `opened` waits for it."""
        import ray

        actor: Any = ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(Worker)
        self.worker = actor.remote(self.config)
        self._opened = self.worker.spaces.remote()

    def opened(self) -> None:
        """Returns when its environments are there."""
        import ray
        from ray.exceptions import GetTimeoutError, RayActorError

        try:
            self.single_observation_space, self.single_action_space = answer(self._opened, START_SECONDS)
        except RayActorError as error:
            raise UsageError(
                f"Worker {self.number} does not start ({lines(error)[-1]}): every machine of the cluster needs the same ex2."
            ) from None
        except GetTimeoutError:
            raise UsageError(
                f"Worker {self.number} has not come up after {START_SECONDS:.0f} seconds: it needs a free processor, of which "
                f"the cluster has {ray.available_resources().get('CPU', 0):.0f} now."
            ) from None

    def close(self) -> None:
        close([self])


def close(remotes: Sequence[Remote]) -> None:
    """Ends environments and processes of workers, and the session with the last one."""
    open_ones = [remote for remote in remotes if not remote.closed]
    for remote in open_ones:
        remote.closed = True
    try:
        end(open_ones)
    finally:
        for _ in open_ones:
            Session.leave()


def end(remotes: Sequence[Remote]) -> None:
    """Ends processes, whose environments may take some seconds to end before."""
    if not remotes:
        return
    import ray

    if ray.is_initialized():
        ended = [remote.worker.close.remote() for remote in remotes]
        ray.wait(ended, num_returns=len(ended), timeout=CLOSE_SECONDS)
        for remote in remotes:
            ray.kill(remote.worker)


def start(config: Config, address: str | None = None) -> list[Remote]:
    """The workers of a run, each with its share of the environments, in the session of Ray that there is or in a new one."""
    ends = [-(-index * config.num_envs // config.workers) for index in range(config.workers + 1)]
    remotes: list[Remote] = []
    try:
        for number, (begin, end) in enumerate(itertools.pairwise(ends), 1):
            Session.enter(address, num_cpus=max(config.workers, cores()))
            remotes.append(Remote(config, number, slice(begin, end)))
        for remote in remotes:
            remote.opened()
    except BaseException:
        close(remotes)
        raise
    return remotes


def answer(asked: Any, seconds: float | None = None) -> Any:
    """What a worker answers; what the user got wrong is raised as if it had happened here."""
    import ray
    from ray.exceptions import RayTaskError

    try:
        return ray.get(asked, timeout=seconds)
    except RayTaskError as error:
        if isinstance(error.cause, UsageError):
            raise UsageError(str(error.cause)) from None
        raise


class Workers:
    """Collects as a `Collector` does: its arguments, its methods, and up to rounding its rollouts.

    (An actor sees the environments of a worker at once, not all of them; products of other sizes may round otherwise.)
    """

    def __init__(
        self, envs: Sequence[Remote], policy: Policy, *, seed: int, generator: torch.Generator, apart: int, **settings: Any
    ) -> None:
        self.remotes, self.policy, self.generator = list(envs), policy, generator
        self.count = self.remotes[-1].where.stop
        self.settings = settings | {"apart": apart, "total": self.count}
        self.seen = SeenFrames if settings["stack"] > 1 else Seen
        self.episodes: deque[float] = deque(maxlen=SCORE_EPISODES)
        self.exact = find_task(self.remotes[0].config.task).exact
        self.deaths, self.anew = 0, False
        self.begin(seed)

    def begin(self, seed: int) -> None:
        """Begins all episodes: environment i has the seed + i."""
        self.seed = seed
        self._all_begin([None] * len(self.remotes))

    def _all_begin(self, states: Sequence[State | None]) -> None:
        for remote, state in zip(self.remotes, states, strict=True):
            remote.state = state or {}  # which a worker that takes its place begins with
        asked = [self._begin(remote, self.seed, state) for remote, state in zip(self.remotes, states, strict=True)]
        for remote, one in zip(self.remotes, asked, strict=True):
            remote.state = self._sure(remote, one)

    def _begin(self, remote: Remote, seed: int, state: State | None) -> Any:
        return remote.worker.begin.remote(seed, self.settings | {"first": remote.where.start}, state)

    @property
    def score(self) -> float:
        return float(np.mean(self.episodes)) if self.episodes else float("nan")

    def collect(self, steps: int) -> Rollout:
        """A rollout of so many steps of each environment, with the policy as it is."""
        import ray

        self.anew = False
        noise = self.policy.actions.noise(steps, self.count, self.generator).numpy()
        weights = ray.put({name: value.cpu().numpy() for name, value in self.policy.actor.state_dict().items()})
        sent = [(weights, np.ascontiguousarray(noise[:, remote.where])) for remote in self.remotes]
        asked = [remote.worker.take.remote(*one) for remote, one in zip(self.remotes, sent, strict=True)]
        parts, states = list[dict[str, Any]](), list[State]()
        for remote, one, again in zip(self.remotes, asked, sent, strict=True):
            part, state, told = self._sure(remote, one, again)
            parts.append(part)
            states.append(state)
            for message in told:
                warnings.warn(f"Worker {remote.number}: {message}", stacklevel=2)
        for remote, state in zip(self.remotes, states, strict=True):
            remote.state = state
        taken = self._joined(steps, parts)
        self.episodes.extend(value for _, _, value in taken.episodes)
        return taken.rollout(self.policy)

    def _joined(self, steps: int, parts: Sequence[dict[str, Any]]) -> Steps:
        """The parts of all workers as one."""
        device = self.policy.device
        taken = Steps(self.seen(steps, self.count, parts[0]["seen"]["last"], device))
        for remote, part in zip(self.remotes, parts, strict=True):
            where = remote.where
            taken.seen.join(where, part["seen"])
            taken.rewards[:, where] = part["rewards"]
            taken.terminated[:, where], taken.truncated[:, where] = part["terminated"], part["truncated"]
            if part["places"] is not None:
                taken.put_places(slice(None), where, part["places"])
            taken.episodes += [(step, where.start + index, value) for step, index, value in part["episodes"]]
        taken.episodes.sort(key=lambda episode: episode[:2])
        taken.actions, taken.parameters = (
            torch.from_numpy(np.concatenate([part[name] for part in parts], 1)).to(device).flatten(0, 1)
            for name in ("actions", "parameters")
        )
        return taken

    def _sure(self, remote: Remote, asked: Any, again: Sequence[Any] = ()) -> Any:
        """What a worker answers. One that has died is replaced, and the new one is asked to `take` the same again: from the
        state that the iteration began in, or, where that cannot be saved, with fresh episodes."""
        from ray.exceptions import ObjectLostError, RayActorError

        for lives in reversed(range(LIVES)):
            try:
                return answer(asked)
            except (RayActorError, ObjectLostError) as error:  # ObjectLostError: with the machine that it came from
                if not lives:
                    raise UsageError(
                        f"Worker {remote.number} has died {LIVES} times in one iteration ({lines(error)[0]}): its machine "
                        "may lack memory; take fewer environments (num_envs) or more workers."
                    ) from None
            asked = self._replaced(remote, again)

    def _replaced(self, remote: Remote, again: Sequence[Any]) -> Any:
        self.deaths += 1
        goes_on = "from where this iteration began" if self.exact else "with fresh episodes"
        warnings.warn(f"Worker {remote.number} died and was started anew; it goes on {goes_on}.", stacklevel=4)
        end([remote])
        remote.start()
        remote.opened()
        seed, state = self.seed, remote.state or None
        if not self.exact:
            self.anew, state = True, None
            seeds = np.random.SeedSequence([self.seed, remote.where.start, self.deaths])
            seed = int(seeds.generate_state(1)[0] >> 1)
        begun = self._begin(remote, seed, state)
        return remote.worker.take.remote(*again) if again else begun

    def state(self, exact: bool) -> State:
        """What a `Collector` says of as many groups as there are groups of all workers."""
        states = [remote.state for remote in self.remotes]
        joined: State = {name: np.concatenate([state[name] for state in states]) for name in ("returns", "cut_in")}
        envs = [group for state in states for group in state["envs"]] if exact else None
        return joined | {"episodes": list(self.episodes), "envs": envs}

    def load_state(self, state: State) -> None:
        self.episodes = deque(state["episodes"], maxlen=SCORE_EPISODES)
        if state["envs"] is None:
            return
        envs, parts = iter(state["envs"]), list[State]()
        for remote in self.remotes:
            own = {name: state[name][remote.where] for name in ("returns", "cut_in")}
            parts.append(own | {"episodes": [], "envs": [next(envs) for _ in range(remote.config.groups)]})
        self._all_begin(parts)

    def close(self) -> None:
        close(self.remotes)
