"""The bonus in Stable-Baselines3: it reaches the returns, sees true transitions, and leaves the environment's reward alone."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from corridor import Corridor
from gymnasium import spaces
from harnesses import Draw
from sb3_contrib import TRPO, RecurrentPPO
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback, EvalCallback, EveryNTimesteps
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnvWrapper, VecFrameStack, VecNormalize

import ex2  # noqa: F401 (registers the tasks)
from ex2 import Bonus, UsageError
from ex2.adapters.sb3 import BonusCallback


class LastPlace(Bonus):
    """Rates what is to the right: known answers for the tests. Keeps the batches it was shown."""

    def __init__(self, *pair, **settings):
        super().__init__(*pair, **settings)
        self.batches = []

    def prepare(self, batch):
        self.batches.append(batch)
        return {}

    def score(self, batch):
        return (batch.obs[..., 0] >= 3).float()

    def remember(self, batch):
        pass


def corridors(count=2, **settings):
    return DummyVecEnv([lambda: Monitor(Corridor(**settings))] * count)


def collect(env, weight, algorithm=A2C, steps=16, bonus=None, **settings):
    """One rollout of a fresh agent with the bonus; the same seed gives the same transitions whatever the weight."""
    agent = algorithm("MlpPolicy", env, n_steps=steps, seed=0, device="cpu", **settings)
    bonus = bonus or LastPlace(env.observation_space, env.action_space)
    callback = BonusCallback(bonus, weight=weight, centre="none", gather=1)
    agent.train = lambda: None
    agent.learn(steps * env.num_envs, callback=callback)
    return agent.rollout_buffer, callback


@pytest.mark.parametrize("algorithm", [PPO, TRPO])
def test_3_a_stream_of_its_own_goes_on_over_the_ends_of_episodes(algorithm):
    """Its advantages are added to those of the environment's rewards, which, with their returns, stay what they are."""
    settings = {"batch_size": 40, "gae_lambda": 0.9, "gamma": 0.95}
    plain, _ = collect(corridors(length=6, limit=12), 0.0, algorithm, 40, **settings)
    env = corridors(length=6, limit=12)
    agent = algorithm("MlpPolicy", env, n_steps=40, seed=0, device="cpu", **settings)
    agent.train = lambda: None
    bonus = LastPlace(env.observation_space, env.action_space)
    callback = BonusCallback(bonus, weight=2.0, centre="none", episodic=False, gather=1)
    agent.learn(80, callback=callback)
    buffer = agent.rollout_buffer
    assert np.array_equal(buffer.rewards, plain.rewards)
    assert np.array_equal(buffer.returns, plain.returns)
    expected, running = np.zeros_like(plain.advantages), np.zeros(2)
    for step in reversed(range(40)):  # the stream's critic begins at 0, and no end of an episode interrupts the sum
        running = callback.bonuses[step] + 0.95 * 0.9 * running
        expected[step] = running
    assert plain.episode_starts[1:].any()
    assert np.allclose(buffer.advantages, plain.advantages + expected, atol=1e-4)
    learned = callback.stream.critic(torch.as_tensor(buffer.observations).flatten(0, 1)).detach().numpy()
    returns = expected.reshape(-1, 1) / 2.0
    assert np.square(callback.stream.scale * learned - returns).mean() < np.square(returns).mean()
    before = callback.stream
    agent.learn(80, callback=callback)
    assert callback.stream is before
    other = algorithm("MlpPolicy", env, n_steps=24, seed=0, device="cpu", **(settings | {"batch_size": 24}))
    other.num_timesteps = agent.num_timesteps  # as one that was loaded
    other.learn(48, callback=callback, reset_num_timesteps=False)
    assert callback.stream is not before


def test_a_stream_of_its_own_takes_numbered_states():
    agent = PPO("MlpPolicy", make_vec_env("FrozenLake-v1", 2), n_steps=16, batch_size=32, device="cpu")
    callback = BonusCallback("rnd", 1.0, episodic=False, gather=1)
    agent.learn(64, callback=callback)
    assert callback.stream.scale > 0.0


def test_a_policy_with_a_memory_has_no_stream_of_its_own():
    agent = RecurrentPPO("MlpLstmPolicy", corridors(), n_steps=16, batch_size=32, device="cpu")
    with pytest.raises(UsageError, match="episodic=False does not work with RecurrentActorCriticPolicy"):
        agent.learn(32, callback=BonusCallback("rnd", 1.0, episodic=False))


def test_3_a_time_limit_is_bootstrapped_with_the_last_observation():
    """In the maze nothing terminates: the last reward of an episode holds gamma times the value of where it ended."""
    env = make_vec_env("ex2/Maze-v0", 2)
    buffer, callback = collect(env, 0.0, PPO, 200, batch_size=100, gamma=0.9)
    agent_values = callback.model.policy.predict_values(callback.batch.next_obs[199]).detach().numpy().flatten()
    assert callback.batch.truncated[199].all()
    assert np.allclose(buffer.rewards[199], -1.0 + 0.9 * agent_values, atol=1e-5)
    assert np.allclose(buffer.rewards[:199], -1.0)


def test_8_the_environments_own_reward_is_what_is_reported():
    agent = PPO("MlpPolicy", corridors(length=4), n_steps=64, batch_size=64, seed=0, device="cpu")
    agent.learn(512, callback=BonusCallback(LastPlace(agent.observation_space, agent.action_space), weight=1000.0))
    assert agent.ep_info_buffer
    assert {episode["r"] for episode in agent.ep_info_buffer} == {1.0}


def test_8_running_normalisation_moves_neither_states_nor_scores():
    """Under VecNormalize the bonus sees the environment's observations, and reports stay the environment's."""
    env = VecNormalize(corridors(count=2, length=6, limit=30))
    _, callback = collect(env, 1.0, steps=90)
    (batch,) = callback.bonus.batches
    assert torch.equal(batch.obs, batch.obs.round())
    moved = batch.next_obs[..., 0] - batch.obs[..., 0]
    assert (moved.abs() <= 1.0 + 1e-4).all()
    assert {episode["r"] for episode in callback.model.ep_info_buffer} <= {0.0, 1.0}


def test_8_a_normaliser_inside_of_other_wrappers_is_looked_below():
    """Exactly, the last observations of episodes included; afterwards the environment is as it was."""
    inner = VecNormalize(corridors(length=4, limit=9), clip_obs=0.1)
    below = inner.venv
    bonus = LastPlace(below.observation_space, below.action_space)
    _, callback = collect(VecFrameStack(inner, 2), 1.0, steps=120, bonus=bonus)
    (batch,) = callback.bonus.batches
    assert batch.obs.shape == (120, 2, 1)
    moved = batch.next_obs[..., 0] - batch.obs[..., 0]
    assert ((moved.abs() == 1) | ((batch.obs[..., 0] == 0) & (moved == 0))).all()
    assert inner.venv is below
    _, callback = collect(VecFrameStack(VecNormalize(corridors(), norm_obs=False), 2), 1.0)
    assert callback.batch.obs.shape == (16, 2, 2)


def test_by_name_with_settings():
    env = corridors(length=6)
    agent = PPO("MlpPolicy", env, n_steps=32, batch_size=64, seed=0, device="cpu")
    callback = BonusCallback("histogram", weight=0.1, bins=6, gather=1)
    agent.learn(256, callback=callback)
    assert callback.bonus.settings.bins == 6
    assert len(callback.bonus.replay) == 256
    assert callback.metrics["exploration/weight"] == pytest.approx(0.1 / callback.metrics["exploration/scale"])


def test_what_cannot_work_is_refused():
    env = corridors()
    with pytest.raises(UsageError, match="episodic=False is for on-policy algorithms, not for DQN"):
        DQN("MlpPolicy", env, device="cpu").learn(10, callback=BonusCallback("histogram", episodic=False))
    with pytest.raises(UsageError, match="not with NStepReplayBuffer: leave out n_steps"):
        DQN("MlpPolicy", env, device="cpu", n_steps=3).learn(10, callback=BonusCallback("histogram"))
    with pytest.raises(UsageError, match="did you mean 'median'"):
        BonusCallback("histogram", centre="midian")
    bonus = LastPlace(env.observation_space, env.action_space)
    with pytest.raises(UsageError, match="beside a built bonus"):
        PPO("MlpPolicy", env, device="cpu").learn(10, callback=BonusCallback(bonus, bins=3))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_named(value):
    """The environment and the step, before the policy stumbles over them."""

    class Broken(Corridor):
        def _observe(self):
            return np.array([value if self.place == 2 else self.place], np.float32)

    class BadReward(Corridor):
        def step(self, action):
            observation, _, *rest = super().step(action)
            return observation, value if self.place == 2 else 0.0, *rest

    for broken, name in ((Broken, "observation"), (BadReward, "reward")):
        agent = A2C("MlpPolicy", DummyVecEnv([Corridor, broken]), n_steps=64, seed=0, device="cpu")
        with pytest.raises(UsageError, match=rf"The {name} of environment 1 at step \d+ of the rollout"):
            agent.learn(128, callback=BonusCallback("histogram"))


def test_the_bonus_sees_the_last_frame_of_a_stack():
    """As uint8, one frame for each step; the last frame of an episode is the terminal observation's."""
    env = make_vec_env("ex2/Freeway-v0", 2, env_kwargs={"episode_steps": 40})
    agent = A2C("CnnPolicy", env, n_steps=64, seed=0, device="cpu", policy_kwargs={"net_arch": [8]})
    callback = BonusCallback("kernel-exemplar", last_frame=True, min_replay=50)
    agent.learn(128, callback=callback)
    assert callback.batch.obs.shape == (64, 2, 1, 42, 42)
    assert callback.batch.obs.dtype == torch.uint8
    assert callback.bonus.replay.rows().shape[1] == 42 * 42
    stacks = agent.rollout_buffer.observations.reshape(2, 64, 4, 42, 42).swapaxes(0, 1)  # flattened by training
    assert np.array_equal(callback.batch.obs.numpy(), stacks[:, :, -1:])
    ends = callback.batch.truncated | callback.batch.terminated
    same = (callback.batch.next_obs[:-1] == callback.batch.obs[1:]).flatten(2).all(-1)
    assert torch.equal(same | ends[:-1], torch.ones_like(same))
    assert not same[ends[:-1]].all()


def test_dict_observations_in_all_their_parts_or_in_some():
    """MultiInputPolicy's dicts reach the bonus, with the last observation of an episode in its place."""
    box = spaces.Box(-1.0, 1.0, (2,), np.float32)

    class Rooms(gymnasium.Env):
        observation_space = spaces.Dict({"place": box, "room": spaces.Discrete(3)})
        action_space = spaces.Discrete(2)

        def look(self):
            return {"place": np.full(2, self.steps / 10, np.float32), "room": self.steps % 3}

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.steps = 0
            return self.look(), {}

        def step(self, action):
            self.steps += 1
            return self.look(), 0.0, False, self.steps == 7, {}

    for settings in ({}, {"entries": ["place"]}):
        agent = PPO("MultiInputPolicy", Rooms(), n_steps=32, batch_size=32, seed=0, device="cpu")
        callback = BonusCallback("kernel-exemplar", weight=0.1, gather=1, **settings)
        agent.learn(96, callback=callback)
        assert callback.batch is not None
        assert callback.batch.next_obs["place"].max() == pytest.approx(0.7)
        assert callback.bonuses.std() > 0
    with pytest.raises(UsageError, match="last_frame is for stacks"):
        PPO("MultiInputPolicy", Rooms(), n_steps=32, device="cpu").learn(32, callback=BonusCallback("rnd", last_frame=True))


def test_a_training_of_one_rollout_has_a_bonus():
    agent = PPO("MlpPolicy", corridors(length=6), n_steps=32, batch_size=64, seed=0, device="cpu")
    callback = BonusCallback("simhash", gather=1)
    agent.learn(64, callback=callback)
    assert callback.bonuses.shape == (32, 2)
    assert callback.bonuses.any()


def test_seed_and_device_come_from_the_model():
    agent = PPO("MlpPolicy", corridors(), n_steps=32, batch_size=64, seed=7, device="cpu")
    callback = BonusCallback("rnd")
    agent.learn(64, callback=callback)
    assert callback.bonus.seed == 7
    assert callback.bonus.device == agent.device
    assert callback.explorer.shaper.reward_scale.gamma == agent.gamma
    chosen = BonusCallback("rnd", seed=3)
    agent.learn(64, callback=chosen)
    assert chosen.bonus.seed == 3


@pytest.mark.parametrize("weight", [lambda progress: 1.0, "big", np.nan, -0.5])
def test_a_weight_that_is_none_is_refused_at_once(weight):
    with pytest.raises(UsageError, match='it must be "auto", a finite number'):
        BonusCallback(weight=weight)


def test_the_weighted_bonus_is_logged_beside_the_reward():
    """In units of the reward: the sum of an episode's bonuses."""
    agent = PPO("MlpPolicy", corridors(count=1, length=4), n_steps=64, batch_size=64, seed=0, device="cpu")
    bonus = LastPlace(agent.observation_space, agent.action_space)
    bonus.score = lambda batch: (batch.obs[..., 0] >= 2).float()
    callback = BonusCallback(bonus, weight=0.5, centre="none", scaled=False, gather=1)
    agent.learn(64, callback=callback, log_interval=1_000)
    ends = np.flatnonzero(callback.batch.terminated[:, 0])
    expected = [part.sum() for part in np.split(callback.bonuses[:, 0], ends + 1)[:-1]]
    assert min(expected) >= 0.5
    assert callback.metrics["rollout/ep_bonus_mean"] == pytest.approx(np.mean(expected))
    assert agent.logger.name_to_value["rollout/ep_bonus_mean"] == pytest.approx(np.mean(expected))
    assert agent.logger.name_to_value["exploration/weight"] == pytest.approx(0.5)


def test_a_policy_keeps_seeing_all_of_what_a_bonus_sees_some_of():
    agent = PPO("MlpPolicy", make_vec_env("Pendulum-v1", 2), n_steps=32, batch_size=64, seed=0, device="cpu")
    callback = BonusCallback("kernel-exemplar", see=lambda obs: obs[:, :2], gather=1)
    agent.learn(192, callback=callback)
    assert agent.rollout_buffer.observations.shape[-1] == 3
    assert callback.batch.obs.shape == (32, 2, 2)
    assert callback.bonuses.any()


def test_a_stack_of_frames_in_colours_is_told_by_its_wrapper():
    class Colours(Corridor):
        def __init__(self):
            super().__init__()
            self.observation_space = spaces.Box(0, 255, (40, 40, 3), np.uint8)

        def _observe(self):
            return np.full((40, 40, 3), 20 * self.place, np.uint8) + np.arange(3, dtype=np.uint8)

    env = VecFrameStack(DummyVecEnv([Colours] * 2), 4)
    agent = A2C("CnnPolicy", env, n_steps=16, seed=0, device="cpu", policy_kwargs={"net_arch": [8]})
    callback = BonusCallback("rnd", last_frame=True)
    agent.learn(32, callback=callback)
    assert agent.observation_space.shape == (12, 40, 40)
    assert callback.batch.obs.shape == (16, 2, 3, 40, 40)
    assert (callback.batch.obs[..., 0, 0] % 20 == torch.arange(3)).all()


def test_an_old_transition_has_lost_its_bonus():
    """The reward that the buffer holds is the environment's; what a draw adds is of now."""
    agent = DQN("MlpPolicy", corridors(count=1, length=50), learning_starts=10_000, seed=0, device="cpu")
    callback = BonusCallback("histogram", weight=1.0, centre="none", scaled=False, gather=100)
    draw = Draw()
    agent.learn(200, callback=[draw, callback])
    before = draw.sample
    agent.learn(2_000, callback=callback, reset_num_timesteps=False)
    assert set(np.unique(agent.replay_buffer.rewards)) <= {0.0, 1.0}
    assert len(callback.bonus.replay) == 2_200
    told = callback.explorer
    batch = told.batch(before.observations.numpy(), before.actions.numpy()[:, 0], before.next_observations.numpy())
    now = told.rate(batch, np.zeros((1, 64), np.float32)).bonuses
    assert (now[0] < before.rewards.numpy()[:, 0]).all()


def test_other_environments_and_ends_that_are_written_over_off_policy(tmp_path):
    seen = []

    class Reusing(VecEnvWrapper):
        """Ends of episodes are in the same array at every step."""

        def reset(self):
            self.ends = np.zeros(self.num_envs, bool)
            return self.venv.reset()

        def step_wait(self):
            obs, rewards, dones, infos = self.venv.step_wait()
            seen.extend(dones)
            self.ends[:] = dones
            return obs, rewards, self.ends, infos

    bonus = LastPlace(corridors().observation_space, corridors().action_space)
    callback, done = BonusCallback(bonus, gather=210), 0
    for count, steps in ((1, 50), (2, 430)):  # 50 steps wait for a fit when there are two environments all at once
        agent = DQN("MlpPolicy", Reusing(corridors(count, limit=20)), learning_starts=10_000, train_freq=5, device="cpu")
        agent.num_timesteps = done  # as if it was the same, and loaded
        agent.learn(steps, callback=callback, reset_num_timesteps=False)
        done = agent.num_timesteps
        callback.save(tmp_path / "agent.zip")
    callback.explorer.gather = 1  # nothing waits any longer
    agent.learn(10, callback=callback, reset_num_timesteps=False)
    assert sum(int((batch.terminated | batch.truncated).sum()) for batch in bonus.batches) == sum(seen) >= 20
    assert sum(batch.mask.numel() for batch in bonus.batches) == len(seen) == 490


def test_after_a_reward_that_is_none_off_policy_goes_on():
    """The step is named and forgotten; the next training has a sound environment."""

    class Once(gymnasium.Wrapper):
        bad = True

        def step(self, action):
            obs, reward, terminated, truncated, info = self.env.step(action)
            bad, Once.bad = Once.bad and self.env.unwrapped.place == 1, Once.bad and self.env.unwrapped.place != 1
            return obs, np.nan if bad else reward, terminated, truncated, info

    agent = DQN("MlpPolicy", DummyVecEnv([lambda: Once(Corridor())]), learning_starts=10_000, seed=0, device="cpu")
    callback = BonusCallback("histogram", weight=1.0, gather=50)
    with pytest.raises(UsageError, match="The reward of environment 0 at step"):
        agent.learn(100, callback=callback)
    agent.learn(200, callback=callback, reset_num_timesteps=False)
    assert callback.metrics["exploration/std"] >= 0.0


class Broken(BaseCallback):
    """Ends a training as Ctrl-C does."""

    def _on_step(self):
        if self.num_timesteps == 300:
            raise KeyboardInterrupt
        return True


def test_after_a_training_that_was_broken_off_one_without_the_callback_has_no_bonus():
    agent = DQN("MlpPolicy", corridors(1), learning_starts=10_000, seed=0, device="cpu")
    callback = BonusCallback("histogram", weight=1.0, gather=100)
    with pytest.raises(KeyboardInterrupt):
        agent.learn(400, callback=[callback, Broken()])
    held, draw = len(callback.bonus.replay), Draw()
    agent.learn(300, callback=draw, reset_num_timesteps=False)
    assert set(draw.sample.rewards.unique().tolist()) <= {0.0, 1.0}
    assert len(callback.bonus.replay) == held

    class Adds(BaseCallback):
        """Puts a transition into the buffer beside the loop."""

        def _on_step(self):
            if self.num_timesteps == 650:
                place = np.zeros((1, 1), np.float32)
                self.model.replay_buffer.add(place, place, np.zeros((1, 1)), np.zeros(1), np.zeros(1, bool), [{}])
            return True

    agent.learn(300, callback=[draw, callback, Adds()], reset_num_timesteps=False)
    assert not set(draw.sample.rewards.unique().tolist()) <= {0.0, 1.0}


def test_a_callback_that_knows_another_models_past_is_refused():
    callback = BonusCallback("histogram", gather=100)
    PPO("MlpPolicy", corridors(), n_steps=64, device="cpu").learn(128, callback=callback)
    with pytest.raises(UsageError, match=r"knows what another model has seen.*make a new one"):
        PPO("MlpPolicy", corridors(), n_steps=64, device="cpu", seed=1).learn(128, callback=callback)


def test_the_bonus_of_episodes_is_logged_beside_their_rewards_at_every_rollout():
    rows = []
    callback = BonusCallback("histogram", weight=1.0, gather=200)
    agent = A2C("MlpPolicy", corridors(limit=10), n_steps=50, seed=0, device="cpu")

    class Rows(BaseCallback):
        def _on_step(self):
            return True

        def _on_rollout_end(self):
            rows.append(self.logger.name_to_value.get("rollout/ep_bonus_mean"))

    agent.learn(1_000, callback=[callback, Rows()], log_interval=1)
    assert len(rows) == 10
    assert all(isinstance(row, float) for row in rows)


def test_the_bonus_lies_beside_the_model(tmp_path):
    agent = PPO("MlpPolicy", corridors(), n_steps=32, batch_size=64, seed=0, device="cpu")
    callback = BonusCallback("histogram", gather=1)
    agent.learn(128, callback=callback)
    agent.save(tmp_path / "agent.zip")
    callback.save(tmp_path / "agent.zip")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agent.bonus", "agent.zip"]
    again = BonusCallback("histogram", gather=1).load(tmp_path / "agent")
    agent.learn(64, callback=again, reset_num_timesteps=False)
    assert len(again.bonus.replay) == 192
    with pytest.raises(UsageError, match="another value of episodic"):
        agent.learn(64, callback=BonusCallback("histogram", episodic=False).load(tmp_path / "agent"))
    with pytest.raises(UsageError, match="There is no checkpoint"):
        BonusCallback().load(tmp_path / "nothing")


def test_going_on_without_the_callback_has_no_bonus_and_gathers_nothing():
    agent, draw = DQN("MlpPolicy", corridors(1), learning_starts=1_000, seed=0, device="cpu"), Draw()
    agent.learn(200, callback=[draw, callback := BonusCallback(weight=1.0, gather=20)])
    assert not set(np.unique(draw.sample.rewards.numpy())) <= {0.0, 1.0}
    agent.learn(200, callback=(draw := Draw()))
    assert set(np.unique(draw.sample.rewards.numpy())) <= {0.0, 1.0}
    assert not agent.replay_buffer.arrived
    assert len(callback.bonus.replay) == 200
    agent.learn(100, callback=callback)
    assert len(callback.bonus.replay) == 300


@pytest.mark.parametrize("algorithm", [PPO, DQN])
def test_two_callbacks_are_refused(algorithm):
    agent = algorithm("MlpPolicy", corridors(1), seed=0, device="cpu")
    with pytest.raises(UsageError, match="Two BonusCallbacks would be in each other's way"):
        agent.learn(64, callback=[BonusCallback(), BonusCallback("rnd")])
    agent.learn(64, callback=BonusCallback())  # what was refused has left nothing behind


def test_what_a_first_try_gets_wrong_is_said_before_a_training_is_spoiled(tmp_path):
    agent = PPO("MlpPolicy", corridors(1), n_steps=16, batch_size=16, seed=0, device="cpu")
    with pytest.raises(UsageError, match=r"passed as a class: pass one that is made, callback=BonusCallback\(\)"):
        agent.learn(16, callback=BonusCallback)
    with pytest.raises(UsageError, match="no setting, here or of the bonus 'rnd', 'totalsteps': did you mean 'total_steps'"):
        BonusCallback("rnd", totalsteps=100)
    agent.learn(16, callback=(callback := BonusCallback()))
    with pytest.raises(UsageError, match="used with other spaces than those of this PPO"):
        PPO("MlpPolicy", "Pendulum-v1", n_steps=16, batch_size=16, device="cpu").learn(16, callback=callback)
    with pytest.raises(UsageError, match=r"There is no checkpoint .*agent\.bonus: callback\.save\(.*\) writes it"):
        BonusCallback().load(tmp_path / "agent.zip")
    DQN("MlpPolicy", corridors(1), device="cpu").learn(16, callback=(callback := BonusCallback()))
    with pytest.raises(UsageError, match="Off-policy there is no rollout to look at"):
        callback.batch  # noqa: B018


def test_a_callback_within_another_is_refused():
    agent = PPO("MlpPolicy", corridors(1), n_steps=16, batch_size=16, seed=0, device="cpu")
    with pytest.raises(UsageError, match="pass it to learn itself, not to another callback"):
        agent.learn(64, callback=EveryNTimesteps(8, BonusCallback()))


def test_a_bonus_is_there_once_the_training_has_begun():
    with pytest.raises(UsageError, match="pass it to learn first"):
        BonusCallback().bonus  # noqa: B018


def test_the_bonus_sees_the_actions_that_the_environment_saw():
    """Those of a Box are clipped on the way."""
    env = make_vec_env("Pendulum-v1", 2)
    agent = PPO("MlpPolicy", env, n_steps=64, batch_size=64, seed=0, device="cpu", policy_kwargs={"log_std_init": 3.0})
    agent.learn(128, callback=(callback := BonusCallback("rnd")))
    assert callback.batch.action.abs().max() == 2.0
    assert np.abs(agent.rollout_buffer.actions).max() > 2.0


def test_evaluation_beside_a_normaliser_copies_its_moments():
    """EvalCallback walks along both chains of wrappers, which must stay of one length."""
    made = [VecNormalize(corridors(1)) for _ in range(2)]
    agent = PPO("MlpPolicy", made[0], n_steps=16, batch_size=16, seed=0, device="cpu")
    agent.learn(64, callback=[BonusCallback(), EvalCallback(made[1], n_eval_episodes=1, eval_freq=32, verbose=0)])
    assert made[1].obs_rms.count > 32
    assert not {"reset", "step_wait"} & set(vars(made[0].venv))


class Stop(BaseCallback):
    """Ends a training with the last step of a rollout."""

    def _on_step(self):
        return self.n_calls < 16


def test_a_training_that_is_broken_off_leaves_the_rollout_buffer_as_it_was():
    agent = PPO("MlpPolicy", corridors(1), n_steps=16, batch_size=16, seed=0, device="cpu")
    agent.learn(64, callback=[BonusCallback(), Stop()])
    assert "compute_returns_and_advantage" not in vars(agent.rollout_buffer)
