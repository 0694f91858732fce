"""Each adapter in the words of the conformance suite (tests/contract/test_adapters.py).

To add an adapter: a class with these methods, and an entry in `HARNESSES`. Those of libraries that take long to import have a
file of their own, `harness_...`, and are imported when they are asked for.

- `play(bonus)`: a fresh agent with seed 0 goes some steps and does not learn, with the bonus (weight 2, not scaled, not
  centred, fitted at every chance) or, with None, without the adapter. Returns what it would learn from, as `Played`.
- `train(weight)`: a training with seed 0; with None, without the adapter. Returns all numbers that were learned.
- `resumed(folder)`: the same training twice: never stopped, and saved, loaded and gone on with. Returns the numbers of both.
- `evaluate()`: trains with an enormous bonus; returns what is reported of returns, of the training and of an evaluation.
- `known()`: the bonus of known scores, built from the spaces that the adapter is to find.
- `own_policy()`, if it brings agents: a training with a policy and a features extractor of a user's own.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from importlib import import_module

import gymnasium
import numpy as np
import sb3_contrib
import stable_baselines3
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import Autoreset, TransformObservation
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack, VecNormalize
from walk import KINDS, Known, Walk, places

from ex2 import Explorer
from ex2.adapters.gymnasium import BonusVectorWrapper, BonusWrapper
from ex2.adapters.sb3 import BonusCallback
from ex2.shaping import discounted
from ex2.training import checkpoint

GAMMA, LAMBDA, WEIGHT = 0.95, 0.9, 2.0
PLAIN = {"weight": WEIGHT, "scaled": False, "centre": "none", "gather": 1}


@dataclass
class Played:
    """What an agent would learn from [T, N]."""

    places: np.ndarray
    """Where each step began."""
    learned: np.ndarray
    """Advantages, returns, or, where there are none, rewards."""
    bootstrap: np.ndarray
    """What else targets are made of: it must be the same with a bonus and without."""
    ends: np.ndarray
    discount: float
    """What a bonus is multiplied by for each step that it lies ahead."""
    real: np.ndarray
    """Steps that happened: no resets."""


class OnPolicy:
    """Stable-Baselines3's PPO, A2C and their like."""

    continuous = False
    policies = {"RecurrentPPO": {"dict": "MultiInputLstmPolicy", "": "MlpLstmPolicy"}}  # noqa: RUF012

    def __init__(self, algorithm: str, kind: str, wrapped: str = "") -> None:
        self.algorithm = getattr(stable_baselines3, algorithm, None) or getattr(sb3_contrib, algorithm)
        self.kind, self.wrapped = kind, wrapped
        names = self.policies.get(algorithm, {"dict": "MultiInputPolicy", "": "MlpPolicy"})
        self.policy = names["dict" if kind == "dict" else ""]

    def one(self):
        walk = Walk(self.kind, self.continuous)
        if self.wrapped == "transposed":  # the library puts the channel back to the front
            last = gymnasium.spaces.Box(0, 255, (16, 16, 1), np.uint8)
            walk = TransformObservation(walk, lambda picture: np.moveaxis(picture, 0, 2), last)
        return Monitor(walk)

    def envs(self):
        envs = SubprocVecEnv([self.one] * 2) if "subprocess" in self.wrapped else DummyVecEnv([self.one] * 2)
        for wrapper in self.wrapped.split("+"):
            if wrapper == "normalised":
                envs = VecNormalize(envs, gamma=GAMMA, norm_obs_keys=["place"] if self.kind == "dict" else None)
            elif wrapper == "stacked":
                envs = VecFrameStack(envs, 3)
        return envs

    def known(self):
        """The bonus of known scores, built from the spaces that the adapter is to find."""
        space = Walk(self.kind).observation_space
        if self.wrapped.startswith("stacked"):  # else it looks below the normaliser, where frames are single
            space = VecFrameStack(DummyVecEnv([lambda: Walk(self.kind)]), 3).observation_space
        return Known(space, Walk(self.kind, self.continuous).action_space)

    def model(self, envs, steps=32, **settings):
        chosen = {
            "policy_kwargs": {"net_arch": [8]},
            "n_steps": steps,
            "gamma": GAMMA,
            "gae_lambda": LAMBDA,
            "seed": 0,
        } | settings
        if self.algorithm is sb3_contrib.RecurrentPPO:
            chosen["policy_kwargs"] = chosen["policy_kwargs"] | {"lstm_hidden_size": 8}
        if self.algorithm is not stable_baselines3.A2C:
            chosen |= {"batch_size": 32}
        if self.algorithm in (stable_baselines3.PPO, sb3_contrib.MaskablePPO, sb3_contrib.RecurrentPPO):
            chosen |= {"n_epochs": 2}
        return self.algorithm(self.policy, envs, device="cpu", **chosen)

    def play(self, bonus):
        envs = self.envs()
        agent = self.model(envs, steps=64)
        agent.train = lambda: None  # the buffer stays as it was filled
        callback = None if bonus is None else BonusCallback(bonus, **PLAIN)
        agent.learn(128, callback=callback)
        buffer = agent.rollout_buffer
        ends = np.concatenate([buffer.episode_starts[1:], np.zeros((1, 2))]).astype(bool)
        bonuses = 0.0 if callback is None else callback.bonuses
        where = places(buffer.observations) if callback is None else places(callback.batch.obs)
        envs.close()
        real = np.ones_like(ends)
        return Played(where, buffer.advantages, buffer.rewards - bonuses, ends, GAMMA * LAMBDA, real)

    def numbers(self, agent):
        return np.concatenate([values.detach().numpy().ravel() for values in agent.policy.parameters()])

    def train(self, weight, **settings):
        agent = self.model(self.envs(), **settings)
        agent.learn(192, callback=None if weight is None else BonusCallback("rnd", weight, gather=100))
        agent.env.close()
        return self.numbers(agent)

    def resumed(self, folder):
        """The second time the model, the bonus and the random state are read back; environments cannot be saved and go on."""
        found = []
        for again in (False, True):
            callback = BonusCallback("kernel-exemplar", total_steps=512, gather=100)
            agent = self.model(self.envs()).learn(256, callback=callback)
            if again:
                agent.save(folder / "agent")
                callback.save(folder / "agent")
                state, numpys = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
                memory = getattr(agent, "_last_lstm_states", None)
                agent = type(agent).load(folder / "agent", env=agent.env, device="cpu", force_reset=False)
                if memory is not None:  # which the library does not save
                    agent._last_lstm_states = memory
                callback = BonusCallback("kernel-exemplar", total_steps=512, gather=100).load(folder / "agent")
                torch.set_rng_state(state)
                np.random.set_state(numpys)  # noqa: NPY002
            agent.learn(256, callback=callback, reset_num_timesteps=False)
            assert callback.bonuses.any()
            found.append(self.numbers(agent))
            agent.env.close()
        return found

    def evaluate(self):
        agent = self.model(self.envs())
        agent.learn(512, callback=BonusCallback(self.known(), weight=1000.0, gather=1))
        agent.env.close()
        assert agent.ep_info_buffer
        if self.wrapped:
            return [episode["r"] for episode in agent.ep_info_buffer]
        returns, _ = evaluate_policy(agent, Monitor(Walk(self.kind)), 3, deterministic=False, return_episode_rewards=True)
        return [*returns, *(episode["r"] for episode in agent.ep_info_buffer)]

    def own_policy(self):
        """A policy and an extractor of a user's own."""

        class Extractor(FlattenExtractor):
            pass

        kind = stable_baselines3.common.policies.ActorCriticPolicy
        self.policy = type("OwnPolicy", (kind,), {})
        return self.train("auto", policy_kwargs={"net_arch": [8], "features_extractor_class": Extractor})


class Draw(BaseCallback):
    """Draws from the replay buffer when a training is about to end."""

    def _on_step(self):
        return True

    def _on_training_end(self):
        np.random.seed(1)  # noqa: NPY002
        self.sample = self.model.replay_buffer.sample(64)


class OffPolicy(OnPolicy):
    """Stable-Baselines3's DQN, SAC and their like."""

    @property
    def continuous(self):
        return self.algorithm.__name__ in ("SAC", "TD3", "TQC")

    def model(self, envs, learning_starts=40, **settings):
        chosen = {
            "policy_kwargs": {"net_arch": [8]},
            "gamma": GAMMA,
            "seed": 0,
            "train_freq": 8,
            "gradient_steps": 2,
        } | settings
        return self.algorithm(
            self.policy, envs, device="cpu", learning_starts=learning_starts, batch_size=16, buffer_size=1000, **chosen
        )

    def play(self, bonus):
        agent, draw = self.model(self.envs(), learning_starts=1_000), Draw()
        agent.learn(200, callback=draw if bonus is None else [draw, BonusCallback(bonus, **PLAIN)])
        drawn = draw.sample
        where = places(drawn.observations, 1)[None]
        ends = np.ones((1, 64), bool)
        return Played(where, drawn.rewards.numpy().T, drawn.dones.numpy().T, ends, 0.0, ends)

    def train(self, weight, **settings):
        agent = self.model(self.envs(), **settings)
        agent.learn(160, callback=None if weight is None else BonusCallback("rnd", weight, gather=50))
        return self.numbers(agent)

    def resumed(self, folder):
        found = []
        for again in (False, True):
            callback = BonusCallback("kernel-exemplar", total_steps=320, gather=50)
            agent = self.model(self.envs()).learn(160, callback=callback)
            if again:
                agent.save(folder / "agent")
                agent.save_replay_buffer(folder / "buffer")
                callback.save(folder / "agent")
                state, numpys, space = torch.get_rng_state(), np.random.get_state(), copy.deepcopy(agent.action_space)  # noqa: NPY002
                agent = type(agent).load(folder / "agent", env=agent.env, device="cpu", force_reset=False)
                agent.load_replay_buffer(folder / "buffer", truncate_last_traj=False)
                callback = BonusCallback("kernel-exemplar", total_steps=320, gather=50).load(folder / "agent")
                agent.action_space = space
                torch.set_rng_state(state)
                np.random.set_state(numpys)  # noqa: NPY002
            agent.learn(160, callback=callback, reset_num_timesteps=False)
            found.append(self.numbers(agent))
        return found

    def evaluate(self):
        agent = self.model(self.envs())
        agent.learn(200, callback=BonusCallback(self.known(), weight=1000.0, gather=1))
        own = Monitor(Walk(self.kind, self.continuous))
        envs = DummyVecEnv([lambda: own])
        if self.wrapped == "normalised":  # as the policy saw it; its rewards are not asked for
            envs = VecNormalize(envs, training=False)
            envs.obs_rms = agent.env.obs_rms
        evaluate_policy(agent, envs, 3, deterministic=False)
        returns = own.get_episode_rewards()
        return [*returns, *(episode["r"] for episode in agent.ep_info_buffer)]

    def own_policy(self):
        class Extractor(FlattenExtractor):
            pass

        self.policy = type("OwnPolicy", (self.algorithm.policy_aliases["MlpPolicy"],), {})
        return self.train("auto", policy_kwargs={"net_arch": [8], "features_extractor_class": Extractor})


class Learner:
    """A tabular learner, for adapters that bring no agent: returns of places, and steps towards the better ones."""

    def __init__(self) -> None:
        self.values, self.random = np.tile([0.0, 0.01], (8, 1)), np.random.default_rng(0)

    def act(self, where):
        best = self.values[where].argmax(-1)
        return np.where(self.random.random(len(where)) < 0.5, self.random.integers(2, size=len(where)), best)

    def learn(self, where, actions, rewards, after, ends):
        targets = rewards + GAMMA * ~ends * self.values[after].max(-1)
        for place, action, target in zip(where, actions, targets, strict=True):
            self.values[place, action] += 0.1 * (target - self.values[place, action])


class Vector:
    """BonusVectorWrapper, and with `by_hand` an Explorer in a loop of one's own."""

    def __init__(self, kind: str, mode: AutoresetMode, by_hand: bool = False, several: type = SyncVectorEnv) -> None:
        self.kind, self.mode, self.by_hand, self.several = kind, mode, by_hand, several

    def envs(self):
        return self.several([lambda: Walk(self.kind)] * 2, autoreset_mode=self.mode)

    def run(self, envs, steps, learner, explorer=None, obs=None):
        """Steps of all environments, learning as they go; resets by hand where nobody else does."""
        rows, fake = [], None
        obs = envs.reset(seed=0)[0] if obs is None else obs
        for _ in range(steps):
            where = places(obs, 1)
            fake = np.zeros(len(where), bool) if fake is None else fake
            actions = learner.act(where)
            after, rewards, terminated, truncated, infos = envs.step(actions)
            if explorer is not None:
                explorer.step(obs, actions, after, rewards, terminated, truncated, infos)
                shaped = explorer.rollout()
                rewards = (shaped.rewards + shaped.bonuses)[0]
            ends = terminated | truncated
            rows.append((where, rewards, terminated, truncated, ~fake))
            learner.learn(where[~fake], actions[~fake], rewards[~fake], places(after, 1)[~fake], ends[~fake])
            fake = ends if self.mode is AutoresetMode.NEXT_STEP else None
            if self.mode is AutoresetMode.DISABLED and ends.any():
                after, _ = envs.reset(options={"reset_mask": ends})
            obs = after
        return [np.stack(part) for part in zip(*rows, strict=True)], obs

    def wrap(self, envs, bonus, **settings):
        """(environments, explorer to be told by hand)"""
        if self.by_hand:
            return envs, Explorer.of(envs, bonus, gamma=GAMMA, **settings)
        return BonusVectorWrapper(envs, bonus, gamma=GAMMA, **settings), None

    def fresh(self, **settings):
        return Explorer.of(self.envs(), **settings)

    def known(self):
        return Known(Walk(self.kind).observation_space, Walk().action_space)

    def play(self, bonus):
        envs, explorer = (self.envs(), None) if bonus is None else self.wrap(self.envs(), bonus, **PLAIN)
        (where, rewards, terminated, truncated, real), _ = self.run(envs, 64, Still(), explorer)
        ends = terminated | truncated
        learned = discounted(rewards * real, GAMMA, ends)
        return Played(where, learned, np.stack([terminated, truncated]), ends, GAMMA, real)

    def train(self, weight):
        envs, explorer = (self.envs(), None) if weight is None else self.wrap(self.envs(), "rnd", weight=weight, gather=100)
        learner = Learner()
        self.run(envs, 200, learner, explorer)
        return learner.values

    def resumed(self, folder):
        found = []
        for again in (False, True):
            envs, explorer = self.wrap(self.envs(), "kernel-exemplar", total_steps=400, gather=50)
            learner = Learner()
            _, obs = self.run(envs, 100, learner, explorer)
            if again:
                held = explorer or envs.explorer
                checkpoint.save(folder / "explorer", held.state_dict())
                fresh = self.fresh(gamma=GAMMA, total_steps=400, gather=50)
                fresh.load_state_dict(checkpoint.load(folder / "explorer"))
                if explorer is None:
                    envs.explorer = fresh
                else:
                    explorer = fresh
            self.run(envs, 100, learner, explorer, obs)
            found.append(learner.values)
        return found

    def evaluate(self):
        counted = RecordEpisodeStatistics(self.envs())
        envs, explorer = self.wrap(counted, self.known(), weight=1000.0, gather=1)
        self.run(envs, 200, Learner(), explorer)
        return list(counted.return_queue)


class Still(Learner):
    """Does not learn."""

    def learn(self, *_):
        pass


class Single(Vector):
    """BonusWrapper: one environment, reset by its user or by `Autoreset`."""

    def __init__(self, kind: str, autoreset: bool) -> None:
        super().__init__(kind, AutoresetMode.NEXT_STEP if autoreset else AutoresetMode.DISABLED)

    def envs(self):
        return One(Autoreset(Walk(self.kind)) if self.mode is AutoresetMode.NEXT_STEP else Walk(self.kind))

    def wrap(self, envs, bonus, **settings):
        envs.env = BonusWrapper(envs.env, bonus, gamma=GAMMA, **settings)
        return envs, None

    def fresh(self, **settings):
        walk = Walk(self.kind)
        return Explorer(walk.observation_space, walk.action_space, autoreset=AutoresetMode.NEXT_STEP, **settings)

    def evaluate(self):
        counted = gymnasium.wrappers.RecordEpisodeStatistics(Walk(self.kind))
        envs = One(Autoreset(counted) if self.mode is AutoresetMode.NEXT_STEP else counted)
        envs, _ = self.wrap(envs, self.known(), weight=1000.0, gather=1)
        self.run(envs, 200, Learner())
        return list(counted.return_queue)


class One:
    """One environment, spoken to as a vector of one."""

    def __init__(self, env):
        self.env = env

    @property
    def explorer(self):
        return self.env.explorer

    @explorer.setter
    def explorer(self, fresh):
        self.env.explorer = fresh

    def reset(self, seed=None, options=None):
        obs, info = self.env.reset(seed=seed)
        return self._several(obs), info

    def step(self, actions):
        obs, *rest, info = self.env.step(actions[0])
        return self._several(obs), *(np.array([value]) for value in rest), info

    def _several(self, obs):
        if isinstance(obs, dict):
            return {key: np.asarray(value)[None] for key, value in obs.items()}
        return np.asarray(obs)[None]


def of(library: str, name: str):
    """A harness of another file."""
    return lambda *arguments: getattr(import_module(f"harness_{library}"), name)(*arguments)


NEXT, SAME, DISABLED = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED
ON_POLICY, DISCRETE, CONTINUOUS = ("PPO", "A2C", "TRPO", "MaskablePPO", "RecurrentPPO"), ("DQN", "QRDQN"), ("SAC", "TD3", "TQC")
WRAPPED = ("normalised", "stacked", "stacked+normalised", "normalised+stacked")

HARNESSES = {
    **{f"sb3-{name}-{kind}": (OnPolicy, name, kind) for name in ON_POLICY for kind in KINDS},
    **{f"sb3-{name}-vector-{wrapped}": (OnPolicy, name, "vector", wrapped) for name in ("PPO", "A2C") for wrapped in WRAPPED},
    "sb3-PPO-vector-subprocess": (OnPolicy, "PPO", "vector", "subprocess"),
    "sb3-PPO-dict-normalised": (OnPolicy, "PPO", "dict", "normalised"),
    "sb3-PPO-picture-transposed": (OnPolicy, "PPO", "picture", "transposed"),
    "sb3-DQN-vector-subprocess": (OffPolicy, "DQN", "vector", "subprocess"),
    "sb3-DQN-picture-transposed": (OffPolicy, "DQN", "picture", "transposed"),
    **{f"sb3-{name}-{kind}": (OffPolicy, name, kind) for name in DISCRETE for kind in KINDS},
    **{f"sb3-{name}-{kind}": (OffPolicy, name, kind) for name in CONTINUOUS for kind in ("vector", "picture", "dict")},
    **{f"sb3-{name}-vector-normalised": (OffPolicy, name, "vector", "normalised") for name in ("DQN", "SAC")},
    **{f"gymnasium-vector-{kind}-{mode.name}": (Vector, kind, mode) for kind in KINDS for mode in (NEXT, SAME, DISABLED)},
    **{f"gymnasium-async-dict-{mode.name}": (Vector, "dict", mode, False, AsyncVectorEnv) for mode in (NEXT, SAME)},
    **{f"by-hand-{kind}-{mode.name}": (Vector, kind, mode, True) for kind in KINDS for mode in (NEXT, SAME, DISABLED)},
    **{f"gymnasium-{kind}-autoreset-{auto}": (Single, kind, auto) for kind in KINDS for auto in (False, True)},
    **{f"torchrl-PPO-{kind}": (of("torchrl", "PPO"), kind) for kind in KINDS},
    "torchrl-DQN-vector": (of("torchrl", "DQN"), "vector"),
    **{f"tianshou-PPO-{kind}": (of("tianshou", "OnPolicy"), "PPO", kind) for kind in KINDS},
    **{f"tianshou-{name}-vector": (of("tianshou", "OnPolicy"), name, "vector") for name in ("A2C", "NPG", "TRPO")},
    **{f"tianshou-DQN-{kind}": (of("tianshou", "OffPolicy"), "DQN", kind) for kind in KINDS},
    "tianshou-QRDQN-vector": (of("tianshou", "OffPolicy"), "QRDQN", "vector"),
    "tianshou-SAC-vector": (of("tianshou", "Continuous"), "SAC", "vector"),
    "tianshou-SAC-dict": (of("tianshou", "Continuous"), "SAC", "dict"),
    "tianshou-TD3-vector": (of("tianshou", "Continuous"), "TD3", "vector"),
    "rllib-PPO-vector": (of("rllib", "PPO"), "vector"),
}
"""Every case of the suite: adapter, algorithm, kind of observations, autoreset mode or wrappers."""
