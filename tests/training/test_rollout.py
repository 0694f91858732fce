"""A rollout holds what happened: true transitions, what actor and critic say of them, and every frame once."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from oracle import rolled_out

from ex2 import UsageError
from ex2.training.config import configure
from ex2.training.loop import Trainer
from ex2.training.policy import Policy, PolicySettings
from ex2.training.returns import values_of
from ex2.training.rollout import Collector
from ex2.training.seen import Seen, SeenFrames


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("task", "steps"), [("cheetah", 505), ("gather", 40), ("doom", 215), ("freeway", 40)])
def test_values_log_probs_and_time_limits(task, steps, groups):
    overrides = {"num_envs": 2, "rollout_steps": steps, "policy.zero_critic": False, "groups": groups, "threads": 1}
    trainer = Trainer(configure(task, "none", overrides=overrides))
    seen, stepped = [], []
    for group in trainer.collector.groups:
        step = group.env.step

        def watched(actions, step=step, group=group):
            arrived = step(actions)
            stepped.append((group.where.start, *arrived))
            return arrived

        group.env.step = watched
        seen.append(group.observation.copy())
    rollout = trainer.collector.collect(steps)
    trainer.collector.close()
    policy = trainer.policy
    values, final_values = values_of(policy.critic, rollout)
    per_group = [[entry for entry in stepped if entry[0] == group.where.start] for group in trainer.collector.groups]
    rewards = np.stack([np.concatenate([entries[t][2] for entries in per_group]) for t in range(steps)])
    np.testing.assert_allclose(rollout.rewards, rewards, rtol=1e-6)

    def value(observation):
        with torch.no_grad():
            return policy.critic(policy.see(torch.as_tensor(np.asarray(observation)))).flatten().numpy()

    before = np.concatenate(seen)
    for t in range(steps):
        np.testing.assert_allclose(values[t], value(before), rtol=1e-3, atol=1e-4)
        after = np.concatenate([entries[t][1] for entries in per_group])
        reached, ends = after.copy(), np.concatenate([entries[t][3] | entries[t][4] for entries in per_group])
        for entries, group in zip(per_group, trainer.collector.groups, strict=True):
            for index in np.flatnonzero(entries[t][3] | entries[t][4]):
                reached[group.where.start + index] = entries[t][5]["final_obs"][index]
        shown = reached[:, -1:] if task == "freeway" else reached
        assert np.array_equal(rollout.batch.next_obs[t].numpy(), shown)
        assert np.array_equal(rollout.batch.obs[t].numpy(), before[:, -1:] if task == "freeway" else before)
        assert np.array_equal(rollout.ends[t], ends)
        expected = np.where(rollout.batch.truncated[t].numpy(), value(reached), 0.0)
        np.testing.assert_allclose(final_values[t], expected, rtol=1e-3, atol=1e-4)
        before = after
    np.testing.assert_allclose(values[-1], value(before), rtol=1e-3, atol=1e-4)
    assert rollout.batch.truncated.any() == (task in ("cheetah", "doom"))
    again = policy.actor(rollout.observations[:])
    torch.testing.assert_close(again, rollout.parameters, rtol=1e-4, atol=1e-5)
    log_probs = policy.actions.log_prob(again, rollout.actions).detach().numpy().reshape(steps, 2)
    np.testing.assert_allclose(rollout.log_probs, log_probs, rtol=1e-4, atol=1e-4)
    assert values.std() > 0.0


def test_two_groups_see_the_same_episodes_as_one():
    """Environment i has the same seed, and every draw is made beforehand: nothing depends on who is stepped when."""
    one, two = (rolled_out("gather", rollout_steps=60, groups=groups)[1] for groups in (1, 2))
    assert torch.equal(one.batch.obs[0], two.batch.obs[0])
    torch.testing.assert_close(one.batch.obs, two.batch.obs, rtol=1e-3, atol=1e-3)  # products of other sizes round otherwise
    torch.testing.assert_close(one.batch.action, two.batch.action, rtol=1e-3, atol=1e-3)
    assert np.array_equal(one.rewards, two.rewards)


def stacks(steps, envs, stack, seed=0):
    """Stacks as an environment gives them [T, N, stack, 6, 6], and where episodes begin."""
    random = np.random.default_rng(seed)
    now, found, begun = np.zeros((envs, stack, 6, 6), np.uint8), [], [np.ones(envs, bool)]
    for _ in range(steps):
        now[begun[-1]] = random.integers(0, 256, (begun[-1].sum(), stack, 6, 6))
        now = np.roll(now, -1, axis=1)
        now[:, -1] = random.integers(0, 256, (envs, 6, 6))
        found.append(now.copy())
        begun.append(random.random(envs) < 0.3)
    return np.stack(found), begun


@pytest.mark.parametrize("stack", [2, 4])
@pytest.mark.parametrize("groups", [1, 2])
def test_stacks_come_back_as_they_were(stack, groups):
    steps, envs = 40, 4
    found, begun = stacks(steps + 1, envs, stack)
    seen = SeenFrames(steps, envs, found[0], torch.device("cpu"))
    parts = [slice(0, envs)] if groups == 1 else [slice(0, 2), slice(2, 4)]
    for step in range(steps + 1):
        for where in parts:
            seen.put(step, where, found[step, where], begun[step][where])
            assert np.array_equal(seen.now(step, where).numpy(), found[step, where])
    observations = seen.observations(lambda x: x)
    assert np.array_equal(observations[:].numpy().reshape(found[:-1].shape), found[:-1])
    assert np.array_equal(seen.now(steps, slice(0, envs)).numpy(), found[-1])
    before, after = seen.states()
    assert np.array_equal(before, found[:-1, :, -1:])
    assert np.array_equal(after, found[1:, :, -1:])


def test_a_frame_is_held_once():
    """Where episodes are longer than a few steps; each that begins adds a whole stack."""
    found, _ = stacks(500, 4, 4)
    seen = SeenFrames(499, 4, found[0], torch.device("cpu"))
    for step in range(500):
        seen.put(step, slice(0, 4), found[step], np.full(4, step % 100 == 0))
    observations = seen.observations(lambda x: x)
    assert len(observations.frames) < 1.05 * 500 * 4


def test_the_last_observation_of_an_episode_is_what_an_action_led_to():
    seen = Seen(3, 2, np.zeros((2, 1), np.float32), torch.device("cpu"))
    for step in range(4):
        seen.put(step, slice(0, 2), np.full((2, 1), step, np.float32), np.zeros(2, bool))
    seen.end(1, np.array([1]), np.array([[9.0]]))
    before, after = seen.states()
    assert before[:, :, 0].tolist() == [[0, 0], [1, 1], [2, 2]]
    assert after[:, :, 0].tolist() == [[1, 1], [2, 9], [3, 3]]
    truncated = np.zeros((3, 2), bool)
    assert seen.cut(truncated) is None
    truncated[1, 1] = True
    assert seen.cut(truncated).tolist() == [[9.0]]


class Bad(gymnasium.Env):
    """Gives a number that is none, where asked."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, what="", at=5):
        self.what, self.at, self.time = what, at, 0

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.time += 1
        bad = self.time == self.at
        observation = np.full(2, np.nan if bad and self.what in ("observation", "last") else 0.5, np.float32)
        return observation, np.inf if bad and self.what == "reward" else 0.0, False, bad and self.what == "last", {}


@pytest.mark.parametrize(
    ("what", "words"), [("observation", "observation"), ("reward", "reward"), ("last", "last observation")]
)
def test_numbers_that_are_none_are_named(what, words):
    env = SyncVectorEnv([Bad, lambda: Bad(what)], autoreset_mode=AutoresetMode.SAME_STEP)
    policy = Policy(env.single_observation_space, env.single_action_space, PolicySettings())
    collector = Collector([env], policy, seed=0, generator=torch.Generator())
    with pytest.raises(UsageError, match=f"The {words}.* of environment 1 at step 4"):
        collector.collect(10)


def test_other_autoreset_modes_are_refused():
    env = SyncVectorEnv([Bad], autoreset_mode=AutoresetMode.NEXT_STEP)
    policy = Policy(env.single_observation_space, env.single_action_space, PolicySettings())
    with pytest.raises(UsageError, match="SAME_STEP"):
        Collector([env], policy, seed=0, generator=torch.Generator())


class Payday(Bad):
    """Pays 7 a step, for 4 steps."""

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return super().reset(seed=seed, options=options)

    def step(self, action):
        observation, _, *_ = super().step(action)
        return observation, 7.0, self.time == 4, False, {}


def test_rewards_are_clipped_for_learning_only():
    env = SyncVectorEnv([Payday] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    policy = Policy(env.single_observation_space, env.single_action_space, PolicySettings())
    collector = Collector([env], policy, seed=0, generator=torch.Generator(), clip_reward=True)
    rollout = collector.collect(10)
    assert (rollout.rewards == 1.0).all()
    assert list(collector.episodes) == [28.0] * 4
    assert collector.score == 28.0
    assert rollout.batch.terminated.sum() == 4


def test_a_stream_of_its_own_sees_the_stacks_that_were_acted_on():
    settings = {"num_envs": 2, "rollout_steps": 40, "episodic": False, "threads": 1}
    trainer = Trainer(configure("freeway", "rnd", overrides={"algo.batch_size": 80}, **settings))
    acted, learned = [], []

    def watch(module, rows):
        module.register_forward_pre_hook(lambda _, inputs: rows.append([row.numpy().tobytes() for row in inputs[0]]))

    watch(trainer.policy.actor[0], acted)  # a rollout goes through layers one by one
    watch(trainer.stream.critic, learned)
    trainer.iterate()
    trainer.collector.close()
    steps = [row for rows in acted[:80] for row in rows]  # 40 steps of two groups
    assert len(set(steps)) > 40
    values, last, *fits = learned  # all that was acted on, what is behind the last step, and four times over all
    assert len(last) == 2
    assert values == steps
    assert sorted(row for rows in fits for row in rows) == sorted(4 * steps)


def test_a_stream_of_its_own_standardises_as_the_agent_does():
    settings = {"num_envs": 2, "rollout_steps": 40, "episodic": False}
    trainer = Trainer(configure("gather", "rnd", overrides={"policy.standardise": "critic"}, **settings))
    trainer.iterate()
    trainer.collector.close()
    policy = trainer.policy
    assert policy.critic[0].moments is policy.bonus_critic[0].moments is policy.moments
    assert policy.moments.seen.item() == 80
    assert trainer.stream.critic is policy.bonus_critic


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("task", ["cheetah", "doom", "freeway", "MountainCarContinuous-v0"])
def test_first_episodes_are_cut_short_one_after_the_other(task, groups):
    """Each environment once, at a time limit that is none of its own: what it led to is real, and its return is no score."""
    overrides = {"num_envs": 4, "rollout_steps": 50, "groups": groups, "threads": 1}
    trainer = Trainer(configure(task, "none", overrides=overrides))
    collector = trainer.collector
    collector.apart = 40
    collector.begin(seed=5)
    rollout = collector.collect(50)
    collector.close()
    assert np.argwhere(rollout.ends).tolist() == [[9, 1], [19, 2], [29, 3]]
    assert np.array_equal(rollout.batch.truncated.numpy(), rollout.ends)
    assert not collector.episodes
    expected = [rollout.rewards[first:, env].sum() for env, first in enumerate((0, 10, 20, 30))]
    np.testing.assert_allclose(collector.returns, expected, rtol=1e-5)
    obs, after = rollout.batch.obs.numpy(), rollout.batch.next_obs.numpy()
    for step, env in ((9, 1), (19, 2), (29, 3)):
        assert rollout.cut is not None
        assert not np.array_equal(after[step, env], obs[step + 1, env])  # behind it another episode begins
    steady = np.flatnonzero(~rollout.ends[:-1, 0])
    assert np.array_equal(after[steady, 0], obs[steady + 1, 0])


def test_whole_episodes_count_once_the_first_were_cut_short():
    trainer = Trainer(configure("cheetah", "none", overrides={"num_envs": 4, "rollout_steps": 100}))
    collector, ends = trainer.collector, []
    for _ in range(10):
        ends.append(collector.collect(100).ends)
    collector.close()
    found = [np.flatnonzero(np.concatenate(ends)[:, env]).tolist() for env in range(4)]
    assert found == [[499, 999], [124, 624], [249, 749], [374, 874]]
    assert len(collector.episodes) == 5


def test_an_episode_may_end_by_itself_where_another_is_cut_short():
    """Some environments give the last observations as one array, not as one object each."""
    trainer = Trainer(configure("freeway", "none", overrides={"num_envs": 4, "rollout_steps": 30, "groups": 1, "threads": 1}))
    collector = trainer.collector
    collector.apart = 40
    collector.begin(seed=5)
    group, ended = collector.groups[0], np.array([False, False, False, True])
    step, final = group.env.step, np.full((4, 4, 42, 42), 7, np.uint8)
    count = 0

    def with_an_end(actions):
        nonlocal count
        count += 1
        observation, reward, terminated, truncated, infos = step(actions)
        if count == 10:  # where environment 1 is cut short
            return observation, reward, ended, truncated, infos | {"final_obs": final}
        return observation, reward, terminated, truncated, infos

    group.env.step = with_an_end
    rollout = collector.collect(30)
    collector.close()
    assert np.argwhere(rollout.ends).tolist() == [[9, 1], [9, 3], [19, 2]]
    assert (rollout.batch.next_obs[9, 3] == 7).all()
    assert (rollout.batch.next_obs[9, 1] != 7).any()
