"""PPO in one file, on vectors, with an exploration bonus: the loop is yours, ex2 is the three lines marked with <--.

    python examples/ppo_vectors.py --env-id MountainCar-v0 --total-steps 200000

The bonus has a value head of its own, whose returns go on over the ends of episodes: what has been learned of the world is not
lost when an episode ends.
"""

from __future__ import annotations

import argparse

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.utils import RunningMeanStd
from torch import nn
from torch.distributions import Categorical

from ex2 import Explorer

GAMMA, GAE_LAMBDA, CLIP, ENTROPY, RATE = 0.99, 0.95, 0.2, 0.01, 3e-4


class Agent(nn.Module):
    """An actor, and a critic of two heads: for the reward and for the bonus."""

    def __init__(self, envs: gym.vector.VectorEnv) -> None:
        super().__init__()
        width, actions = envs.single_observation_space.shape[0], int(envs.single_action_space.n)
        self.actor = nn.Sequential(nn.Linear(width, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, actions))
        self.critic = nn.Sequential(nn.Linear(width, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))

    def forward(self, obs: torch.Tensor) -> tuple[Categorical, torch.Tensor]:
        return Categorical(logits=self.actor(obs)), self.critic(obs)


def normal(raw: np.ndarray, moments: RunningMeanStd) -> torch.Tensor:
    """Observations as the agent sees them."""
    return torch.as_tensor((raw - moments.mean) / np.sqrt(moments.var + 1e-8), dtype=torch.float32)


def advantages(rewards: torch.Tensor, values: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """GAE of rewards [T, N] with values [T + 1, N]; nothing follows where an episode ends [T, N]."""
    found, running = torch.zeros_like(rewards), torch.zeros_like(rewards[0])
    for step in reversed(range(len(rewards))):
        error = rewards[step] + GAMMA * values[step + 1] * ~ends[step] - values[step]
        running = error + GAMMA * GAE_LAMBDA * ~ends[step] * running
        found[step] = running
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env-id", default="MountainCar-v0")
    parser.add_argument("--total-steps", type=int, default=200_000)
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--rollout", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    order = np.random.default_rng(args.seed)

    envs = gym.make_vec(
        args.env_id,
        args.num_envs,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
    )
    envs = gym.wrappers.vector.RecordEpisodeStatistics(envs)
    moments = RunningMeanStd(shape=envs.single_observation_space.shape)  # the agent's; the bonus sees what envs give
    agent = Agent(envs)
    optimizer = torch.optim.Adam(agent.parameters(), RATE, eps=1e-5)
    explorer = Explorer.of(envs, total_steps=args.total_steps, gamma=GAMMA, episodic=False, seed=args.seed)  # <--

    raw, _ = envs.reset(seed=args.seed)
    for _ in range(args.total_steps // (args.num_envs * args.rollout)):
        seen, actions, log_probs, values, ends, rest = [], [], [], [], [], []
        for _ in range(args.rollout):
            moments.update(raw)
            obs = normal(raw, moments)
            with torch.no_grad():
                choice, value = agent(obs)
                action = choice.sample()
            next_raw, reward, terminated, truncated, infos = envs.step(action.numpy())
            explorer.step(raw, action, next_raw, reward, terminated, truncated, infos)  # <--
            for held, new in zip(
                (seen, actions, log_probs, values), (obs, action, choice.log_prob(action), value), strict=True
            ):
                held.append(new)
            ends.append(torch.as_tensor(terminated | truncated))
            rest.append(np.zeros(args.num_envs))  # what is still to be expected where only time was up
            cut = truncated & ~terminated
            if cut.any():
                rest[-1][cut] = agent(normal(np.stack(infos["final_obs"][cut]), moments))[1][:, 0].detach()
            raw = next_raw

        shaped = explorer.rollout()  # <-- rewards and bonuses [T, N] on one scale
        with torch.no_grad():
            both = torch.stack([*values, agent(normal(raw, moments))[1]])
        never = torch.zeros(args.rollout, args.num_envs, dtype=torch.bool)
        rewards = torch.as_tensor(shaped.rewards + GAMMA * np.stack(rest)).float()
        of_reward = advantages(rewards, both[..., 0], torch.stack(ends))
        of_bonus = advantages(torch.as_tensor(shaped.bonuses), both[..., 1], never)
        returns = (torch.stack([of_reward, of_bonus], -1) + both[:-1]).flatten(0, 1)
        advantage = (of_reward + of_bonus).flatten()
        states, taken, before = (torch.cat(held) for held in (seen, actions, log_probs))

        for _ in range(10):
            for rows in np.array_split(order.permutation(len(states)), 8):
                choice, value = agent(states[rows])
                own = (advantage[rows] - advantage[rows].mean()) / (advantage[rows].std() + 1e-8)
                ratio = (choice.log_prob(taken[rows]) - before[rows]).exp()
                policy_loss = -torch.min(ratio * own, ratio.clamp(1 - CLIP, 1 + CLIP) * own).mean()
                loss = policy_loss + 0.5 * (value - returns[rows]).square().mean() - ENTROPY * choice.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
        score = np.mean(envs.return_queue) if envs.return_queue else float("nan")
        print(
            f"{explorer.steps:,} steps, return {score:.1f}, weight {explorer.metrics.get('exploration/weight', 0.0):.3g}",
            flush=True,
        )


if __name__ == "__main__":
    main()
