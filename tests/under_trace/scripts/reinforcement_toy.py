# ends: completes
"""Policy gradient on a toy corridor: rollouts of random length, gradients averaged by hand."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.distributions import Categorical


class Corridor:
    def __init__(self, length, seed):
        self.length = length
        self.random = random.Random(seed)

    def reset(self):
        self.position = self.random.randrange(self.length)
        self.time = 0
        return self.observation()

    def observation(self):
        return torch.nn.functional.one_hot(torch.tensor(self.position), self.length).float()

    def step(self, action):
        self.position += 1 if action == 1 else -1
        self.time += 1
        done = self.position < 0 or self.position >= self.length or self.time >= 20
        reward = 1.0 if self.position >= self.length else 0.0
        self.position = max(0, min(self.position, self.length - 1))
        return self.observation(), reward, done


def rollout(env, policy):
    log_probs, rewards = [], []
    state, done = env.reset(), False
    while not done:
        distribution = Categorical(logits=policy(state))
        action = distribution.sample()
        state, reward, done = env.step(action.item())
        log_probs.append(distribution.log_prob(action))
        rewards.append(reward)
    returns, total = [], 0.0
    for reward in reversed(rewards):
        total = reward + 0.9 * total
        returns.insert(0, total)
    return torch.stack(log_probs), torch.tensor(returns)


def average_gradients(model):
    size = float(dist.get_world_size())
    for param in model.parameters():
        if param.grad is not None:
            dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)
            param.grad.data /= size


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(5)
    policy = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
    for parameter in policy.parameters():
        dist.broadcast(parameter.data, src=0)
    env = Corridor(6, seed=dist.get_rank())
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.02)
    for update in range(4):
        optimizer.zero_grad()
        for _ in range(3):
            log_probs, returns = rollout(env, policy)
            (-(log_probs * returns).sum() / 3).backward()
        average_gradients(policy)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
