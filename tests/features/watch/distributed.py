"""Training runs over processes: `torchrun --nproc-per-node 2 distributed.py FOLDER`."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from attnviz.callbacks import Recorder

WAYS = ("one", "ddp", "fsdp")
"""Each process for itself, and two ways to share the model."""


def spread(model: nn.Module, way: str) -> nn.Module:
    """The model as a way of sharing has it."""
    if way == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if way == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (2,))
        for layer in model.layers:  # type: ignore[union-attr]
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model


def train(way: str, folder: Path) -> None:
    """Four steps, and a line of what was sampled."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    model: nn.Module = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    model.register_buffer("counted", torch.zeros(1))  # which DDP sends to all before each pass
    model = spread(model, way)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(1))
    recorder = Recorder(model, x[:1], folder, every=2, loggers=[])
    for step in range(4):
        recorder.step(step)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    recorder.finish()
    print("done", way, dist.get_rank(), recorder.latest, flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for way in WAYS:
        train(way, Path(sys.argv[1], way))
    dist.destroy_process_group()
