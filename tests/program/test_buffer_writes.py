"""Which methods of a module count as parts of its forward, where buffers are filled from the input."""

from __future__ import annotations

from collections.abc import Callable

from ddp_audit.program.model import Program

Lowered = Callable[..., Program]

MODEL = """
class Coder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
    def encode(self, x):
        self.mean.copy_(x.mean(0))
        return torch.distributions.Normal(self.mean, 1)
    def forward(self, x):
        return self.encode(x).sample()
model = DDP(Coder())
model(torch.randn(2, 4))
"""


def test_a_method_of_what_a_method_gives_is_none_of_the_module(lowered: Lowered) -> None:
    written = [write for writes in lowered(MODEL).buffer_writes.values() for write in writes]
    assert [(write.name, write.method) for write in written] == [("mean", "encode")]
