"""TorchRL in the words of the conformance suite (`harnesses`): a PPO and a DQN as its users write them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch
from harnesses import GAMMA, LAMBDA, WEIGHT, Played
from tensordict.nn import TensorDictModule, TensorDictModuleBase, TensorDictSequential
from torch import nn
from torch.distributions import Categorical
from torch.nn.utils import parameters_to_vector
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.envs import GymWrapper, RewardSum, SerialEnv, TransformedEnv
from torchrl.modules import EGreedyModule, ProbabilisticActor, QValueActor, ValueOperator
from torchrl.objectives import ClipPPOLoss, DQNLoss, SoftUpdate
from torchrl.objectives.value import GAE
from walk import Features, Known, Walk, places

from ex2.adapters.torchrl import BonusTransform

PLAIN = {"weight": WEIGHT, "scaled": False, "centre": "none", "gamma": GAMMA}
ALONE = {"auto_register_policy_transforms": False}  # or it warns that it will add some in versions to come


class Network(nn.Module):
    """Outputs for observations of any kind; a dict's parts come one by one, in the order of their names."""

    def __init__(self, kind: str, outputs: int) -> None:
        super().__init__()
        self.features, self.last = Features(kind), nn.Linear(8, outputs)

    def forward(self, *parts):
        return self.last(self.features(parts[0] if len(parts) == 1 else dict(zip(("clock", "place"), parts, strict=True))))


class OwnActor(TensorDictModuleBase):
    """A module of a user's own, over tensordicts."""

    def __init__(self, keys):
        super().__init__()
        self.in_keys, self.out_keys, self.last = keys, ["logits"], nn.Linear(1, 2)

    def forward(self, tensordict):
        return tensordict.set("logits", self.last(tensordict["observation"]))


class PPO:
    """A collector, GAE and the clipped loss."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.keys = ["clock", "place"] if kind == "dict" else ["observation"]

    def one(self):
        return TransformedEnv(GymWrapper(Walk(self.kind), categorical_action_encoding=True), RewardSum())

    def envs(self):
        made = SerialEnv(2, self.one)
        made.set_seed(0)
        return made

    def known(self):
        walk = Walk(self.kind)
        return Known(walk.observation_space, walk.action_space)

    def bonus(self, bonus, **settings):
        return BonusTransform(self.one(), bonus, in_keys=self.keys, gather=1, **settings)

    def agent(self, seed=0, own=None):
        torch.manual_seed(seed)
        network = own or TensorDictModule(Network(self.kind, 2), in_keys=self.keys, out_keys=["logits"])
        actor = ProbabilisticActor(network, in_keys=["logits"], distribution_class=Categorical, return_log_prob=True)
        critic = ValueOperator(Network(self.kind, 1), in_keys=self.keys)
        loss, advantage = ClipPPOLoss(actor, critic), GAE(gamma=GAMMA, lmbda=LAMBDA, value_network=critic)
        return SimpleNamespace(actor=actor, loss=loss, advantage=advantage, optim=torch.optim.Adam(loss.parameters(), 1e-2))

    def learn(self, agent, envs, frames=128, bonus=None):
        """Returns those of the episodes that ended, as `RewardSum` reports them."""
        returns = []
        for data in Collector(envs, agent.actor, frames_per_batch=64, total_frames=frames, postproc=bonus, **ALONE):
            returns += data["next", "episode_reward"][data["next", "done"]].tolist()
            self.update(agent, data)
        return returns

    def update(self, agent, data):
        for _ in range(2):
            agent.advantage(data)
            self.descend(agent, data.reshape(-1))

    def descend(self, agent, data):
        terms = agent.loss(data)
        agent.optim.zero_grad()
        sum(value for name, value in terms.items() if name.startswith("loss")).backward()
        agent.optim.step()

    def numbers(self, agent):
        return parameters_to_vector(agent.loss.parameters()).detach().numpy()

    def collected(self, bonus, frames):
        """An agent that does not learn, and what it has gathered [N, T]."""
        agent = self.agent()
        postproc = None if bonus is None else self.bonus(bonus, **PLAIN)
        return agent, next(iter(Collector(self.envs(), agent.actor, frames_per_batch=frames, postproc=postproc, **ALONE)))

    def observed(self, data):
        return places({key: data[key] for key in self.keys} if self.kind == "dict" else data["observation"], data.batch_dims)

    def play(self, bonus):
        agent, data = self.collected(bonus, 128)
        with torch.no_grad():
            agent.advantage(data)
        own = "reward" if bonus is None else "environment_reward"
        rest = [data["state_value"], data["next", "state_value"], data["next", own], data["next", "terminated"]]
        rest = np.stack([values[..., 0].T.numpy() for values in rest])
        ends = data["next", "done"][..., 0].T.numpy()
        learned = data["advantage"][..., 0].T.numpy()
        return Played(self.observed(data).T, learned, rest, ends, GAMMA * LAMBDA, np.ones_like(ends))

    def train(self, weight, own=None):
        agent = self.agent(own=own)
        bonus = None if weight is None else self.bonus("rnd", weight=weight, total_steps=128, gamma=GAMMA)
        self.learn(agent, self.envs(), bonus=bonus)
        return self.numbers(agent)

    def saved(self, agent):
        return {"loss": agent.loss.state_dict(), "optim": agent.optim.state_dict()}

    def loaded(self, state):
        agent = self.agent(seed=1)
        agent.loss.load_state_dict(state["loss"])
        agent.optim.load_state_dict(state["optim"])
        return agent

    def resumed(self, folder):
        """All but the environments is read back; these cannot be saved, so both times their episodes begin anew."""
        found = []
        for again in (False, True):
            agent, envs = self.agent(), self.envs()
            bonus = self.bonus("kernel-exemplar", total_steps=256, gamma=GAMMA)
            self.learn(agent, envs, bonus=bonus)
            if again:
                torch.save(self.saved(agent) | {"bonus": bonus.state_dict()}, folder / "agent")
                state, held = torch.get_rng_state(), torch.load(folder / "agent", weights_only=False)
                agent, bonus = self.loaded(held), self.bonus("kernel-exemplar", total_steps=256, gamma=GAMMA)
                bonus.load_state_dict(held["bonus"])
                torch.set_rng_state(state)
            self.learn(agent, envs, bonus=bonus)
            assert bonus.metrics["exploration/std"] > 0
            found.append(self.numbers(agent))
        return found

    def evaluate(self):
        agent, envs = self.agent(), self.envs()
        returns = self.learn(agent, envs, bonus=self.bonus(self.known(), weight=1000.0))
        assert returns
        rollout = envs.rollout(40, agent.actor, break_when_any_done=False)
        return [*returns, *rollout["next", "episode_reward"][rollout["next", "done"]].tolist()]

    def own_policy(self):
        return self.train("auto", own=OwnActor(self.keys))


class DQN(PPO):
    """A collector, a replay buffer and the loss of Q-learning. The rewards that were gathered are what the buffer holds."""

    def agent(self, seed=0, own=None):
        torch.manual_seed(seed)
        spec = self.one().action_spec
        values = QValueActor(own or Network(self.kind, 2), in_keys=self.keys, spec=spec, action_space="categorical")
        loss = DQNLoss(values, action_space="categorical", delay_value=True)
        loss.make_value_estimator(gamma=GAMMA)
        explores = EGreedyModule(spec, annealing_num_steps=10**9, eps_init=0.9, eps_end=0.9)
        buffer = ReplayBuffer(storage=LazyTensorStorage(400), batch_size=64)
        parts = {
            "actor": TensorDictSequential(values, explores),
            "loss": loss,
            "target": SoftUpdate(loss, tau=0.1),
            "buffer": buffer,
        }
        return SimpleNamespace(**parts, optim=torch.optim.Adam(loss.parameters(), 1e-2))

    def update(self, agent, data):
        agent.buffer.extend(data.reshape(-1))
        for _ in range(4):
            self.descend(agent, agent.buffer.sample())
            agent.target.step()

    def play(self, bonus):
        agent, data = self.collected(bonus, 200)
        agent.buffer.extend(data.reshape(-1))
        torch.manual_seed(1)
        drawn = agent.buffer.sample()
        ends = np.ones((1, 64), bool)
        rest = np.stack([drawn["next", "terminated"][:, 0].numpy(), self.observed(drawn["next"])])
        return Played(self.observed(drawn)[None], drawn["next", "reward"].T.numpy(), rest, ends, 0.0, ends)

    def saved(self, agent):
        return super().saved(agent) | {"buffer": agent.buffer.state_dict()}

    def loaded(self, state):
        agent = super().loaded(state)
        agent.buffer.load_state_dict(state["buffer"])
        return agent

    def own_policy(self):
        """A module of a user's own, over tensors."""

        class Own(nn.Linear):
            pass

        return self.train("auto", own=Own(1, 2))
