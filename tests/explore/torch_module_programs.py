"""Programs with modules of torch, for test_torch_programs.py."""

from __future__ import annotations

MODULES = {
    "a sequence": """
net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 4))
send(sum(p.numel() for p in net.parameters()))
net.append(nn.Linear(4, 5))
send(len(net) + net[-1].out_features + net[0].in_features)
send(sum(p.numel() for p in net[1:].parameters()))
send(len(net[::2]) + len(list(net[1].parameters())) + 1)
net[1] = nn.Linear(3, 3)
send(sum(p.numel() for p in net.parameters()))
for name, child in net.named_children():
    send(int(name) + 1 + sum(p.numel() for p in child.parameters()))
send(net(torch.zeros(7, 2)).numel())
del net[1]
send(len(net))
""",
    "a sequence by names": """
from collections import OrderedDict
net = nn.Sequential(OrderedDict([("first", nn.Linear(2, 3)), ("second", nn.Linear(3, 1))]))
send(net.first.out_features + len(net))
send(sum(len(name) for name, _ in net.named_parameters()))
net.add_module("third", nn.Linear(1, 2))
net.register_module("fourth", nn.ReLU())
send(len(net) + net.third.weight.numel())
net.add_module(name="fifth", module=nn.Linear(3, 3))
net.register_module("sixth", module=nn.Linear(1, 1))
net.register_parameter(name="scale", param=nn.Parameter(torch.ones(4)))
send(len(net) + net.fifth.weight.numel() + sum(p.numel() for p in net.parameters()))
""",
    "lists of modules": """
layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
layers.append(nn.Linear(2, 1))
layers.extend([nn.Linear(1, 1), nn.ReLU()])
send(len(layers) + sum(p.numel() for p in layers.parameters()))
for i, layer in enumerate(layers[:4]):
    send(i + 1 + layer.weight.numel())
send(layers[-2].weight.numel() + len(layers[1:3]))
layers[0] = nn.Linear(4, 4)
send(layers[0].weight.numel())
send(1 + (layers[1] in layers))
del layers[1]
send(len(layers) + layers[1].weight.numel())
more = nn.ModuleList(layers)
send(len(more) + len(nn.ModuleList()))
""",
    "dicts of modules": """
heads = nn.ModuleDict({"a": nn.Linear(2, 1), "b": nn.Linear(2, 3)})
heads["c"] = nn.Linear(2, 2)
heads.update({"d": nn.ReLU()})
heads.update([("e", nn.Linear(1, 1))])
send(len(heads) + heads["b"].out_features + len("".join(heads.keys())))
for name, head in heads.items():
    send(len(name) + sum(p.numel() for p in head.parameters()))
for head in heads.values():
    send(1 + len(list(head.parameters())))
for name in heads:
    send(len(name))
send(1 + ("a" in heads) + 2 * ("z" in heads) + 4 * hasattr(heads, "b"))
named = nn.ModuleDict([["x", nn.Linear(3, 3)]])
send(sum(p.numel() for p in named.parameters()))
heads.update(named)
send(len(heads))
del heads["a"]
send(len(heads))
""",
    "elements that are not there": """
heads, layers, net = nn.ModuleDict({"a": nn.Linear(2, 1)}), nn.ModuleList([nn.Linear(2, 2)]), nn.Sequential(nn.ReLU())
table, weights = nn.ParameterDict({"a": torch.zeros(3)}), nn.ParameterList([torch.zeros(3), torch.zeros(2)])
def tried(action):
    try:
        action()
    except KeyError:
        return 5
    except IndexError:
        return 6
    return 7
def without(owner, key):
    del owner[key]
send(tried(lambda: heads["z"]) + 10 * tried(lambda: layers[1]) + 100 * tried(lambda: net[-2]) )
try:
    table["z"]
except AttributeError:
    send(4)
send(tried(lambda: without(heads, "z")) + 10 * tried(lambda: without(layers, 1)) + 100 * tried(lambda: without(net, 3)))
send(tried(lambda: heads["a"]) + 10 * tried(lambda: layers[-1]) + 100 * tried(lambda: without(heads, "a")))
send(len(layers) + len(net) + len(heads) + len(table))
send(1 + (weights[0] in weights) + 2 * (weights[0] not in weights) + 4 * (layers[0] in layers) + 8 * (net in layers))
""",
    "lists and dicts of parameters": """
weights = nn.ParameterList([nn.Parameter(torch.zeros(3)), torch.zeros(2, 2)])
weights.append(nn.Parameter(torch.zeros(5)))
weights.extend([torch.zeros(1)])
send(len(weights) + sum(p.numel() for p in weights))
send(weights[1].numel() + len(list(weights.parameters())))
table = nn.ParameterDict({"a": torch.zeros(3), "b": nn.Parameter(torch.zeros(4))})
table["c"] = torch.zeros(6)
table.update({"d": torch.zeros(1)})
send(len(table) + sum(p.numel() for p in table.values()))
send(table["c"].numel() + len(list(table)) + table.a.numel())
send(1 + ("a" in table) + 2 * ("z" in table))
""",
    "what a module registers": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(2, 3)
        self.scale = nn.Parameter(torch.ones(4))
        self.register_parameter("shift", nn.Parameter(torch.zeros(2)))
        self.register_parameter("none", None)
        self.register_buffer("mask", torch.zeros(5))
        self.plain = [nn.Linear(9, 9)]
        self.frozen = nn.Parameter(torch.ones(7), requires_grad=False)
        self.twice = self.a
    def forward(self, x):
        return self.a(x) * self.scale.sum() + self.mask.sum()
net = Net()
send(sum(p.numel() for p in net.parameters()))
send(sum(p.numel() for p in net.parameters() if p.requires_grad))
send(len(list(net.parameters())) + 10 * len(list(net.buffers())) + 100 * len(list(net.children())) + 1000 * len(list(net.modules())))
send(sum(len(name) for name, _ in net.named_parameters()))
send(sum(len(name) for name, _ in net.named_modules()) + 1)
send(net(torch.zeros(5, 2)).numel())
net.a = nn.Linear(2, 8)
send(net.a.weight.numel() + net.twice.weight.numel())
del net.scale
send(sum(p.numel() for p in net.parameters()))
net.twice = None
send(len(list(net.children())) + 1)
net.requires_grad_(False)
send(1 + sum(p.requires_grad for p in net.parameters()))
net.a.weight.requires_grad = True
send(1 + sum(p.requires_grad for p in net.parameters()))
for p in net.parameters():
    p.requires_grad_(True)
send(1 + sum(p.requires_grad for p in net.parameters()))
""",
    "modes and types": """
net = nn.Sequential(nn.Linear(2, 2), nn.Dropout(), nn.Sequential(nn.BatchNorm1d(2)))
send(1 + net.training)
net.eval()
send(1 + net.training + net[2][0].training)
net.train()
send(1 + net[1].training)
net.train(False)
send(1 + net[1].training)
net.train(True)
net.train(mode=False)
send(1 + net[1].training)
net[2].train(mode=True)
send(1 + net[2][0].training + 2 * net.training)
send(1 + (net[0].weight.dtype == torch.float32))
net.double()
send(1 + (net[0].weight.dtype == torch.float64))
net.to(torch.bfloat16)
send(1 + (net[0].weight.dtype == torch.bfloat16))
net.half().float()
send(1 + (net[0].weight.dtype == torch.float32))
""",
    "walks over a module": """
def init(m):
    global seen
    seen += 1
    if isinstance(m, nn.Linear):
        nn.init.zeros_(m.weight)
        seen += 10
seen = 0
net = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU(), nn.Linear(2, 2, bias=False)))
net.apply(init)
send(seen)
send(1 + isinstance(net, nn.Sequential) + 2 * isinstance(net[0], nn.Module) + 4 * isinstance(net[0], nn.Conv2d) + 8 * isinstance(net, nn.ModuleList))
send(1 + (net[1][1].bias is None) + 2 * hasattr(net, "weight"))
send(sum(isinstance(m, nn.Linear) for m in net.modules()))
import copy
other = copy.deepcopy(net)
other[0] = nn.Linear(7, 7)
send(net[0].weight.numel() + other[0].weight.numel())
clones = nn.ModuleList([copy.deepcopy(net) for _ in range(3)])
send(sum(p.numel() for p in clones.parameters()))
shared = nn.ModuleList([net] * 3)
send(sum(p.numel() for p in shared.parameters()))
""",
    "layers within layers": """
for layer in (nn.Linear(4, 3), nn.Conv2d(3, 8, 3, bias=False), nn.Conv1d(2, 4, kernel_size=5, groups=2), nn.ConvTranspose2d(4, 6, (3, 2)),
              nn.BatchNorm2d(7), nn.BatchNorm1d(3, affine=False), nn.LayerNorm([2, 5]), nn.LayerNorm(5, elementwise_affine=False),
              nn.LayerNorm(4, bias=False), nn.GroupNorm(2, 6), nn.InstanceNorm2d(3, affine=True), nn.Embedding(9, 4), nn.Embedding(num_embeddings=5, embedding_dim=2),
              nn.EmbeddingBag(4, 3), nn.LSTM(3, 5, 2, bidirectional=True), nn.GRU(3, 4, bias=False), nn.RNN(2, 3, num_layers=3), nn.LSTM(3, 5, proj_size=2),
              nn.LSTMCell(3, 4), nn.GRUCell(3, 4), nn.RNNCell(2, 2, bias=False), nn.MultiheadAttention(8, 2), nn.MultiheadAttention(8, 4, bias=False, kdim=4, vdim=6),
              nn.TransformerEncoderLayer(8, 2, 16), nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8), 3), nn.TransformerDecoderLayer(8, 2, dim_feedforward=4),
              nn.Transformer(8, 2, 1, 2, 12), nn.Transformer(4, 2, dim_feedforward=8), nn.Transformer(d_model=4, nhead=1, num_encoder_layers=1, num_decoder_layers=1, dim_feedforward=3, bias=False), nn.PReLU(), nn.PReLU(4), nn.Bilinear(2, 3, 4), nn.RMSNorm(6), nn.CosineSimilarity(), nn.Dropout(0.5)):
    send(1 + sum(p.numel() for p in layer.parameters()))
    send(1 + len(list(layer.parameters())) + 100 * len(list(layer.buffers())) + 1000 * sum(b.numel() for b in layer.buffers()))
""",
    "shapes of outputs": """
x = torch.zeros(6, 4)
send(nn.Linear(4, 9)(x).numel())
send(nn.ReLU()(x).numel() + nn.LayerNorm(4)(x).numel() + nn.Dropout(0.1)(x).numel())
send(nn.Embedding(10, 3)(torch.zeros(2, 5, dtype=torch.int64)).numel())
send(nn.Flatten()(torch.zeros(2, 3, 4)).shape[1] + 1)
out, (h, c) = nn.LSTM(4, 5, 2, batch_first=True, bidirectional=True)(torch.zeros(3, 7, 4))
send(out.numel())
send(h.numel())
send(c.shape[0] + c.shape[1] * 10 + c.shape[2] * 100)
out, (h, c) = nn.LSTM(4, 5, 3, bidirectional=True)(torch.zeros(3, 7, 4))
send(h.numel())
send(c.numel())
send(nn.Embedding(10, 3)(torch.tensor(1)).numel())
out, h = nn.GRU(4, 5)(torch.zeros(7, 3, 4))
send(out.numel() + h.numel())
out, (h, c) = nn.LSTM(4, 5, proj_size=3)(torch.zeros(7, 2, 4))
send(out.numel() * 1000 + h.numel() * 10 + c.numel())
out, h = nn.RNN(4, 5, num_layers=3)(torch.zeros(7, 4))
send(out.numel() + h.numel())
h, c = nn.LSTMCell(4, 5)(x)
send(h.numel() + c.numel())
send(nn.GRUCell(4, 5)(x).numel())
out, w = nn.MultiheadAttention(4, 2)(x, x, x)
send(out.numel())
out, w = nn.MultiheadAttention(4, 2)(x, x, x, need_weights=False)
send(1 + (w is None))
send(1 + nn.MSELoss()(x, x).dim() + nn.CrossEntropyLoss()(x, torch.zeros(6, dtype=torch.int64)).numel())
send(nn.functional.linear(x, torch.zeros(7, 4)).numel())
send(nn.functional.mse_loss(x, x).numel() + nn.functional.relu(x).numel() + nn.functional.cross_entropy(x, x, reduction="sum").numel())
""",
}
